// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of Hugging Face: vocabulary, merges, added tokens and post-processor. BOS and EOS come from
// tokenizer_config.json, generation_config.json and config.json, the other steps from json_steps.c.
#include "format/json.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/parts.h"

// ---- the vocabulary ----

// Ids may have holes, but not so many that a short file makes a large table.
enum { HOLES_FREE = 1024 };

static bool read_id(const json_t *value, struct bytes piece, int32_t *id, struct error *err)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number >= VOCAB_COUNT_MAX)
        return fail(err, "the id of the token \"%.*s\" is not an integer from 0 to %d",
                    piece.len < 64 ? (int)piece.len : 64, piece.data, VOCAB_COUNT_MAX - 1);
    *id = (int32_t)number;
    return true;
}

struct size {
    size_t tokens, ids; // ids: one more than the largest
};

static void count_id(struct size *size, int32_t id)
{
    size->tokens++;
    if ((size_t)id >= size->ids)
        size->ids = (size_t)id + 1;
}

static bool check_added(const json_t *token, size_t index, struct bytes *content, int32_t *id, struct error *err)
{
    const json_t *text = json_object_get(token, "content");
    if (!json_is_string(text))
        return fail(err, "entry %zu of \"added_tokens\" has no \"content\"", index);
    *content = json_bytes(text);
    return read_id(json_object_get(token, "id"), *content, id, err);
}

static bool measure(const json_t *vocab, const json_t *added, struct size *size, struct error *err)
{
    const char *key;
    json_t *value;
    int32_t id = 0;
    json_object_foreach ((json_t *)vocab, key, value) {
        if (!read_id(value, bytes_of(key), &id, err))
            return false;
        count_id(size, id);
    }
    size_t index;
    json_array_foreach (added, index, value) {
        struct bytes content;
        if (!check_added(value, index, &content, &id, err))
            return false;
        count_id(size, id);
    }
    if (!size->tokens)
        return fail(err, "the vocabulary is empty");
    if (size->ids > size->tokens * 2 + HOLES_FREE)
        return fail(err, "the largest token id is %zu, but there are only %zu tokens", size->ids - 1, size->tokens);
    return true;
}

static bool read_vocab(struct tokenizer *tokenizer, const json_t *vocab, const json_t *added, struct error *err)
{
    struct size size = { 0 };
    if (!measure(vocab, added, &size, err))
        return false;
    vocab_open(&tokenizer->vocab, size.ids);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)vocab, key, value)
        if (!vocab_set(&tokenizer->vocab, (int32_t)json_integer_value(value), bytes_of(key), err))
            return false;
    size_t index;
    json_array_foreach (added, index, value) {
        struct bytes content;
        int32_t id = 0;
        check_added(value, index, &content, &id, err);
        if (!content.len || vocab_find(&tokenizer->vocab, content) == id)
            continue;
        if (!vocab_set(&tokenizer->vocab, id, content, err))
            return fail_within(err, "added_tokens");
        tokenizer->vocab.flags[id] |= VOCAB_OUTSIDE;
    }
    return true;
}

// ---- the model ----

// A merge is "left right" or ["left", "right"].
static bool read_merge(struct tokenizer *tokenizer, const json_t *merge, size_t index, struct error *err)
{
    struct bytes left, right;
    if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0))
        && json_is_string(json_array_get(merge, 1))) {
        left = json_bytes(json_array_get(merge, 0));
        right = json_bytes(json_array_get(merge, 1));
    } else {
        struct bytes text = json_bytes(merge);
        const char *space = text.data ? memchr(text.data, ' ', text.len) : NULL;
        if (!space)
            return fail(err, "merge %zu is not two pieces", index);
        left = (struct bytes){ text.data, (size_t)(space - text.data) };
        right = (struct bytes){ space + 1, text.len - left.len - 1 };
    }
    return bpe_add_merge(&tokenizer->bpe, left, right, err);
}

