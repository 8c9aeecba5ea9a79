// SPDX-License-Identifier: Apache-2.0
// Any JSON as a schema. If it is taken, a random walk through it must end within its budget, in text that parses, and
// that the validator finds no fault with where the grammar is not looser than the schema.
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "format/json.h"
#include "text/grammar/matcher.h"
#include "text/grammar/validate.h"

#include "byte_tokenizer.h"

enum { SPARE_TOKENS = 24 };

static void walk(const struct grammar_vocabulary *vocabulary, const struct grammar *grammar, const json_t *schema,
                 uint64_t seed)
{
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    struct strbuf text = { 0 };
    for (int left = grammar_shortest(grammar, vocabulary) + SPARE_TOKENS; left > 0 && !matcher_done(matcher); left--) {
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
        vocabulary_write(vocabulary->tokenizer, id, false, &text);
        if (tokenizer_is_end(vocabulary->tokenizer, id))
            text.len -= strlen("<|im_end|>");
    }
    json_t *value = json_loadb(text.data ? text.data : "", text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    struct error err;
    if (!value)
        abort();
    enum validity verdict = validate(schema, schema, value, &err);
    if (verdict == INVALID && !grammar_unenforced(grammar) && !grammar_unsupported(grammar)) {
        fprintf(stderr, "%s: %s\n", text.data, err.text);
        abort();
    }
    json_decref(value);
    strbuf_free(&text);
    matcher_close(matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grammar_vocabulary *vocabulary;
    json_t *schema;
    struct error err;
    if (!vocabulary)
        vocabulary = grammar_vocabulary_open(byte_tokenizer_open());
    if (!json_read((struct bytes){ (const char *)data, size }, &schema, &err))
        return 0;
    struct grammar *grammar = grammar_from_schema(schema, &err);
    for (uint64_t seed = 0; grammar && seed < 3; seed++)
        walk(vocabulary, grammar, schema, seed * 7919 + size);
    grammar_free(grammar);
    json_decref(schema);
    return 0;
}
