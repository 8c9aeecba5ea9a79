// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/latent_split.h: how attention over latents is cut up, for C and CUDA alike. A block has LATENT_QUERIES
// (row, head) pairs of one sequence, and walks what they see. A sequence with one row in a step has so few of them that
// its context is cut into parts, at multiples of a length that depends on nothing but how much it sees and how many
// heads there are: so its result does not depend on what else is in the batch.
#ifndef KERNEL_CUDA_LATENT_SPLIT_H
#define KERNEL_CUDA_LATENT_SPLIT_H

#ifdef __CUDACC__
#define LATENT static inline __host__ __device__
#else
#define LATENT static inline
#endif

enum { LATENT_QUERIES = 64, LATENT_THREADS = 256, LATENT_TOKENS = 32 }; // of a block; tokens of a step
enum { LATENT_SHIFT_MIN = 8, LATENT_PART_HEADS = 2048, LATENT_PARTS_MIN = 8, LATENT_PARTS_MAX = 64 };

// What a part leaves behind for each head: v_dim sums, the maximum, the sum of shares, and room for alignment.
enum { LATENT_TAIL = 4, LATENT_MAXIMUM = 0, LATENT_SUM = 1 };

// Shared memory of a block: two steps' latents in rows that no two of eight share a bank, and scores in halves.
enum { LATENT_ROW = 584, LATENT_SCORES = LATENT_TOKENS + 8 };
#define LATENT_SHARED_BYTES (2 * LATENT_TOKENS * LATENT_ROW * 2 + 2 * LATENT_QUERIES * LATENT_SCORES * 4)

// The most parts that a context is cut into: fewer of more heads, which have blocks of their own.
LATENT int latent_splits_max(int heads)
{
    int parts = LATENT_PART_HEADS / heads;
    return parts < LATENT_PARTS_MIN ? LATENT_PARTS_MIN : parts > LATENT_PARTS_MAX ? LATENT_PARTS_MAX : parts;
}

// log2 of a part's tokens.
LATENT int latent_shift(int visible, int heads)
{
    int shift = LATENT_SHIFT_MIN;
    while (visible > latent_splits_max(heads) << shift)
        shift++;
    return shift;
}

LATENT int latent_splits(int visible, int heads)
{
    int shift = latent_shift(visible, heads);
    return (visible + (1 << shift) - 1) >> shift;
}

// The most parts of any context up to this one: a longer one may have fewer.
LATENT int latent_splits_within(int context, int heads)
{
    int parts = (context + (1 << LATENT_SHIFT_MIN) - 1) >> LATENT_SHIFT_MIN;
    return parts < latent_splits_max(heads) ? parts : latent_splits_max(heads);
}

// Rows of a sequence that a block takes: all heads of several, or some heads of one.
LATENT int latent_rows(int heads) { return heads < LATENT_QUERIES ? LATENT_QUERIES / heads : 1; }

LATENT int latent_ctas(int heads) // of a row
{
    return (heads + LATENT_QUERIES - 1) / LATENT_QUERIES;
}

#undef LATENT
#endif
