// SPDX-License-Identifier: Apache-2.0
// engine/gpu/step.c: from the plan's kernels to launches.
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/ranks/collectives.h"
#include "engine/gpu/internal.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"

enum { FEW, MANY };

// ---- binding ----

// The arguments of the layer's op of that kind before this one.
static const union op_args *find_before(const union op_args *args, const struct model *model, int i, enum op_kind kind)
{
    while (model->ops[i].kind != kind)
        i--;
    return &args[i];
}

static void link_fused(union op_args *args, const struct model *model, const struct plan_op *ops, int i, int load)
{
    uint32_t fuses = ops[i].fuses[load];
    if (model->ops[i].kind == OP_LINEAR) {
        args[i].linear.norm = fuses & KERNEL_FUSES_NORM ? &args[i - 1].norm : NULL;
        args[i].linear.act_mul = fuses & KERNEL_FUSES_ACT_MUL ? &args[i + 1].act_mul : NULL;
        args[i].linear.add = fuses & KERNEL_FUSES_ADD ? &args[i + 1].add : NULL;
    } else if (model->ops[i].kind == OP_KV_WRITE) {
        struct kv_write_args *write = &args[i].kv_write;
        write->rope = fuses & KERNEL_FUSES_ROPE ? &find_before(args, model, i, OP_ROPE)->rope : NULL;
        write->transform = fuses & KERNEL_FUSES_TRANSFORM ? &find_before(args, model, i, OP_TRANSFORM)->transform
                                                          : NULL;
    }
}

void gpu_bind(struct gpu *gpu, const struct engine *engine, const union op_args *args)
{
    const struct model *model = &engine->model;
    for (int load = FEW; load <= MANY; load++) {
        gpu->args[load] = ARENA_NEW(&gpu->arena, union op_args, model->op_count);
        memcpy(gpu->args[load], args, (size_t)model->op_count * sizeof *args);
        for (int i = 0; i < model->op_count; i++)
            link_fused(gpu->args[load], model, engine->plan.ops, i, load);
    }
}

// ---- launching ----

static bool launch_row(struct gpu *gpu, const struct kernel *row, const union op_args *args,
                       const struct cuda_shape *shape, int layer, struct error *err)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    int count = row->describe(row, args, shape, calls);
    for (int i = 0; i < count; i++)
        if (!cuda_call_queue(gpu->cuda, &calls[i], err))
            return fail_within(err, "kernel %s of layer %d", row->name, layer);
    return true;
}

static bool launch_all(struct gpu *gpu, const struct engine *engine, const struct cuda_shape *shape, int outputs,
                       int load, struct error *err)
{
    for (int i = 0; i < engine->model.op_count; i++) {
        const struct op *op = &engine->model.ops[i];
        const struct plan_op *bound = &engine->plan.ops[i];
        const union op_args *args = &gpu->args[load][i];
        struct cuda_shape own = *shape;
        own.rows = op->on_outputs ? outputs : shape->tokens;
        if (bound->left_out || bound->fused[load] || (op->on_outputs && !outputs))
            continue;
        if ((exchange_precedes(op) && !exchange_on_gpu(engine, i, own.rows, err))
            || (watch_wants(engine, i) && !watch_before_on_gpu(engine, err))
            || !launch_row(gpu, load == FEW ? bound->decode : bound->prefill, args, &own, op->layer, err)
            || (watch_wants(engine, i) && !watch_on_gpu(engine, i, err)))
            return false;
    }
    return true;
}

// After the logits: the rows that ask for it are drawn.
static bool launch_drawing(struct gpu *gpu, const struct engine *engine, int outputs, struct error *err)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    struct cuda_sampling sampling = { .outputs = gpu->view.counts + CUDA_OUTPUTS,
                                      .rows = (const void *)gpu->upload,
                                      .logits = engine->buffers[BUFFER_LOGITS],
                                      .tokens = gpu->tokens,
                                      .vocabulary = engine->model.config.vocabulary };
    bool possible = outputs && gpu->draw_scratch;
    int count = possible ? cuda_sampling_describe(&sampling, gpu->draw_scratch, outputs, calls) : 0;
    for (int i = 0; i < count; i++)
        if (!cuda_call_queue(gpu->cuda, &calls[i], err))
            return fail_within(err, "drawing");
    return true;
}

