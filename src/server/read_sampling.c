// SPDX-License-Identifier: Apache-2.0
// server/read_sampling.c: reads the fields of samplers that are more than a number in a range: windows, mirostat, the
// order of samplers, DRY's breakers, bad words and allowed tokens.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/fields.h"

enum {
    BREAKERS_MAX = 32,
    BREAKER_BYTES_MAX = 40, // this and the next as in llama.cpp
    BREAKER_TAIL_MAX = 20,
    BREAKER_IDS_MAX = 1 << 20, // of all of them
    BAD_WORDS_MAX = 1024,
    BAD_WORD_BYTES_MAX = 1024,
};

// ---- sequences of tokens ------------------------------------------------------------------------------------------

static bool add_text_tokens(const struct api *api, struct bytes text, struct tokens *out, struct error *err)
{
    return tokenizer_encode(api->tokenizer, text, 0, out, err);
}

static struct nibble_token_sequences sequences_of(const struct tokens *tokens)
{
    return (struct nibble_token_sequences){ tokens->ids, tokens->count };
}

// A list of up to so many texts of so many bytes each. Absent or null: an empty one.
static bool check_texts(const json_t *list, const char *name, size_t most, size_t bytes_max, struct api_error *err)
{
    size_t index;
    const json_t *value;
    bool ok = !list || (json_is_array(list) && json_array_size(list) <= most);
    json_array_foreach (list, index, value)
        ok &= json_is_string(value) && json_string_length(value) && json_string_length(value) <= bytes_max;
    return ok
        || api_fail(err, 400, name, "\"%s\" is a list of up to %zu texts of 1 to %zu bytes", name, most, bytes_max);
}

// ---- DRY's breakers -----------------------------------------------------------------------------------------------

// A breaker may begin within a token and end in others: its tokens are one that has all of it, or one that ends with
// its beginning followed by the tokens of the rest.
struct breaker {
    struct bytes text;
    struct tokens tails[BREAKER_BYTES_MAX]; // [n]: the tokens behind the first n bytes
};

static void add_sequence(struct tokens *out, int32_t head, const struct tokens *tail)
{
    tokens_add(out, head);
    for (size_t i = 0; tail && i < tail->count && i < BREAKER_TAIL_MAX; i++)
        tokens_add(out, tail->ids[i]);
    tokens_add(out, NIBBLE_SEQUENCE_END);
}

static void add_if_begins(const struct breaker *breaker, int32_t id, struct bytes piece, struct tokens *out)
{
    struct bytes text = breaker->text;
    if (memmem(piece.data, piece.len, text.data, text.len)) {
        add_sequence(out, id, NULL);
        return;
    }
    for (size_t length = 1; length < text.len && length <= piece.len; length++)
        if (!memcmp(piece.data + piece.len - length, text.data, length))
            add_sequence(out, id, &breaker->tails[length]);
}

static void find_tokens(const struct api *api, const struct breaker *breakers, size_t count, struct tokens *out)
{
    struct strbuf piece = { 0 };
    for (int32_t id = 0; id < tokenizer_size(api->tokenizer) && out->count <= BREAKER_IDS_MAX; id++) {
        struct detokenizer detokenizer = { .tokenizer = api->tokenizer, .started = true };
        piece.len = 0;
        detokenizer_add(&detokenizer, id, &piece);
        detokenizer_finish(&detokenizer, &piece);
        for (size_t i = 0; i < count && piece.len; i++)
            add_if_begins(&breakers[i], id, strbuf_bytes(&piece), out);
    }
    strbuf_free(&piece);
}

static bool open_breaker(const struct api *api, struct breaker *breaker, struct bytes text, struct error *err)
{
    breaker->text = text;
    for (size_t length = 1; length < text.len; length++)
        if (!add_text_tokens(api, (struct bytes){ text.data + length, text.len - length }, &breaker->tails[length],
                             err))
            return false;
    return true;
}

