// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/latent_split.h: the KV splits of latent attention (MLA), for C and CUDA alike. A block has LATENT_QUERIES
// (row, head) pairs of one sequence, and goes over the tokens that they see. A sequence with one row in a step has so
// few pairs that its context is divided into splits, at multiples of a length that depends only on the number of tokens
// seen and the number of heads: its result does not depend on the rest of the batch.
#ifndef KERNEL_CUDA_LATENT_SPLIT_H
#define KERNEL_CUDA_LATENT_SPLIT_H

#ifdef __CUDACC__
#define LATENT static inline __host__ __device__
#else
#define LATENT static inline
#endif

enum { LATENT_QUERIES = 64, LATENT_THREADS = 256, LATENT_TOKENS = 32 }; // of a block; tokens of a step
enum { LATENT_SHIFT_MIN = 8, LATENT_SPLIT_HEADS = 2048, LATENT_SPLITS_MIN = 8, LATENT_SPLITS_MAX = 64 };

// A split writes for each head: v_dim weighted sums, the maximum, the softmax denominator, and padding.
enum { LATENT_TAIL = 4, LATENT_MAXIMUM = 0, LATENT_SUM = 1 };

// Shared memory of a block: the latents of two steps, in rows padded against bank conflicts, and the scores of both
// halves of the channels.
enum { LATENT_ROW = 584, LATENT_SCORES = LATENT_TOKENS + 8 };
#define LATENT_SHARED_BYTES (2 * LATENT_TOKENS * LATENT_ROW * 2 + 2 * LATENT_QUERIES * LATENT_SCORES * 4)

// The most splits of a context: fewer with more heads, which have blocks of their own.
LATENT int latent_splits_max(int heads)
{
    int splits = LATENT_SPLIT_HEADS / heads;
    return splits < LATENT_SPLITS_MIN ? LATENT_SPLITS_MIN : splits > LATENT_SPLITS_MAX ? LATENT_SPLITS_MAX : splits;
}

// log2 of a split's tokens.
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

// The most splits of any context up to this one: a longer context may have fewer.
LATENT int latent_splits_within(int context, int heads)
{
    int splits = (context + (1 << LATENT_SHIFT_MIN) - 1) >> LATENT_SHIFT_MIN;
    return splits < latent_splits_max(heads) ? splits : latent_splits_max(heads);
}

// Rows of a sequence in a block: several rows with all heads, or one row with some heads.
LATENT int latent_rows(int heads) { return heads < LATENT_QUERIES ? LATENT_QUERIES / heads : 1; }

LATENT int latent_ctas(int heads) // of a row
{
    return (heads + LATENT_QUERIES - 1) / LATENT_QUERIES;
}

#undef LATENT
#endif
