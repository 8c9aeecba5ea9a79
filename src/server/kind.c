// SPDX-License-Identifier: Apache-2.0
#include "server/kind.h"

#include <stdio.h>

#include "server/answer.h"
#include "server/read.h"
#include "server/responses.h"

static const struct field_alias response_aliases[] = {
    { "messages", "input" },
    { "max_tokens", "max_output_tokens" },
    { "response_format", "text" },
    { "reasoning_effort", "reasoning" },
    { 0 },
};

const struct kind kinds[] = {
    [JOB_CHAT] = { "chatcmpl-", ON_CHAT, ON_CHAT, .prompt_field = "messages", .read = read_chat,
                   .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
    [JOB_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, .prompt_field = "prompt", .read = read_completion,
                         .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
    [JOB_TOKENIZE] = { "tok-", ON_TOKENIZE, .read = read_tokenize },
    [JOB_DETOKENIZE] = { "tok-", ON_DETOKENIZE, .read = read_detokenize },
    [JOB_INPUT_TOKENS] = { "tok-", ON_CHAT, .read = read_input_tokens },
    [JOB_RESPONSE] = { "resp_", ON_RESPONSES, ON_CHAT, .cuts_length = true, .prompt_field = "input",
                       .aliases = response_aliases, .translate = responses_translate, .read = responses_read,
                       .stream = responses_stream, .whole = responses_whole, .stream_error = responses_stream_error },
    [JOB_RESPONSE_TOKENS] = { "tok-", ON_RESPONSES, .prompt_field = "input", .aliases = response_aliases,
                              .read = responses_count_tokens },
    [JOB_RESPONSE_GET] = { "get-", .read = responses_get },
    [JOB_RESPONSE_ITEMS] = { "get-", .read = responses_list_items },
    [JOB_RESPONSE_DELETE] = { "del-", .read = responses_delete },
    [JOB_RESPONSE_CANCEL] = { "cancel-", .read = responses_cancel },
};

// Replaces "inner" by "own" where a sentence has it in quotes.
static void rename_quoted(struct api_error *err, const struct field_alias *alias)
{
    char quoted[80], text[sizeof err->text];
    snprintf(quoted, sizeof quoted, "\"%s\"", alias->inner);
    for (char *at = err->text; (at = strstr(at, quoted)); at++) {
        snprintf(text, sizeof text, "%.*s\"%s\"%s", (int)(at - err->text), err->text, alias->own, at + strlen(quoted));
        memcpy(err->text, text, sizeof text);
    }
}

void kind_rename_field(const struct job *job, struct api_error *err)
{
    const struct field_alias *alias = kind_of(job)->aliases;
    for (; alias && alias->inner; alias++) {
        if (!strcmp(err->param, alias->inner))
            snprintf(err->param, sizeof err->param, "%s", alias->own);
        rename_quoted(err, alias);
    }
}
