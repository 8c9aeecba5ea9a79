// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_split.h: how decode attention is cut up, for C and CUDA alike. The context that a sequence's
// rows see is cut into parts, at multiples of a part's length, which depends on nothing but the kernel, how much they
// see and how many they are: so a sequence's result does not depend on what else is in the batch.
#ifndef KERNEL_CUDA_ATTENTION_SPLIT_H
#define KERNEL_CUDA_ATTENTION_SPLIT_H

#ifdef __CUDACC__
#define SPLIT static inline __host__ __device__
#else
#define SPLIT static inline
#endif

// The most rows of a sequence, and how it is cut: into a few parts, of 512 tokens at least and of what suits the kernel
// at most, or else into as many as keep a device busy, all rows together. Short parts are for one sequence alone, long
// ones cost less when there are many.
enum { SPLIT_ROWS_MAX = 8, SPLIT_FEW = 4, SPLIT_ENOUGH = 32, SPLIT_SHIFT_MIN = 9 };

// What a part leaves behind for each row and head: v_dim sums, the maximum, the sum of shares, and room for alignment.
enum { SPLIT_TAIL = 4, SPLIT_MAXIMUM = 0, SPLIT_SUM = 1 };

// log2 of a part's tokens; `suits`: of those that suit the kernel.
SPLIT int split_shift(int visible, int rows, int suits)
{
    int shift = SPLIT_SHIFT_MIN;
    while (shift < suits && visible > SPLIT_FEW << shift)
        shift++;
    while (visible > SPLIT_ENOUGH / rows << shift)
        shift++;
    return shift;
}

// The parts that tokens [start, last] touch.
SPLIT int split_parts(int start, int last, int rows, int suits)
{
    int shift = split_shift(last - start + 1, rows, suits);
    return (last >> shift) - (start >> shift) + 1;
}

// The most parts that `rows` rows can have within a context of this length, wherever what they see begins.
SPLIT int split_parts_most(int context, int rows)
{
    int shortest = context >> SPLIT_SHIFT_MIN, enough = SPLIT_ENOUGH / rows;
    enough = enough > SPLIT_FEW ? enough : SPLIT_FEW;
    return (shortest < enough ? shortest : enough) + 2;
}

// The most results that the parts of one sequence leave behind for each head. Contexts are taken as the next power of
// two, as steps are captured for: what is enough for the longest is then enough for all.
SPLIT int split_results_most(int context)
{
    int rounded = 1, most = 0;
    while (rounded < context)
        rounded *= 2;
    for (int rows = 1; rows <= SPLIT_ROWS_MAX; rows++) {
        int results = rows * split_parts_most(rounded, rows);
        most = results > most ? results : most;
    }
    return most;
}

#undef SPLIT
#endif
