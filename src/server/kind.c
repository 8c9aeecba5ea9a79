// SPDX-License-Identifier: Apache-2.0
#include "server/kind.h"

#include "server/answer.h"
#include "server/llama_server.h"
#include "server/messages.h"
#include "server/ollama.h"
#include "server/read.h"

const struct kind kinds[] = {
    [JOB_CHAT] = { "chatcmpl-", ON_CHAT, ON_CHAT, .prompt_field = "messages", .read = read_chat,
                   .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
    [JOB_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, .prompt_field = "prompt", .read = read_completion,
                         .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
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
};
