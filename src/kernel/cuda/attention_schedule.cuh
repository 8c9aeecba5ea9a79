// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_schedule.cuh: the tile scheduler of decode attention. Most steps assign work tiles to CTAs
// round-robin. Where tiles are many and long (work.is_dynamic), a CTA has the tile of its own index first and then
// takes the next one of the list from an atomic counter, one tile ahead: SMs differ in their distance to memory, and
// sequences in their context. The bits of a tile's result do not depend on the CTA that computes it.
#ifndef KERNEL_CUDA_ATTENTION_SCHEDULE_CUH
#define KERNEL_CUDA_ATTENTION_SCHEDULE_CUH

#include "kernel/cuda/attention_work.cuh"

// How many of a CTA's tiles must be remembered at once: warps are within a tile of each other, have steps of every
// tile, and copy no more than two steps ahead.
enum { CLAIMS_KNOWN = 8 };

// The state of a CTA, in shared memory: how many tiles it has claimed besides its first, and their indices in the list,
// each with its number among the CTA's tiles in the upper half.
struct scheduler {
    int asked;
    unsigned long long places[CLAIMS_KNOWN];
};

// The claims of all CTAs in this launch. In the end there are as many as tiles: one for each tile that is no CTA's
// first, and then one of every CTA that finds nothing left. The last claim resets the counter for the next launch.
static __device__ int claims;

// Clears the state; the CTA's first barrier follows.
DEVICE void scheduler_open(struct scheduler *scheduler)
{
    if (threadIdx.x < CLAIMS_KNOWN)
        scheduler->places[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        scheduler->asked = 0;
}

// Claims the CTA's tile `number`, unless another warp has. Kernels before this one must be done, since one of them may
// use the same counter.
DEVICE void scheduler_claim(const struct work &work, struct scheduler *scheduler, int number)
{
    if (!work.is_dynamic || lane_index() != 0 || atomicCAS(&scheduler->asked, number - 1, number) != number - 1)
        return;
    int before = atomicAdd(&claims, 1), place = (int)gridDim.x + before;
    if (before == work_tiles(work) - 1)
        claims = 0;
    atomicExch(&scheduler->places[number % CLAIMS_KNOWN], (unsigned long long)number << 32 | (unsigned)place);
}

// The index in the list of the CTA's tile `number`, by all lanes; waits for the warp that claims it.
DEVICE int scheduler_index(const struct work &work, struct scheduler *scheduler, int number)
{
    if (!work.is_dynamic || number == 0)
        return (int)blockIdx.x + number * (int)gridDim.x;
    unsigned long long known = 0;
    if (lane_index() == 0)
        do
            known = atomicCAS(&scheduler->places[number % CLAIMS_KNOWN], 0ull, 0ull);
        while ((int)(known >> 32) != number);
    return __shfl_sync(WARP_ALL, (int)known, 0);
}

// Finds the CTA's tile `number`, by all lanes; false if there is none.
DEVICE bool scheduler_tile(const struct cuda_attention &p, const struct work &work, struct scheduler *scheduler,
                           int number, struct work_tile *out)
{
    return work_find(p, work, scheduler_index(work, scheduler, number), out);
}

#endif
