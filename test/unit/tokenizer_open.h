// SPDX-License-Identifier: Apache-2.0
// test/unit/tokenizer_open.h: tokenizers out of a few lines of JSON, with ' in place of ", or out of a small GGUF.
#ifndef TEST_TOKENIZER_OPEN_H
#define TEST_TOKENIZER_OPEN_H

#include "container.h"
#include "format/json.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer.h"

static json_t *read_quoted(const char *text)
{
    struct strbuf json = { 0 };
    struct error err;
    json_t *value = NULL;
    for (; *text; text++)
        strbuf_add_byte(&json, *text == '\'' ? '"' : *text);
    if (!json_read(strbuf_bytes(&json), &value, &err))
        fail_msg("%s", err.text);
    strbuf_free(&json);
    return value;
}

static struct tokenizer *open_json(const char *text, const char *config, struct error *err)
{
    struct checkpoint checkpoint = { .path = "test", .tokenizer = read_quoted(text) };
    checkpoint.tokenizer_config = config ? read_quoted(config) : NULL;
    struct tokenizer *tokenizer = tokenizer_open(&checkpoint, err);
    json_decref(checkpoint.tokenizer); // a tokenizer stands on its own
    json_decref(checkpoint.tokenizer_config);
    return tokenizer;
}

static struct tokenizer *must_open(const char *text, const char *config)
{
    struct error err = { "" };
    struct tokenizer *tokenizer = open_json(text, config, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    return tokenizer;
}

// All 256 letters of the byte alphabet, byte b with the id b, and what is given behind them.
static inline struct tokenizer *open_byte_level(const char *more_vocab, const char *merges, const char *more)
{
    struct strbuf json = { 0 };
    strbuf_add_text(&json, "{'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},");
    strbuf_add_format(&json, "'decoder':{'type':'ByteLevel'},%s'model':{'merges':[%s],'vocab':{", more, merges);
    for (int byte = 0; byte < 256; byte++)
        strbuf_add_format(&json, "%s'\\u%04x':%d", byte ? "," : "", bytemap_letter((unsigned char)byte), byte);
    strbuf_add_format(&json, "%s}}}", more_vocab);
    struct tokenizer *tokenizer = must_open(json.data, NULL);
    strbuf_free(&json);
    return tokenizer;
}

struct gguf_vocabulary {
    const char *model, *pre;
    const char *const *pieces; // NULL at the end
    const int32_t *types;      // NULL: all normal
    const char *const *merges; // NULL: scores, better for later pieces
    int add_bos;               // -1: the key is absent
    int bos;                   // -1: the key is absent
};

static void put_strings(struct gguf_file *file, const char *key, const char *const *strings)
{
    size_t count = 0;
    while (strings[count])
        count++;
    gguf_file_key(file, key, GGUF_ARRAY);
    put_u32(&file->keys, GGUF_STRING);
    put_u64(&file->keys, count);
    for (size_t i = 0; i < count; i++)
        put_string(&file->keys, bytes_of(strings[i]));
}

static void put_numbers(struct gguf_file *file, const char *key, enum gguf_type type, const void *numbers, size_t count)
{
    gguf_file_key(file, key, GGUF_ARRAY);
    put_u32(&file->keys, type);
    put_u64(&file->keys, count);
    put(&file->keys, numbers, count * 4);
}

static void put_text(struct gguf_file *file, const char *key, const char *text)
{
    if (!text)
        return;
    gguf_file_key(file, key, GGUF_STRING);
    put_string(&file->keys, bytes_of(text));
}

static struct tokenizer *open_gguf(const struct gguf_vocabulary *vocabulary, struct error *err)
{
    struct gguf_file file = { 0 };
    size_t count = 0;
    float scores[64];
    for (; vocabulary->pieces && vocabulary->pieces[count]; count++)
        scores[count] = (float)count;
    put_text(&file, "tokenizer.ggml.model", vocabulary->model);
    put_text(&file, "tokenizer.ggml.pre", vocabulary->pre);
    if (vocabulary->pieces)
        put_strings(&file, "tokenizer.ggml.tokens", vocabulary->pieces);
    if (vocabulary->types)
        put_numbers(&file, "tokenizer.ggml.token_type", GGUF_I32, vocabulary->types, count);
    if (vocabulary->merges)
        put_strings(&file, "tokenizer.ggml.merges", vocabulary->merges);
    else
        put_numbers(&file, "tokenizer.ggml.scores", GGUF_F32, scores, count);
    if (vocabulary->bos >= 0)
        gguf_file_u32(&file, "tokenizer.ggml.bos_token_id", (uint32_t)vocabulary->bos);
    if (vocabulary->add_bos >= 0) {
        gguf_file_key(&file, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
        strbuf_add_byte(&file.keys, (char)vocabulary->add_bos);
    }
    struct strbuf bytes = gguf_file_finish(&file, 32);
    struct gguf gguf;
    assert_true(gguf_parse(strbuf_bytes(&bytes), &gguf, err));
    struct tokenizer *tokenizer = tokenizer_open(&(struct checkpoint){ .gguf = &gguf }, err);
    gguf_free(&gguf);
    strbuf_free(&bytes);
    return tokenizer;
}

static inline struct tokenizer *must_open_gguf(const struct gguf_vocabulary *vocabulary)
{
    struct error err = { "" };
    struct tokenizer *tokenizer = open_gguf(vocabulary, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    return tokenizer;
}

#endif
