// SPDX-License-Identifier: Apache-2.0
// server/read_tokens.c: /tokenize and /detokenize, which need no engine.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/read.h"

// A text gets special tokens unless it is asked otherwise; in a rendered chat the template has written them.
static bool read_special(struct job *job, bool usual, int *flags)
{
    bool add_special = usual;
    struct error trouble;
    *flags = TOKENIZE_PARSE_SPECIAL;
    if (!json_get_bool(job->json, "add_special_tokens", &add_special, &trouble))
        return api_fail(&job->error, 400, "add_special_tokens", "%s", trouble.text);
    *flags |= add_special ? TOKENIZE_ADD_SPECIAL : 0;
    return true;
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

bool read_tokenize(struct job *job)
{
    bool pieces = false;
    struct error trouble;
    if (!json_get_bool(job->json, "return_token_strs", &pieces, &trouble))
        return api_fail(&job->error, 400, "return_token_strs", "%s", trouble.text);
    job->prompts = memory_new(1, sizeof *job->prompts);
    if (!tokenize_text(job))
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