static bool read_breakers(struct nibble_request *request, const struct api *api, const json_t *body,
                          struct api_error *err)
{
    static const char name[] = "dry_sequence_breakers", *const usual[] = { "\n", ":", "\"", "*" };
    const json_t *list = field_of(body, name);
    struct tokens tokens = { 0 };
    struct error cause;
    bool ok = true;
    if (!check_texts(list, name, BREAKERS_MAX, BREAKER_BYTES_MAX, err))
        return false;
    size_t count = list ? json_array_size(list) : sizeof usual / sizeof *usual;
    if (request->sampling.dry_multiplier == 0 || !count)
        return true;
    struct breaker *breakers = memory_new(count, sizeof *breakers);
    for (size_t i = 0; i < count && ok; i++)
        ok = open_breaker(api, &breakers[i], list ? json_bytes(json_array_get(list, i)) : bytes_of(usual[i]), &cause);
    if (ok)
        find_tokens(api, breakers, count, &tokens);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < BREAKER_BYTES_MAX; j++)
            tokens_free(&breakers[i].tails[j]);
    free(breakers);
    request->dry_breakers = sequences_of(&tokens);
    if (!ok)
        return api_fail_field(err, name, &cause);
    return tokens.count <= BREAKER_IDS_MAX
        || api_fail(err, 400, name, "the texts of \"%s\" are parts of too many tokens; send fewer, or longer ones",
                    name);
}

// ---- bad words and allowed tokens ---------------------------------------------------------------------------------

static bool add_bad_word(const struct api *api, struct bytes word, struct tokens *out, struct error *err)
{
    if (!add_text_tokens(api, word, out, err))
        return false;
    tokens_add(out, NIBBLE_SEQUENCE_END);
    return true;
}

// A word is banned at the beginning of a text and behind a space, where its tokens are others.
static bool read_bad_words(struct nibble_request *request, const struct api *api, const json_t *body,
                           struct api_error *err)
{
    const json_t *list = field_of(body, "bad_words"), *value;
    struct tokens tokens = { 0 };
    struct strbuf spaced = { 0 };
    struct error cause;
    size_t index;
    bool ok = true;
    if (!check_texts(list, "bad_words", BAD_WORDS_MAX, BAD_WORD_BYTES_MAX, err))
        return false;
    json_array_foreach (list, index, value) {
        struct bytes word = json_bytes(value);
        while (word.len > 1 && *word.data == ' ')
            word = (struct bytes){ word.data + 1, word.len - 1 };
        spaced.len = 0;
        strbuf_add_byte(&spaced, ' ');
        strbuf_add(&spaced, word.data, word.len);
        ok = ok && add_bad_word(api, word, &tokens, &cause)
            && add_bad_word(api, strbuf_bytes(&spaced), &tokens, &cause);
    }
    strbuf_free(&spaced);
    request->bad_words = sequences_of(&tokens);
    return ok || api_fail_field(err, "bad_words", &cause);
}

static bool read_allowed(struct nibble_request *request, const struct api *api, const json_t *body,
                         struct api_error *err)
{
    const json_t *list = field_of(body, "allowed_token_ids");
    int32_t *ids;
    if (!list)
        return true;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > (size_t)api->logits)
        return api_fail(err, 400, "allowed_token_ids", "\"allowed_token_ids\" is a list of 1 to %d token ids",
                        api->logits);
    if (!fields_read_ids(api, list, "allowed_token_ids", &ids, &request->allowed_count, err))
        return false;
    request->allowed_ids = ids;
    return true;
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// How many of the last tokens are looked at. -1: all of them, which is 0 in *value. 0: none, *off.
static bool read_window(const json_t *body, const char *name, int *value, bool *off, struct api_error *err)
{
    int64_t last_n = *value ? *value : -1;
    if (!fields_read_int(body, name, -1, INT32_MAX, &last_n, err))
        return false;
    *off = last_n == 0;
    *value = last_n > 0 ? (int)last_n : 0;
    return true;
}

