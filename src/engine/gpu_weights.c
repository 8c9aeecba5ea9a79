// SPDX-License-Identifier: Apache-2.0
// engine/gpu_weights.c: from the mapped file into a GPU's memory, at the speed of the link: the team fills one pinned
// buffer, with bytes as they are or packed, while the other one is on its way.
#include <string.h>

#include "engine/engine.h"
#include "engine/gpu_parts.h"
#include "engine/weights.h"

enum { STAGES = 2, STAGE_BYTES_MIN = 64 << 20 };

struct loading {
    struct engine *engine;
    struct cuda *cuda;
    struct stage {
        uint8_t *bytes;
        struct cuda_event *copied; // since it was last sent
    } stages[STAGES];
    size_t stage_bytes;
    int next;
};

static size_t largest_packed(const struct plan *plan)
{
    size_t most = STAGE_BYTES_MIN;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct kernel_packing *packing = plan->ops[i].few->packing;
        for (int j = 0; j < plan->model->ops[i].matrices && packing; j++) {
            const struct tensor *tensor = plan->model->ops[i].matrix[j].tensor;
            size_t bytes = packing->bytes(tensor->dtype, (int)tensor->shape[0], (int)tensor->shape[1]);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static bool open_stages(struct loading *loading, struct error *err)
{
    for (int i = 0; i < STAGES; i++) {
        struct stage *stage = &loading->stages[i];
        if (!(stage->bytes = cuda_host_new(loading->cuda, loading->stage_bytes, "the weights' way to the GPU", err))
            || !(stage->copied = cuda_event_new(loading->cuda, err))
            || !cuda_event_record(loading->cuda, stage->copied, err))
            return false;
    }
    return true;
}

static void close_stages(struct loading *loading)
{
    for (int i = 0; i < STAGES; i++) {
        cuda_event_free(loading->cuda, loading->stages[i].copied);
        cuda_host_free(loading->cuda, loading->stages[i].bytes);
    }
}

// The stage that has been free for longest.
static struct stage *take_stage(struct loading *loading, struct error *err)
{
    struct stage *stage = &loading->stages[loading->next++ % STAGES];
    return cuda_event_wait(loading->cuda, stage->copied, err) ? stage : NULL;
}

static bool send_stage(struct loading *loading, struct stage *stage, size_t at, size_t bytes, struct error *err)
{
    return cuda_upload(loading->cuda, loading->engine->placed + at, stage->bytes, bytes, err)
        && cuda_event_record(loading->cuda, stage->copied, err);
}

struct copying {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

static void copy_part(void *context, int phase, int part, int parts)
{
    const struct copying *copying = context;
    size_t first = copying->bytes / (size_t)parts * (size_t)part;
    size_t end = part + 1 < parts ? copying->bytes / (size_t)parts * (size_t)(part + 1) : copying->bytes;
    (void)phase;
    memcpy(copying->to + first, copying->from + first, end - first);
}

static bool send_as_it_is(struct loading *loading, const struct tensor *tensor, size_t at, struct error *err)
{
    for (size_t done = 0; done < tensor->bytes; done += loading->stage_bytes) {
        struct stage *stage = take_stage(loading, err);
        if (!stage)
            return false;
        size_t left = tensor->bytes - done, bytes = left < loading->stage_bytes ? left : loading->stage_bytes;
        struct copying copying = { stage->bytes, (const uint8_t *)tensor->data + done, bytes };
        team_run(loading->engine->team, &(struct team_work){ copy_part, &copying, .phases = 1, .divisible = true });
        if (!send_stage(loading, stage, at + done, bytes, err))
            return false;
    }
    checkpoint_release(loading->engine->checkpoint, tensor);
    return true;
}

static bool put(void *context, const struct tensor *tensor, const struct kernel_packing *packing, size_t at,
                struct error *err)
{
    struct loading *loading = context;
    if (!packing)
        return send_as_it_is(loading, tensor, at, err);
    struct stage *stage = take_stage(loading, err);
    if (!stage)
        return false;
    weights_pack(loading->engine->checkpoint, tensor, packing, stage->bytes, loading->engine->team);
    return send_stage(loading, stage, at,
                      packing->bytes(tensor->dtype, (int)tensor->shape[0], (int)tensor->shape[1]), err);
}

bool gpu_load_weights(struct gpu *gpu, struct engine *engine, void (*progress)(void *context, double done),
                      void *context, struct error *err)
{
    struct loading loading = { .engine = engine, .cuda = gpu->cuda, .stage_bytes = largest_packed(&engine->plan) };
    struct weights_target target = { put, &loading };
    bool ok = open_stages(&loading, err) && weights_load(&engine->plan, &target, progress, context, err)
        && cuda_wait(gpu->cuda, err);
    close_stages(&loading);
    return ok;
}
