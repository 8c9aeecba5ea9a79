// SPDX-License-Identifier: Apache-2.0
// The normalizer, pre_tokenizer and decoder of a tokenizer.json: each is an object with a type, and a table has
// a reader for each type. Other types are refused by name: without a step, ids would be wrong.
#include "base/utf8.h"
#include "format/json.h"
#include "text/tokenizer/parts.h"

struct reading {
    struct tokenizer *tokenizer;
    struct error *err;
    int steps;
    const struct type *row; // that was found
    bool fused;             // decoder: from here on the steps see the whole text, not tokens
};

struct type {
    const char *name;
    bool (*read)(struct reading *reading, const json_t *json);
    int kind; // what is added without being asked about

    // of a pre-tokenizer that only splits
    const char *pattern;
    enum split_behavior behavior;
    bool invert;
};

static bool read_step(struct reading *reading, const json_t *json, const char *what, const struct type *types,
                      size_t count)
{
    const char *name = "";
    if (++reading->steps > TOKENIZER_STEPS_MAX)
        return fail(reading->err, "there are more than %d steps around the model", TOKENIZER_STEPS_MAX);
    if (!json_is_object(json))
        return fail(reading->err, "a %s is not an object", what);
    if (!json_get_text(json, "type", &name, reading->err))
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(types[i].name, name) == 0)
            return reading->row = &types[i],
                   types[i].read(reading, json) || fail_within(reading->err, "the %s \"%s\"", what, name);
    return fail(reading->err, "the %s \"%s\" is not supported", what, name);
}

// A string of the file, kept for as long as the tokenizer lives.
static bool read_text(struct reading *reading, const json_t *json, const char *key, struct bytes *out)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_string(value))
        return fail(reading->err, "\"%s\" is absent or not a string", key);
    size_t length = json_string_length(value);
    *out = (struct bytes){ arena_text(&reading->tokenizer->arena, json_string_value(value), length), length };
    return true;
}

static bool read_character(struct reading *reading, const json_t *json, const char *key, struct bytes *out)
{
    uint32_t codepoint;
    if (!read_text(reading, json, key, out))
        return false;
    return (out->len && utf8_decode(*out, &codepoint) == out->len)
        || fail(reading->err, "\"%s\" is \"%.20s\", expected one character", key, out->data);
}

// {"String": ...} or {"Regex": ...}; NULL on failure.
static const json_t *find_pattern(struct reading *reading, const json_t *json, bool *literal)
{
    const json_t *pattern = json_object_get(json, "pattern");
    const json_t *text = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
    *literal = json_is_string(text);
    if (!*literal && !json_is_string(regex))
        return fail(reading->err, "\"pattern\" has neither a \"String\" nor a \"Regex\""), NULL;
    return *literal ? text : regex;
}

static struct regex *read_pattern(struct reading *reading, const json_t *json)
{
    bool literal;
    const json_t *pattern = find_pattern(reading, json, &literal);
    if (!pattern)
        return NULL;
    return literal ? regex_new_literal(json_bytes(pattern), reading->err)
                   : regex_new(json_bytes(pattern), reading->err);
}

// ---- normalizers ----

static bool add_normalizer(struct reading *reading, struct normalize_step step)
{
    normalizer_add(&reading->tokenizer->normalizer, step);
    return true;
}

static bool read_plain(struct reading *reading, const json_t *json)
{
    (void)json;
    return add_normalizer(reading, (struct normalize_step){ .kind = (enum normalize_kind)reading->row->kind });
}

static bool read_strip(struct reading *reading, const json_t *json)
{
    struct normalize_step step = { .kind = NORMALIZE_STRIP, .left = true, .right = true };
    return json_get_bool(json, "strip_left", &step.left, reading->err)
        && json_get_bool(json, "strip_right", &step.right, reading->err) && add_normalizer(reading, step);
}

