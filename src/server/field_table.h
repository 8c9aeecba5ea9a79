// SPDX-License-Identifier: Apache-2.0
// server/field_table.h: every request field of OpenAI, vLLM, SGLang, llama-server, Anthropic and Ollama, and what
// becomes of it here. A name may have several rows, for different endpoints. No field is ignored in silence: a row
// honours it, says that it cannot change the answer, or refuses it by name; a field without a row is refused, too.
#ifndef SERVER_FIELD_TABLE_H
#define SERVER_FIELD_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum endpoint {        // bits
    ON_CHAT = 1,       // /v1/chat/completions
    ON_COMPLETION = 2, // /v1/completions
    ON_TOKENIZE = 4,
    ON_DETOKENIZE = 8,
    ON_RESPONSES = 16,        // /v1/responses
    ON_TEMPLATE = 1024,       // /apply-template
    ON_MESSAGES = 32,         // /v1/messages
    ON_COUNT_TOKENS = 64,     // /v1/messages/count_tokens
    ON_OLLAMA_CHAT = 128,     // /api/chat
    ON_OLLAMA_GENERATE = 256, // /api/generate
    ON_OLLAMA_SHOW = 512,     // /api/show
    ON_INFILL = 2048,         // /infill
};

enum field_kind {
    FIELD_READ,     // honoured; a function in fields.c or read_*.c reads it
    FIELD_BOOL,     // honoured; a bool at `offset` in struct request_params
    FIELD_INT,      // honoured; an int from low to high
    FIELD_REAL,     // honoured; a double from low to high
    FIELD_VARIABLE, // honoured where the chat template reads the variable of that name; elsewhere as FIELD_ONLY
    FIELD_SWITCH,   // the same, and true or false
    FIELD_HARMLESS, // has no influence on the answer
    FIELD_ONLY,     // refused, but for the word `only` or a number from low to high (true is 1), which change nothing
    FIELD_REFUSED,  // not built
};

struct field {
    const char *name;
    int endpoints; // bits of enum endpoint
    enum field_kind kind;
    size_t offset;
    double low, high;
    const char *only;
    const char *instead; // of refused ones: what to do instead
};

extern const struct field field_table[];
extern const size_t field_count;

// The row of an endpoint's field; where it has none, another endpoint's of that name (one that
// is harmless is so everywhere). NULL: unknown.
const struct field *field_find(const char *name, enum endpoint endpoint);
const char *field_endpoint(int endpoints); // the path of the first of them

// The honoured field of an endpoint that is spelt most like `name`, or NULL.
const char *field_suggest(const char *name, enum endpoint endpoint);

// A list of words that ends with NULL.
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

// A member of an object, borrowed; NULL: it is absent or null.
json_t *field_of(const json_t *object, const char *name);
bool field_is(const json_t *object, const char *name, const char *word); // a member is this text
// Which of a list of WORDS a member is; -1: none.
int field_word(const json_t *object, const char *name, const char *const *words);

// Does a value of a field that is refused ask for nothing: null, false, an empty text, list or object?
bool field_is_empty(const json_t *value);

// Does a value of a FIELD_ONLY ask for what is done anyway?
bool field_is_usual(const struct field *field, const json_t *value);

#endif
