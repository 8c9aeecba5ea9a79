// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/ssm_scan.h: the sizes that scan.c and scan.cu agree on.
#ifndef KERNEL_CUDA_SSM_SCAN_H
#define KERNEL_CUDA_SSM_SCAN_H

enum {
    CONV_THREADS = 128,
    CONV_CHANNELS = 2,   // of a thread
    CONV_TAPS_FEW = 4,   // as many as published models have
    CONV_TOKENS_FEW = 8, // of a tile, with few taps or with more
    CONV_TOKENS_MANY = 16,
    SCAN_THREADS = 128,
    SCAN_COLUMNS = 32,   // of a block
    SCAN_KEYS_FEW = 128, // as many as published models have
};

#endif
