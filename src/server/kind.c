// SPDX-License-Identifier: Apache-2.0
#include "server/kind.h"

#include <stdio.h>

#include "server/answer.h"
#include "server/llama_server.h"
#include "server/messages.h"
#include "server/ollama.h"
#include "server/read.h"
#include "server/responses.h"

static const struct field_name response_field_names[] = {
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
    [JOB_INFILL] = { "infill-", ON_INFILL, ON_COMPLETION, .prompt_field = "input_prefix", .read = read_infill,
                     .stream = infill_stream, .whole = infill_whole, .stream_error = openai_stream_error },
    [JOB_TOKENIZE] = { "tok-", ON_TOKENIZE, .read = read_tokenize },
    [JOB_DETOKENIZE] = { "tok-", ON_DETOKENIZE, .read = read_detokenize },
    [JOB_MESSAGES] = { "msg_", ON_MESSAGES, ON_CHAT, .cuts_length = true, .prompt_field = "messages",
                       .translate = messages_translate, .read = read_chat, .stream = messages_stream,
                       .whole = messages_whole, .stream_error = messages_stream_error,
                       .renamed = messages_field_names },
    [JOB_COUNT_TOKENS] = { "tok-", ON_COUNT_TOKENS, .read = messages_count },
    [JOB_OLLAMA_CHAT] = { "chat-", ON_OLLAMA_CHAT, ON_CHAT, .cuts_length = true, .prompt_field = "messages",
                          .translate = ollama_translate_chat, .read = read_chat, .stream = ollama_stream,
                          .whole = ollama_whole, .stream_error = ollama_stream_error,
                          .stream_type = "application/x-ndjson", .renamed = ollama_field_names },
    [JOB_OLLAMA_GENERATE] = { "gen-", ON_OLLAMA_GENERATE, ON_CHAT, .cuts_length = true, .prompt_field = "prompt",
                              .translate = ollama_translate_generate, .read = read_chat, .stream = ollama_stream,
                              .whole = ollama_whole, .stream_error = ollama_stream_error,
                              .stream_type = "application/x-ndjson", .renamed = ollama_field_names },
    [JOB_OLLAMA_RAW] = { "gen-", ON_OLLAMA_GENERATE, ON_COMPLETION, .cuts_length = true, .prompt_field = "prompt",
                         .read = read_completion, .stream = ollama_stream, .whole = ollama_whole,
                         .stream_error = ollama_stream_error, .stream_type = "application/x-ndjson",
                         .renamed = ollama_field_names },
    [JOB_OLLAMA_SHOW] = { "show-", ON_OLLAMA_SHOW, .read = ollama_show },
    [JOB_APPLY_TEMPLATE] = { "tok-", ON_TEMPLATE, .read = llama_apply_template },
    [JOB_LLAMA_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, .cuts_length = true, .prompt_field = "prompt",
                               .translate = llama_translate_completion, .read = read_completion, .stream = llama_stream,
                               .whole = llama_whole, .stream_error = llama_stream_error },
    [JOB_INPUT_TOKENS] = { "tok-", ON_CHAT, .read = read_input_tokens },
    [JOB_RESPONSE] = { "resp_", ON_RESPONSES, ON_CHAT, .cuts_length = true, .prompt_field = "input",
                       .renamed = response_field_names, .translate = responses_translate, .read = responses_read,
                       .stream = responses_stream, .whole = responses_whole, .stream_error = responses_stream_error },
    [JOB_RESPONSE_TOKENS] = { "tok-", ON_RESPONSES, .prompt_field = "input", .renamed = response_field_names,
                              .read = responses_count_tokens },
    [JOB_RESPONSE_GET] = { "get-", .read = responses_get },
    [JOB_RESPONSE_ITEMS] = { "get-", .read = responses_list_items },
    [JOB_RESPONSE_DELETE] = { "del-", .read = responses_delete },
    [JOB_RESPONSE_CANCEL] = { "cancel-", .read = responses_cancel },
};

// Replaces a name where a sentence has it in quotes.
static void rename_quoted(struct api_error *err, const struct field_name *name)
{
    char quoted[80], text[sizeof err->text];
    snprintf(quoted, sizeof quoted, "\"%s\"", name->own);
    for (char *at = err->text; (at = strstr(at, quoted)); at++) {
        snprintf(text, sizeof text, "%.*s\"%s\"%s", (int)(at - err->text), err->text, name->client,
                 at + strlen(quoted));
        memcpy(err->text, text, sizeof text);
    }
}

void kind_rename_field(const struct job *job, struct api_error *err)
{
    const struct field_name *name = kind_of(job)->renamed;
    for (; name && name->own; name++) {
        if (!strcmp(err->param, name->own))
            snprintf(err->param, sizeof err->param, "%s", name->client);
        rename_quoted(err, name);
    }
}