static bool read_merges(struct tokenizer *tokenizer, const json_t *merges, struct error *err)
{
    if (!json_is_array(merges) || json_array_size(merges) > BPE_MERGES_MAX)
        return fail(err, "\"merges\" is absent, not an array, or longer than any list of merges");
    bpe_reserve(&tokenizer->bpe, json_array_size(merges));
    size_t index;
    json_t *merge;
    json_array_foreach (merges, index, merge) {
        bool comment = json_is_string(merge) && bytes_start_with(json_bytes(merge), bytes_of("#version"));
        if (!comment && !read_merge(tokenizer, merge, index, err))
            return false;
    }
    return true;
}

static void find_byte_tokens(struct tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[BYTEMAP_HEX_BYTES + 1];
        bytemap_hex_name((unsigned char)byte, name);
        tokenizer->bpe.bytes[byte] = vocab_find_inside(&tokenizer->vocab, bytes_of(name));
    }
}

static bool read_model_settings(struct tokenizer *tokenizer, const json_t *model, struct error *err)
{
    const char *unknown = NULL, *prefix = "", *suffix = "";
    double dropout = 0;
    bool byte_fallback = false;
    struct bpe *bpe = &tokenizer->bpe;
    if (!json_get_text(model, "unk_token", &unknown, err) || !json_get_bool(model, "fuse_unk", &bpe->fuse_unknown, err)
        || !json_get_bool(model, "byte_fallback", &byte_fallback, err)
        || !json_get_bool(model, "ignore_merges", &bpe->whole_first, err)
        || !json_get_real(model, "dropout", &dropout, err)
        || !json_get_text(model, "continuing_subword_prefix", &prefix, err)
        || !json_get_text(model, "end_of_word_suffix", &suffix, err))
        return false;
    if (*prefix || *suffix || dropout != 0)
        return fail(err, "\"%s\" is set, which is not supported",
                    *prefix       ? "continuing_subword_prefix"
                        : *suffix ? "end_of_word_suffix"
                                  : "dropout");
    if (unknown) {
        bpe->unknown = vocab_find_inside(&tokenizer->vocab, bytes_of(unknown));
        if (bpe->unknown < 0)
            return fail(err, "\"unk_token\" is \"%s\", which is not in the vocabulary", unknown);
    }
    if (byte_fallback)
        find_byte_tokens(tokenizer);
    return true;
}

