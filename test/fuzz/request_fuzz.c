// SPDX-License-Identifier: Apache-2.0
// Any body to any endpoint that takes JSON, read as the server's reader does: fields, template, tools, schema, tokens.
// The first byte chooses the endpoint. The model thinks, fills in the middle and trusts templates of requests, so that
// no field is refused for want of it. A request is ready for the engine, or has an answer or an error, and nothing in
// between.
#include <assert.h>

#include "format/public.h"
#include "server/read.h"
#include "server/responses_store.h"

#include "byte_tokenizer.h"

enum { CONTEXT = 4096, VOCABULARY = 267 };

static const char template[] = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
                               "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson "
                               "}}</tool_call>{% endfor %}"
                               "{% endfor %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
                               "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and "
                               "not enable_thinking %}<think></think>{% endif %}{% endif %}";

static void open_api(struct api *api)
{
    static struct lazy_vocabulary vocabulary = { .lock = PTHREAD_MUTEX_INITIALIZER };
    static const char *const names[] = { "fuzz" };
    static int32_t ends[] = { 256 };
    static const struct nibble_checkpoint published = {
        .checkpoint = { .path = "fuzz", .chat_template = { template, sizeof template - 1 } }
    };
    const struct checkpoint *checkpoint = &published.checkpoint;
    struct error err;
    *api = (struct api){
        .tokenizer = byte_tokenizer_open(),
        .chat = chat_open(checkpoint, NULL, &err),
        .checkpoint = checkpoint,
        .trust_chat_template = true,
        .reasoning = reasoning_find(checkpoint->chat_template),
        .max_reasoning_tokens = -1,
        .vocabulary = &vocabulary,
        .names = names,
        .name_count = 1,
        .root = "fuzz",
        .max_model_len = CONTEXT,
        .logits = VOCABULARY,
        .has_fim = true,
        .fim = { .prefix = 1, .suffix = 2, .middle = 3, .repository = 4, .file = 5, .ends = { 6 }, .end_count = 1 },
        .token_bytes_max = 16,
        .end_ids = ends,
        .end_count = 1,
        .architecture = "llama",
        .weight_format = "float32",
    };
    if (!api->chat || !api->reasoning || !nibble_sampling_defaults(&published, &api->defaults, &err))
        abort();
}

// A conversation that requests can continue, by the id resp_0.
static void open_store(struct response_store *store)
{
    response_store_open(store, 1 << 20, 4);
    struct response_record *record = response_record_new("0", NULL, 0);
    strbuf_add_text(&record->input, "[{\"type\":\"message\",\"role\":\"user\",\"content\":\"q\",\"id\":\"msg_0_i0\"}]");
    strbuf_add_text(&record->output,
                    "[{\"type\":\"function_call\",\"id\":\"fc_0_0\",\"call_id\":\"c\",\"name\":\"f\","
                    "\"arguments\":\"{}\"}]");
    atomic_store(&record->status, RESPONSE_COMPLETED);
    if (!response_store_add(store, record))
        abort();
    response_record_release(record);
}

// Bytes from 0xf0 on, which the first seeds do not have, are the newer endpoints'.
static enum job_kind choose_kind(uint8_t byte)
{
    static const enum job_kind first[] = {
        JOB_CHAT,         JOB_COMPLETION,  JOB_TOKENIZE,        JOB_DETOKENIZE,     JOB_MESSAGES,
        JOB_COUNT_TOKENS, JOB_OLLAMA_CHAT, JOB_OLLAMA_GENERATE, JOB_APPLY_TEMPLATE, JOB_LLAMA_COMPLETION,
    };
    static const enum job_kind newer[] = {
        JOB_RESPONSE, JOB_RESPONSE_TOKENS, JOB_INFILL, JOB_INPUT_TOKENS, JOB_OLLAMA_SHOW,
    };
    return byte < 0xf0 ? first[byte % (sizeof first / sizeof *first)] : newer[byte % (sizeof newer / sizeof *newer)];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct api api;
    static struct response_store store;
    if (!size)
        return 0;
    if (!api.tokenizer) {
        open_api(&api);
        open_store(&store);
    }
    struct job *job = job_new(&api, choose_kind(data[0]), "/fuzz");
    job->response_store = &store;
    strbuf_add(&job->body, (const char *)data + 1, size - 1);
    job->body_bytes = job->body.len;
    bool ready = read_job(job);
    bool replies = job->reply.len, failed = job->error.status;
    assert(ready ? job->choice_count && !failed && !replies : failed != replies);
    job_free(job);
    return 0;
}
