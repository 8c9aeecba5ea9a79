// SPDX-License-Identifier: Apache-2.0
#include "server/read.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/access.h"
#include "server/admission.h"
#include "server/kind.h"

enum { COMPLETION_TOKENS = 16 }; // OpenAI's default

// Returns the limit of the answer in tokens: the given one, or the default beside a prompt of so many.
static int64_t answer_tokens(const struct job *job, size_t prompt)
{
    int64_t asked = job->params.request.max_tokens, longest = job->api->max_model_len;
    if (asked == FIELDS_DEFAULT_LENGTH)
        asked = kind_is_chat(job) ? FIELDS_REST_OF_CONTEXT : COMPLETION_TOKENS;
    int64_t rest = prompt < (size_t)longest ? longest - (int64_t)prompt : 1;
    bool cut = asked == FIELDS_REST_OF_CONTEXT || (asked > rest && kind_of(job)->cuts_length);
    return cut ? rest : asked;
}

static bool fits_context(struct job *job, size_t prompt)
{
    const char *field = kind_of(job)->prompt_field;
    int64_t answer = answer_tokens(job, prompt);
    int longest = job->api->max_model_len;
    return (int64_t)prompt + answer <= longest
        || api_fail_code(&job->error, 400, job->params.request.max_tokens >= 0 ? "max_tokens" : field,
                         "context_length_exceeded",
                         "This model's maximum context length is %d tokens. You asked for %zu tokens in the %s and "
                         "%lld in the answer; shorten one of them.",
                         longest, prompt, field, (long long)answer);
}

// Keeps the last tokens of a prompt, or the first, as truncate_prompt_tokens asks.
static void truncate_prompt(const struct job *job, struct prompt *prompt)
{
    const struct request_params *params = &job->params;
    int64_t most = params->truncate_prompt;
    if (most < 0)
        most = job->api->max_model_len - answer_tokens(job, (size_t)job->api->max_model_len);
    if (!params->truncate_prompt || most < 1 || prompt->count <= (size_t)most)
        return;
    if (!params->truncate_right)
        memmove(prompt->ids, prompt->ids + prompt->count - most, (size_t)most * sizeof *prompt->ids);
    prompt->count = (size_t)most;
}

// Each prompt is checked before the next one is read: nine that cannot fit cost the time of one.
static bool add_prompt(struct job *job, struct prompt prompt)
{
    truncate_prompt(job, &prompt);
    job->prompts[job->prompt_count++] = prompt;
    return !kind_of(job)->reads_as || fits_context(job, prompt.count);
}

static bool may_fit(struct job *job, size_t bytes, const char *param)
{
    const struct api *api = job->api;
    return bytes / api->token_bytes_max <= (size_t)api->max_model_len || job->params.truncate_prompt
        || api_fail_code(&job->error, 400, param, "context_length_exceeded",
                         "This model's maximum context length is %d tokens, and %zu bytes of prompt are more than that",
                         api->max_model_len, bytes);
}

static bool add_tokens(struct job *job, bool encoded, struct tokens *tokens, const char *param,
                       const struct error *cause)
{
    if (encoded)
        return add_prompt(job, (struct prompt){ tokens->ids, tokens->count });
    tokens_free(tokens);
    return !atomic_load(&job->cancelled) && api_fail_field(&job->error, param, cause);
}

bool read_prompt_text(struct job *job, struct bytes text, int flags, const char *param)
{
    struct tokens tokens = { 0 };
    struct error cause;
    if (!may_fit(job, text.len, param))
        return false;
    bool encoded = tokenizer_encode_while(job->api->tokenizer, text, flags, &job->cancelled, &tokens, &cause);
    return add_tokens(job, encoded, &tokens, param, &cause);
}

bool read_prompt_fim(struct job *job, const struct fim_text *text, const char *param)
{
    const struct api *api = job->api;
    struct tokens tokens = { 0 };
    struct error cause;
    size_t bytes = text->prefix.len + text->suffix.len + text->begun.len;
    if (!api->has_fim)
        return api_fail_code(&job->error, 400, param, "unsupported_parameter",
                             "\"%s\" is not supported with this model: its vocabulary has no tokens for fill in the "
                             "middle",
                             param);
    for (size_t i = 0; i < text->file_count; i++)
        bytes += text->files[i].name.len + text->files[i].text.len;
    if (!may_fit(job, bytes, param))
        return false;
    fields_add_ends(&job->params, api->fim.ends, job->prompt_count ? 0 : api->fim.end_count); // once
    bool encoded = fim_encode(api->tokenizer, &api->fim, text, job->params.add_special, &job->cancelled, &tokens,
                              &cause);
    return add_tokens(job, encoded, &tokens, param, &cause);
}

bool read_prompt_ids(struct job *job, const json_t *ids)
{
    struct prompt prompt = { 0 };
    return fields_read_ids(job->api, ids, "prompt", &prompt.ids, &prompt.count, &job->error) && add_prompt(job, prompt);
}

// Checks the limits of the answers, once the prompts are known.
static bool check_length(struct job *job)
{
    struct request_params *params = &job->params;
    size_t most = 0;
    for (int i = 0; i < job->prompt_count; i++) {
        if (!job->prompts[i].count)
            return api_fail(&job->error, 400, "prompt", "the prompt has no tokens; send some text");
        most = job->prompts[i].count > most ? job->prompts[i].count : most;
    }
    if (params->request.max_tokens == 0
        && (kind_is_chat(job) || !params->echo) // with echo, the prompt is all there is to score
        && params->prompt_logprobs < 0)
        return api_fail(&job->error, 400, "max_tokens", "\"max_tokens\" is 0, expected at least 1");
    if (!fits_context(job, most))
        return false;
    params->request.max_tokens = (int)answer_tokens(job, most);
    if (params->prompt_logprobs >= 0 && params->stream)
        return api_fail(&job->error, 400, "prompt_logprobs", "\"prompt_logprobs\" does not go with \"stream\": true");
    if (params->request.min_tokens > params->request.max_tokens)
        return api_fail(&job->error, 400, "min_tokens",
                        "\"min_tokens\" is %lld, which is more than the %lld of "
                        "\"max_tokens\"",
                        (long long)params->request.min_tokens, (long long)params->request.max_tokens);
    return true;
}

