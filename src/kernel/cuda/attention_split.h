// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_split.h: the KV splits of decode attention (FlashDecoding), for C and CUDA alike.
//   (1) the tokens that a sequence's rows see are divided into splits, as even as whole KV blocks allow. The number of
//       splits is a power of two and depends only on the kernel, the number of those tokens and the number of rows. A
//       warp computes one, two or four splits
//   (2) splits are combined as the leaves of a binary tree, neighbours first. Maxima are whole numbers
//       (attention_step.cuh), so that the weight of a sum is a power of two and costs no bits: a node has the same bits
//       whether a warp combines it, a CTA, or the combining kernel
//   (3) a chunk is a node of that tree, which one CTA computes at a time: one split for each of some of its warps when
//       sequences are few, two or four for each warp when they are many. By (2) the size of chunks does not change the
//       bits, so that a sequence's result does not depend on the rest of the batch
#ifndef KERNEL_CUDA_ATTENTION_SPLIT_H
#define KERNEL_CUDA_ATTENTION_SPLIT_H

#ifdef __CUDACC__
#define SPLIT static inline __host__ __device__
#else
#define SPLIT static inline
#endif

// The most rows of a sequence, the tokens of a KV block, and log2 of the most results that the chunks of a sequence
// write for each query head, all rows together.
enum { SPLIT_ROWS_MAX = 8, SPLIT_TOKENS = 32, SPLIT_LOG_RESULTS = 4 };

// Up to the number of splits that suits the kernel, each has at least 2^SPLIT_LOG_NEAR KV blocks. Contexts of at least
// 2^SPLIT_LOG_FAR KV blocks may have more splits, of at least 2^SPLIT_LOG_LONG KV blocks each.
enum { SPLIT_LOG_NEAR = 1, SPLIT_LOG_FAR = 9, SPLIT_LOG_LONG = 3 };

// A chunk writes for each row and query head: v_dim weighted sums, the maximum, the softmax denominator, and the number
// of chunks. The first chunk writes that number even if it is the only one.
enum { SPLIT_TAIL = 4, SPLIT_MAXIMUM = 0, SPLIT_SUM = 1, SPLIT_CHUNKS = 2 };

// The columns of a product: (row, query head) pairs that share a KV head. The bytes of the work list for one sequence.
// The warps of a CTA that combines chunks, and how many such CTAs an SM has if values are rotated, when they have one
// warp. In steps of more sequences than SPLIT_COMBINE_FEW, most have one chunk.
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

// log2 of the most results for one of so many rows.
SPLIT int split_log_results(int rows) { return SPLIT_LOG_RESULTS - split_log(2 * rows - 1); }

// log2 of the splits that this many KV blocks are divided into. log_warps: log2 of a CTA's warps; suits: log2 of the
// number of splits that suits the kernel.
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
