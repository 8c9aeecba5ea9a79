// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_split.h: how decode attention is cut up, for C and CUDA alike.
//   (1) what a sequence's rows see is cut into parts, as even as whole blocks of tokens allow. Their number is a power
//       of two and depends on nothing but the kernel, how much they see and how many rows there are. A warp does one
//       part, two or four
//   (2) parts are added up as the leaves of a binary tree, neighbours first. Maxima are whole numbers
//       (attention_step.cuh), so the weight of a sum is a power of two and takes no bits from it: a node has the same
//       bits whoever adds it up, a warp that has its parts, a block whose warps have them, or the kernel behind them
//   (3) a chunk is a node of that tree, what one block does at a time: a part for each of some of its warps when
//       sequences are few, two or four for each warp when they are many. With (2) that makes no difference to the bits,
//       so a sequence's result does not depend on what else is in the batch
#ifndef KERNEL_CUDA_ATTENTION_SPLIT_H
#define KERNEL_CUDA_ATTENTION_SPLIT_H

#ifdef __CUDACC__
#define SPLIT static inline __host__ __device__
#else
#define SPLIT static inline
#endif

// The most rows of a sequence, the tokens of a block, and log2 of the most results that a sequence's chunks leave
// behind for each head, all rows together.
enum { SPLIT_ROWS_MAX = 8, SPLIT_TOKENS = 32, SPLIT_LOG_RESULTS = 4 };

// As many parts as suit the kernel have 2^SPLIT_LOG_NEAR blocks at least. From 2^SPLIT_LOG_FAR blocks on there may be
// more, of 2^SPLIT_LOG_LONG at least.
enum { SPLIT_LOG_NEAR = 1, SPLIT_LOG_FAR = 9, SPLIT_LOG_LONG = 3 };

// What a chunk leaves behind for each row and head: v_dim sums, the maximum, the sum of shares, and how many chunks
// there are, which the first one says even where it is all there is.
enum { SPLIT_TAIL = 4, SPLIT_MAXIMUM = 0, SPLIT_SUM = 1, SPLIT_CHUNKS = 2 };

// The columns of a product, (row, head) pairs that share a KV head; what a block keeps of each sequence; the warps of a
// block that adds up chunks, and how many of them a multiprocessor has if they are of one warp, values being rotated.
// More sequences than SPLIT_COMBINE_FEW are likely to be of one chunk each.
enum { SPLIT_COLUMNS = 8, SPLIT_WORK_BYTES = 28 };
enum { SPLIT_COMBINE_WARPS = 4, SPLIT_COMBINE_ROTATED = 16, SPLIT_COMBINE_FEW = 4 };

// log2, rounded down; 0 for 0.
SPLIT int split_log(int number)
{
#ifdef __CUDA_ARCH__
    return 31 - __clz(number | 1);
#else
    return 31 - __builtin_clz((unsigned)number | 1);
#endif
}

// Of the most results for one of so many rows.
SPLIT int split_log_results(int rows) { return SPLIT_LOG_RESULTS - split_log(2 * rows - 1); }

// log2 of the parts that this many blocks are cut into; log_warps: of a block of threads; suits: of the parts that suit
// the kernel.
SPLIT int split_log_splits(int blocks, int rows, int log_warps, int suits)
{
    int length = split_log(blocks), most = log_warps + split_log_results(rows);
    int log = length - SPLIT_LOG_NEAR < suits ? length - SPLIT_LOG_NEAR : suits;
    if (length >= SPLIT_LOG_FAR && log < length - SPLIT_LOG_LONG)
        log = length - SPLIT_LOG_LONG;
    return log > most ? most : log < log_warps ? log_warps : log;
}

#undef SPLIT
#endif
