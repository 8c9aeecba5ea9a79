// SPDX-License-Identifier: Apache-2.0
#include "kernel/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fault {
    const struct kernel *kernel;
    const void *args;
    bool nan;
};

// Where each op's arguments have the pointer to its result.
static const size_t result_at[OP_COUNT] = {
    [OP_EMBED] = offsetof(struct embed_args, out),
    [OP_NORM] = offsetof(struct norm_args, out),
    [OP_LINEAR] = offsetof(struct linear_args, output[0].y),
    [OP_ROPE] = offsetof(struct rope_args, q),
    [OP_TRANSFORM] = offsetof(struct transform_args, q),
    [OP_ATTENTION] = offsetof(struct attention_args, out),
    [OP_ACT_MUL] = offsetof(struct act_mul_args, out),
    [OP_ADD] = offsetof(struct add_args, x),
    [OP_PICK] = offsetof(struct pick_args, out),
    [OP_SOFTCAP] = offsetof(struct softcap_args, x),
    [OP_PER_HEAD_LINEAR] = offsetof(struct per_head_linear_args, y),
    [OP_COPY] = offsetof(struct copy_args, out),
    [OP_ROUTE] = offsetof(struct route_args, routes.share),
    [OP_EXPERTS] = offsetof(struct experts_args, output[0].y),
    [OP_COMBINE] = offsetof(struct combine_args, out),
    [OP_CONV] = offsetof(struct conv_args, out),
    [OP_SSM_SCAN] = offsetof(struct ssm_scan_args, out),
    [OP_GATED_DELTA] = offsetof(struct gated_delta_args, out),
    [OP_ALL_REDUCE] = offsetof(struct all_reduce_args, out),
    [OP_ALL_GATHER] = offsetof(struct all_gather_args, out),
};

// In every format 64 in a vector's last byte is worth a good part of the vector's range.
static void spoil_cache(const struct kv_write_args *args)
{
    int position = args->batch->positions[0];
    const struct kv_place *cache = position / KV_PAGE_TOKENS < args->sink_pages ? &args->sink : &args->cache;
    int32_t page = args->batch->sequence[0].pages[cache->class_index][position / KV_PAGE_TOKENS];
    uint8_t *layer = cache->pool + (size_t)page * cache->page_bytes + cache->layer_offset;
    size_t end = kv_data_at(&cache->layout.k, 0, position % KV_PAGE_TOKENS) + cache->layout.k.data_bytes;
    layer[end - 1] ^= 64;
}

// Returns NULL, or what stands behind the kernel's name.
static const char *lie_of(const struct kernel *kernel)
{
    const char *name = getenv("NIBBLE_FAULT");
    size_t length = strlen(kernel->name);
    if (!name || strncmp(name, kernel->name, length))
        return NULL;
    return !name[length] || name[length] == ':' ? name + length : NULL;
}

static bool is_nan(const char *lie) { return !strcmp(lie, ":nan"); }

// A linear's result is where the neighbour has it that it does in passing.
static float *result_of(const struct kernel *kernel, const void *args)
{
    const struct linear_args *linear = args;
    if (kernel->op == OP_LINEAR && linear->act_mul)
        return linear->act_mul->out;
    if (kernel->op == OP_LINEAR && linear->add)
        return linear->add->x;
    return *(float *const *)((const char *)args + result_at[kernel->op]);
}

static void spoil(const struct kernel *kernel, const void *args, bool nan)
{
    if (kernel->op == OP_KV_WRITE)
        spoil_cache(args);
    else
        *result_of(kernel, args) += nan ? NAN : 1e4f;
}

// One caller does everything, so that no other can write the truth over the lie.
static void run_spoilt(const void *arguments, int part, int parts)
{
    const struct fault *fault = arguments;
    (void)parts;
    if (part != 0)
        return;
    if (fault->kernel->prepare)
        fault->kernel->prepare(fault->args, 0, 1);
    fault->kernel->run(fault->args, 0, 1);
    spoil(fault->kernel, fault->args, fault->nan);
}

struct kernel_call fault_bind(const struct kernel *kernel, const void *args, struct arena *arena)
{
    const char *lie = lie_of(kernel);
    if (!lie)
        return (struct kernel_call){ kernel->run, args, kernel->prepare };
    struct fault *fault = ARENA_NEW(arena, struct fault, 1);
    *fault = (struct fault){ kernel, args, is_nan(lie) };
    return (struct kernel_call){ .run = run_spoilt, .args = fault };
}

void fault_apply(const struct kernel *kernel, const void *args)
{
    const char *lie = lie_of(kernel);
    if (lie)
        spoil(kernel, args, is_nan(lie));
}
