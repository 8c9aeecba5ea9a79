// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json written from a GGUF's tokenizer.
#include "text/tokenizer/save.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/parts.h"

static json_t *json_of(struct bytes text) { return json_stringn(text.data, text.len); }

// ---- the vocabulary ----

static json_t *make_vocab(const struct vocab *vocab, struct error *err)
{
    json_t *out = json_object();
    for (size_t i = 0; i < vocab->count; i++) {
        struct bytes piece = vocab->pieces[i];
        if (!piece.data)
            continue;
        bool is_text = !memchr(piece.data, '\0', piece.len);
        if (!is_text || json_object_set_new(out, piece.data, json_integer((json_int_t)i)) < 0) {
            fail(err, "token %zu is no UTF-8 text, and tokenizer.json holds nothing else", i);
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static json_t *make_added(const struct tokenizer *tokenizer)
{
    json_t *out = json_array();
    for (size_t i = 0; i < tokenizer->raw.count; i++) {
        const struct added_token *token = &tokenizer->raw.tokens[i];
        json_array_append_new(
            out,
            json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)token->id, "content", json_of(token->content),
                      "single_word", token->single_word, "lstrip", token->lstrip, "rstrip", token->rstrip, "normalized",
                      0, "special", tokenizer->vocab.flags[token->id] & VOCAB_SPECIAL ? 1 : 0));
    }
    return out;
}

// ---- merges ----

static json_t *make_pair(struct bytes left, struct bytes right)
{
    json_t *pair = json_array();
    json_array_append_new(pair, json_of(left));
    json_array_append_new(pair, json_of(right));
    return pair;
}

// Copies the list of merges.
static json_t *copy_merges(const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *merges;
    if (!gguf_get_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, &merges, err))
        return NULL;
    json_t *out = json_array();
    for (size_t i = 0; merges && i < merges->count; i++) {
        struct bytes merge = merges->strings[i];
        const char *space = memchr(merge.data + 1, ' ', merge.len - 1); // there is one: the tokenizer has been opened
        size_t left = (size_t)(space - merge.data);
        json_array_append_new(
            out, make_pair((struct bytes){ merge.data, left }, (struct bytes){ space + 1, merge.len - left - 1 }));
    }
    return out;
}

struct merge {
    float score; // of what it makes
    int32_t id;
    uint32_t left; // bytes of its left side
};

// The best token first; of one token's merges the one with the longest left side.
static int compare_merges(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->left < y->left) - (x->left > y->left);
}

// A score rates a token however it is made: each pair of tokens that makes it becomes a merge.
static json_t *make_merges(const struct tokenizer *tokenizer)
{
    const struct vocab *vocab = &tokenizer->vocab;
    struct merge *merges = NULL;
    size_t count = 0, capacity = 0;
    for (size_t id = 0; id < vocab->count; id++) {
        struct bytes piece = vocab->pieces[id];
        uint32_t codepoint;
        for (size_t at = utf8_decode(piece, &codepoint); at && at < piece.len;) {
            struct bytes left = { piece.data, at }, right = { piece.data + at, piece.len - at };
            if (vocab_find(vocab, left) >= 0 && vocab_find(vocab, right) >= 0) {
                MEMORY_RESERVE(merges, count, capacity);
                merges[count++] = (struct merge){ tokenizer->bpe.scores[id], (int32_t)id, (uint32_t)at };
            }
            size_t length = utf8_decode(right, &codepoint);
            at = length ? at + length : piece.len;
        }
    }
    if (count)
        qsort(merges, count, sizeof *merges, compare_merges);
    json_t *out = json_array();
    for (size_t i = 0; i < count; i++) {
        struct bytes piece = vocab->pieces[merges[i].id];
        size_t left = merges[i].left;
        json_array_append_new(out, make_pair((struct bytes){ piece.data, left }, bytes_from(piece, left)));
    }
    free(merges);
    return out;
}

static json_t *make_model(const struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct bpe *bpe = &tokenizer->bpe;
    json_t *vocab = make_vocab(&tokenizer->vocab, err);
    json_t *merges = vocab ? bpe->scores ? make_merges(tokenizer) : copy_merges(gguf, err) : NULL;
    if (!merges)
        return json_decref(vocab), NULL;
    struct bytes unknown = bpe->unknown >= 0 ? tokenizer->vocab.pieces[bpe->unknown] : (struct bytes){ 0 };
    return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                     unknown.data ? json_of(unknown) : json_null(), "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", 0, "byte_fallback", bpe->scores ? 1 : 0, "ignore_merges", bpe->whole_first ? 1 : 0,
                     "vocab", vocab, "merges", merges);
}

