// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/ranks/collectives.h"
#include "engine/program.h"
#include "engine/self_test.h"
#include "engine/ranks/protocol.h"
#include "engine/weights.h"
#include "model/shard.h"
#include "plan/op_shape.h"

enum { FAILED_KERNELS_MAX = 8 }; // with more rows failing, the machine is not to be trusted

// Memory of the device that the ops run on.
static void *new_memory(struct engine *engine, size_t bytes, const char *what, struct error *err)
{
    if (engine->gpu)
        return gpu_new(engine->gpu, bytes, what, err);
    void *memory = memory_map_new(bytes);
    if (!memory)
        fail(err, "the system does not give %zu MiB for %s; ask for less with --max-model-len", bytes >> 20, what);
    return memory;
}

static bool open_workspace(struct engine *engine, struct error *err)
{
    const struct plan *plan = &engine->plan;
    char *next = engine->workspace = new_memory(engine, plan->workspace_bytes, "the workspace", err);
    if (!next)
        return false;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        size_t values = (size_t)plan_buffer_rows(plan, (enum buffer)i) * (size_t)engine->model.buffer_width[i];
        engine->buffers[i] = (float *)(void *)next;
        next += plan_align(values * plan_value_bytes(plan, (enum buffer)i));
    }
    engine->scratch = next;
    return true;
}

static bool open_batch(struct engine *engine, struct error *err)
{
    const struct plan *plan = &engine->plan;
    engine->ids = ARENA_NEW(&engine->arena, int32_t, plan->batch_tokens);
    engine->positions = ARENA_NEW(&engine->arena, int32_t, plan->batch_tokens);
    engine->output_rows = ARENA_NEW(&engine->arena, int32_t, plan->outputs);
    engine->batch_sequences = ARENA_NEW(&engine->arena, struct batch_sequence, plan->max_num_seqs);
    engine->batch = (struct batch){ .ids = engine->ids,
                                    .positions = engine->positions,
                                    .sequence = engine->batch_sequences,
                                    .output_rows = engine->output_rows };
    for (int i = 0; i < plan->class_count; i++) {
        engine->batch.page_tokens[i] = plan->classes[i].kind.page_tokens;
        engine->batch.pages_end[i] = plan->classes[i].kind.end;
    }
    if (engine->group)
        protocol_open_tables(&engine->tables, plan, &engine->arena);
    return !engine->gpu || gpu_open_batch(engine->gpu, engine, err);
}

static bool open_pools(struct engine *engine, struct error *err)
{
    for (int i = 0; i < engine->plan.class_count; i++) {
        const struct plan_class *class = &engine->plan.classes[i];
        void *bytes = new_memory(engine, class->page_bytes * (size_t)class->pages, "the KV cache", err);
        if (!bytes)
            return false;
        kv_pool_open(&engine->pools[i], bytes, class->kind, class->page_bytes, class->pages);
    }
    return true;
}

// ---- weights ----

static bool make_in_place(void *context, const struct tensor *tensor, const struct kernel_packing *packing, size_t at,
                          struct error *err)
{
    struct engine *engine = context;
    int count = weights_count(tensor);
    size_t bytes = plan_placed_bytes(tensor, packing) / (size_t)count;
    for (int i = 0; i < count; i++)
        if (!weights_make(engine->checkpoint, tensor, i, packing, engine->placed + at + (size_t)i * bytes, engine->pool,
                          err))
            return false;
    weights_release(engine->checkpoint, tensor);
    return true;
}

static bool load_weights(struct engine *engine, const struct engine_options *options, struct error *err)
{
    if (engine->gpu)
        return gpu_load_weights(engine->gpu, engine, options->plan.user.progress, options->plan.user.progress_context,
                                err);
    struct weights_target target = { make_in_place, engine };
    return weights_load(&engine->plan, &target, options->plan.user.progress, options->plan.user.progress_context, err);
}

// ---- opening ----

// On a GPU machine the thread pool packs weights and draws tokens. Ranks of one host divide its cores.
static bool open_thread_pool(struct engine *engine, int threads, struct error *err)
{
    struct device host;
    if (!device_open_cpu(&host, err))
        return false;
    int cores = host.cores / group_here(engine->group);
    cores = cores < 1 ? 1 : cores < THREAD_POOL_MAX ? cores : THREAD_POOL_MAX;
    engine->pool = thread_pool_open(threads ? threads : cores, err);
    return engine->pool;
}

