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

// The first result in floats; of a fused neighbour after the op, its result. NULL: the op writes the cache alone.
static float *result_of(enum op_kind op, const void *args)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    float *result = NULL;
    int count = op_operands(op, (void *)args, uses);
    for (int i = 0; i < count; i++) {
        const struct operand *operand = uses[i].operand;
        void *address = *operand_pointer(&uses[i]);
        if (operand->role == ROLE_FUSED_AFTER && address)
            return result_of((enum op_kind)operand->fused, address);
        if (!result && role_writes(operand->role) && uses[i].type <= VALUE_BF16)
            result = address;
    }
    return result;
}

static void spoil(const struct kernel *kernel, const void *args, bool nan)
{
    float *result = result_of(kernel->op, args);
    if (result)
        *result += nan ? NAN : 1e4f;
    else
        spoil_cache(args);
}

// One caller does everything, so that no other can write the truth over the lie.
static void run_spoilt(const void *arguments, int chunk, int chunks)
{
    const struct fault *fault = arguments;
    (void)chunks;
    if (chunk != 0)
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
