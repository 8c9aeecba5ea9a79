// SPDX-License-Identifier: Apache-2.0
#include "server/kind.h"

#include "server/answer.h"
#include "server/read.h"

const struct kind kinds[] = {
    [JOB_CHAT] = { "chatcmpl-", ON_CHAT, ON_CHAT, .prompt_field = "messages", .read = read_chat,
                   .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
    [JOB_COMPLETION] = { "cmpl-", ON_COMPLETION, ON_COMPLETION, .prompt_field = "prompt", .read = read_completion,
                         .stream = openai_stream, .whole = openai_whole, .stream_error = openai_stream_error },
    [JOB_TOKENIZE] = { "tok-", ON_TOKENIZE, .read = read_tokenize },
    [JOB_DETOKENIZE] = { "tok-", ON_DETOKENIZE, .read = read_detokenize },
    [JOB_INPUT_TOKENS] = { "tok-", ON_CHAT, .read = read_input_tokens },
};
