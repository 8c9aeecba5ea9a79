// SPDX-License-Identifier: Apache-2.0
// server/read_tokens.c: /tokenize, /detokenize and the counting of a chat's tokens, which need no engine.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/json_writer.h"
#include "server/read.h"

// A text gets special tokens unless it is asked otherwise; in a rendered chat the template has written them.
static bool read_special(struct job *job, bool usual, int *flags)
{
    bool add_special = usual;
    bool ok = fields_read_bool(job->json, "add_special_tokens", &add_special, &job->error);
    *flags = TOKENIZE_PARSE_SPECIAL | (add_special ? TOKENIZE_ADD_SPECIAL : 0);
    return ok;
}

static bool tokenize_text(struct job *job)
{
    const json_t *prompt = field_of(job->json, "prompt");
    int flags;
    if (!prompt == !field_of(job->json, "messages") || (prompt && !json_is_string(prompt)))
        return api_fail(&job->error, 400, "prompt", "\"prompt\" is a string, or else there is \"messages\"");
    if (!read_special(job, prompt, &flags))
        return false;
    if (!prompt)
        return read_tools(job) && read_chat_prompt(job, flags);
    job->prompts = memory_new(1, sizeof *job->prompts);
    return read_prompt_text(job, json_bytes(prompt), flags, "prompt");
}

bool read_input_tokens(struct job *job)
{
    int flags;
    return fields_read(&job->params, job->api, job->json, ON_CHAT, &job->error) && read_special(job, false, &flags)
        && read_count(job, flags, READ_COUNT_OPENING);
}

static void write_tokens(struct job *job, bool pieces)
{
    const struct prompt *prompt = &job->prompts[0];
    struct strbuf *out = &job->reply;
    strbuf_add_format(out, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", prompt->count, job->api->max_model_len);
    for (size_t i = 0; i < prompt->count; i++)
        strbuf_add_format(out, i ? ",%d" : "%d", prompt->ids[i]);
    strbuf_add_text(out, pieces ? "],\"token_strs\":[" : "],\"token_strs\":null}");
    for (size_t i = 0; pieces && i < prompt->count; i++) {
        strbuf_add_text(out, i ? "," : "");
        json_write_text(out, tokenizer_piece(job->api->tokenizer, prompt->ids[i]));
    }
    strbuf_add_text(out, pieces ? "]}" : "");
}

bool read_tokenize(struct job *job)
{
    bool pieces = false;
    if (fields_read_bool(job->json, "return_token_strs", &pieces, &job->error) && tokenize_text(job))
        write_tokens(job, pieces);
    return false;
}

static void write_prompt(struct job *job, const int32_t *ids, size_t count)
{
    enum { IDS_PER_LOOK = 1024 };
    struct detokenizer detokenizer = { .tokenizer = job->api->tokenizer };
    struct strbuf text = { 0 };
    for (size_t i = 0; i < count; i++) {
        if (i % IDS_PER_LOOK == 0 && atomic_load(&job->cancelled))
            break;
        detokenizer_add(&detokenizer, ids[i], &text);
    }
    detokenizer_finish(&detokenizer, &text);
    json_write(&job->reply, "{\"prompt\":%b}", strbuf_bytes(&text));
    strbuf_free(&text);
}

bool read_detokenize(struct job *job)
{
    const json_t *list = json_object_get(job->json, "tokens");
    size_t contexts = API_DETOKENIZE_CONTEXTS * (size_t)job->api->max_model_len;
    size_t most = contexts > API_DETOKENIZE_IDS_MIN ? contexts : API_DETOKENIZE_IDS_MIN;
    int32_t *ids;
    size_t count;
    if (!json_is_array(list))
        return api_fail(&job->error, 400, "tokens", "\"tokens\" is a list of token ids");
    if (json_array_size(list) > most)
        return api_fail(&job->error, 400, "tokens",
                        "\"tokens\" has %zu token ids, and %zu are the limit; send them in "
                        "parts",
                        json_array_size(list), most);
    if (!fields_read_ids(job->api, list, "tokens", &ids, &count, &job->error))
        return false;
    write_prompt(job, ids, count);
    free(ids);
    return false;
}
