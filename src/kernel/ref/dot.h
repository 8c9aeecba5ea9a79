// SPDX-License-Identifier: Apache-2.0
// kernel/ref/dot.h: sums in one fixed order. A dot product runs as interleaved partial sums that are then added as a
// tree; the order depends on its length alone, so a result never depends on what else is computed beside it.
#ifndef KERNEL_REF_DOT_H
#define KERNEL_REF_DOT_H

enum { DOT_LANES = 4 };

// Four floats that add and multiply lane by lane; may lie at any float's address.
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
