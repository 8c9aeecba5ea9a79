// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/ssm_scan.h: the sizes of the launches of ssm_scan.cu, for C and CUDA alike.
#ifndef KERNEL_CUDA_SSM_SCAN_H
#define KERNEL_CUDA_SSM_SCAN_H

enum {
    CONV_THREADS = 128,
    CONV_CHANNELS = 2,   // of a thread
    CONV_4_TOKENS = 8,   // of a tile, with convolution kernels up to 4 wide, as published models have,
    CONV_16_TOKENS = 16, // or up to 16
    SCAN_THREADS = 128,
    SCAN_COLUMNS = 32, // of a CTA
};

#endif
