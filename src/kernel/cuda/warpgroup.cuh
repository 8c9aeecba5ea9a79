// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/warpgroup.cuh: what every kernel has that multiplies by sm_90a's warpgroups: barriers in shared memory, by
// which those who bring tiles and those who use them meet, and the brackets around products.
#ifndef KERNEL_CUDA_WARPGROUP_CUH
#define KERNEL_CUDA_WARPGROUP_CUH

#include "kernel/cuda/common.cuh"

DEVICE void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Until the phase of this parity is over.
DEVICE void barrier_wait(uint32_t barrier, int parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again;\n"
                 "}" :: "r"(barrier), "r"(parity) : "memory");
}

DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#endif
