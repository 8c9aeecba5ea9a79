// SPDX-License-Identifier: Apache-2.0
#include "server/read.h"

#include <limits.h>

#include "format/json.h"

bool read_prompt_text(struct job *job, struct bytes text, int flags, const char *param)
{
    const struct api *api = job->api;
    struct tokens tokens = { 0 };
    struct error trouble;
    if (text.len / api->token_bytes_max > (size_t)api->max_model_len)
        return api_fail_code(&job->error, 400, param, "context_length_exceeded",
                             "This model's maximum context length is %d tokens, and %zu bytes of prompt are more than "
                             "that", api->max_model_len, text.len);
    if (!tokenizer_encode(api->tokenizer, text, flags, &tokens, &trouble)) {
        tokens_free(&tokens);
        return api_fail(&job->error, 400, param, "%s", trouble.text);
    }
    job->prompts[job->prompt_count++] = (struct prompt){ tokens.ids, tokens.count };
    return true;
}

bool read_prompt_ids(struct job *job, const json_t *ids)
{
    struct prompt *prompt = &job->prompts[job->prompt_count];
    if (!fields_read_ids(job->api, ids, "prompt", &prompt->ids, &prompt->count, &job->error))
        return false;
    job->prompt_count++;
    return true;
}

enum { COMPLETION_TOKENS = 16 }; // OpenAI's default

// How long the answers may get, now that the prompts are known.
static bool check_length(struct job *job)
{
    struct fields *fields = &job->fields;
    int longest = job->api->max_model_len;
    size_t most = 0;
    for (int i = 0; i < job->prompt_count; i++) {
        if (!job->prompts[i].count)
            return api_fail(&job->error, 400, "prompt", "the prompt has no tokens; send some text");
        most = job->prompts[i].count > most ? job->prompts[i].count : most;
    }
    bool chat = job->kind == JOB_CHAT, given = fields->max_tokens >= 0;
    if (fields->max_tokens == 0 && (chat || !fields->echo)) // with echo, the prompt is all there is to score
        return api_fail(&job->error, 400, "max_tokens", "\"max_tokens\" is 0, expected at least 1");
    if (fields->max_tokens == FIELDS_DEFAULT_LENGTH)
        fields->max_tokens = chat ? FIELDS_REST_OF_CONTEXT : COMPLETION_TOKENS;
    if (fields->max_tokens == FIELDS_REST_OF_CONTEXT)
        fields->max_tokens = most < (size_t)longest ? longest - (int64_t)most : 1;
    const char *field = chat ? "messages" : "prompt";
    if ((int64_t)most + fields->max_tokens > longest)
        return api_fail_code(&job->error, 400, given ? "max_tokens" : field, "context_length_exceeded",
                             "This model's maximum context length is %d tokens. You asked for %zu tokens in the %s and "
                             "%lld in the answer; shorten one of them.",
                             longest, most, field, (long long)fields->max_tokens);
    if (fields->min_tokens > fields->max_tokens)
        return api_fail(&job->error, 400, "min_tokens", "\"min_tokens\" is %lld, which is more than the %lld of "
                        "\"max_tokens\"", (long long)fields->min_tokens, (long long)fields->max_tokens);
    return true;
}

static bool check_grammar(struct job *job)
{
    bool closes = job->fields.close_at_max_tokens;
    if (!job->grammar)
        return !closes
            || api_fail(&job->error, 400, "close_at_max_tokens",
                        "\"close_at_max_tokens\" closes an answer of a given form, and this one has none; ask for one "
                        "with \"response_format\" or \"tool_choice\"");
    fields_end_naturally(&job->fields, job->api);
    int shortest = grammar_shortest(job->grammar, api_vocabulary(job->api));
    if (shortest == INT_MAX)
        return api_fail(&job->error, 400, NULL, "this model's vocabulary cannot write an answer of the asked form");
    return !closes || shortest <= job->fields.max_tokens
        || api_fail(&job->error, 400, "max_tokens",
                    "\"max_tokens\" is %lld, and the shortest answer of the asked form has %d tokens",
                    (long long)job->fields.max_tokens, shortest);
}

static const struct {
    bool (*read)(struct job *job);
    enum endpoint endpoint;
    bool generates;
} kinds[] = {
    [JOB_CHAT] = { read_chat, ON_CHAT, true },
    [JOB_COMPLETION] = { read_completion, ON_COMPLETION, true },
    [JOB_TOKENIZE] = { read_tokenize, ON_TOKENIZE, false },
    [JOB_DETOKENIZE] = { read_detokenize, ON_DETOKENIZE, false },
};

bool read_job(struct job *job)
{
    struct error trouble;
    if (!json_read_strict(strbuf_bytes(&job->body), API_CONTAINERS_MAX, &job->json, &trouble)) {
        api_fail(&job->error, 400, NULL, "the request's body is not JSON: %s", trouble.text);
        job->error.quotes = true; // the parser says near which bytes
        return false;
    }
    strbuf_free(&job->body);
    if (!json_is_object(job->json))
        return api_fail(&job->error, 400, NULL, "the request's body is not a JSON object");
    enum endpoint endpoint = kinds[job->kind].endpoint;
    if (!fields_check_model(job->api, job->json, &job->error)
        || !fields_check(job->api, job->json, endpoint, &job->error))
        return false;
    if (!kinds[job->kind].generates)
        return kinds[job->kind].read(job);
    if (!fields_read(&job->fields, job->api, job->json, endpoint, &job->error)
        || !kinds[job->kind].read(job)
        || !check_length(job)
        || !check_grammar(job))
        return false;
    job_make_choices(job);
    return true;
}
