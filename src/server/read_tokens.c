// SPDX-License-Identifier: Apache-2.0
// server/read_tokens.c: /tokenize and /detokenize, which need no engine.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
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
    const struct prompt *prompt = &job->prompts[0];
    json_t *ids = json_array(), *words = pieces ? json_array() : json_null();
    for (size_t i = 0; i < prompt->count; i++) {
        json_array_append_new(ids, json_integer(prompt->ids[i]));
        if (pieces)
            json_array_append_new(words, api_text(tokenizer_piece(job->api->tokenizer, prompt->ids[i])));
    }
    job->reply = json_pack("{s:I, s:i, s:o, s:o}", "count", (json_int_t)prompt->count, "max_model_len",
                           job->api->max_model_len, "tokens", ids, "token_strs", words);
    return false;
}

bool read_detokenize(struct job *job)
{
    const json_t *list = json_object_get(job->json, "tokens");
    int32_t *ids;
    size_t count;
    if (!json_is_array(list))
        return api_fail(&job->error, 400, "tokens", "\"tokens\" is a list of token ids");
    if (!fields_read_ids(job->api, list, "tokens", &ids, &count, &job->error))
        return false;
    struct detokenizer detokenizer = { .tokenizer = job->api->tokenizer };
    struct strbuf text = { 0 };
    for (size_t i = 0; i < count; i++)
        detokenizer_add(&detokenizer, ids[i], &text);
    detokenizer_finish(&detokenizer, &text);
    job->reply = json_pack("{s:o}", "prompt", api_text(strbuf_bytes(&text)));
    strbuf_free(&text);
    free(ids);
    return false;
}
