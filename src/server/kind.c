// SPDX-License-Identifier: Apache-2.0
#include "server/kind.h"

#include <stdio.h>

#include "server/translate.h"
#include "server/describe.h"
#include "server/read.h"
#include "server/responses.h"

const struct kind kinds[] = {
    [JOB_CHAT] = { "chatcmpl-", ON_CHAT, ON_CHAT, &openai_dialect, .prompt_field = "messages", .read = read_chat },
    [JOB_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, &openai_dialect, .prompt_field = "prompt",
                         .read = read_completion },
    [JOB_INFILL] = { "infill-", ON_INFILL, ON_COMPLETION, &llama_dialect, .prompt_field = "input_prefix",
                     .read = read_infill },
    [JOB_TOKENIZE] = { "tok-", ON_TOKENIZE, .read = read_tokenize },
    [JOB_DETOKENIZE] = { "tok-", ON_DETOKENIZE, .read = read_detokenize },
    [JOB_MESSAGES] = { "msg_", ON_MESSAGES, ON_CHAT, &messages_dialect, true, "messages", messages_translate,
                       read_chat },
    [JOB_COUNT_TOKENS] = { "tok-", ON_COUNT_TOKENS, .read = messages_count },
    [JOB_OLLAMA_CHAT] = { "chat-", ON_OLLAMA_CHAT, ON_CHAT, &ollama_dialect, true, "messages", ollama_translate_chat,
                          read_chat },
    [JOB_OLLAMA_GENERATE] = { "gen-", ON_OLLAMA_GENERATE, ON_CHAT, &ollama_dialect, true, "prompt",
                              ollama_translate_generate, read_chat },
    [JOB_OLLAMA_RAW] = { "gen-", ON_OLLAMA_GENERATE, ON_COMPLETION, &ollama_dialect, true, "prompt",
                         .read = read_completion },
    [JOB_OLLAMA_SHOW] = { "show-", ON_OLLAMA_SHOW, .read = describe_show },
    [JOB_APPLY_TEMPLATE] = { "tok-", ON_TEMPLATE, .read = llama_apply_template },
    [JOB_LLAMA_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, &llama_dialect, true, "prompt",
                               llama_translate_completion, read_completion },
    [JOB_INPUT_TOKENS] = { "tok-", ON_CHAT, .read = read_input_tokens },
    [JOB_RESPONSE] = { "resp_", ON_RESPONSES, ON_CHAT, &responses_dialect, true, "input", responses_translate,
                       responses_read },
    [JOB_RESPONSE_TOKENS] = { "tok-", ON_RESPONSES, .dialect = &responses_dialect, .prompt_field = "input",
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
    const struct dialect *dialect = kind_of(job)->dialect;
    const struct field_name *name = dialect ? dialect->renamed : NULL;
    for (; name && name->own; name++) {
        if (!strcmp(err->param, name->own))
            snprintf(err->param, sizeof err->param, "%s", name->client);
        rename_quoted(err, name);
    }
}