static bool read_model(struct tokenizer *tokenizer, const json_t *json, struct error *err)
{
    const json_t *model = json_object_get(json, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(json, "added_tokens");
    const char *type = json_object_get(model, "merges") ? "BPE" : "";
    if (!json_is_object(model))
        return fail(err, "\"model\" is absent or not an object");
    if (added && !json_is_array(added) && !json_is_null(added))
        return fail(err, "\"added_tokens\" is not an array");
    if (!json_get_text(model, "type", &type, err))
        return false;
    if (strcmp(type, "BPE") != 0)
        return fail(err, "the model is of the type \"%s\"; nibble reads BPE", type);
    if (!json_is_object(vocab))
        return fail(err, "\"vocab\" is absent or not an object");
    if (!read_vocab(tokenizer, vocab, added, err))
        return false;
    bpe_open(&tokenizer->bpe, &tokenizer->vocab);
    return read_model_settings(tokenizer, model, err) && read_merges(tokenizer, json_object_get(model, "merges"), err);
}

// ---- added tokens ----

static bool read_added_token(struct tokenizer *tokenizer, const json_t *json, struct error *err)
{
    struct added_token token = { .content = json_bytes(json_object_get(json, "content")) };
    bool special = false, normalized = false;
    if (!json_get_bool(json, "single_word", &token.single_word, err)
        || !json_get_bool(json, "lstrip", &token.lstrip, err) || !json_get_bool(json, "rstrip", &token.rstrip, err)
        || !json_get_bool(json, "special", &special, err))
        return false;
    normalized = !special;
    if (!json_get_bool(json, "normalized", &normalized, err))
        return false;
    token.id = vocab_find(&tokenizer->vocab, token.content);
    if (token.id < 0)
        return true; // empty
    tokenizer->vocab.flags[token.id] |= special ? VOCAB_SPECIAL | VOCAB_ADDED : VOCAB_ADDED;
    token.content = tokenizer->vocab.pieces[token.id];
    if (!normalized) {
        added_add(&tokenizer->raw, token);
        return true;
    }
    struct strbuf content = { 0 };
    bool ok = normalizer_apply(&tokenizer->normalizer, token.content, false, &content, err);
    if (ok && !bytes_equal(token.content, strbuf_bytes(&content))) {
        token.content = (struct bytes){ arena_text(&tokenizer->arena, content.data, content.len), content.len };
        tokenizer->vocab.flags[token.id] |= VOCAB_RESPELT;
    }
    strbuf_free(&content);
    if (ok)
        added_add(&tokenizer->normalized, token);
    return ok;
}

static bool read_added(struct tokenizer *tokenizer, const json_t *added, struct error *err)
{
    size_t index;
    json_t *token;
    json_array_foreach (added, index, token)
        if (!read_added_token(tokenizer, token, err))
            return fail_within(err, "entry %zu of \"added_tokens\"", index);
    return true;
}

// ---- what is put around a text ----

static bool add_template_token(struct tokenizer *tokenizer, const json_t *template, const json_t *token,
                               struct tokens *out, struct error *err)
{
    const char *name = json_string_value(json_object_get(token, "id"));
    const json_t *ids = json_object_get(json_object_get(json_object_get(template, "special_tokens"), name ? name : ""),
                                        "ids");
    if (!name || !json_array_size(ids))
        return fail(err, "TemplateProcessing names \"%s\", which is not among its \"special_tokens\"",
                    name ? name : "");
    size_t index;
    json_t *value;
    json_array_foreach (ids, index, value) {
        int32_t id = -1;
        if (!read_id(value, bytes_of(name), &id, err))
            return false;
        if (!tokenizer_piece(tokenizer, id).data)
            return fail(err, "TemplateProcessing adds the id %d, which is not in the vocabulary", id);
        tokens_add(out, id);
    }
    return true;
}

// Post-processors nest: tokens of this template go outside of those that are there.
static bool read_template(struct tokenizer *tokenizer, const json_t *template, struct error *err)
{
    struct tokens before = { 0 }, after = { 0 };
    size_t index, texts = 0;
    json_t *item;
    bool ok = true;
    json_array_foreach (json_object_get(template, "single"), index, item) {
        const json_t *token = json_object_get(item, "SpecialToken");
        texts += !token;
        ok = ok && (!token || add_template_token(tokenizer, template, token, texts ? &after : &before, err));
    }
    if (ok && texts != 1)
        ok = fail(err, "TemplateProcessing has %zu texts in \"single\", expected one", texts);
    for (size_t i = 0; ok && i < tokenizer->prefix.count; i++)
        tokens_add(&before, tokenizer->prefix.ids[i]);
    for (size_t i = 0; ok && i < after.count; i++)
        tokens_add(&tokenizer->suffix, after.ids[i]);
    tokens_free(&after);
    tokens_free(&tokenizer->prefix);
    tokenizer->prefix = before;
    return ok;
}

// *decided: the post-processor defines the tokens around a text. ByteLevel does not.
static bool read_post_processor(struct tokenizer *tokenizer, const json_t *json, bool *decided, struct error *err)
{
    if (!json || json_is_null(json))
        return true;
    const char *type = "";
    if (!json_get_text(json, "type", &type, err))
        return false;
    if (strcmp(type, "ByteLevel") == 0)
        return true;
    if (strcmp(type, "TemplateProcessing") == 0)
        return *decided = true, read_template(tokenizer, json, err);
    if (strcmp(type, "Sequence") != 0)
        return fail(err, "the post-processor \"%s\" is not supported", type);
    size_t index;
    json_t *item;
    json_array_foreach (json_object_get(json, "processors"), index, item)
        if (!read_post_processor(tokenizer, item, decided, err))
            return false;
    return true;
}

// A token in tokenizer_config.json is its text, or an object with it.
static int32_t named_token(const struct tokenizer *tokenizer, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(text) ? vocab_find(&tokenizer->vocab, json_bytes(text)) : -1;
}

static bool read_bos_rule(struct tokenizer *tokenizer, const json_t *config, struct error *err)
{
    bool add_bos = false, add_eos = false;
    if (!json_get_bool(config, "add_bos_token", &add_bos, err)
        || !json_get_bool(config, "add_eos_token", &add_eos, err))
        return fail_within(err, "tokenizer_config.json");
    if (add_bos && tokenizer->bos >= 0)
        tokens_add(&tokenizer->prefix, tokenizer->bos);
    if (add_eos && tokenizer->eos >= 0)
        tokens_add(&tokenizer->suffix, tokenizer->eos);
    return true;
}

// ---- the ends of an answer ----

// An id or a list of them; the first there is, -1: none. With `flags`, each gets them.
static int32_t listed_ids(struct tokenizer *tokenizer, const json_t *config, const char *key, int flags)
{
    const json_t *value = json_object_get(config, key);
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    int32_t first = -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || (size_t)id >= tokenizer->vocab.count)
            continue;
        first = first < 0 ? (int32_t)id : first;
        tokenizer->vocab.flags[id] |= (uint8_t)flags;
    }
    return first;
}

