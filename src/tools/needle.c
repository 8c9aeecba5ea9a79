// SPDX-License-Identifier: Apache-2.0
#include "tools/needle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"

enum { PARTS_MAX = 64 }; // tokens of a needle and of its question together

static const struct {
    const char *thing, *number;
} needles[NEEDLE_DEPTHS] = {
    { "old lighthouse", "4817" }, { "green harbour", "9263" }, { "winter garden", "3058" }, { "north tower", "7741" },
    { "river crossing", "1596" }, { "silver bell", "6320" },   { "stone bridge", "8475" },  { "red carriage", "2904" },
};

// The needle, the question and the answer.
struct needle_words {
    int32_t *ids[3];
    ptrdiff_t counts[3];
};

static bool read_words(struct needle_words *words, const struct nibble_tokenizer *tokenizer, int which,
                       struct error *err)
{
    char texts[3][160];
    snprintf(texts[0], sizeof *texts, "\nThe secret number of the %s is %s. Remember it.\n", needles[which].thing,
             needles[which].number);
    snprintf(texts[1], sizeof *texts, "\nThe secret number of the %s is", needles[which].thing);
    snprintf(texts[2], sizeof *texts, " %s", needles[which].number);
    for (int i = 0; i < 3; i++)
        if ((words->counts[i] = nibble_tokenize(tokenizer, texts[i], strlen(texts[i]), 0, &words->ids[i], err)) < 0)
            return false;
    return true;
}

static int32_t *put(int32_t *to, const int32_t *ids, ptrdiff_t count)
{
    memcpy(to, ids, (size_t)count * sizeof *ids);
    return to + count;
}

// Scores the answer: the probability of each of its tokens after those before it.
static bool score_answer(struct quality_side *side, const int32_t *ids, ptrdiff_t count,
                         const struct needle_words *words, double *likely, struct error *err)
{
    int vocabulary = nibble_engine_vocabulary(side->engine);
    double total = 0;
    if (!nibble_sequence_assign(side->sequence, NULL, 0, err)
        || !nibble_sequence_assign(side->sequence, ids, (size_t)count - 1, err))
        return false;
    for (ptrdiff_t i = 0; i < words->counts[2]; i++) {
        int32_t last = i ? words->ids[2][i - 1] : ids[count - 1], next = words->ids[2][i];
        if (!nibble_sequence_score(side->sequence, &last, 1, side->logits, err))
            return false;
        total += side->logits[next] - quality_log_total(side->logits, vocabulary);
    }
    *likely = exp(total / (double)words->counts[2]);
    return true;
}

static bool measure_depth(struct quality_side *side, const struct nibble_tokenizer *tokenizer,
                          const struct quality_text *text, int depth, double *likely, struct error *err)
{
    struct needle_words words = { 0 };
    bool ok = read_words(&words, tokenizer, depth, err);
    ptrdiff_t hay = text->context - words.counts[0] - words.counts[1] - words.counts[2];
    if (ok && (words.counts[0] + words.counts[1] + words.counts[2] > PARTS_MAX || hay < 1))
        ok = fail(err, "a chunk of %d tokens has no room for a needle; give a larger --context", text->context);
    if (ok) {
        int32_t *ids = memory_new((size_t)text->context, sizeof *ids), *to = ids;
        ptrdiff_t before = 1 + (hay - 1) * depth / NEEDLE_DEPTHS; // the first token may be BOS
        to = put(to, text->ids, before);
        to = put(to, words.ids[0], words.counts[0]);
        to = put(to, text->ids + before, hay - before);
        to = put(to, words.ids[1], words.counts[1]);
        ok = score_answer(side, ids, to - ids, &words, likely, err);
        free(ids);
    }
    for (int i = 0; i < 3; i++)
        free(words.ids[i]);
    return ok;
}

bool needle_measure(struct quality_side *side, const struct nibble_tokenizer *tokenizer,
                    const struct quality_text *text, struct needle_score *score, struct error *err)
{
    *score = (struct needle_score){ 0 };
    for (int depth = 0; depth < NEEDLE_DEPTHS; depth++) {
        if (!measure_depth(side, tokenizer, text, depth, &score->likely[depth], err))
            return false;
        score->mean += score->likely[depth] / NEEDLE_DEPTHS;
    }
    return true;
}

json_t *needle_json(const struct needle_score *score)
{
    json_t *depths = json_array();
    for (int i = 0; i < NEEDLE_DEPTHS; i++)
        json_array_append_new(depths, json_real(score->likely[i]));
    return json_pack("{s:f, s:o}", "mean", score->mean, "depths", depths);
}
