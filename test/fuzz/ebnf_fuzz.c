// SPDX-License-Identifier: Apache-2.0
// Any text as a grammar in GBNF, EBNF or Lark, or as a structural tag where it is a JSON object. If it is taken, a
// random walk through it always has a next token and ends within its budget.
#include <stdlib.h>

#include "base/random.h"
#include "format/json.h"
#include "text/grammar/matcher.h"

#include "byte_tokenizer.h"

enum { SPARE_TOKENS = 24, SHORTEST_MAX = 200 };

static void walk(const struct grammar_vocabulary *vocabulary, const struct grammar *grammar, int budget, uint64_t seed)
{
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    bool ended = false;
    for (int left = budget; left > 0 && !matcher_done(matcher); left--) {
        uint32_t mask[16];
        int32_t allowed[512], count = 0;
        memset(mask, 0xFF, sizeof mask);
        matcher_restrict(matcher, mask);
        for (int32_t id = 0; id < vocabulary->size; id++)
            if (mask[id / 32] >> id % 32 & 1)
                allowed[count++] = id;
        if (!count)
            abort();
        int32_t id = matcher_choose(matcher, left, allowed[random_between(&seed, 0, count - 1)]);
        matcher_accept(matcher, id);
        ended |= tokenizer_is_end(vocabulary->tokenizer, id);
    }
    if (!ended && !matcher_done(matcher) && matcher_choose(matcher, 0, vocabulary->end) != vocabulary->end)
        abort();
    matcher_close(matcher);
}

static struct grammar *compile(struct bytes text, struct error *err)
{
    json_t *tag;
    if (!text.len || text.data[0] != '{')
        return grammar_from_text(text, err);
    if (!json_read(text, &tag, err))
        return NULL;
    struct grammar *grammar = grammar_from_structural_tag(tag, err);
    json_decref(tag);
    return grammar;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grammar_vocabulary *vocabulary;
    struct error err;
    if (!vocabulary)
        vocabulary = grammar_vocabulary_open(byte_tokenizer_open());
    struct grammar *grammar = compile((struct bytes){ (const char *)data, size }, &err);
    int shortest = grammar ? grammar_shortest(grammar, vocabulary) : 0;
    for (uint64_t seed = 0; grammar && seed < 3 && shortest < SHORTEST_MAX; seed++)
        walk(vocabulary, grammar, (shortest ? shortest : 1) + (int)(seed * SPARE_TOKENS / 2), seed * 7919 + size);
    grammar_free(grammar);
    return 0;
}
