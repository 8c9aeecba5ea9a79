// SPDX-License-Identifier: Apache-2.0
// server/read_tokens.c: /tokenize and /detokenize, which need no engine.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/json_writer.h"
#include "server/read.h"

static bool tokenize_text(struct job *job, bool add_special)
{
    const json_t *prompt = json_object_get(job->json, "prompt");
    struct strbuf rendered = { 0 };
    if (json_is_string(prompt)) {
        struct bytes text = { json_string_value(prompt), json_string_length(prompt) };
        int flags = TOKENIZE_PARSE_SPECIAL | (add_special ? TOKENIZE_ADD_SPECIAL : 0);
        return read_prompt_text(job, text, flags, "prompt");
    }
    if (!json_object_get(job->json, "messages"))
        return api_fail(&job->error, 400, "prompt", "\"prompt\" (a string) or \"messages\" is missing");
    bool ok = read_tools(job) && read_messages(job, &rendered)
        && read_prompt_text(job, strbuf_bytes(&rendered), TOKENIZE_PARSE_SPECIAL, "messages");
    strbuf_free(&rendered);
    return ok;
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
    bool add_special = true, pieces = false;
    struct error trouble;
    if (!json_get_bool(job->json, "add_special_tokens", &add_special, &trouble)
        || !json_get_bool(job->json, "return_token_strs", &pieces, &trouble))
        return api_fail(&job->error, 400, NULL, "%s", trouble.text);
    job->prompts = memory_new(1, sizeof *job->prompts);
    if (!tokenize_text(job, add_special))
        return false;
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
        return api_fail(&job->error, 400, "tokens", "\"tokens\" has %zu token ids, and %zu are the limit; send them in "
                        "parts", json_array_size(list), most);
    if (!fields_read_ids(job->api, list, "tokens", &ids, &count, &job->error))
        return false;
    write_prompt(job, ids, count);
    free(ids);
    return false;
}