static bool check_grammar(struct job *job)
{
    bool closes = job->params.close_at_max_tokens;
    if (!job->grammar)
        return !closes
            || api_fail(&job->error, 400, "close_at_max_tokens",
                        "\"close_at_max_tokens\" closes an answer of a given form, and this one has none; ask for one "
                        "with \"response_format\" or \"tool_choice\"");
    if (job->params.request.allowed_count)
        return api_fail(&job->error, 400, "allowed_token_ids",
                        "\"allowed_token_ids\" cannot stand beside an answer of a given form; leave one of them out");
    fields_end_naturally(&job->params, job->api);
    int shortest = job->shortest_answer = grammar_shortest(job->grammar, api_vocabulary(job->api));
    if (shortest == INT_MAX)
        return api_fail(&job->error, 400, NULL, "this model's vocabulary cannot write an answer of the asked form");
    return !closes || shortest <= job->params.request.max_tokens
        || api_fail(&job->error, 400, "max_tokens",
                    "\"max_tokens\" is %lld, and the shortest answer of the asked form has %d tokens",
                    (long long)job->params.request.max_tokens, shortest);
}

// ---- what outlives the JSON ---------------------------------------------------------------------------------------

static struct bytes keep_text(struct job *job, struct bytes text)
{
    job->kept_bytes += text.len + 1;
    return text.data ? (struct bytes){ arena_text(&job->kept, text.data, text.len), text.len } : text;
}

// The salt of the prefix cache is that of the tenant and of the request: pages are shared under the same salt only.
static void keep_salt(struct job *job)
{
    struct nibble_request *request = &job->params.request;
    struct strbuf salt = { 0 };
    if (job->tenant)
        strbuf_add(&salt, (const char *)job->tenant, KEY_DIGEST_BYTES);
    strbuf_add(&salt, request->cache_salt, request->cache_salt_len);
    struct bytes kept = keep_text(job, strbuf_bytes(&salt));
    request->cache_salt = kept.data;
    request->cache_salt_len = kept.len;
    strbuf_free(&salt);
}

// Memory of the lists of tokens, which the engine has a copy of.
static size_t sampling_bytes(const struct nibble_request *request)
{
    size_t ids = request->allowed_count + request->bad_words.count + 3 * request->dry_breakers.count;
    return 2 * ids * sizeof(int32_t);
}

// Copies the strings that the parameters borrow and takes a reference to the tools, so that the JSON can be freed:
// unused fields hold no memory while the answer is made.
static void keep(struct job *job)
{
    struct request_params *params = &job->params;
    for (int i = 0; i < params->stop_count; i++)
        params->stops[i] = keep_text(job, params->stops[i]);
    keep_salt(job);
    job->kept_bytes += sampling_bytes(&params->request);
    for (int i = 0; i < job->prompt_count; i++)
        job->prompts[i].text = params->echo ? keep_text(job, job->prompts[i].text) : (struct bytes){ 0 };
    job->must_name = NULL;
    if (job->tools && !job->kept_tools)
        job->kept_tools = json_incref((json_t *)job->tools);
}

// ---- all of it ----------------------------------------------------------------------------------------------------

static bool read_json(struct job *job)
{
    struct error cause;
    if (!admission_read(job))
        return false;
    if (!json_read_strict(strbuf_bytes(&job->body), API_CONTAINERS_MAX, &job->json, &cause)) {
        api_fail(&job->error, 400, NULL, "the request's body is not JSON: %s", cause.text);
        job->error.quotes = true; // the parser says near which bytes
        return false;
    }
    strbuf_free(&job->body);
    if (!json_is_object(job->json))
        return api_fail(&job->error, 400, NULL, "the request's body is not a JSON object");
    return fields_check_model(job->api, job->json, &job->error) && read_own_template(job)
        && fields_check(job_chat(job), job->json, kind_of(job)->endpoint, &job->error);
}

static bool read_generating(struct job *job)
{
    if (kind_of(job)->translate && !kind_of(job)->translate(job))
        return false;
    const struct kind *kind = kind_of(job); // a translation may choose another one
    if (!fields_read(&job->params, job->api, job->json, kind->reads_as, &job->error) || !kind->read(job)
        || !check_length(job) || !check_grammar(job))
        return false;
    keep(job);
    job_drop_json(job);
    job_make_choices(job);
    return admission_answer(job);
}

// The JSON of a body of megabytes is many small allocations, which the allocator would keep for good.
enum { LARGE_BODY_BYTES = 1 << 20 };

bool read_job(struct job *job)
{
    const struct kind *kind = kind_of(job);
    bool known = !kind->endpoint || job->json || read_json(job);
    bool ready = known && (kind->reads_as ? read_generating(job) : kind->read(job));
    if (job->leaves_lane)
        return false;
    if (known && job->error.status)
        kind_rename_field(job, &job->error);
    job_drop_json(job);
    if (job->body_bytes >= LARGE_BODY_BYTES)
        memory_trim();
    if (ready)
        return true;
    job->tools = job->kept_tools; // those of the JSON are gone
    free(job->choices);           // the answer is an error or a reply
    job->choices = NULL;
    job->choice_count = 0;
    return job->error.status ? false : admission_reply(job) && false;
}
