// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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

bool sampler_check(const struct sampling *sampling, struct error *err)
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
    return true;
}

// Each token that has occurred is made less likely, once: positive logits are divided, negative multiplied.
static void penalise(struct sampler *sampler, double penalty, const int32_t *ids, int count)
{
    for (int i = 0; i < count; i++) {
        if (sampler->seen[ids[i]])
            continue;
        sampler->seen[ids[i]] = 1;
        float *logit = &sampler->logits[ids[i]];
        *logit = (float)(*logit > 0 ? *logit / penalty : *logit * penalty);
    }
    for (int i = 0; i < count; i++)
        sampler->seen[ids[i]] = 0;
}

static int32_t most_likely(const float *logits, int vocabulary)
{
    int32_t best = 0;
    for (int32_t id = 1; id < vocabulary; id++)
        if (logits[id] > logits[best])
            best = id;
    return best;
}

// Candidates in the order of ids with unnormalised probabilities (the most likely has 1), those below min_p left out.
static int list_candidates(struct sampler *sampler, const struct sampling *sampling)
{
    float highest = sampler->logits[most_likely(sampler->logits, sampler->vocabulary)];
    int count = 0;
    for (int32_t id = 0; id < sampler->vocabulary; id++) {
        double probability = exp((sampler->logits[id] - highest) / sampling->temperature);
        if (probability >= sampling->min_p && probability > 0)
            sampler->candidates[count++] = (struct candidate){ (float)probability, id };
    }
    return count;
}

static bool before(struct candidate a, struct candidate b)
{
    return a.probability > b.probability || (a.probability == b.probability && a.id < b.id);
}

static void sift_down(struct candidate *heap, int count, int at)
{
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], heap[at]))
            return;
        struct candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

// Moves the first of a heap of `count` behind it, where candidates in falling order gather.
static void pop(struct candidate *heap, int count)
{
    struct candidate first = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = first;
    sift_down(heap, count - 1, 0);
}

// Keeps the top_k most likely, and of those as many as make up top_p of their sum: only as many are sorted as are kept.
// They are the last ones of the array afterwards, the most likely last. Returns how many there are.
static int keep_top(struct candidate *candidates, int count, const struct sampling *sampling)
{
    for (int at = count / 2 - 1; at >= 0; at--)
        sift_down(candidates, count, at);
    int limit = sampling->top_k && sampling->top_k < count ? sampling->top_k : count, popped = 0;
    double total = 0, sum = 0;
    for (; limit < count && popped < limit; popped++)
        pop(candidates, count - popped);
    for (int i = count - limit; i < count; i++) // the top_k that were popped, or all of them in no order
        total += candidates[i].probability;
    for (int kept = 0; kept < limit; kept++) {
        if (kept == popped)
            pop(candidates, count - popped++);
        sum += candidates[count - 1 - kept].probability;
        if (sampling->top_p < 1 && sum >= sampling->top_p * total)
            return kept + 1;
    }
    return limit;
}

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

int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct sampling *sampling, const int32_t *ids,
                     int count)
{
    memcpy(sampler->logits, logits, (size_t)sampler->vocabulary * sizeof *logits);
    if (sampling->repetition_penalty != 1)
        penalise(sampler, sampling->repetition_penalty, ids, count);
    if (sampling->temperature == 0)
        return most_likely(sampler->logits, sampler->vocabulary);

    int all = list_candidates(sampler, sampling), kept = all;
    if (!all) // an extreme penalty has made logits infinite
        return most_likely(sampler->logits, sampler->vocabulary);
    if (sampling->top_k || sampling->top_p < 1)
        kept = keep_top(sampler->candidates, all, sampling);
    const struct candidate *first = sampler->candidates + (all - kept);
    double total = 0, sum = 0;
    for (int i = 0; i < kept; i++)
        total += first[i].probability;
    double target = uniform(sampling->seed, sampling->choice, count) * total;
    for (int i = 0; i < kept; i++)
        if ((sum += first[i].probability) > target)
            return first[i].id;
    return first[kept - 1].id;
}