static bool read_windows(struct nibble_sampling *sampling, const json_t *body, struct api_error *err)
{
    bool no_penalties, no_dry;
    if (!read_window(body, "repeat_last_n", &sampling->penalty_last_n, &no_penalties, err)
        || !read_window(body, "dry_penalty_last_n", &sampling->dry_penalty_last_n, &no_dry, err))
        return false;
    if (no_penalties) {
        sampling->repetition_penalty = 1;
        sampling->presence_penalty = sampling->frequency_penalty = 0;
    }
    if (no_dry)
        sampling->dry_multiplier = 0;
    return true;
}

static bool check_mirostat(const struct nibble_sampling *sampling, struct api_error *err)
{
    return sampling->mirostat != 1
        || api_fail_code(err, 400, "mirostat", "unsupported_value",
                         "\"mirostat\" is not supported with this value; 0 is off and 2 is its second version");
}

// ---- the order of samplers ----------------------------------------------------------------------------------------

static const struct {
    const char *name;
    enum nibble_sampler sampler;
} sampler_names[] = {
    { "penalties", NIBBLE_SAMPLER_PENALTIES },
    { "dry", NIBBLE_SAMPLER_DRY },
    { "top_n_sigma", NIBBLE_SAMPLER_TOP_N_SIGMA },
    { "temperature", NIBBLE_SAMPLER_TEMPERATURE },
    { "min_p", NIBBLE_SAMPLER_MIN_P },
    { "top_k", NIBBLE_SAMPLER_TOP_K },
    { "typ_p", NIBBLE_SAMPLER_TYPICAL_P },
    { "typical_p", NIBBLE_SAMPLER_TYPICAL_P },
    { "top_p", NIBBLE_SAMPLER_TOP_P },
    { "top_a", NIBBLE_SAMPLER_TOP_A },
    { "xtc", NIBBLE_SAMPLER_XTC },
};

static enum nibble_sampler find_sampler(const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < sizeof sampler_names / sizeof *sampler_names; i++)
        if (!strcmp(json_string_value(name), sampler_names[i].name))
            return sampler_names[i].sampler;
    return NIBBLE_SAMPLERS_END;
}

static bool read_order(struct nibble_sampling *sampling, const json_t *body, struct api_error *err)
{
    const json_t *list = field_of(body, "samplers"), *name;
    size_t index;
    int count = 0;
    if (!list)
        return true;
    if (!json_array_size(list))
        return api_fail(err, 400, "samplers", "\"samplers\" is a list of the names of samplers, at least one");
    json_array_foreach (list, index, name) {
        unsigned char which = (unsigned char)find_sampler(name);
        if (!which)
            return api_fail_code(err, 400, "samplers", "unsupported_value",
                                 "\"%.40s\" in \"samplers\" is not one of penalties, dry, top_n_sigma, temperature, "
                                 "min_p, top_k, typ_p, top_p, top_a and xtc",
                                 json_is_string(name) ? json_string_value(name) : "an entry");
        if (memchr(sampling->order, which, (size_t)count))
            return api_fail(err, 400, "samplers", "\"%.40s\" is in \"samplers\" twice", json_string_value(name));
        sampling->order[count++] = which;
    }
    return true;
}

bool fields_read_sampling(struct nibble_request *request, const struct api *api, const json_t *body,
                          struct api_error *err)
{
    struct nibble_sampling *sampling = &request->sampling;
    sampling->top_n_sigma = sampling->top_n_sigma > 0 ? sampling->top_n_sigma : 0; // below 0 is off, too
    return read_windows(sampling, body, err) && check_mirostat(sampling, err) && read_order(sampling, body, err)
        && read_breakers(request, api, body, err) && read_bad_words(request, api, body, err)
        && read_allowed(request, api, body, err);
}
