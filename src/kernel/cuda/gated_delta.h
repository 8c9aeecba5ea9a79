// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/gated_delta.h: the sizes that delta.c and delta.cu agree on.
#ifndef KERNEL_CUDA_GATED_DELTA_H
#define KERNEL_CUDA_GATED_DELTA_H

enum {
    DELTA_THREADS = 128,
    DELTA_SHARING = 4,                             // lanes that share a column of a matrix
    DELTA_COLUMNS = DELTA_THREADS / DELTA_SHARING, // of a block
    DELTA_RUN = 4,                                 // keys that are neighbours in a lane
    DELTA_KEYS_FEW = 128,                          // as many as published models have
    DELTA_AT_ONCE = 4,                             // tokens of a sequence that are made ready together
};

#endif
