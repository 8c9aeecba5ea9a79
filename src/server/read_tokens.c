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
    const json_t *prompt = json_object_get(job->json, "prompt"), *messages = json_object_get(job->json, "messages");
    bool has_prompt = prompt && !json_is_null(prompt), has_messages = messages && !json_is_null(messages);
    struct strbuf rendered = { 0 };
    int flags;
    if (has_prompt == has_messages || (has_prompt && !json_is_string(prompt)))
        return api_fail(&job->error, 400, "prompt", "\"prompt\" is a string, or else there is \"messages\"");
    if (!read_special(job, has_prompt, &flags))
        return false;
    if (has_prompt)
        return read_prompt_text(job, (struct bytes){ json_string_value(prompt), json_string_length(prompt) }, flags,
                                "prompt");
    bool ok = read_tools(job) && read_messages(job, &rendered)
        && read_prompt_text(job, strbuf_bytes(&rendered), flags, "messages");
    strbuf_free(&rendered);
    return ok;
}

bool read_input_tokens(struct job *job)
{
    struct strbuf text = { 0 };
    int flags;
    job->prompts = memory_new(1, sizeof *job->prompts);
    bool ok = fields_read(&job->params, job->api, job->json, ON_CHAT, &job->error) && read_special(job, false, &flags)
        && read_tools(job) && read_messages(job, &text)
        && read_prompt_text(job, strbuf_bytes(&text), flags, "messages");
    if (ok)
        strbuf_add_format(&job->reply, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                          job->prompts[0].count);
    strbuf_free(&text);
    return false;
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
    job->prompts = memory_new(1, sizeof *job->prompts);
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
    strbuf_add_text(&job->reply, "{\"prompt\":");
    json_write_text(&job->reply, strbuf_bytes(&text));
    strbuf_add_byte(&job->reply, '}');
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