// ---- sizes ----

static int bucket_of_rows(int rows, int most)
{
    int step = rows <= KERNEL_DECODE_ROWS_MAX ? 1 : rows <= 64 ? 8 : rows <= 256 ? 32 : 128;
    int bucket = (rows + step - 1) / step * step;
    return bucket < most ? bucket : most;
}

static int bucket_of_context(int context)
{
    int bucket = 256;
    while (bucket < context)
        bucket *= 2;
    return bucket;
}

static struct cuda_shape shape_of(const struct gpu *gpu, const struct engine *engine)
{
    const struct batch *batch = &engine->batch;
    struct cuda_shape shape = { .tokens = batch->tokens,
                                .sequences = batch->sequences,
                                .sm = cuda_sm(gpu->cuda),
                                .multiprocessors = cuda_multiprocessors(gpu->cuda),
                                .shared_bytes = cuda_shared_bytes(gpu->cuda) };
    for (int i = 0; i < batch->sequences; i++) {
        const struct batch_sequence *sequence = &batch->sequence[i];
        int length = batch->positions[sequence->first + sequence->count - 1] + 1;
        shape.context = length > shape.context ? length : shape.context;
        shape.rows_each = sequence->count > shape.rows_each ? sequence->count : shape.rows_each;
    }
    shape.context = bucket_of_context(shape.context);
    return shape;
}

// ---- steps that come again ----

static struct cuda_graph *find_graph(const struct gpu *gpu, const struct cuda_shape *shape, int outputs)
{
    for (int i = 0; i < gpu->graph_count; i++)
        if (!memcmp(&gpu->graphs[i].shape, shape, sizeof *shape) && gpu->graphs[i].outputs == outputs)
            return gpu->graphs[i].graph;
    return NULL;
}

static struct cuda_graph *capture(struct gpu *gpu, const struct engine *engine, const struct cuda_shape *shape,
                                  int outputs, int load, struct error *err)
{
    struct error ignored;
    if (!cuda_capture_begin(gpu->cuda, err))
        return NULL;
    bool ok = launch_all(gpu, engine, shape, outputs, load, err) && launch_drawing(gpu, engine, outputs, err);
    struct cuda_graph *graph = cuda_capture_end(gpu->cuda, ok ? err : &ignored);
    if (!graph || !ok)
        return cuda_graph_free(gpu->cuda, graph), NULL;
    gpu->graphs = memory_grow(gpu->graphs, (size_t)gpu->graph_count + 1, sizeof *gpu->graphs);
    gpu->graphs[gpu->graph_count++] = (struct gpu_graph){ *shape, outputs, graph };
    return graph;
}

static bool run_launches(struct gpu *gpu, const struct engine *engine, struct error *err)
{
    struct cuda_shape shape = shape_of(gpu, engine);
    int outputs = engine->batch.outputs;
    bool repeats = shape.rows_each == 1 && !engine->watch && exchange_is_queued(engine); // the host takes no part
    if (repeats) {
        shape.tokens = shape.sequences = bucket_of_rows(shape.tokens, engine->plan.batch_tokens);
        outputs = bucket_of_rows(outputs, engine->plan.outputs);
    }
    int load = shape.tokens <= KERNEL_DECODE_ROWS_MAX ? FEW : MANY;
    if (!repeats)
        return launch_all(gpu, engine, &shape, outputs, load, err) && launch_drawing(gpu, engine, outputs, err);
    struct cuda_graph *graph = find_graph(gpu, &shape, outputs);
    if (!graph && !(graph = capture(gpu, engine, &shape, outputs, load, err)))
        return false;
    return cuda_replay(gpu->cuda, graph, err);
}

