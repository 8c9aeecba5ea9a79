// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_shapes.h: the kernels of prefill attention, one line each: attention_prefill_*.cu
// compile them, attention_prefill.c makes a row of each. A kernel serves every head size up to its own: the rest is
// zeros.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_SHAPES_H
#define KERNEL_CUDA_ATTENTION_PREFILL_SHAPES_H

enum { PREFILL_WGMMA_ROWS = 128, PREFILL_WGMMA_THREADS = 512, PREFILL_WGMMA_STAGES = 2 };

//    head size, tokens of a tile, bytes of a batch that a thread copies ahead of dequantising, batches in flight
// clang-format off
#define PREFILL_WGMMA_KERNELS(X) \
    X( 64, 128, 80, 3)           \
    X(128, 128, 80, 3)           \
    X(256,  64, 64, 2)
// clang-format on

//    head size, warps of a block, times sixteen rows of a warp, tokens of a tile
// clang-format off
#define PREFILL_MMA_KERNELS(X) \
    X( 64, 4, 2, 64)           \
    X(128, 4, 2, 64)           \
    X(256, 4, 1, 64)
// clang-format on

// Shared memory: queries and `stages` tiles of K and of V; with wgmma also the batches of the 256 producer threads, and
// four barriers per stage.
#define PREFILL_TILES_BYTES(dim, rows, tokens, stages) ((dim) * 2 * ((rows) + 2 * (stages) * (tokens)))
#define PREFILL_WGMMA_BYTES(dim, tokens, room, batches)                                                    \
    (PREFILL_TILES_BYTES(dim, PREFILL_WGMMA_ROWS, tokens, PREFILL_WGMMA_STAGES) + (room) * (batches) * 256 \
     + PREFILL_WGMMA_STAGES * 4 * 8)

#endif
