// SPDX-License-Identifier: Apache-2.0
#include "server/admission.h"

#include "format/json.h"
#include "server/answer.h"
#include "server/kind.h"
#include "server/parts.h"

enum {
    JOB_BYTES = 4 << 10,    // of a job's own, fields and names included
    CHOICE_BYTES = 4 << 10, // of each choice
    ANSWER_TEXT_BYTES = 16, // of a token: about twice what its text has, as buffers double
    ID_BYTES = 8,           // of a token in the scheduler
    READ_COPIES = 2,        // of texts while they are read: messages as the template sees them, the prompt
    JSON_VALUE_BYTES = 128, // of what is kept of the JSON, a value or a key
    ENTRY_JSON_BYTES = 128, // of a token in an answer's text, or of a candidate beside it
};

// Limit on the logprobs of one answer: about 400 MB of JSON.
static const double entries_max = 1 << 22;

// ---- charging -----------------------------------------------------------------------------------------------------

static bool charge(struct job *job, size_t bytes, int status, const char *param, const char *what, const char *advice)
{
    if (job_charge(job, bytes))
        return true;
    size_t limit = job->budget->limit_bytes;
    if (bytes > limit)
        return api_fail(&job->error, status, param,
                        "%s would take %zu bytes of memory, and this server has %zu for all requests together; %s",
                        what, bytes, limit, advice);
    return api_fail(&job->error, 429, NULL,
                    "%s would take %zu bytes of memory, and other requests hold %zu of the %zu there are; try again in "
                    "a moment",
                    what, bytes, budget_used(job->budget) - job->charged_bytes, limit);
}

bool admission_read(struct job *job)
{
    size_t bytes = JOB_BYTES + json_memory(strbuf_bytes(&job->body)) + READ_COPIES * job->body.len;
    return charge(job, bytes, 413, NULL, "reading this request", "send a smaller one");
}

bool admission_read_more(struct job *job, struct bytes json)
{
    size_t bytes = job->charged_bytes + json_memory(json) + READ_COPIES * json.len;
    return charge(job, bytes, 413, NULL, "reading what this request refers to", "begin a new conversation");
}

// ---- answers ------------------------------------------------------------------------------------------------------

static size_t kept_bytes(const json_t *value)
{
    size_t bytes = JSON_VALUE_BYTES + json_string_length(value), index;
    const char *key;
    json_t *member;
    const json_t *entry;
    json_array_foreach (value, index, entry)
        bytes += kept_bytes(entry);
    json_object_foreach ((json_t *)value, key, member)
        bytes += JSON_VALUE_BYTES + strlen(key) + kept_bytes(member);
    return bytes;
}

// Tokens of a choice that are listed in the answer: with logprobs, or as ids.
static size_t listed_tokens(const struct choice *choice)
{
    const struct request_params *params = &choice->job->params;
    if (params->request.top_logprobs < 0 && !params->return_token_ids)
        return 0;
    return (size_t)params->request.max_tokens + (params->echo ? choice->prompt->count : 0);
}

// Logprobs of the prompt, which come with the first of its choices.
static size_t prompt_entries(const struct choice *choice)
{
    int tops = choice->job->params.prompt_logprobs;
    return tops >= 0 && choice->number == 0 ? choice->prompt->count * (size_t)(1 + tops) : 0;
}

static size_t choice_bytes(const struct choice *choice)
{
    const struct request_params *params = &choice->job->params;
    size_t tops = params->request.top_logprobs > 0 ? (size_t)params->request.top_logprobs : 0;
    size_t listed = 2 * (sizeof(struct answer_token) + tops * sizeof(struct nibble_candidate)); // buffers double
    size_t tokens = (size_t)params->request.max_tokens;
    size_t echoed = params->echo ? 2 * ANSWER_TEXT_BYTES * choice->prompt->count : 0;
    size_t held = choice->job->checked ? 2 * tokens * sizeof(struct answer_token) : 0; // until the answer is validated
    return CHOICE_BYTES + tokens * ANSWER_TEXT_BYTES + (tokens + choice->prompt->count) * ID_BYTES
        + listed_tokens(choice) * listed + held + echoed + prompt_entries(choice) * 2 * sizeof(struct answer_token);
}

// At most one slice of the answer's text waits to be sent.
static size_t slice_bytes(const struct job *job)
{
    const struct request_params *params = &job->params;
    int64_t tops = params->request.top_logprobs > 0 ? params->request.top_logprobs : 0;
    size_t all = ENTRY_JSON_BYTES * (size_t)job->choice_count * (size_t)(params->request.max_tokens * (1 + tops));
    return all < ANSWER_SLICE_BYTES ? all : ANSWER_SLICE_BYTES;
}

static bool check_entries(struct job *job)
{
    const struct request_params *params = &job->params;
    double entries = 0;
    for (int i = 0; i < job->choice_count; i++) {
        const struct choice *choice = &job->choices[i];
        entries += (double)prompt_entries(choice);
        if (params->request.top_logprobs >= 0)
            entries += (double)listed_tokens(choice) * (double)(1 + params->request.top_logprobs);
    }
    return entries <= entries_max
        || api_fail(&job->error, 400,
                    params->request.top_logprobs < 0 ? "prompt_logprobs"
                        : kind_is_chat(job)          ? "top_logprobs"
                                                     : "logprobs",
                    "%d answers of up to %lld tokens with %lld logprobs each are %.0f entries, and an answer has at "
                    "most %.0f; lower n, max_tokens or the number of logprobs",
                    job->choice_count, (long long)params->request.max_tokens,
                    (long long)(1 + params->request.top_logprobs), entries, entries_max);
}

bool admission_answer(struct job *job)
{
    size_t bytes = JOB_BYTES + job->kept_bytes + slice_bytes(job);
    if (!check_entries(job))
        return false;
    if (job->tools)
        bytes += kept_bytes(job->tools);
    if (job->schema)
        bytes += kept_bytes(job->schema);
    for (int i = 0; i < job->prompt_count; i++)
        bytes += job->prompts[i].count * sizeof *job->prompts[i].ids;
    for (int i = 0; i < job->choice_count; i++)
        bytes += choice_bytes(&job->choices[i]);
    job->text_bytes_charged = (size_t)job->choice_count * (size_t)job->params.request.max_tokens * ANSWER_TEXT_BYTES;
    return charge(job, bytes, 400, "max_tokens", "this answer", "lower n, max_tokens or the number of logprobs");
}

bool admission_reply(struct job *job)
{
    return charge(job, JOB_BYTES + job->reply.cap, 400, NULL, "this answer", "send a shorter request");
}

void admission_grow(struct job *job)
{
    size_t bytes = 0;
    for (int i = 0; i < job->choice_count; i++)
        bytes += parts_bytes(&job->choices[i]);
    if (!job->budget || bytes <= job->text_bytes_charged)
        return;
    budget_force(job->budget, bytes - job->text_bytes_charged);
    job->charged_bytes += bytes - job->text_bytes_charged;
    job->text_bytes_charged = bytes;
}