// A plan whose every kernel has just given the right answer: one that does not is left out of the next try. A GPU is
// opened once there is a plan for it.
static bool make_proven_plan(struct engine *engine, const struct device *device, const struct engine_options *options,
                             struct error *err)
{
    const struct kernel *failed[FAILED_KERNELS_MAX + 1] = { 0 };
    struct plan_options plan_options = options->plan;
    plan_options.failed = failed;
    plan_options.runs_here = true;
    struct error failure = { 0 };
    for (int i = 0; i < FAILED_KERNELS_MAX; i++) {
        bool decided = engine->plan.model; // before the engine was opened
        if (!decided && !plan_make(&engine->plan, &engine->model, device, &plan_options, err))
            return i ? fail_within(err, "%s; without it", failure.text) : false;
        if (device->kind == DEVICE_CUDA && !engine->gpu && !(engine->gpu = gpu_open(device, err)))
            return false;
        struct cuda *cuda = engine->gpu ? gpu_cuda(engine->gpu) : NULL;
        if (options->plan.user.no_self_test || !(failed[i] = self_test_failure(&engine->plan, cuda, &failure)))
            return true;
        plan_free(&engine->plan);
    }
    return fail(err, "%s, and so do %d others", failure.text, FAILED_KERNELS_MAX - 1);
}

bool engine_choose_device(struct device *device, const char *word, struct error *err)
{
    return (!word || !strcmp(word, "auto") || device_check_runs(word, err)) && plan_choose_device(device, word, err);
}

static void take_over(struct engine *engine, struct engine_plan *decided)
{
    engine->model = decided->model;
    engine->plan = decided->plan;
    engine->plan.model = &engine->model;
    *decided = (struct engine_plan){ 0 };
}

static bool decide(struct engine *engine, const struct engine_options *options, struct error *err)
{
    struct device device;
    if (options->decided) {
        take_over(engine, options->decided);
        device = engine->plan.device;
        return make_proven_plan(engine, &device, options, err);
    }
    int ranks = group_size(engine->group), sharers;
    if (!engine_choose_device(&device, options->plan.user.device, err)
        || !group_share_device(&device, options->plan.user.device, group_here(engine->group), &sharers, err))
        return false;
    engine->shares_device = sharers > 1;
    return model_describe(&engine->model, engine->checkpoint, err)
        && (ranks == 1 || model_shard(&engine->model, group_rank(engine->group), ranks, err))
        && make_proven_plan(engine, &device, options, err);
}

static bool open_memory(struct engine *engine, struct error *err)
{
    return open_workspace(engine, err) && open_batch(engine, err) && open_pools(engine, err)
        && (engine->placed = new_memory(engine, engine->plan.placed_bytes, "the weights", err));
}

static bool open_program(struct engine *engine, const struct engine_options *options, struct error *err)
{
    return watch_open(engine, err) && program_bind(engine, err)
        && open_thread_pool(engine, options->plan.user.threads, err) && load_weights(engine, options, err);
}

// The others open it, too. Each answers whether it has found the checkpoint.
static bool broadcast_open(struct engine *engine, const struct engine_options *options, struct error *err)
{
    if (!engine->group || group_rank(engine->group))
        return true;
    engine->number = engine->group->opened++;
    protocol_write_head(&engine->message, PROTOCOL_OPEN, engine->number);
    protocol_write_open(&engine->message, engine->checkpoint->path, options);
    return ranks_broadcast(engine->group->ranks, engine->message.data, engine->message.len, err)
        && group_agree(engine->group, true, err);
}

// In a group, a rank continues only if every rank does.
static bool open_all(struct engine *engine, const struct engine_options *options, struct error *err)
{
    return broadcast_open(engine, options, err) && group_agree(engine->group, decide(engine, options, err), err)
        && group_agree_plan(engine->group, engine->checkpoint, &engine->plan, err)
        && group_agree(engine->group, open_memory(engine, err), err) && exchange_open(engine, err)
        && group_agree(engine->group, open_program(engine, options, err), err);
}

static void free_memory(struct engine *engine)
{
    for (int i = 0; i < engine->plan.class_count; i++)
        memory_map_free(engine->pools[i].bytes, engine->pools[i].page_bytes * (size_t)engine->pools[i].page_count);
    memory_map_free(engine->workspace, engine->plan.workspace_bytes);
    memory_map_free(engine->placed, engine->plan.placed_bytes);
}

