// SPDX-License-Identifier: Apache-2.0
// server/read_completion.c: reads /v1/completions: a text, a list of them, token ids, or a list of lists of token ids.
#include "base/memory.h"
#include "format/json.h"
#include "server/read.h"

// A text with a suffix: the answer is what stands between them.
static bool read_middle(struct job *job, const json_t *prompt, const json_t *suffix)
{
    if (!json_is_string(suffix) || !json_is_string(prompt))
        return api_fail(&job->error, 400, "suffix", "\"suffix\" is a string, and goes with a \"prompt\" that is one");
    if (job->params.echo)
        return api_fail(&job->error, 400, "suffix", "\"suffix\" does not go with \"echo\": true");
    return read_prompt_fim(job, &(struct fim_text){ .prefix = json_bytes(prompt), .suffix = json_bytes(suffix) },
                           "suffix");
}

static bool read_one(struct job *job, const json_t *prompt)
{
    const json_t *suffix = field_of(job->json, "suffix");
    if (suffix && !(json_is_string(suffix) && !json_string_length(suffix)))
        return read_middle(job, prompt, suffix);
    if (json_is_string(prompt)) {
        struct bytes text = json_bytes(prompt);
        int flags = TOKENIZE_PARSE_SPECIAL | (job->params.add_special ? TOKENIZE_ADD_SPECIAL : 0);
        if (!read_prompt_text(job, text, flags, "prompt"))
            return false;
        if (!job->params.truncate_prompt) // else an echo is what is left of it
            job->prompts[job->prompt_count - 1].text = text;
        return true;
    }
    if (json_is_array(prompt))
        return read_prompt_ids(job, prompt);
    return api_fail(&job->error, 400, "prompt", "\"prompt\" is a string, token ids, or a list of either");
}

bool read_completion(struct job *job)
{
    const json_t *prompt = field_of(job->json, "prompt"), *first = json_array_get(prompt, 0), *entry;
    bool many = json_is_array(prompt) && !json_is_integer(first); // else a text, or token ids
    size_t count = many ? json_array_size(prompt) : 1, index;
    if (!prompt)
        return api_fail_code(&job->error, 400, "prompt", "missing_required_parameter", "\"prompt\" is missing");
    if (!count || count * (size_t)job->params.n > API_CHOICES_MAX)
        return api_fail(&job->error, 400, "prompt",
                        "%zu prompts with %lld answers each were asked for; 1 to %d answers are possible", count,
                        (long long)job->params.n, API_CHOICES_MAX);
    struct answer_form form;
    bool formed = read_format(job, &form) && read_form_grammar(job, &form);
    read_form_free(&form);
    if (!formed)
        return false;
    job->prompts = memory_new(count, sizeof *job->prompts);
    if (!many)
        return read_one(job, prompt);
    json_array_foreach (prompt, index, entry)
        if (!read_one(job, entry))
            return false;
    return true;
}