static bool read_prepend(struct reading *reading, const json_t *json)
{
    struct normalize_step step = { .kind = NORMALIZE_PREPEND };
    return read_text(reading, json, "prepend", &step.content) && add_normalizer(reading, step);
}

static bool read_replace(struct reading *reading, const json_t *json)
{
    struct normalize_step step = { .kind = NORMALIZE_REPLACE };
    if (!read_text(reading, json, "content", &step.content))
        return false;
    step.regex = read_pattern(reading, json);
    return step.regex && add_normalizer(reading, step);
}

static bool read_normalizers(struct reading *reading, const json_t *json);

static const struct type normalizers[] = {
    { "NFC", read_plain, NORMALIZE_NFC },
    { "NFD", read_plain, NORMALIZE_NFD },
    { "NFKC", read_plain, NORMALIZE_NFKC },
    { "NFKD", read_plain, NORMALIZE_NFKD },
    { "Lowercase", read_plain, NORMALIZE_LOWERCASE },
    { "StripAccents", read_plain, NORMALIZE_STRIP_ACCENTS },
    { "Strip", read_strip },
    { "Prepend", read_prepend },
    { "Replace", read_replace },
    { "Sequence", read_normalizers },
};

static bool read_normalizer(struct reading *reading, const json_t *json)
{
    return read_step(reading, json, "normalizer", normalizers, sizeof normalizers / sizeof *normalizers);
}

static bool read_all(struct reading *reading, const json_t *list, const char *key,
                     bool (*read)(struct reading *reading, const json_t *json))
{
    if (!json_is_array(list))
        return fail(reading->err, "\"%s\" is absent or not an array", key);
    size_t index;
    json_t *item;
    json_array_foreach (list, index, item)
        if (!read(reading, item))
            return false;
    return true;
}

static bool read_normalizers(struct reading *reading, const json_t *json)
{
    return read_all(reading, json_object_get(json, "normalizers"), "normalizers", read_normalizer);
}

// ---- pre-tokenizers ----

static bool add_pretokenizer(struct reading *reading, struct pretokenize_step step)
{
    pretokenizer_add(&reading->tokenizer->pretokenizer, step);
    return true;
}

static bool add_split(struct reading *reading, const char *pattern, enum split_behavior behavior, bool invert)
{
    return pretokenizer_add_split(&reading->tokenizer->pretokenizer, bytes_of(pattern), behavior, invert, reading->err);
}

static int find_word(const char *const *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return (int)i;
    return -1;
}

static bool read_behavior(struct reading *reading, const json_t *json, enum split_behavior *out)
{
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",          [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_CONTIGUOUS] = "Contiguous",    [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
    };
    const char *name = names[SPLIT_ISOLATED];
    if (!json_get_text(json, "behavior", &name, reading->err))
        return false;
    int behavior = find_word(names, sizeof names / sizeof *names, name);
    *out = (enum split_behavior)behavior;
    return behavior >= 0 || fail(reading->err, "the behavior \"%s\" is not supported", name);
}

static bool read_byte_level(struct reading *reading, const json_t *json)
{
    bool prefix = true, regex = true;
    if (!json_get_bool(json, "add_prefix_space", &prefix, reading->err)
        || !json_get_bool(json, "use_regex", &regex, reading->err))
        return false;
    struct pretokenize_step space = { .kind = PRETOKENIZE_PREFIX, .content = bytes_of(" ") };
    return (!prefix || add_pretokenizer(reading, space))
        && (!regex || add_split(reading, PRETOKENIZE_GPT2, SPLIT_ISOLATED, false))
        && add_pretokenizer(reading, (struct pretokenize_step){ .kind = PRETOKENIZE_BYTES });
}

static bool read_split(struct reading *reading, const json_t *json)
{
    struct pretokenize_step step = { .kind = PRETOKENIZE_SPLIT };
    bool literal;
    const json_t *pattern = find_pattern(reading, json, &literal);
    if (!pattern || !read_behavior(reading, json, &step.behavior)
        || !json_get_bool(json, "invert", &step.invert, reading->err))
        return false;
    if (!literal)
        return pretokenizer_add_split(&reading->tokenizer->pretokenizer, json_bytes(pattern), step.behavior,
                                      step.invert, reading->err);
    step.regex = regex_new_literal(json_bytes(pattern), reading->err);
    return step.regex && add_pretokenizer(reading, step);
}