static void close_own(struct engine *engine)
{
    thread_pool_close(engine->pool);
    exchange_close(engine);
    watch_close(engine);
    if (!engine->gpu)
        free_memory(engine);
    gpu_close(engine->gpu);
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        kv_pool_close(&engine->pools[i]);
    plan_free(&engine->plan);
    model_free(&engine->model);
    strbuf_free(&engine->message);
    arena_free(&engine->arena);
    *engine = (struct engine){ 0 };
}

bool engine_open(struct engine *engine, const struct checkpoint *checkpoint, const struct engine_options *options,
                 struct error *err)
{
    *engine = (struct engine){ .checkpoint = checkpoint, .watch = options->watch, .group = options->group };
    if (open_all(engine, options, err))
        return true;
    close_own(engine);
    return false;
}

void engine_close(struct engine *engine)
{
    struct error ignored; // a rank that is gone gets no message
    if (engine->group && !group_rank(engine->group)) {
        protocol_write_head(&engine->message, PROTOCOL_CLOSE, engine->number);
        ranks_broadcast(engine->group->ranks, engine->message.data, engine->message.len, &ignored);
    }
    close_own(engine);
}

bool engine_check_ids(const struct engine *engine, const int32_t *ids, size_t count, struct error *err)
{
    int vocabulary = engine->model.config.vocabulary;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(err, "token id %d is outside the model's vocabulary, which is 0 to %d", ids[i], vocabulary - 1);
    return true;
}

bool engine_check_length(const struct engine *engine, int length, size_t count, struct error *err)
{
    int longest = engine->plan.max_model_len;
    return (length <= longest && count <= (size_t)(longest - length))
        || fail(err, "%d tokens and %zu more are longer than the context of %d tokens; shorten the text%s", length,
                count, longest, longest < engine->model.config.context ? " or raise --max-model-len" : "");
}

static void run_step(void *context, int step, int chunk, int chunks)
{
    const struct program *program = context;
    program->steps[step].run(program->steps[step].args, chunk, chunks);
}

bool engine_queue_sampling(struct engine *engine, int row, const struct nibble_sampling *sampling, int count)
{
    return engine->gpu && gpu_queue_sampling(engine->gpu, row, sampling, count);
}

// Other ranks have no tokens that were drawn here.
bool engine_may_follow(const struct engine *engine, int step)
{
    return engine->gpu && !engine->group && gpu_may_follow(engine->gpu, step);
}

static bool broadcast_step(struct engine *engine, struct error *err)
{
    if (!engine->group || group_rank(engine->group))
        return true;
    protocol_write_head(&engine->message, PROTOCOL_STEP, engine->number);
    protocol_write_step(&engine->message, engine, &engine->tables);
    return ranks_broadcast(engine->group->ranks, engine->message.data, engine->message.len, err);
}

// The others would wait for what this rank has of the step.
static bool leave(struct engine *engine, const struct error *err)
{
    if (engine->group)
        ranks_give_up(engine->group->ranks, err->text);
    return false;
}

int engine_load(const struct engine *engine, int op)
{
    const struct batch *batch = &engine->batch;
    struct plan_rows rows = { .tokens = batch->tokens, .outputs = batch->outputs };
    for (int i = 0; i < batch->sequences; i++)
        rows.each = batch->sequence[i].count > rows.each ? batch->sequence[i].count : rows.each;
    return plan_op_load(&engine->plan, op, &rows);
}

int engine_start(struct engine *engine, struct error *err)
{
    if (!broadcast_step(engine, err))
        return 0;
    watch_begin(engine);
    if (engine->gpu) {
        int step = gpu_start(engine->gpu, engine, err);
        return step ? step : leave(engine, err);
    }
    struct program *program = engine->batch.tokens <= KERNEL_DECODE_ROWS_MAX ? &engine->decode : &engine->prefill;
    thread_pool_run(engine->pool, &(struct thread_pool_work){ run_step, program, program->count, .divisible = true });
    return 1;
}

bool engine_finish(struct engine *engine, int step, struct engine_result *result, struct error *err)
{
    if (engine->gpu)
        return (gpu_finish(engine->gpu, step, result, err) && watch_finish(engine, err)) || leave(engine, err);
    *result = (struct engine_result){ .logits = engine->buffers[BUFFER_LOGITS] };
    return watch_finish(engine, err)
        && (!engine->group || !ranks_lost(engine->group->ranks) || fail(err, "%s", ranks_lost(engine->group->ranks)));
}
