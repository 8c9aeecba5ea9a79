// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/sampling/adjust.h"
#include "engine/sampling/chain.h"

enum { DIGIT_BITS = 10, DIGITS = 1 << DIGIT_BITS, PROBABILITY_BITS = 30 }; // floats up to 1 have the two highest clear

void sampler_open(struct sampler *sampler, int vocabulary)
{
    *sampler = (struct sampler){ .vocabulary = vocabulary };
    sampler->logits = memory_new((size_t)vocabulary, sizeof *sampler->logits);
    sampler->candidates = memory_new((size_t)vocabulary, sizeof *sampler->candidates);
    sampler->seen = memory_new((size_t)vocabulary, sizeof *sampler->seen);
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->logits);
    free(sampler->candidates);
    free(sampler->seen);
    free(sampler->weights);
    free(sampler->saved);
    free(sampler->longest);
    free(sampler->repeats);
    *sampler = (struct sampler){ 0 };
}

bool sampler_check(const struct nibble_sampling *sampling, struct error *err)
{
    if (!(sampling->temperature >= 0 && sampling->temperature <= 100))
        return fail_usage(err, "temperature %g: 0 to 100 is possible", sampling->temperature);
    if (!(sampling->top_p > 0 && sampling->top_p <= 1))
        return fail_usage(err, "top-p %g: more than 0 and at most 1 is possible", sampling->top_p);
    if (!(sampling->min_p >= 0 && sampling->min_p <= 1))
        return fail_usage(err, "min-p %g: 0 to 1 is possible", sampling->min_p);
    if (sampling->top_k < 0)
        return fail_usage(err, "top-k %d: 0 (off) or more is possible", sampling->top_k);
    if (!(sampling->repetition_penalty > 0 && sampling->repetition_penalty <= 100))
        return fail_usage(err, "repetition-penalty %g: more than 0 and at most 100 is possible",
                          sampling->repetition_penalty);
    if (!(fabs(sampling->presence_penalty) <= 100))
        return fail_usage(err, "presence-penalty %g: -100 to 100 is possible", sampling->presence_penalty);
    if (!(fabs(sampling->frequency_penalty) <= 100))
        return fail_usage(err, "frequency-penalty %g: -100 to 100 is possible", sampling->frequency_penalty);
    return chain_check(sampling, err);
}

bool sampler_is_usual(const struct nibble_sampling *sampling)
{
    bool typical = sampling->typical_p > 0 && sampling->typical_p < 1;
    return !sampling->order[0] && !sampling->mirostat && !typical && sampling->dry_multiplier == 0
        && sampling->top_n_sigma == 0 && sampling->top_a == 0 && sampling->dynatemp_range == 0
        && sampling->xtc_probability == 0 && sampling->min_keep <= 1;
}

// ---- candidates ----

float sampler_probability(float logit, float highest, double temperature)
{
    double x = ((double)logit - highest) / temperature;
    return x > -87 ? expf((float)x) : 0;
}

// All of them in the order of ids, those below min_p left out.
static int list_all(struct sampler *sampler, const struct nibble_sampling *sampling, float highest)
{
    int count = 0;
    for (int32_t id = 0; id < sampler->vocabulary; id++) {
        float probability = sampler_probability(sampler->logits[id], highest, sampling->temperature);
        if (probability >= sampling->min_p && probability > 0)
            sampler->candidates[count++] = (struct candidate){ probability, id };
    }
    return count;
}

// The top_k most likely, falling: what min_p leaves of them.
static int list_likeliest(struct sampler *sampler, const struct nibble_sampling *sampling, float highest)
{
    struct candidate *candidates = sampler->candidates;
    int kept = 0, found = logits_top(sampler->logits, sampler->vocabulary, candidates, sampling->top_k);
    for (; kept < found; kept++) {
        candidates[kept].value = sampler_probability(candidates[kept].value, highest, sampling->temperature);
        if (candidates[kept].value < sampling->min_p || candidates[kept].value <= 0)
            break;
    }
    return kept;
}

static double sum_of(const struct candidate *candidates, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += candidates[i].value;
    return sum;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float weight_of(const struct candidate *candidates, const float *weights, int i)
{
    return weights ? weights[i] : candidates[i].value;
}

// The greatest value, as its bits, that makes up `wanted` together with all greater ones; *greater: those alone.
// Positive floats are in the order of their bits, so it is found digit by digit, without sorting.
static uint32_t find_threshold(const struct candidate *candidates, const float *weights, int count, double wanted,
                               double *greater)
{
    uint32_t threshold = 0;
    *greater = 0;
    for (int shift = PROBABILITY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        double sums[DIGITS] = { 0 };
        for (int i = 0; i < count; i++) {
            uint32_t bits = bits_of(candidates[i].value);
            if (bits >> shift >> DIGIT_BITS == threshold >> shift >> DIGIT_BITS)
                sums[bits >> shift & (DIGITS - 1)] += weight_of(candidates, weights, i);
        }
        uint32_t digit = DIGITS - 1;
        while (digit > 0 && *greater + sums[digit] < wanted)
            *greater += sums[digit--];
        threshold |= digit << shift;
    }
    return threshold;
}

int sampler_keep_mass(struct candidate *candidates, const float *weights, int count, double wanted)
{
    double sum;
    uint32_t threshold = find_threshold(candidates, weights, count, wanted, &sum);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        uint32_t bits = bits_of(candidates[i].value);
        bool needed = bits == threshold && sum < wanted;
        if (needed)
            sum += weight_of(candidates, weights, i);
        if (needed || bits > threshold)
            candidates[kept++] = candidates[i];
    }
    return kept;
}

// ---- the draw ----

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

double sampler_uniform(const struct nibble_sampling *sampling, int position, int stream)
{
    uint64_t key = mix(sampling->seed + 0x9E3779B97F4A7C15u * (uint64_t)(1 + stream));
    key = mix(key ^ ((uint64_t)(uint32_t)sampling->choice << 32 | (uint32_t)position));
    return (double)(mix(key + 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct draw *draw)
{
    const struct nibble_sampling *sampling = draw->sampling;
    memcpy(sampler->logits, logits, (size_t)sampler->vocabulary * sizeof *logits);
    if (!sampler_is_usual(sampling))
        return chain_draw(sampler, draw);
    adjust_penalties(sampler, draw);
    adjust_limits(sampler, draw);
    int32_t best = logits_most_likely(sampler->logits, sampler->vocabulary);
    if (sampling->temperature == 0)
        return best;

    float highest = sampler->logits[best];
    bool cut = sampling->top_k && sampling->top_k < sampler->vocabulary;
    int count = cut ? list_likeliest(sampler, sampling, highest) : list_all(sampler, sampling, highest);
    struct candidate *candidates = sampler->candidates;
    if (sampling->top_p < 1)
        count = sampler_keep_mass(candidates, NULL, count, sampling->top_p * sum_of(candidates, count));
    double target = sampler_uniform(sampling, draw->count, 0) * sum_of(candidates, count), sum = 0;
    for (int i = 0; i < count; i++)
        if ((sum += candidates[i].value) > target)
            return candidates[i].id;
    return candidates[count - 1].id;
}
