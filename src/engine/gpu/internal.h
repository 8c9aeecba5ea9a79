// SPDX-License-Identifier: Apache-2.0
// engine/gpu/internal.h: private declarations of the GPU executor (engine/gpu/gpu.h), shared by the files of this
// folder.
#ifndef ENGINE_GPU_INTERNAL_H
#define ENGINE_GPU_INTERNAL_H

#include "device/cuda.h"
#include "engine/gpu/batch.h"
#include "engine/gpu/gpu.h"

enum { GPU_SLOTS = 2 };

// The rows that do an op at a load, in order, each with its arguments.
struct gpu_calls {
    int count;
    struct gpu_call {
        const struct kernel *row;
        const union op_args *args;
    } call[LINEAR_OUTPUTS_MAX];
};

// The sizes that decide a step's launches; the key of its captured graph.
struct gpu_step {
    struct cuda_shape shape; // of its row-wise ops
    int outputs;
    int decode_each; // the most rows of a sequence that attention decodes; 0: there is none
};

struct gpu {
    struct cuda *cuda;
    void **blocks; // device memory given out
    int block_count;
    struct gpu_constant {
        const float *from, *to;
    } *constants;
    int constant_count;
    uint8_t *constants_next; // room for more
    size_t constants_left;

    struct cuda_batch_block block;
    struct cuda_batch view;
    uint8_t *upload;    // how the output rows are drawn, and then the batch
    size_t rows_bytes;  // of the first part
    int32_t *tokens;    // (outputs), drawn by the step that ran last
    void *draw_scratch; // NULL: the vocabulary is too large for drawing here
    float *logits_host; // (outputs, vocabulary); a step that follows another has no use for it

    struct gpu_slot { // the host's side of a step that is under way
        int step;     // its number; 0: the slot is free
        uint8_t *upload;
        int32_t *tokens;
        struct cuda_event *done;
    } slots[GPU_SLOTS];
    int step;  // the number of the one that was started last
    int asked; // rows up to here have been written for the next one

    struct gpu_calls *calls[KERNEL_LOADS]; // by load: of every op (engine/gpu/bind.c)
    struct gpu_graph {
        struct gpu_step step;
        struct cuda_graph *graph;
    } *graphs;
    int graph_count;
    struct arena arena;
};

#endif
