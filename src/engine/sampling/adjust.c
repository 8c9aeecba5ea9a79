// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/adjust.h"

#include <float.h>
#include <math.h>
#include <string.h>

float adjust_clamp(double logit) { return (float)fmin(fmax(logit, -FLT_MAX), FLT_MAX); }

// ---- penalties ------------------------------------------------------------------------------------------------------

// Each token that has occurred is made less likely, once: positive logits are divided, negative multiplied.
static void penalise_repetition(struct sampler *sampler, double penalty, const int32_t *ids, int count)
{
    for (int i = 0; i < count; i++) {
        if (sampler->seen[ids[i]])
            continue;
        sampler->seen[ids[i]] = 1;
        float *logit = &sampler->logits[ids[i]];
        *logit = adjust_clamp(*logit > 0 ? *logit / penalty : *logit * penalty);
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
        sampler->logits[ids[i]] = adjust_clamp(sampler->logits[ids[i]] - penalty);
    }
    for (int i = 0; i < count; i++)
        sampler->seen[ids[i]] = 0;
}

void adjust_penalties(struct sampler *sampler, const struct draw *draw)
{
    const struct nibble_sampling *sampling = draw->sampling;
    int window = sampling->penalty_last_n, first = window && window < draw->count ? draw->count - window : 0;
    int answer = draw->prompt_count > first ? draw->prompt_count : first;
    if (sampling->repetition_penalty != 1)
        penalise_repetition(sampler, sampling->repetition_penalty, draw->ids + first, draw->count - first);
    if (sampling->presence_penalty != 0 || sampling->frequency_penalty != 0)
        penalise_answer(sampler, sampling, draw->ids + answer, draw->count - answer);
}

// ---- what may come --------------------------------------------------------------------------------------------------

// Word by word: most words of a mask allow all of their tokens or none.
static void apply_mask(struct sampler *sampler, const uint32_t *mask)
{
    for (int first = 0; first < sampler->vocabulary; first += 32) {
        int count = sampler->vocabulary - first < 32 ? sampler->vocabulary - first : 32;
        uint32_t out = ~mask[first / 32];
        float *logits = sampler->logits + first;
        if (out == UINT32_MAX) {
            for (int i = 0; i < count; i++)
                logits[i] = -INFINITY;
            continue;
        }
        out &= UINT32_MAX >> (32 - count);
        for (; out; out &= out - 1)
            logits[__builtin_ctz(out)] = -INFINITY;
    }
}

// Tokens are banned unless nothing else may come: their logits are kept in sampler->candidates.
static int ban(struct sampler *sampler, int32_t id, int count)
{
    if (sampler->logits[id] == -INFINITY)
        return count;
    sampler->candidates[count] = (struct candidate){ sampler->logits[id], id };
    sampler->logits[id] = -INFINITY;
    return count + 1;
}

static void keep_one(struct sampler *sampler, int count)
{
    if (!count || sampler->logits[logits_most_likely(sampler->logits, sampler->vocabulary)] > -INFINITY)
        return;
    while (count--)
        sampler->logits[sampler->candidates[count].id] = sampler->candidates[count].value;
}

// Whether the answer ends with these.
static bool ends_with(const struct draw *draw, const int32_t *ids, int count)
{
    return count <= draw->count - draw->prompt_count
        && !memcmp(draw->ids + draw->count - count, ids, (size_t)count * sizeof *ids);
}

// The last token of each sequence that the answer has the rest of.
static int ban_words(struct sampler *sampler, const struct draw *draw, int count)
{
    const struct nibble_token_sequences *words = &draw->bad_words;
    for (size_t begin = 0, end; begin < words->count; begin = end + 1) {
        for (end = begin; words->ids[end] != NIBBLE_SEQUENCE_END; end++)
            ;
        if (end > begin && ends_with(draw, words->ids + begin, (int)(end - begin) - 1))
            count = ban(sampler, words->ids[end - 1], count);
    }
    return count;
}

void adjust_limits(struct sampler *sampler, const struct draw *draw)
{
    int banned = 0;
    for (size_t i = 0; i < draw->bias_count; i++) {
        float *logit = &sampler->logits[draw->bias[i].id];
        *logit = adjust_clamp((double)*logit + draw->bias[i].bias);
    }
    if (draw->mask)
        apply_mask(sampler, draw->mask);
    if (draw->allowed)
        apply_mask(sampler, draw->allowed);
    for (size_t i = 0; i < draw->banned_count; i++)
        banned = ban(sampler, draw->banned[i], banned);
    keep_one(sampler, ban_words(sampler, draw, banned));
}
