// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/barrier.cuh: mbarriers in shared memory, for producers and consumers. A barrier goes through phases; a
// wait names the parity of one.
#ifndef KERNEL_CUDA_BARRIER_CUH
#define KERNEL_CUDA_BARRIER_CUH

#include "kernel/cuda/common.cuh"

enum { BARRIER_BYTES = 8 };

DEVICE void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// With try_wait the hardware suspends the warp while it waits.
#if __CUDA_ARCH__ >= 900
#define BARRIER_ASK "try_wait"
#else
#define BARRIER_ASK "test_wait"
#endif

// Waits until the phase of this parity is complete.
DEVICE void barrier_wait(uint32_t barrier, int parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier." BARRIER_ASK ".parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

#endif
