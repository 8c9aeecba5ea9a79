// SPDX-License-Identifier: Apache-2.0
#include "engine/observer.h"

#include "engine/engine.h"
#include "kernel/minifloat.h"

static bool is_wanted(const struct engine *engine, int buffer) { return engine->watch->buffers >> buffer & 1; }

void watch_open(struct engine *engine)
{
    for (int i = 0; i < BUFFER_COUNT && engine->watch; i++) {
        size_t values = (size_t)plan_buffer_rows(&engine->plan, (enum buffer)i) * (size_t)engine->model.buffer_width[i];
        if (is_wanted(engine, i))
            engine->seen[i] = engine->gpu ? ARENA_NEW(&engine->arena, float, values) : engine->buffers[i];
    }
}

bool watch_wants(const struct engine *engine, int op)
{
    return engine->watch && engine->watch->ops >> engine->model.ops[op].kind & 1;
}

void watch_run(const void *arguments, int part, int parts)
{
    const struct program_moment *moment = arguments;
    const struct engine_watch *watch = moment->engine->watch;
    watch->after(watch->context, moment->engine, moment->op, part, parts);
}

static void run_phase(void *moment, int phase, int part, int parts)
{
    (void)phase;
    watch_run(moment, part, parts);
}

// Half as wide values come into the second half of their place, and are widened from its beginning on: each is read
// before anything is written over it.
static bool fetch(const struct engine *engine, enum buffer buffer, struct error *err)
{
    struct cuda *cuda = gpu_cuda(engine->gpu);
    size_t count = (size_t)engine->batch.tokens * (size_t)engine->model.buffer_width[buffer];
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

bool watch_on_gpu(const struct engine *engine, int op, struct error *err)
{
    for (int i = 0; i < BUFFER_COUNT; i++)
        if (is_wanted(engine, i) && !fetch(engine, (enum buffer)i, err))
            return false;
    struct program_moment moment = { engine, op };
    thread_pool_run(engine->team, &(struct thread_pool_work){ run_phase, &moment, .phases = 1, .divisible = true });
    return true;
}
