// SPDX-License-Identifier: Apache-2.0
// server/api.h: the API's view of the served model, and the error body of every endpoint. Written before the port
// opens, read by all threads afterwards.
#ifndef SERVER_API_H
#define SERVER_API_H

#include <jansson.h>
#include <pthread.h>
#include <time.h>

#include "nibble.h"
#include "text/chat.h"
#include "text/fim.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

enum {
    API_CHOICES_MAX = 128, // n times prompts
    API_LOGPROBS_MAX = 20,
    API_CONTAINERS_MAX = 1 << 16, // arrays and objects of a request
    API_BIAS_MAX = 1024,
    API_STOP_IDS_MAX = 128,
    API_SALT_BYTES_MAX = 1024,
    API_DETOKENIZE_CONTEXTS = 4,      // /detokenize takes as many ids as four contexts have,
    API_DETOKENIZE_IDS_MIN = 1 << 16, // and so many at least
};

// The vocabulary as grammars need it takes a moment to make, and most servers are never asked for it.
struct lazy_vocabulary {
    pthread_mutex_t lock;
    struct grammar_vocabulary *made; // NULL: no request has needed it yet
};

struct api {
    const struct tokenizer *tokenizer;
    const struct chat *chat;                // NULL: the model has no chat template
    const char *chat_error_text;            // and why
    const struct checkpoint *checkpoint;    // whose special tokens a request's own template gets
    bool trust_chat_template;               // requests may bring one
    struct bytes tokenizer_info;            // the reply of /tokenizer_info; .data NULL: it is off
    const struct reasoning_form *reasoning; // how it writes thoughts; NULL: it does not, or they are left in the text
    bool no_reasoning;                      // by a flag
    struct tokens reasoning_tokens;         // special tokens that thoughts stand between
    int max_reasoning_tokens;               // of requests without their own, -1: any number
    struct lazy_vocabulary *vocabulary;     // for grammars, see api_vocabulary
    struct grammar_cache *grammars;         // compiled ones (grammar_cache.h); NULL: each request compiles its own
    struct nibble_sampling defaults;        // of generation_config.json
    bool has_seed;                          // defaults.seed is for requests without a seed
    const char *const *names;               // the first is what answers call the model
    int name_count;
    const char *alias;         // a name more, which is not listed: MODEL as it was given; NULL: none
    const char *root;          // the MODEL of the command line
    char fingerprint[24];      // of checkpoint, plan and build: equal where the same request has the same answer
    int max_model_len, logits; // logits: ids that the model knows
    bool has_fim;
    struct fim fim;         // fill in the middle, where it has that
    size_t token_bytes_max; // of the longest token: what a prompt's bytes need at least
    int32_t *end_ids;       // tokens that end an answer
    int end_count;
    time_t created;
    const char *architecture, *weight_format; // "llama", and the format that most bytes of the weights have
    size_t weight_bytes;
    int slots;        // requests that run at once
    bool show_slots;  // --slots
    const char *plan; // as JSON
    size_t plan_len;
};

const struct grammar_vocabulary *api_vocabulary(const struct api *api);

// How answers end, as finish_reason, the log and metrics spell it.
enum { API_FINISHES = NIBBLE_FINISH_FAILED + 1 };
extern const char *const api_finish_words[API_FINISHES];

// The error of an HTTP request: a status, and the body of OpenAI's error object (api_error_json).
struct api_error {
    int status;
    const char *code; // as OpenAI spells it, a literal; NULL: what api_error_json says for the status
    char param[64];   // the field, "": none. A copy: it may be a key that the client made up
    bool quotes;      // the text repeats some of the request, and is not for the log
    char text[1024];
};

// Both are always false. param: the field, or NULL.
bool api_fail(struct api_error *err, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool api_fail_code(struct api_error *err, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
// A field's value is refused with the sentence of an inner error: 400. Always false.
bool api_fail_field(struct api_error *err, const char *param, const struct error *cause);

#define API_DEFAULT_TAG ":latest" // Ollama's clients put it behind names

// Is a model served by this name, with the default tag or without? And the error for one that is not.
bool api_has_model(const struct api *api, struct bytes name);
bool api_fail_model(const struct api *api, const char *name, struct api_error *err); // always false

// Whose error body an endpoint has.
enum api_style { API_OPENAI, API_ANTHROPIC, API_OLLAMA, API_RESPONSES_EVENT };

// The body of an error (new reference): {"error": {"message", "type", "param", "code"}} (OpenAI), {"type": "error",
// "error": {"type", "message"}} (Anthropic), {"error": "..."} (Ollama), {"type": "error", "sequence_number", "code",
// "param", "message"} (within a stream of /v1/responses).
json_t *api_error_json(const struct api_error *err, enum api_style style);

// Appends a value as JSON text.
void api_dump(const json_t *value, struct strbuf *out);

enum { API_TIME_BYTES = 32 };
void api_format_time(time_t when, char out[API_TIME_BYTES]); // RFC 3339, in UTC

// A string of any bytes as JSON text has it: what is not UTF-8 becomes U+FFFD (new reference).
json_t *api_text(struct bytes text);

#endif
