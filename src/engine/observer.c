// SPDX-License-Identifier: Apache-2.0
#include "engine/observer.h"

#include "base/clock.h"
#include "engine/engine.h"
#include "kernel/minifloat.h"
#include "plan/op_shape.h"

static bool is_wanted(const struct engine *engine, int buffer) { return engine->watch->buffers >> buffer & 1; }

static bool open_clock(struct engine *engine, struct error *err)
{
    struct watch_clock *clock = engine->watch_clock = ARENA_NEW(&engine->arena, struct watch_clock, 1);
    *clock = (struct watch_clock){ 0 };
    return !engine->gpu
        || ((clock->from = cuda_event_new(gpu_cuda(engine->gpu), err))
            && (clock->to = cuda_event_new(gpu_cuda(engine->gpu), err)));
}

bool watch_open(struct engine *engine, struct error *err)
{
    for (int i = 0; i < BUFFER_COUNT && engine->watch; i++) {
        size_t values = (size_t)plan_buffer_rows(&engine->plan, (enum buffer)i) * (size_t)engine->model.buffer_width[i];
        if (is_wanted(engine, i))
            engine->seen[i] = engine->gpu ? ARENA_NEW(&engine->arena, float, values) : engine->buffers[i];
    }
    return !engine->watch || !engine->watch->timed || open_clock(engine, err);
}

void watch_close(struct engine *engine)
{
    const struct watch_clock *clock = engine->watch_clock;
    if (clock && clock->from)
        cuda_event_free(gpu_cuda(engine->gpu), clock->from);
    if (clock && clock->to)
        cuda_event_free(gpu_cuda(engine->gpu), clock->to);
}

void watch_begin(const struct engine *engine)
{
    struct watch_clock *clock = engine->watch_clock;
    if (!clock)
        return;
    clock->step++;
    clock->since = clock_now();
}

bool watch_finish(const struct engine *engine, struct error *err)
{
    const struct engine_watch *watch = engine->watch;
    return !watch || !watch->finish || watch->finish(watch->context, err);
}

bool watch_wants(const struct engine *engine, int op)
{
    return engine->watch && engine->watch->ops >> engine->model.ops[op].kind & 1;
}

static void look(const struct program_op *program_op, int chunk, int chunks)
{
    const struct engine_watch *watch = program_op->engine->watch;
    watch->after(watch->context, program_op->engine, program_op->op, chunk, chunks);
}

void watch_run(const void *arguments, int chunk, int chunks)
{
    const struct program_op *program_op = arguments;
    struct watch_clock *clock = chunk == 0 ? program_op->engine->watch_clock : NULL;
    if (clock)
        clock->seconds = clock_now() - clock->since;
    look(program_op, chunk, chunks);
    if (clock)
        clock->since = clock_now();
}

static void run_step(void *program_op, int step, int chunk, int chunks)
{
    (void)step;
    look(program_op, chunk, chunks);
}

// Half as wide values come into the second half of their place, and are widened from its beginning on: each is read
// before anything is written over it.
static bool fetch(const struct engine *engine, enum buffer buffer, size_t count, struct error *err)
{
    struct cuda *cuda = gpu_cuda(engine->gpu);
    bool wide = plan_value_bytes(&engine->plan, buffer) == sizeof(float);
    float *seen = engine->seen[buffer];
    uint16_t *half = (uint16_t *)(void *)seen + count;
    if (!cuda_download(cuda, wide ? (void *)seen : half, engine->buffers[buffer],
                       count * plan_value_bytes(&engine->plan, buffer), err)
        || !cuda_wait(cuda, err))
        return false;
    for (size_t i = 0; i < count && !wide; i++)
        seen[i] = bf16_to_f32(half[i]);
    return true;
}

static bool fetch_results(const struct engine *engine, int op, struct error *err)
{
    struct op_results results = plan_op_results(&engine->plan, op, engine_load(engine, op));
    int rows = engine->model.ops[op].on_outputs ? engine->batch.outputs : engine->batch.tokens;
    for (int i = 0; i < results.count; i++)
        if (is_wanted(engine, (int)results.item[i].buffer)
            && !fetch(engine, results.item[i].buffer, (size_t)rows * op_result_width(&results.item[i]), err))
            return false;
    return true;
}

static bool fetch_all(const struct engine *engine, struct error *err)
{
    size_t tokens = (size_t)engine->batch.tokens;
    for (int i = 0; i < BUFFER_COUNT; i++)
        if (is_wanted(engine, i) && !fetch(engine, (enum buffer)i, tokens * (size_t)engine->model.buffer_width[i], err))
            return false;
    return true;
}

bool watch_before_on_gpu(const struct engine *engine, struct error *err)
{
    const struct watch_clock *clock = engine->watch_clock;
    return !clock || cuda_event_record(gpu_cuda(engine->gpu), clock->from, err);
}

static bool read_clock(const struct engine *engine, struct error *err)
{
    struct watch_clock *clock = engine->watch_clock;
    struct cuda *cuda = gpu_cuda(engine->gpu);
    return !clock
        || (cuda_event_record(cuda, clock->to, err) && cuda_event_wait(cuda, clock->to, err)
            && cuda_event_seconds(cuda, clock->from, clock->to, &clock->seconds, err));
}

bool watch_on_gpu(const struct engine *engine, int op, struct error *err)
{
    if (!read_clock(engine, err) || !(engine->watch->results ? fetch_results(engine, op, err) : fetch_all(engine, err)))
        return false;
    struct program_op program_op = { engine, op };
    thread_pool_run(engine->pool, &(struct thread_pool_work){ run_step, &program_op, .steps = 1, .divisible = true });
    return true;
}
