// SPDX-License-Identifier: Apache-2.0
#include "engine/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "engine/gpu/batch.h"
#include "engine/engine.h"
#include "engine/gpu/internal.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"

// ---- memory ----

enum { CONSTANTS_BYTES = 8 << 20, CONSTANT_ALIGNMENT = 256 };

void *gpu_new(struct gpu *gpu, size_t bytes, const char *what, struct error *err)
{
    void *memory = cuda_new(gpu->cuda, bytes ? bytes : 1, what, err);
    if (!memory)
        return NULL;
    gpu->blocks = memory_grow(gpu->blocks, (size_t)gpu->block_count + 1, sizeof *gpu->blocks);
    return gpu->blocks[gpu->block_count++] = memory;
}

static const float *find_constant(const struct gpu *gpu, const float *values)
{
    for (int i = 0; i < gpu->constant_count; i++)
        if (gpu->constants[i].from == values)
            return gpu->constants[i].to;
    return NULL;
}

bool gpu_constant(struct gpu *gpu, const float *values, size_t count, const float **out, struct error *err)
{
    *out = values ? find_constant(gpu, values) : NULL;
    if (!values || *out)
        return true;
    size_t bytes = (count * sizeof *values + CONSTANT_ALIGNMENT - 1) / CONSTANT_ALIGNMENT * CONSTANT_ALIGNMENT;
    if (bytes > gpu->constants_left) {
        gpu->constants_left = bytes > CONSTANTS_BYTES ? bytes : CONSTANTS_BYTES;
        if (!(gpu->constants_next = gpu_new(gpu, gpu->constants_left, "norms and biases", err)))
            return false;
    }
    void *to = gpu->constants_next;
    gpu->constants_next += bytes;
    gpu->constants_left -= bytes;
    if (!cuda_upload(gpu->cuda, to, values, count * sizeof *values, err))
        return false;
    gpu->constants = memory_grow(gpu->constants, (size_t)gpu->constant_count + 1, sizeof *gpu->constants);
    gpu->constants[gpu->constant_count++] = (struct gpu_constant){ values, to };
    *out = to;
    return true;
}

// ---- opening ----

struct gpu *gpu_open(const struct device *device, struct error *err)
{
    struct gpu *gpu = memory_new(1, sizeof *gpu);
    gpu->cuda = cuda_open(device->ordinal, err);
    if (gpu->cuda && cuda_load_images(gpu->cuda, err))
        return gpu;
    gpu_close(gpu);
    return NULL;
}

static void close_slot(struct gpu *gpu, struct gpu_slot *slot)
{
    cuda_host_free(gpu->cuda, slot->upload);
    cuda_host_free(gpu->cuda, slot->tokens);
    cuda_event_free(gpu->cuda, slot->done);
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->cuda) {
        struct error ignored;
        cuda_wait(gpu->cuda, &ignored);
        for (int i = 0; i < gpu->graph_count; i++)
            cuda_graph_free(gpu->cuda, gpu->graphs[i].graph);
        for (int i = 0; i < gpu->block_count; i++)
            cuda_free(gpu->cuda, gpu->blocks[i]);
        for (int i = 0; i < GPU_SLOTS; i++)
            close_slot(gpu, &gpu->slots[i]);
        cuda_host_free(gpu->cuda, gpu->logits_host);
        cuda_close(gpu->cuda);
    }
    free(gpu->graphs);
    free(gpu->blocks);
    free(gpu->constants);
    arena_free(&gpu->arena);
    free(gpu);
}

struct cuda *gpu_cuda(struct gpu *gpu) { return gpu->cuda; }

static bool open_slot(struct gpu *gpu, struct gpu_slot *slot, size_t tokens, struct error *err)
{
    return (slot->upload = cuda_host_new(gpu->cuda, gpu->rows_bytes + gpu->block.bytes, "the step's tokens", err))
        && (slot->tokens = cuda_host_new(gpu->cuda, tokens, "drawing tokens", err))
        && (slot->done = cuda_event_new(gpu->cuda, err));
}

static bool open_slots(struct gpu *gpu, size_t tokens, struct error *err)
{
    for (int i = 0; i < GPU_SLOTS; i++)
        if (!open_slot(gpu, &gpu->slots[i], tokens, err))
            return false;
    return true;
}

bool gpu_open_batch(struct gpu *gpu, struct engine *engine, struct error *err)
{
    const struct plan *plan = &engine->plan;
    int vocabulary = engine->model.config.vocabulary;
    size_t pages = (size_t)((plan->max_model_len + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    gpu->block = (struct cuda_batch_block){ .tokens = plan->batch_tokens,
                                            .sequences = plan->max_num_seqs,
                                            .outputs = plan->outputs,
                                            .classes = plan->class_count,
                                            .pages = pages * (size_t)(plan->max_num_seqs * plan->class_count) };
    cuda_batch_measure(&gpu->block);
    size_t outputs = (size_t)plan->outputs, tokens = outputs * sizeof *gpu->tokens;
    size_t logits = outputs * (size_t)vocabulary * sizeof(float);
    gpu->rows_bytes = plan_align(outputs * sizeof(struct cuda_sampling_row));
    if (!(gpu->upload = gpu_new(gpu, gpu->rows_bytes + gpu->block.bytes, "the step's tokens", err))
        || !(gpu->tokens = gpu_new(gpu, tokens, "drawing tokens", err))
        || !(gpu->logits_host = cuda_host_new(gpu->cuda, logits, "the logits", err)) || !open_slots(gpu, tokens, err))
        return false;
    gpu->view = cuda_batch_view(&gpu->block, gpu->upload + gpu->rows_bytes);
    gpu->view.drawn = gpu->tokens;
    engine->batch.on_device = &gpu->view;
    size_t scratch = cuda_sampling_fits(vocabulary) ? cuda_sampling_bytes(plan->outputs, vocabulary) : 0;
    return !scratch || (gpu->draw_scratch = gpu_new(gpu, scratch, "drawing tokens", err));
}
