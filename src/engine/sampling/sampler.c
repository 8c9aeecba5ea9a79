// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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
    return true;
}

// ---- logits as the request wants them ----

// -inf is kept for what may not come.
static float clamp(double logit) { return (float)fmin(fmax(logit, -FLT_MAX), FLT_MAX); }

// Each token that has occurred is made less likely, once: positive logits are divided, negative multiplied.
static void penalise_repetition(struct sampler *sampler, double penalty, const int32_t *ids, int count)
{
    for (int i = 0; i < count; i++) {
        if (sampler->seen[ids[i]])
            continue;
        sampler->seen[ids[i]] = 1;
        float *logit = &sampler->logits[ids[i]];
        *logit = clamp(*logit > 0 ? *logit / penalty : *logit * penalty);
    }
    for (int i = 0; i < count; i++)
        sampler->seen[ids[i]] = 0;
}

// Each token of the answer, once for being there and once per occurrence.
static void penalise_answer(struct sampler *sampler, const struct nibble_sampling *sampling, const int32_t *ids,
                            int count)
{
    for (int i = 0; i < count; i++) {
        double penalty = sampling->frequency_penalty + (sampler->seen[ids[i]] ? 0 : sampling->presence_penalty);
        sampler->seen[ids[i]] = 1;
        sampler->logits[ids[i]] = clamp(sampler->logits[ids[i]] - penalty);
    }
    for (int i = 0; i < count; i++)
        sampler->seen[ids[i]] = 0;
}

static void apply_mask(struct sampler *sampler, const uint32_t *mask)
{
    for (int id = 0; id < sampler->vocabulary; id++)
        if (!(mask[id / 32] >> id % 32 & 1))
            sampler->logits[id] = -INFINITY;
}

static void ban(struct sampler *sampler, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sampler->candidates[i] = (struct candidate){ sampler->logits[ids[i]], ids[i] };
        sampler->logits[ids[i]] = -INFINITY;
    }
    if (sampler->logits[logits_most_likely(sampler->logits, sampler->vocabulary)] > -INFINITY)
        return;
    while (count--) // backwards: an id that came twice gets its first value
        sampler->logits[sampler->candidates[count].id] = sampler->candidates[count].value;
}

static void adjust(struct sampler *sampler, const struct draw *draw)
{
    const struct nibble_sampling *sampling = draw->sampling;
    if (sampling->repetition_penalty != 1)
        penalise_repetition(sampler, sampling->repetition_penalty, draw->ids, draw->count);
    if (sampling->presence_penalty != 0 || sampling->frequency_penalty != 0)
        penalise_answer(sampler, sampling, draw->ids + draw->prompt_count, draw->count - draw->prompt_count);
    for (size_t i = 0; i < draw->bias_count; i++) {
        float *logit = &sampler->logits[draw->bias[i].id];
        *logit = clamp((double)*logit + draw->bias[i].bias);
    }
    if (draw->mask)
        apply_mask(sampler, draw->mask);
    if (draw->banned_count)
        ban(sampler, draw->banned, draw->banned_count);
}

// ---- candidates ----

// The probability of a token relative to the most likely one, which has 1. Floats suffice for a draw and cost a third.
static float probability_of(float logit, float highest, double temperature)
{
    double x = ((double)logit - highest) / temperature;
    return x > -87 ? expf((float)x) : 0;
}

// All of them in the order of ids, those below min_p left out.
static int list_all(struct sampler *sampler, const struct nibble_sampling *sampling, float highest)
{
    int count = 0;
    for (int32_t id = 0; id < sampler->vocabulary; id++) {
        float probability = probability_of(sampler->logits[id], highest, sampling->temperature);
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
        candidates[kept].value = probability_of(candidates[kept].value, highest, sampling->temperature);
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

static uint32_t bits_of(float probability)
{
    uint32_t bits;
    memcpy(&bits, &probability, sizeof bits);
    return bits;
}

// The greatest probability, as its bits, that makes up `wanted` together with all greater ones; *greater: those alone.
// Positive floats are in the order of their bits, so it is found digit by digit, without sorting.
static uint32_t find_threshold(const struct candidate *candidates, int count, double wanted, double *greater)
{
    uint32_t threshold = 0;
    *greater = 0;
    for (int shift = PROBABILITY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        double sums[DIGITS] = { 0 };
        for (int i = 0; i < count; i++) {
            uint32_t bits = bits_of(candidates[i].value);
            if (bits >> shift >> DIGIT_BITS == threshold >> shift >> DIGIT_BITS)
                sums[bits >> shift & (DIGITS - 1)] += candidates[i].value;
        }
        uint32_t digit = DIGITS - 1;
        while (digit > 0 && *greater + sums[digit] < wanted)
            *greater += sums[digit--];
        threshold |= digit << shift;
    }
    return threshold;
}

// Keeps as many of the most likely as make up top_p of the sum; of equals, those that come first.
static int keep_top_p(struct candidate *candidates, int count, double top_p)
{
    double wanted = top_p * sum_of(candidates, count), sum;
    uint32_t threshold = find_threshold(candidates, count, wanted, &sum);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        uint32_t bits = bits_of(candidates[i].value);
        bool needed = bits == threshold && sum < wanted;
        if (needed)
            sum += candidates[i].value;
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

// Uniform in [0, 1), a pure function of its key.
static double uniform(uint64_t seed, int choice, int position)
{
    uint64_t key = mix(seed + 0x9E3779B97F4A7C15u);
    key = mix(key ^ ((uint64_t)(uint32_t)choice << 32 | (uint32_t)position));
    return (double)(mix(key + 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct draw *draw)
{
    const struct nibble_sampling *sampling = draw->sampling;
    memcpy(sampler->logits, logits, (size_t)sampler->vocabulary * sizeof *logits);
    adjust(sampler, draw);
    int32_t best = logits_most_likely(sampler->logits, sampler->vocabulary);
    if (sampling->temperature == 0)
        return best;

    float highest = sampler->logits[best];
    bool cut = sampling->top_k && sampling->top_k < sampler->vocabulary;
    int count = cut ? list_likeliest(sampler, sampling, highest) : list_all(sampler, sampling, highest);
    if (sampling->top_p < 1)
        count = keep_top_p(sampler->candidates, count, sampling->top_p);
    const struct candidate *candidates = sampler->candidates;
    double target = uniform(sampling->seed, sampling->choice, draw->count) * sum_of(candidates, count), sum = 0;
    for (int i = 0; i < count; i++)
        if ((sum += candidates[i].value) > target)
            return candidates[i].id;
    return candidates[count - 1].id;
}
