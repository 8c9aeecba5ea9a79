// SPDX-License-Identifier: Apache-2.0
// engine/gpu_parts.h: what gpu.c, gpu_step.c and gpu_weights.c share.
#ifndef ENGINE_GPU_PARTS_H
#define ENGINE_GPU_PARTS_H

#include "device/cuda.h"
#include "engine/cuda_batch.h"
#include "engine/gpu.h"

struct gpu {
    struct cuda *cuda;
    void **blocks;                    // device memory given out
    int block_count;
    struct gpu_constant {
        const float *from, *to;
    } *constants;
    int constant_count;
    uint8_t *constants_next;          // room for more
    size_t constants_left;

    struct cuda_batch_block block;
    struct cuda_batch view;
    void *batch_device, *batch_host;
    float *logits_host;               // (outputs, vocabulary)

    struct gpu_draws {                // in both memories: what is drawn of each output row, and the tokens
        struct cuda_sampling_row *rows_host, *rows_device;
        int32_t *tokens_host, *tokens_device;
        void *scratch;
        bool possible;                // the vocabulary is not too large
        int asked;                    // rows up to here have been written for the next step
    } draws;

    union op_args *args[2];           // of every op: for steps of few tokens, and of many
    struct gpu_graph {
        struct cuda_shape shape;
        int outputs;
        struct cuda_graph *graph;
    } *graphs;
    int graph_count;
    struct arena arena;
};

#endif