static void find_ends(struct tokenizer *tokenizer, const struct checkpoint *checkpoint)
{
    const json_t *configs[] = {
        checkpoint->generation_config,
        checkpoint->config,
        json_object_get(checkpoint->config, "text_config"),
    };
    tokenizer->bos = named_token(tokenizer, checkpoint->tokenizer_config, "bos_token");
    tokenizer->eos = named_token(tokenizer, checkpoint->tokenizer_config, "eos_token");
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        int32_t bos = listed_ids(tokenizer, configs[i], "bos_token_id", 0);
        int32_t eos = listed_ids(tokenizer, configs[i], "eos_token_id", VOCAB_END);
        tokenizer->bos = tokenizer->bos >= 0 ? tokenizer->bos : bos;
        tokenizer->eos = tokenizer->eos >= 0 ? tokenizer->eos : eos;
    }
    if (tokenizer->eos >= 0) {
        tokenizer->vocab.flags[tokenizer->eos] |= VOCAB_END;
        return;
    }
    const char *names = tokenizer_end_names;
    for (struct bytes name; bytes_next_word(&names, &name);) {
        int32_t id = vocab_find(&tokenizer->vocab, name);
        if (id >= 0 && tokenizer->vocab.flags[id] & VOCAB_SPECIAL)
            tokenizer->vocab.flags[id] |= VOCAB_END;
    }
}

static bool read_parts(struct tokenizer *tokenizer, const struct checkpoint *checkpoint, struct error *err)
{
    const json_t *json = checkpoint->tokenizer;
    bool decided = false;
    if (!read_model(tokenizer, json, err) || !tokenizer_read_json_steps(tokenizer, json, err)
        || !read_added(tokenizer, json_object_get(json, "added_tokens"), err))
        return false;
    find_ends(tokenizer, checkpoint);
    if (!read_post_processor(tokenizer, json_object_get(json, "post_processor"), &decided, err))
        return false;
    if (!decided)
        return read_bos_rule(tokenizer, checkpoint->tokenizer_config, err);
    if (tokenizer->bos < 0 && tokenizer->prefix.count)
        tokenizer->bos = tokenizer->prefix.ids[0];
    return true;
}

bool tokenizer_read_json(struct tokenizer *tokenizer, const struct checkpoint *checkpoint, struct error *err)
{
    if (!checkpoint->tokenizer)
        return fail(err, "%s has no tokenizer.json; save the tokenizer with a `tokenizers`-based class to make one",
                    checkpoint->path ? checkpoint->path : "the model");
    return read_parts(tokenizer, checkpoint, err) || fail_within(err, "tokenizer.json");
}
