// SPDX-License-Identifier: Apache-2.0
// server/read_infill.c: reads llama-server's /infill: a prefix, a suffix, other files of the project, and what the
// middle begins with.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/read.h"

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
