// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/gated_delta.h: the sizes of the launches of gated_delta.cu, for C and CUDA alike.
#ifndef KERNEL_CUDA_GATED_DELTA_H
#define KERNEL_CUDA_GATED_DELTA_H

enum {
    DELTA_THREADS = 128,
    DELTA_SHARING = 4,                             // lanes that share a column of a matrix
    DELTA_COLUMNS = DELTA_THREADS / DELTA_SHARING, // of a CTA
    DELTA_RUN = 4,                                 // neighbouring keys that a lane has
    DELTA_KEYS_USUAL = 128,                        // as many as published models have at most
    DELTA_AT_ONCE = 4,                             // tokens of a sequence whose q and k are loaded together
};

#endif
