// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/program.h"
#include "engine/self_test.h"
#include "engine/weights.h"

enum { FAILED_KERNELS_MAX = 8 }; // with more rows failing, the machine is not to be trusted

static size_t buffer_rows(const struct plan *plan, enum buffer buffer)
{
    return (size_t)(buffer == BUFFER_LAST || buffer == BUFFER_LOGITS ? plan->outputs : plan->batch_tokens);
}

static bool open_workspace(struct engine *engine, struct error *err)
{
    const struct plan *plan = &engine->plan;
    engine->workspace = memory_map_new(plan->workspace_bytes);
    if (!engine->workspace)
        return fail(err, "the system does not give %zu MiB of workspace", plan->workspace_bytes >> 20);
    float *next = engine->workspace;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        engine->buffers[i] = next;
        next += buffer_rows(plan, (enum buffer)i) * (size_t)engine->model.buffer_width[i];
    }
    engine->scratch = (char *)engine->workspace + plan->workspace_bytes - plan->scratch_bytes;
    engine->ids = ARENA_NEW(&engine->arena, int32_t, plan->batch_tokens);
    engine->positions = ARENA_NEW(&engine->arena, int32_t, plan->batch_tokens);
    engine->output_rows = ARENA_NEW(&engine->arena, int32_t, plan->outputs);
    engine->batch_sequences = ARENA_NEW(&engine->arena, struct batch_sequence, plan->max_num_seqs);
    engine->batch = (struct batch){ .ids = engine->ids,
                                    .positions = engine->positions,
                                    .sequence = engine->batch_sequences,
                                    .output_rows = engine->output_rows };
    return true;
}

static bool open_pools(struct engine *engine, struct error *err)
{
    for (int i = 0; i < engine->plan.class_count; i++) {
        const struct plan_class *class = &engine->plan.classes[i];
        if (!kv_pool_open(&engine->pools[i], class->window, class->page_bytes, class->pages, err))
            return false;
    }
    return true;
}

static bool open_weights(struct engine *engine, struct error *err)
{
    engine->packed = memory_map_new(engine->plan.packed_bytes);
    return engine->packed
        || fail(err, "the system does not give %zu MiB for the weights", engine->plan.packed_bytes >> 20);
}

// A plan whose every kernel has just given the right answer: one that does not is left out of the next try.
static bool make_proven_plan(struct engine *engine, const struct device *device, const struct engine_options *options,
                             struct error *err)
{
    const struct kernel *failed[FAILED_KERNELS_MAX + 1] = { 0 };
    struct plan_options plan_options = options->plan;
    plan_options.failed = failed;
    struct error failure = { 0 };
    for (int i = 0; i < FAILED_KERNELS_MAX; i++) {
        if (!plan_make(&engine->plan, &engine->model, device, &plan_options, err))
            return i ? fail_within(err, "%s; without it", failure.text) : false;
        if (options->skip_self_test || !(failed[i] = self_test_failure(&engine->plan, &failure)))
            return true;
        plan_free(&engine->plan);
    }
    return fail(err, "%s, and so do %d others", failure.text, FAILED_KERNELS_MAX - 1);
}

static bool open_all(struct engine *engine, const struct engine_options *options, struct error *err)
{
    struct device device;
    if (!device_parse(&device, options->device ? options->device : "cpu", err))
        return false;
    if (device.imagined)
        return fail(err, "--device %s is imagined: it can be planned, not run; leave it out", device.word);
    if (!model_describe(&engine->model, engine->checkpoint, err)
        || !make_proven_plan(engine, &device, options, err)
        || !open_workspace(engine, err)
        || !open_pools(engine, err)
        || !open_weights(engine, err)
        || !program_bind(engine, err))
        return false;
    int cores = device.cores < TEAM_THREADS_MAX ? device.cores : TEAM_THREADS_MAX;
    engine->team = team_open(options->threads ? options->threads : cores, err);
    if (!engine->team)
        return false;
    weights_load(engine->checkpoint, &engine->plan, engine->packed, engine->team, options->progress,
                 options->progress_context);
    return true;
}

bool engine_open(struct engine *engine, const struct checkpoint *checkpoint, const struct engine_options *options,
                 struct error *err)
{
    *engine = (struct engine){ .checkpoint = checkpoint };
    if (open_all(engine, options, err))
        return true;
    engine_close(engine);
    return false;
}

void engine_close(struct engine *engine)
{
    team_close(engine->team);
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        kv_pool_close(&engine->pools[i]);
    memory_map_free(engine->workspace, engine->plan.workspace_bytes);
    memory_map_free(engine->packed, engine->plan.packed_bytes);
    plan_free(&engine->plan);
    model_free(&engine->model);
    arena_free(&engine->arena);
    *engine = (struct engine){ 0 };
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

static void run_phase(void *context, int phase, int part, int parts)
{
    const struct program *program = context;
    program->phases[phase].run(program->phases[phase].args, part, parts);
}

void engine_step(struct engine *engine)
{
    struct program *program = engine->batch.tokens <= KERNEL_FEW_TOKENS_MAX ? &engine->few : &engine->many;
    team_run(engine->team, &(struct team_work){ run_phase, program, program->count, .divisible = true });
}
