// SPDX-License-Identifier: Apache-2.0
// engine/gpu/step.c: execution of one step on a GPU: kernel launches, or the replay of a captured CUDA graph.
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/ranks/collectives.h"
#include "engine/gpu/internal.h"
#include "kernel/cuda/attention_decode.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"
#include "plan/op_shape.h"

// ---- the load of an op ----

static int decode_load(const struct engine *engine, int index, const struct gpu_step *step)
{
    const struct gpu_call *call = &engine->gpu->calls[0][index].call[0];
    bool small = attention_decode_is_small(call->row, &call->args->attention, &step->shape);
    return small ? KERNEL_LOAD_SMALL : kernel_load_of(step->decode_each);
}

// The numbers of the loads that an op has in a step, two at most: of attention sequences with few rows are decoded, and
// those with more rows are not.
static int loads_of(const struct engine *engine, int index, const struct gpu_step *step, int loads[2])
{
    const struct cuda_shape *shape = &step->shape;
    const struct plan_rows rows = { shape->tokens, step->outputs, shape->rows_each };
    int count = 0, load = plan_op_load(&engine->plan, index, &rows);
    if (engine->model.ops[index].kind == OP_ATTENTION && step->decode_each)
        loads[count++] = decode_load(engine, index, step);
    if (!count || step->shape.rows_each > KERNEL_DECODE_ROWS_MAX)
        loads[count++] = load;
    return count;
}

// The calls of an op in a step, each once. A row that takes sequences of all lengths is called once for all of them.
static int calls_of(const struct engine *engine, int index, const struct gpu_step *step,
                    struct gpu_call out[GPU_ROWS_MAX])
{
    int loads[2], count = 0, load_count = loads_of(engine, index, step, loads);
    for (int i = 0; i < load_count; i++) {
        const struct gpu_calls *calls = &engine->gpu->calls[loads[i]][index];
        for (int j = 0; j < calls->count; j++)
            if (!i || calls->call[j].row != out[0].row)
                out[count++] = calls->call[j];
    }
    return count;
}

// ---- launching ----

static bool launch_row(struct gpu *gpu, const struct gpu_call *call, const struct cuda_shape *shape, int layer,
                       struct error *err)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    int count = call->row->describe(call->row, call->args, shape, calls);
    for (int i = 0; i < count; i++)
        if (!cuda_call_queue(gpu->cuda, &calls[i], err))
            return fail_within(err, "kernel %s of layer %d", call->row->name, layer);
    return true;
}

static bool launch_op(struct gpu *gpu, const struct engine *engine, int index, const struct gpu_step *step,
                      struct error *err)
{
    const struct op *op = &engine->model.ops[index];
    struct gpu_call calls[GPU_ROWS_MAX];
    struct cuda_shape shape = step->shape;
    int count = calls_of(engine, index, step, calls);
    shape.rows = op->on_outputs ? step->outputs : shape.tokens;
    if (exchange_precedes(op) && !exchange_on_gpu(engine, index, shape.rows, err))
        return false;
    if (watch_wants(engine, index) && !watch_before_on_gpu(engine, err))
        return false;
    for (int i = 0; i < count; i++)
        if (!launch_row(gpu, &calls[i], &shape, op->layer, err))
            return false;
    return !watch_wants(engine, index) || watch_on_gpu(engine, index, err);
}

static bool is_skipped(const struct engine *engine, int index, const struct gpu_step *step)
{
    const struct plan_op *bound = &engine->plan.ops[index];
    const struct plan_rows rows = { step->shape.tokens, step->outputs, step->shape.rows_each };
    return bound->left_out || (engine->model.ops[index].on_outputs && !step->outputs)
        || bound->fused[plan_op_load(&engine->plan, index, &rows)];
}

