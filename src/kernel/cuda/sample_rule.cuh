// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/sample_rule.cuh: the rule by which a row of logits is sampled, one token at a time: its probability, and
// its rank.
//   (1) a probability is relative to that of the most likely token, an integer in units of 2^-44, so that sums do not
//       depend on their order
//   (2) a token's key is the value by which it is ranked, then its id: keys are unique, and the greater key comes first
#ifndef KERNEL_CUDA_SAMPLE_RULE_CUH
#define KERNEL_CUDA_SAMPLE_RULE_CUH

#include "kernel/cuda/common.cuh"

enum {
    IDS = CUDA_SAMPLING_VOCABULARY_MAX,
    ID_BITS = 19,
    KEY_BITS = 32 + ID_BITS,
    UNIT_BITS = 44,
    BINS = CUDA_SAMPLING_BINS,
    BIN_BITS = 20, // of a probability, within its bin: three of a mantissa are left, and eight bins are a power of two
    FIRST_BIN = 0x3F800000 >> BIN_BITS, // of the likeliest token, which has 1
};
static_assert(IDS == 1 << ID_BITS, "an id is the lower part of a key");

struct rule {
    float highest;
    float inverse, inverse_rest; // of the temperature, as the sum of two floats
    float least;                 // min_p
    bool cut;                    // by top_k: tokens are then ranked by logit, else by probability
};

DEVICE bool is_cut(const struct cuda_sampling_row &row, int vocabulary)
{
    return row.top_k > 0 && row.top_k < vocabulary;
}

DEVICE struct rule rule_of(const struct cuda_sampling_row &row, float highest, int vocabulary)
{
    double inverse = 1 / fmax(row.temperature, 0x1p-100);
    float rounded = (float)inverse;
    return { highest, rounded, (float)(inverse - rounded), __double2float_ru(row.min_p), is_cut(row, vocabulary) };
}

// (logit - highest) / temperature with one rounding, as if in double, which is slow on many GPUs. fma is explicit,
// since two kernels must agree to the bit. Values that the host rounds to 0 are less than half a unit here.
DEVICE float probability_of(const struct rule &rule, float logit)
{
    float apart = logit - rule.highest, back = apart - logit;
    float lost = (logit - (apart - back)) - (rule.highest + back);
    float x = __fmul_rn(apart, rule.inverse);
    x += fmaf(apart, rule.inverse, -x) + fmaf(apart, rule.inverse_rest, __fmul_rn(lost, rule.inverse));
    return expf(fmaxf(x, -88.0f));
}

// In units, to the nearest. Adding a float whose last place is 1 leaves an integer in its last bits: half of the units'
// bits first, then those of what was lost. Conversions to 64 bits are slower.
DEVICE uint64_t weight_of_probability(const struct rule &rule, float probability)
{
    const float whole = 0x1.8p23f, half = 1 << UNIT_BITS / 2;
    probability = probability >= rule.least ? probability : 0;
    float high = fmaf(probability, half, whole);
    float low = fmaf(fmaf(probability, half, whole - high), half, whole);
    int high_bits = f32_bits(high) - f32_bits(whole), low_bits = f32_bits(low) - f32_bits(whole);
    return (uint64_t)((int64_t)high_bits * (1 << UNIT_BITS / 2) + low_bits);
}

DEVICE uint64_t weight_of(const struct rule &rule, float logit)
{
    return weight_of_probability(rule, probability_of(rule, logit));
}

// ---- keys ----

// Floats in the order of unsigned integers; the zeros are one.
DEVICE uint32_t ordered(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

DEVICE float unordered(uint32_t order) { return __uint_as_float(order ^ (order >> 31 ? 0x80000000u : 0xFFFFFFFFu)); }

DEVICE uint64_t key_of(const struct rule &rule, float logit, int id)
{
    uint32_t rank = rule.cut ? ordered(logit) : __float_as_uint(probability_of(rule, logit));
    return (uint64_t)rank << ID_BITS | (uint32_t)(IDS - 1 - id);
}

DEVICE int bin_of(float probability) { return FIRST_BIN - (int)(__float_as_uint(probability) >> BIN_BITS); }
DEVICE uint32_t bin_rank(int bin) { return (uint32_t)(FIRST_BIN - bin) << BIN_BITS; } // the least in it

DEVICE uint32_t key_rank(uint64_t key) { return (uint32_t)(key >> ID_BITS); }
DEVICE int key_id(uint64_t key) { return IDS - 1 - (int)(key & (IDS - 1)); }

DEVICE uint64_t key_weight(const struct rule &rule, uint64_t key)
{
    return rule.cut ? weight_of(rule, unordered(key_rank(key)))
                    : weight_of_probability(rule, __uint_as_float(key_rank(key)));
}

#endif
