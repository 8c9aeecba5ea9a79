// SPDX-License-Identifier: Apache-2.0
// Any body to any endpoint that takes JSON, read as the server's reader does: fields, template, tools, schema, tokens.
// The first byte chooses the endpoint. A request is ready for the engine, or has an answer or an error, and nothing in
// between.
#include <assert.h>

#include "server/read.h"

#include "byte_tokenizer.h"

enum { CONTEXT = 4096, VOCABULARY = 267 };

static const char template[] = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
                               "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson "
                               "}}</tool_call>{% endfor %}"
                               "{% endfor %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
                               "{% if add_generation_prompt %}<|assistant|>{% endif %}";

static void open_api(struct api *api)
{
    static struct lazy_vocabulary vocabulary = { .lock = PTHREAD_MUTEX_INITIALIZER };
    static const char *const names[] = { "fuzz" };
    static int32_t ends[] = { 256 };
    struct checkpoint checkpoint = { .path = "fuzz", .chat_template = { template, sizeof template - 1 } };
    struct error err;
    *api = (struct api){
        .tokenizer = byte_tokenizer_open(),
        .chat = chat_open(&checkpoint, NULL, &err),
        .vocabulary = &vocabulary,
        .names = names,
        .name_count = 1,
        .root = "fuzz",
        .max_model_len = CONTEXT,
        .logits = VOCABULARY,
        .token_bytes_max = 16,
        .end_ids = ends,
        .end_count = 1,
        .defaults = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
    };
    if (!api->chat)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum job_kind kinds[] = {
        JOB_CHAT,         JOB_COMPLETION,  JOB_TOKENIZE,        JOB_DETOKENIZE,     JOB_MESSAGES,
        JOB_COUNT_TOKENS, JOB_OLLAMA_CHAT, JOB_OLLAMA_GENERATE, JOB_APPLY_TEMPLATE, JOB_LLAMA_COMPLETION,
    };
    static struct api api;
    if (!size)
        return 0;
    if (!api.tokenizer)
        open_api(&api);
    struct job *job = job_new(&api, kinds[data[0] % (sizeof kinds / sizeof *kinds)], "/fuzz");
    strbuf_add(&job->body, (const char *)data + 1, size - 1);
    job->body_bytes = job->body.len;
    bool ready = read_job(job);
    bool replies = job->reply.len, failed = job->error.status;
    assert(ready ? job->choice_count && !failed && !replies : failed != replies);
    job_free(job);
    return 0;
}