// ---- the steps around the model ----

static json_t *replace_step(const char *from, const char *to)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content", to);
}

static json_t *make_sequence(const char *key, json_t *steps)
{
    return json_pack("{s:s, s:o}", "type", "Sequence", key, steps);
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     0);
}

static bool add_byte_level_steps(json_t *out, const struct gguf *gguf, struct error *err)
{
    struct bytes name = bytes_of("default");
    if (!gguf_get_string(gguf, "tokenizer.ggml.pre", &name, err))
        return false;
    const struct gguf_pre *pre = gguf_pre_find(name);
    if (!pre || pre->flags & GGUF_PRE_SPACES)
        return fail(err, "the pre-tokenizer \"%.*s\" does what tokenizer.json cannot say",
                    name.len < 64 ? (int)name.len : 64, name.data);
    json_t *steps = json_array();
    for (const char *const *split = pre->splits; *split; split++)
        json_array_append_new(steps,
                              json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", *split,
                                        "behavior", "Isolated", "invert", 0));
    json_array_append_new(steps, byte_level());
    json_object_set_new(out, "normalizer", json_null());
    json_object_set_new(out, "pre_tokenizer", make_sequence("pretokenizers", steps));
    json_object_set_new(out, "decoder", byte_level());
    return true;
}

static void add_space_steps(json_t *out, bool prefix)
{
    json_t *before = json_array(), *behind = json_array();
    if (prefix)
        json_array_append_new(before, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", TOKENIZER_SIGN));
    json_array_append_new(before, replace_step(" ", TOKENIZER_SIGN));
    json_array_append_new(behind, replace_step(TOKENIZER_SIGN, " "));
    json_array_append_new(behind, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(behind, json_pack("{s:s}", "type", "Fuse"));
    if (prefix)
        json_array_append_new(
            behind, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    json_object_set_new(out, "normalizer", make_sequence("normalizers", before));
    json_object_set_new(out, "pre_tokenizer", json_null());
    json_object_set_new(out, "decoder", make_sequence("decoders", behind));
}

// ---- what is put around a text ----

static void add_template_tokens(const struct tokenizer *tokenizer, const struct tokens *tokens, json_t *single,
                                json_t *pair, json_t *specials)
{
    for (size_t i = 0; i < tokens->count; i++) {
        struct bytes piece = tokenizer->vocab.pieces[tokens->ids[i]];
        json_t *item = json_pack("{s:{s:o, s:i}}", "SpecialToken", "id", json_of(piece), "type_id", 0);
        json_array_append(single, item);
        json_array_append_new(pair, item);
        json_object_set_new(specials, piece.data,
                            json_pack("{s:o, s:[i], s:[o]}", "id", json_of(piece), "ids", (int)tokens->ids[i], "tokens",
                                      json_of(piece)));
    }
}

static json_t *make_template(const struct tokenizer *tokenizer)
{
    if (!tokenizer->prefix.count && !tokenizer->suffix.count)
        return json_null();
    json_t *single = json_array(), *pair = json_array(), *specials = json_object();
    add_template_tokens(tokenizer, &tokenizer->prefix, single, pair, specials);
    json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
    json_array_append_new(pair, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
    json_array_append_new(pair, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B", "type_id", 1));
    add_template_tokens(tokenizer, &tokenizer->suffix, single, pair, specials);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair,
                     "special_tokens", specials);
}

json_t *tokenizer_to_json(const struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    json_t *out = json_pack("{s:s, s:n, s:n, s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                            make_added(tokenizer));
    bool ok = true;
    if (tokenizer->bpe.scores)
        add_space_steps(out, tokenizer->decoder.strip.data);
    else
        ok = add_byte_level_steps(out, gguf, err);
    json_object_set_new(out, "post_processor", make_template(tokenizer));
    json_t *model = ok ? make_model(tokenizer, gguf, err) : NULL;
    if (model)
        json_object_set_new(out, "model", model);
    else
        json_decref(out);
    return model ? out : NULL;
}
