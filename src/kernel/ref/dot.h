// SPDX-License-Identifier: Apache-2.0
// kernel/ref/dot.h: dot products with a fixed order of summation: interleaved partial sums, then a tree. The order
// depends on the length alone, which makes results batch-invariant.
#ifndef KERNEL_REF_DOT_H
#define KERNEL_REF_DOT_H

enum { DOT_LANES = 4 };

// A vector of four floats, at any float alignment.
typedef float dot_lanes __attribute__((vector_size(DOT_LANES * sizeof(float)), aligned(4), may_alias));

static inline dot_lanes dot_load(const float *x) { return *(const dot_lanes *)x; }

static inline float dot_finish(dot_lanes sum) { return (sum[0] + sum[2]) + (sum[1] + sum[3]); }

static inline float dot(const float *a, const float *b, int n)
{
    dot_lanes sums[2] = { { 0 }, { 0 } };
    int k = 0;
    for (; k + 2 * DOT_LANES <= n; k += 2 * DOT_LANES) {
        sums[0] += dot_load(a + k) * dot_load(b + k);
        sums[1] += dot_load(a + k + DOT_LANES) * dot_load(b + k + DOT_LANES);
    }
    float rest = 0;
    for (; k < n; k++)
        rest += a[k] * b[k];
    return dot_finish(sums[0] + sums[1]) + rest;
}

#endif
