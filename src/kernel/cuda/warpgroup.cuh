// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/warpgroup.cuh: what every kernel has that multiplies by sm_90a's warpgroups: barriers, by which those who
// bring tiles and those who use them meet, and the brackets around products.
#ifndef KERNEL_CUDA_WARPGROUP_CUH
#define KERNEL_CUDA_WARPGROUP_CUH

#include "kernel/cuda/barrier.cuh"

DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#endif
