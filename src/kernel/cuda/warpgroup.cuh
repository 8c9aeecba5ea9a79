// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/warpgroup.cuh: what all wgmma kernels (sm_90a) share: mbarriers between producer warps and consumer
// warpgroups, and the fence and the commit of a group of products.
#ifndef KERNEL_CUDA_WARPGROUP_CUH
#define KERNEL_CUDA_WARPGROUP_CUH

#include "kernel/cuda/barrier.cuh"

DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#endif
