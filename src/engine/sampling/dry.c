// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/dry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/sampling/adjust.h"

// ---- breakers -------------------------------------------------------------------------------------------------------

// By the first token, then the longest first.
static int compare(const void *a, const void *b)
{
    const struct dry_breaker *left = a, *right = b;
    if (left->ids[0] != right->ids[0])
        return left->ids[0] < right->ids[0] ? -1 : 1;
    return right->count - left->count;
}

void dry_breakers_open(struct dry_breakers *breakers, struct nibble_token_sequences sequences, int vocabulary)
{
    *breakers = (struct dry_breakers){ 0 };
    if (!sequences.count)
        return;
    breakers->ids = memory_new(sequences.count, sizeof *breakers->ids);
    breakers->sorted = memory_new(sequences.count, sizeof *breakers->sorted);
    breakers->begins = memory_new(((size_t)vocabulary + 31) / 32, sizeof *breakers->begins);
    memcpy(breakers->ids, sequences.ids, sequences.count * sizeof *breakers->ids);
    for (size_t begin = 0, end; begin < sequences.count; begin = end + 1) {
        for (end = begin; breakers->ids[end] != NIBBLE_SEQUENCE_END; end++)
            ;
        if (end == begin)
            continue;
        int32_t head = breakers->ids[begin];
        breakers->begins[head / 32] |= UINT32_C(1) << head % 32;
        breakers->sorted[breakers->count++] = (struct dry_breaker){ breakers->ids + begin, (int)(end - begin) };
    }
    qsort(breakers->sorted, (size_t)breakers->count, sizeof *breakers->sorted, compare);
}

void dry_breakers_free(struct dry_breakers *breakers)
{
    free(breakers->ids);
    free(breakers->sorted);
    free(breakers->begins);
    *breakers = (struct dry_breakers){ 0 };
}

static bool begins_breaker(const struct dry_breakers *breakers, int32_t id)
{
    return breakers && breakers->count && breakers->begins[id / 32] >> id % 32 & 1;
}

// The first of those that begin with a token, of which there is one.
static int find_first(const struct dry_breakers *breakers, int32_t id)
{
    int low = 0, high = breakers->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (breakers->sorted[middle].ids[0] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The length of the longest breaker that a text begins with; 0: none.
static int match_breaker(const struct dry_breakers *breakers, const int32_t *text, int left)
{
    if (!begins_breaker(breakers, text[0]))
        return 0;
    for (int i = find_first(breakers, text[0]); i < breakers->count && breakers->sorted[i].ids[0] == text[0]; i++) {
        const struct dry_breaker *breaker = &breakers->sorted[i];
        if (breaker->count <= left && !memcmp(breaker->ids, text, (size_t)breaker->count * sizeof *text))
            return breaker->count;
    }
    return 0;
}

static bool is_breaker(const struct dry_breakers *breakers, int32_t id) { return match_breaker(breakers, &id, 1) == 1; }

// How many tokens of the end a passage can have: those behind the last breaker.
static int passage_length(const struct dry_breakers *breakers, const int32_t *text, int count)
{
    for (int at = count - 1; at >= 0; at--) {
        int length = match_breaker(breakers, text + at, count - at);
        if (length)
            return count - at - length;
    }
    return count;
}

// ---- repetitions ----------------------------------------------------------------------------------------------------

// repeats[k]: how many tokens before the last k ones are the text's last tokens, too (the Z function of the reversed
// text). Linear: `right` only ever grows.
static void count_repeats(const int32_t *text, int count, int *repeats)
{
    const int32_t *last = text + count - 1;
    repeats[0] = count;
    for (int k = 1, left = 0, right = 0; k < count; k++) { // the last tokens repeat those from left to right
        int inside = k < right ? right - k : 0;
        int same = inside && repeats[k - left] < inside ? repeats[k - left] : inside;
        while (k + same < count && last[-same] == last[-k - same])
            same++;
        repeats[k] = same;
        if (k + same > right) {
            left = k;
            right = k + same;
        }
    }
}

static double penalty_of(const struct nibble_sampling *sampling, int repeated)
{
    double penalty = sampling->dry_multiplier * pow(sampling->dry_base, repeated - sampling->dry_allowed_length);
    return fmin(penalty, 1e30);
}

static int *scratch(struct sampler *sampler, int count)
{
    if (!sampler->longest)
        sampler->longest = memory_new((size_t)sampler->vocabulary, sizeof *sampler->longest);
    if (count > sampler->repeat_capacity) {
        sampler->repeat_capacity = 2 * count;
        sampler->repeats = memory_grow(sampler->repeats, (size_t)sampler->repeat_capacity, sizeof *sampler->repeats);
    }
    return sampler->repeats;
}

void dry_penalise(struct sampler *sampler, const struct draw *draw)
{
    const struct nibble_sampling *sampling = draw->sampling;
    int window = sampling->dry_penalty_last_n, allowed = sampling->dry_allowed_length;
    int count = window && window < draw->count ? window : draw->count;
    const int32_t *text = draw->ids + draw->count - count;
    if (sampling->dry_multiplier == 0 || count <= allowed)
        return;
    int longest = passage_length(draw->breakers, text, count);
    if (longest < allowed)
        return;
    int *repeats = scratch(sampler, count);
    count_repeats(text, count, repeats);
    for (int k = 1; k < count; k++) { // the token behind the earlier passage would continue it
        int repeated = repeats[k] < longest ? repeats[k] : longest, *most = &sampler->longest[text[count - k]];
        if (repeated >= allowed && repeated + 1 > *most)
            *most = repeated + 1; // 0 is none
    }
    for (int k = 1; k < count; k++) {
        int32_t id = text[count - k];
        int *most = &sampler->longest[id];
        if (*most && !is_breaker(draw->breakers, id))
            sampler->logits[id] = adjust_clamp(sampler->logits[id] - penalty_of(sampling, *most - 1));
        *most = 0;
    }
}
