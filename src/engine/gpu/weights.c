// SPDX-License-Identifier: Apache-2.0
// engine/gpu/weights.c: double-buffered upload of weights from the mapped file into a GPU's memory, at the speed of the
// link: the thread pool fills one pinned buffer, with packed or unchanged bytes, while the other one is copied.
#include "engine/engine.h"
#include "engine/gpu/internal.h"
#include "engine/weights.h"
#include "model/tensor_source.h"

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
    for (int i = 0; i < plan->model->op_count; i++)
        for (int j = 0; j < plan->model->ops[i].matrices; j++) {
            const struct tensor *tensor = plan->model->ops[i].matrix[j].tensor;
            const struct kernel_packing *packing = plan_packing(plan, i, j);
            size_t bytes = packing ? plan_placed_bytes(tensor, packing) / (size_t)weights_count(tensor) : 0;
            most = bytes > most ? bytes : most;
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

static bool send_as_it_is(struct loading *loading, const struct tensor *tensor, size_t at, struct error *err)
{
    int64_t rows = tensor_values(tensor) / tensor_cols(tensor);
    size_t row_bytes = dtype_bytes(tensor->dtype, (size_t)tensor_cols(tensor));
    int64_t each = (int64_t)(loading->stage_bytes / row_bytes);
    for (int64_t done = 0; done < rows; done += each) {
        struct stage *stage = take_stage(loading, err);
        if (!stage)
            return false;
        int64_t count = rows - done < each ? rows - done : each;
        weights_make_rows(tensor, done, count, stage->bytes, loading->engine->pool);
        if (!send_stage(loading, stage, at + (size_t)done * row_bytes, (size_t)count * row_bytes, err))
            return false;
    }
    return true;
}

static bool send_packed(struct loading *loading, const struct tensor *tensor, const struct kernel_packing *packing,
                        size_t at, struct error *err)
{
    int count = weights_count(tensor);
    size_t bytes = plan_placed_bytes(tensor, packing) / (size_t)count;
    for (int i = 0; i < count; i++) {
        struct stage *stage = take_stage(loading, err);
        if (!stage
            || !weights_make(loading->engine->checkpoint, tensor, i, packing, stage->bytes, loading->engine->pool, err)
            || !send_stage(loading, stage, at + (size_t)i * bytes, bytes, err))
            return false;
    }
    return true;
}

static bool put(void *context, const struct tensor *tensor, const struct kernel_packing *packing, size_t at,
                struct error *err)
{
    struct loading *loading = context;
    bool sent = packing ? send_packed(loading, tensor, packing, at, err) : send_as_it_is(loading, tensor, at, err);
    weights_release(loading->engine->checkpoint, tensor);
    return sent;
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
