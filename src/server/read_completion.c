// SPDX-License-Identifier: Apache-2.0
// server/read_completion.c: reads /v1/completions: a text, a list of them, token ids, or a list of lists of token ids;
// and llama-server's /infill: a prefix, a suffix, other files of the project, and what the middle begins with.
#include <stdlib.h>

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

// ---- fill in the middle -------------------------------------------------------------------------------------------

enum { FILES_MAX = 1024 };

static bool read_text(struct job *job, const char *name, struct bytes *out)
{
    const json_t *value = field_of(job->json, name);
    *out = json_bytes(value);
    return !value || json_is_string(value) || api_fail(&job->error, 400, name, "\"%s\" is a string", name);
}

static bool read_file(struct job *job, const json_t *entry, struct fim_file *file)
{
    static const char *const words[] = { "filename", "text", "time", NULL }; // llama.vim notes the time for itself
    const json_t *name = json_object_get(entry, "filename"), *text = json_object_get(entry, "text");
    if (!json_is_object(entry) || !json_is_string(text) || (name && !json_is_string(name)))
        return api_fail(&job->error, 400, "input_extra", "an entry of \"input_extra\" is {\"filename\", \"text\"}");
    *file = (struct fim_file){ name ? json_bytes(name) : bytes_of("file"), json_bytes(text) };
    return fields_check_keys(entry, "input_extra", words, &job->error);
}

static bool read_files(struct job *job, struct fim_file **files, size_t *count)
{
    const json_t *list = field_of(job->json, "input_extra"), *entry;
    size_t index;
    if (list && (!json_is_array(list) || json_array_size(list) > FILES_MAX))
        return api_fail(&job->error, 400, "input_extra", "\"input_extra\" is a list of up to %d files", FILES_MAX);
    *count = json_array_size(list);
    *files = memory_new(*count, sizeof **files);
    json_array_foreach (list, index, entry)
        if (!read_file(job, entry, &(*files)[index]))
            return false;
    return true;
}

bool read_infill(struct job *job)
{
    struct fim_text text = { 0 };
    struct fim_file *files = NULL;
    struct answer_form form;
    if (job->params.n != 1)
        return api_fail(&job->error, 400, "n", "\"n\" is %d, and an infill has one answer", job->params.n);
    if (job->params.request.max_tokens == FIELDS_DEFAULT_LENGTH)
        job->params.request.max_tokens = FIELDS_REST_OF_CONTEXT;
    bool ok = read_format(job, &form) && read_form_grammar(job, &form);
    read_form_free(&form);
    job->prompts = memory_new(1, sizeof *job->prompts);
    ok = ok && read_text(job, "input_prefix", &text.prefix) && read_text(job, "input_suffix", &text.suffix)
        && read_text(job, "prompt", &text.begun) && read_files(job, &files, &text.file_count);
    text.files = files;
    if (ok && !text.prefix.data && !text.suffix.data)
        ok = api_fail_code(&job->error, 400, "input_prefix", "missing_required_parameter",
                           "\"input_prefix\" and \"input_suffix\" are missing");
    ok = ok && read_prompt_fim(job, &text, "input_prefix");
    free(files);
    return ok;
}
