// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_schedule.cuh: which block does which piece of work. Most often they are dealt out in turn.
// Where they
// are many and long (work.is_dealt), a block has the one of its own number first, and then takes whichever is next in
// the list, one ahead: memory is not equally near to all multiprocessors, and contexts differ in length. To the bits of
// a piece it makes no difference who does it.
#ifndef KERNEL_CUDA_ATTENTION_SCHEDULE_CUH
#define KERNEL_CUDA_ATTENTION_SCHEDULE_CUH

#include "kernel/cuda/attention_work.cuh"

// Of a block's pieces, those that any of its warps may still have to find, or has asked for already: warps are within a
// piece of each other, have steps of every piece, and are no more than two steps ahead.
enum { DEAL_KNOWN = 8 };

// A block's own, in shared memory: how many pieces it has asked for besides its first, and where in the list they are,
// each with its number among the block's in the upper half.
struct deal {
    int asked;
    unsigned long long places[DEAL_KNOWN];
};

// How often blocks have asked in this launch. In all they do as often as there are pieces: for each that is nobody's
// first, and then, each once, for nothing. The last of them leaves it as the next launch has to find it.
static __device__ int deal_asked;

// Before the block's first barrier.
DEVICE void deal_open(struct deal *deal)
{
    if (threadIdx.x < DEAL_KNOWN)
        deal->places[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        deal->asked = 0;
}

// Asks for the block's piece `number`, if no other warp has; not while kernels before this one run, since one of them
// may be of the same kind.
DEVICE void deal_ask(const struct work &work, struct deal *deal, int number)
{
    if (!work.is_dealt || lane_index() != 0 || atomicCAS(&deal->asked, number - 1, number) != number - 1)
        return;
    int before = atomicAdd(&deal_asked, 1), place = (int)gridDim.x + before;
    if (before == work_pieces(work) - 1)
        deal_asked = 0;
    atomicExch(&deal->places[number % DEAL_KNOWN], (unsigned long long)number << 32 | (unsigned)place);
}

// Where in the list the block's piece `number` is, by all lanes.
DEVICE int deal_place(const struct work &work, struct deal *deal, int number)
{
    if (!work.is_dealt || number == 0)
        return (int)blockIdx.x + number * (int)gridDim.x;
    unsigned long long known = 0;
    if (lane_index() == 0)
        do
            known = atomicCAS(&deal->places[number % DEAL_KNOWN], 0ull, 0ull);
        while ((int)(known >> 32) != number);
    return __shfl_sync(WARP_ALL, (int)known, 0);
}

// Piece `number` of the block's, by all lanes; false where there is none.
DEVICE bool deal_piece(const struct cuda_attention &p, const struct work &work, struct deal *deal, int number,
                       struct piece *out)
{
    return work_piece(p, work, deal_place(work, deal, number), out);
}

#endif