// ---- a step ----

// The one with this number; 0: one that is free.
static struct gpu_slot *find_slot(struct gpu *gpu, int step)
{
    for (int i = 0; i < GPU_SLOTS; i++)
        if (gpu->slots[i].step == step)
            return &gpu->slots[i];
    assert(!"one step can follow another, and no more");
    return NULL;
}

static struct cuda_sampling_row *rows_of(const struct gpu_slot *slot)
{
    return (struct cuda_sampling_row *)(void *)slot->upload;
}

// Rows that nobody asks for stay with the host.
static void skip_rows(struct gpu *gpu, const struct gpu_slot *slot, int end)
{
    for (; gpu->asked < end; gpu->asked++)
        rows_of(slot)[gpu->asked] = (struct cuda_sampling_row){ .on_host = true };
}

bool gpu_ask(struct gpu *gpu, int row, const struct nibble_sampling *sampling, int count)
{
    const struct gpu_slot *slot = find_slot(gpu, 0);
    if (!gpu->draw_scratch)
        return false;
    skip_rows(gpu, slot, row + 1);
    rows_of(slot)[row] = (struct cuda_sampling_row){ .seed = sampling->seed,
                                                     .temperature = sampling->temperature,
                                                     .top_p = sampling->top_p,
                                                     .min_p = sampling->min_p,
                                                     .top_k = sampling->top_k,
                                                     .choice = sampling->choice,
                                                     .count = count };
    return true;
}

// The tokens, and runs of neighbouring rows whose logits the host wants.
static bool download_results(struct gpu *gpu, const struct engine *engine, const struct gpu_slot *slot,
                             struct error *err)
{
    size_t vocabulary = (size_t)engine->model.config.vocabulary;
    int outputs = engine->batch.outputs, end;
    for (int first = 0; first < outputs; first = end + 1) {
        for (end = first; end < outputs && rows_of(slot)[end].on_host; end++)
            ;
        size_t at = (size_t)first * vocabulary, count = (size_t)(end - first) * vocabulary;
        if (count
            && !cuda_download(gpu->cuda, gpu->logits_host + at, engine->buffers[BUFFER_LOGITS] + at,
                              count * sizeof(float), err))
            return false;
    }
    return !outputs || cuda_download(gpu->cuda, slot->tokens, gpu->tokens, (size_t)outputs * sizeof *slot->tokens, err);
}

int gpu_start(struct gpu *gpu, struct engine *engine, struct error *err)
{
    struct gpu_slot *slot = find_slot(gpu, 0);
    skip_rows(gpu, slot, engine->batch.outputs);
    gpu->asked = 0;
    size_t bytes = gpu->rows_bytes + cuda_batch_fill(&gpu->block, &engine->batch, slot->upload + gpu->rows_bytes);
    if (!cuda_upload(gpu->cuda, gpu->upload, slot->upload, bytes, err) || !run_launches(gpu, engine, err)
        || (!group_rank(engine->group) && !download_results(gpu, engine, slot, err))
        || !cuda_event_record(gpu->cuda, slot->done, err))
        return 0;
    gpu->step = gpu->step < INT_MAX ? gpu->step + 1 : 1;
    return slot->step = gpu->step;
}

bool gpu_may_follow(const struct gpu *gpu, int step)
{
    int busy = 0;
    for (int i = 0; i < GPU_SLOTS; i++)
        busy += gpu->slots[i].step != 0;
    return gpu->draw_scratch && step && step == gpu->step && busy < GPU_SLOTS;
}

bool gpu_finish(struct gpu *gpu, int step, struct engine_result *result, struct error *err)
{
    struct gpu_slot *slot = find_slot(gpu, step);
    slot->step = 0;
    *result = (struct engine_result){ .logits = gpu->logits_host, .drawn = slot->tokens };
    return cuda_event_wait(gpu->cuda, slot->done, err);
}
