// SPDX-License-Identifier: Apache-2.0
#include "engine/ranks/collectives.h"

#include <stdlib.h>

#include "ranks/nccl.h"
#include "engine/engine.h"
#include "plan/op_args.h"

static bool holds_parts(enum buffer buffer) { return buffer == BUFFER_PARTIAL || buffer == BUFFER_LOGITS_PART; }

static size_t width_of(const struct engine *engine, enum buffer buffer)
{
    return (size_t)engine->model.buffer_width[buffer] / (size_t)group_size(engine->group);
}

size_t exchange_stride(const struct engine *engine, enum buffer buffer)
{
    return plan_rank_stride(&engine->plan, buffer);
}

float *exchange_place(const struct engine *engine, enum buffer buffer)
{
    size_t before = holds_parts(buffer) ? (size_t)group_rank(engine->group) * exchange_stride(engine, buffer) : 0;
    return engine->buffers[buffer] + before;
}

bool exchange_precedes(const struct op *op) { return op->kind == OP_ALL_REDUCE || op->kind == OP_ALL_GATHER; }

static size_t part_bytes(const struct engine *engine, const struct op *op, int rows)
{
    size_t width = op->kind == OP_ALL_REDUCE ? (size_t)op->width : width_of(engine, op->in);
    return (size_t)rows * width * sizeof(float);
}

void exchange_run(const void *arguments, int chunk, int chunks)
{
    (void)chunks;
    const struct program_op *program_op = arguments;
    const struct engine *engine = program_op->engine;
    const struct op *op = &engine->model.ops[program_op->op];
    size_t bytes = part_bytes(engine, op, op->on_outputs ? engine->batch.outputs : engine->batch.tokens);
    struct error ignored; // the ranks remember it
    if (chunk == 0 && bytes)
        ranks_all_gather(engine->group->ranks, exchange_place(engine, op->in), engine->buffers[op->in], bytes,
                         exchange_stride(engine, op->in) * sizeof(float), &ignored);
}

// ---- on GPUs ----

// The capabilities that a rank reports before the ranks decide how they exchange.
struct offer {
    struct nccl_id id; // rank 0's counts
    int nccl_version;  // 0: there is none
    bool shares_gpu;   // with another rank, which NCCL does not do
};

// NULL: by NCCL. Else why not.
static const char *why_not_nccl(const struct offer *offers, int ranks)
{
    for (int i = 0; i < ranks; i++)
        if (offers[i].shares_gpu || !offers[i].nccl_version)
            return offers[i].shares_gpu ? "ranks share a GPU" : "NCCL is not installed everywhere";
    return NULL;
}

static bool open_nccl(struct engine *engine, const struct nccl_id *id, int version, struct error *err)
{
    engine->nccl = nccl_open(gpu_cuda(engine->gpu), id, group_rank(engine->group), group_size(engine->group), err);
    engine->plan.exchange = arena_format(&engine->plan.arena, "by NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                                         version % 100);
    return engine->nccl;
}

static bool open_host(struct engine *engine, const char *why, struct error *err)
{
    size_t sums = exchange_stride(engine, BUFFER_PARTIAL), logits = exchange_stride(engine, BUFFER_LOGITS_PART);
    size_t bytes = (sums > logits ? sums : logits) * (size_t)group_size(engine->group) * sizeof(float);
    engine->parts_host = cuda_host_new(gpu_cuda(engine->gpu), bytes, "what ranks give each other", err);
    engine->plan.exchange = arena_format(&engine->plan.arena, "through pinned memory by MPI, since %s", why);
    return engine->parts_host;
}

// Each rank's `bytes` bytes at `all` + its number * stride, in the GPU's memory, on all ranks.
static bool gather_by_host(const struct engine *engine, float *all, size_t bytes, size_t stride, struct error *err)
{
    struct cuda *cuda = gpu_cuda(engine->gpu);
    char *here = (char *)engine->parts_host, *there = (char *)all;
    size_t own = (size_t)group_rank(engine->group) * stride;
    if (!cuda_download(cuda, here + own, there + own, bytes, err) || !cuda_wait(cuda, err)
        || !ranks_all_gather(engine->group->ranks, here + own, here, bytes, stride, err))
        return false;
    for (int i = 0; i < group_size(engine->group); i++)
        if (i != group_rank(engine->group)
            && !cuda_upload(cuda, there + (size_t)i * stride, here + (size_t)i * stride, bytes, err))
            return false;
    return true;
}

static bool gather_on_gpu(const struct engine *engine, float *all, size_t bytes, size_t stride, struct error *err)
{
    return engine->nccl ? nccl_all_gather(engine->nccl, all, bytes, stride, err)
                        : gather_by_host(engine, all, bytes, stride, err);
}

bool exchange_is_queued(const struct engine *engine) { return !engine->group || engine->nccl; }

bool exchange_on_gpu(const struct engine *engine, int index, int rows, struct error *err)
{
    const struct op *op = &engine->model.ops[index];
    size_t bytes = part_bytes(engine, op, rows);
    return !bytes
        || gather_on_gpu(engine, engine->buffers[op->in], bytes, exchange_stride(engine, op->in) * sizeof(float), err);
}

// Proves the exchange before anything relies on it, with numbers that all ranks know.
static bool prove(const struct engine *engine, struct error *err)
{
    enum { VALUES = 64 };
    struct cuda *cuda = gpu_cuda(engine->gpu);
    float *all = engine->buffers[BUFFER_LOGITS], values[RANKS_MAX][VALUES];
    int rank = group_rank(engine->group), ranks = group_size(engine->group);
    for (int i = 0; i < VALUES; i++)
        values[rank][i] = (float)(rank * VALUES + i);
    if (!cuda_upload(cuda, all + rank * VALUES, values[rank], sizeof values[rank], err)
        || !gather_on_gpu(engine, all, sizeof values[rank], sizeof values[rank], err)
        || !cuda_download(cuda, values, all, (size_t)ranks * sizeof values[rank], err) || !cuda_wait(cuda, err))
        return false;
    for (int i = 0; i < ranks * VALUES; i++)
        if (values[i / VALUES][i % VALUES] != (float)i)
            return fail(err, "what rank %d gave did not arrive at rank %d as it was", i / VALUES, rank);
    return true;
}

bool exchange_open(struct engine *engine, struct error *err)
{
    if (!engine->group)
        return true;
    engine->plan.exchange = arena_format(&engine->plan.arena, "by %s", ranks_library(engine->group->ranks));
    if (!engine->gpu)
        return true;
    int ranks = group_size(engine->group);
    struct offer mine = { .nccl_version = nccl_version(), .shares_gpu = engine->shares_device };
    struct offer *offers = memory_new((size_t)ranks, sizeof *offers);
    bool made = group_rank(engine->group) || !mine.nccl_version || nccl_make_id(&mine.id, err);
    bool ok = group_agree(engine->group, made, err)
        && ranks_all_gather(engine->group->ranks, &mine, offers, sizeof mine, sizeof mine, err);
    const char *why = ok ? why_not_nccl(offers, ranks) : NULL;
    ok = ok && (why ? open_host(engine, why, err) : open_nccl(engine, &offers[0].id, offers[0].nccl_version, err));
    free(offers);
    return group_agree(engine->group, ok, err) && prove(engine, err);
}

void exchange_close(struct engine *engine)
{
    nccl_close(engine->nccl);
    if (engine->parts_host)
        cuda_host_free(gpu_cuda(engine->gpu), engine->parts_host);
}