static bool launch_all(struct gpu *gpu, const struct engine *engine, const struct gpu_step *step, struct error *err)
{
    for (int i = 0; i < engine->model.op_count; i++)
        if (!is_skipped(engine, i, step) && !launch_op(gpu, engine, i, step, err))
            return false;
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

static int larger(int a, int b) { return a > b ? a : b; }

static struct gpu_step step_of(const struct engine *engine)
{
    const struct batch *batch = &engine->batch;
    const struct cuda *cuda = engine->gpu->cuda;
    struct gpu_step step = { .outputs = batch->outputs };
    step.shape = (struct cuda_shape){ .tokens = batch->tokens,
                                      .sequences = batch->sequences,
                                      .sm = cuda_sm(cuda),
                                      .multiprocessors = cuda_multiprocessors(cuda),
                                      .shared_bytes = cuda_shared_bytes(cuda) };
    for (int i = 0; i < batch->sequences; i++) {
        const struct batch_sequence *sequence = &batch->sequence[i];
        int rows = sequence->count;
        step.shape.context = larger(step.shape.context, batch->positions[sequence->first + rows - 1] + 1);
        step.shape.rows_each = larger(step.shape.rows_each, rows);
        step.decode_each = larger(step.decode_each, rows <= KERNEL_DECODE_ROWS_MAX ? rows : 0);
    }
    step.shape.context = bucket_of_context(step.shape.context);
    return step;
}

int gpu_rows(const struct engine *engine, int op, const struct kernel *rows[GPU_ROWS_MAX])
{
    struct gpu_step step = step_of(engine);
    struct gpu_call calls[GPU_ROWS_MAX];
    int count = calls_of(engine, op, &step, calls);
    for (int i = 0; i < count; i++)
        rows[i] = calls[i].row;
    return count;
}

// ---- steps that come again ----

static struct cuda_graph *find_graph(const struct gpu *gpu, const struct gpu_step *step)
{
    for (int i = 0; i < gpu->graph_count; i++)
        if (!memcmp(&gpu->graphs[i].step, step, sizeof *step))
            return gpu->graphs[i].graph;
    return NULL;
}

static struct cuda_graph *capture(struct gpu *gpu, const struct engine *engine, const struct gpu_step *step,
                                  struct error *err)
{
    struct error ignored;
    if (!cuda_capture_begin(gpu->cuda, err))
        return NULL;
    bool ok = launch_all(gpu, engine, step, err) && launch_drawing(gpu, engine, step->outputs, err);
    struct cuda_graph *graph = cuda_capture_end(gpu->cuda, ok ? err : &ignored);
    if (!graph || !ok)
        return cuda_graph_free(gpu->cuda, graph), NULL;
    gpu->graphs = memory_grow(gpu->graphs, (size_t)gpu->graph_count + 1, sizeof *gpu->graphs);
    gpu->graphs[gpu->graph_count++] = (struct gpu_graph){ *step, graph };
    return graph;
}

static bool run_launches(struct gpu *gpu, const struct engine *engine, struct error *err)
{
    struct gpu_step step = step_of(engine);
    bool repeats = step.shape.rows_each == 1 && !engine->watch && exchange_is_queued(engine); // the host takes no part
    if (!repeats)
        return launch_all(gpu, engine, &step, err) && launch_drawing(gpu, engine, step.outputs, err);
    step.shape.tokens = step.shape.sequences = bucket_of_rows(step.shape.tokens, engine->plan.batch_tokens);
    step.outputs = bucket_of_rows(step.outputs, engine->plan.outputs);
    struct cuda_graph *graph = find_graph(gpu, &step);
    if (!graph && !(graph = capture(gpu, engine, &step, err)))
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

// Rows without device sampling are left to the host.
static void skip_rows(struct gpu *gpu, const struct gpu_slot *slot, int end)
{
    for (; gpu->asked < end; gpu->asked++)
        rows_of(slot)[gpu->asked] = (struct cuda_sampling_row){ .on_host = true };
}

bool gpu_queue_sampling(struct gpu *gpu, int row, const struct nibble_sampling *sampling, int count)
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