static bool read_digits(struct reading *reading, const json_t *json)
{
    bool individual = false;
    return json_get_bool(json, "individual_digits", &individual, reading->err)
        && add_split(reading, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
}

static bool read_plain_split(struct reading *reading, const json_t *json)
{
    (void)json;
    return add_split(reading, reading->row->pattern, reading->row->behavior, reading->row->invert);
}

static bool read_punctuation(struct reading *reading, const json_t *json)
{
    enum split_behavior behavior = 0;
    return read_behavior(reading, json, &behavior) && add_split(reading, "[\\p{P}!-/:-@\\[-`{-~]", behavior, false);
}

// prepend_scheme of Metaspace: where it puts its sign in front of text.
enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

static bool read_scheme(struct reading *reading, const json_t *json, enum scheme *out)
{
    bool prefix = true; // how older files say it
    const char *name = NULL;
    if (!json_get_bool(json, "add_prefix_space", &prefix, reading->err)
        || !json_get_text(json, "prepend_scheme", &name, reading->err))
        return false;
    *out = prefix ? SCHEME_ALWAYS : SCHEME_NEVER;
    if (!name)
        return true;
    static const char *const names[] = { "always", "first", "never" };
    int scheme = find_word(names, sizeof names / sizeof *names, name);
    *out = (enum scheme)scheme;
    return scheme >= 0 || fail(reading->err, "the prepend_scheme \"%s\" is not supported", name);
}

static bool read_metaspace(struct reading *reading, const json_t *json)
{
    struct bytes sign;
    enum scheme scheme;
    bool split = true;
    if (!read_character(reading, json, "replacement", &sign) || !read_scheme(reading, json, &scheme)
        || !json_get_bool(json, "split", &split, reading->err))
        return false;
    struct pretokenize_step replace = { .kind = PRETOKENIZE_REPLACE, .content = sign };
    struct pretokenize_step prefix = { .kind = PRETOKENIZE_PREFIX, .content = sign };
    prefix.first_only = scheme == SCHEME_FIRST;
    struct pretokenize_step parts = { .kind = PRETOKENIZE_SPLIT, .behavior = SPLIT_WITH_NEXT };
    replace.regex = regex_new_literal(bytes_of(" "), reading->err);
    if (!replace.regex || !add_pretokenizer(reading, replace))
        return false;
    if (scheme != SCHEME_NEVER && !add_pretokenizer(reading, prefix))
        return false;
    if (!split)
        return true;
    parts.regex = regex_new_literal(sign, reading->err);
    return parts.regex && add_pretokenizer(reading, parts);
}

static bool read_pretokenizers(struct reading *reading, const json_t *json);

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

static const struct type pretokenizers[] = {
    { "ByteLevel", read_byte_level },
    { "Split", read_split },
    { "Digits", read_digits },
    { "Metaspace", read_metaspace },
    { "Whitespace", read_plain_split, .pattern = "[" WORD "]+|[^" WORD "\\s]+", .invert = true },
    { "WhitespaceSplit", read_plain_split, .pattern = "\\s" },
    { "Punctuation", read_punctuation },
    { "Sequence", read_pretokenizers },
};

static bool read_pretokenizer(struct reading *reading, const json_t *json)
{
    return read_step(reading, json, "pre-tokenizer", pretokenizers, sizeof pretokenizers / sizeof *pretokenizers);
}

static bool read_pretokenizers(struct reading *reading, const json_t *json)
{
    return read_all(reading, json_object_get(json, "pretokenizers"), "pretokenizers", read_pretokenizer);
}

// ---- decoders ----
// Tokens are decoded one by one. Behind a step that joins them (Fuse, ByteLevel), only a step that changes the
// beginning of the text is supported.

static bool add_decoder(struct reading *reading, struct decode_step step)
{
    decoder_add(&reading->tokenizer->decoder, step);
    return !reading->fused || fail(reading->err, "it follows a step that joins the tokens, which is not supported");
}

static bool read_decode_plain(struct reading *reading, const json_t *json)
{
    (void)json;
    bool ok = add_decoder(reading, (struct decode_step){ .kind = (enum decode_kind)reading->row->kind });
    reading->fused |= reading->row->kind == DECODE_BYTE_LEVEL;
    return ok;
}

static bool read_decode_fuse(struct reading *reading, const json_t *json)
{
    (void)json;
    return reading->fused = true;
}

static bool read_decode_replace(struct reading *reading, const json_t *json)
{
    struct decode_step step = { .kind = DECODE_REPLACE };
    if (!read_text(reading, json, "content", &step.content))
        return false;
    step.regex = read_pattern(reading, json);
    return step.regex && add_decoder(reading, step);
}

static bool read_decode_metaspace(struct reading *reading, const json_t *json)
{
    struct decode_step step = { .kind = DECODE_REPLACE, .content = bytes_of(" ") };
    struct bytes sign;
    enum scheme scheme;
    if (!read_character(reading, json, "replacement", &sign) || !read_scheme(reading, json, &scheme))
        return false;
    step.drop_at_start = scheme != SCHEME_NEVER;
    step.regex = regex_new_literal(sign, reading->err);
    return step.regex && add_decoder(reading, step);
}

static bool read_decode_strip(struct reading *reading, const json_t *json)
{
    struct decode_step step = { .kind = DECODE_STRIP };
    int64_t start = 0, stop = 0;
    if (!read_character(reading, json, "content", &step.content)
        || !json_get_int(json, "start", 0, INT32_MAX, &start, reading->err)
        || !json_get_int(json, "stop", 0, INT32_MAX, &stop, reading->err))
        return false;
    step.start = (size_t)start, step.stop = (size_t)stop;
    if (!reading->fused)
        return add_decoder(reading, step);
    if (start > 1 || stop)
        return fail(reading->err,
                    "it takes more off a joined text than one character at the start, which is not supported");
    if (start)
        reading->tokenizer->decoder.strip = step.content;
    return true;
}

static bool read_decoders(struct reading *reading, const json_t *json);

static const struct type decoders[] = {
    { "ByteLevel", read_decode_plain, DECODE_BYTE_LEVEL },
    { "ByteFallback", read_decode_plain, DECODE_BYTE_FALLBACK },
    { "Fuse", read_decode_fuse },
    { "Replace", read_decode_replace },
    { "Metaspace", read_decode_metaspace },
    { "Strip", read_decode_strip },
    { "Sequence", read_decoders },
};

static bool read_decoder(struct reading *reading, const json_t *json)
{
    return read_step(reading, json, "decoder", decoders, sizeof decoders / sizeof *decoders);
}

static bool read_decoders(struct reading *reading, const json_t *json)
{
    return read_all(reading, json_object_get(json, "decoders"), "decoders", read_decoder);
}

bool tokenizer_read_json_steps(struct tokenizer *tokenizer, const json_t *json, struct error *err)
{
    struct reading reading = { .tokenizer = tokenizer, .err = err };
    const json_t *normalizer = json_object_get(json, "normalizer"), *decoder = json_object_get(json, "decoder");
    const json_t *pretokenizer = json_object_get(json, "pre_tokenizer");
    if (normalizer && !json_is_null(normalizer) && !read_normalizer(&reading, normalizer))
        return false;
    if (pretokenizer && !json_is_null(pretokenizer) && !read_pretokenizer(&reading, pretokenizer))
        return false;
    if (decoder && !json_is_null(decoder))
        return read_decoder(&reading, decoder);
    tokenizer->decoder.between = bytes_of(" ");
    return true;
}
