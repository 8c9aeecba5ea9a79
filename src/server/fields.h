// SPDX-License-Identifier: Apache-2.0
// server/fields.h: request parameters: the fields that chat and completion requests have in common, read from their
// JSON and checked, with the model's defaults in place of absent ones. field_table.c lists all fields.
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "server/api.h"
#include "server/field_table.h"
#include "text/stop.h"

// Values of max_tokens that are no number of tokens.
enum { FIELDS_REST_OF_CONTEXT = -1, FIELDS_DEFAULT_LENGTH = -2 };

// Request parameters of a chat or a completion. Texts are borrowed from the JSON until the job keeps copies (read.c).
struct request_params {
    // The part that goes to the engine as it is. Each choice sets prompt and listener (generation.c); max_tokens is one
    // of the values above until the prompt is known; the stop ids are followed by the model's own, unless ignore_eos.
    struct nibble_request request;
    bool stream, include_usage, continuous_usage;
    int n;
    struct bytes stops[STOP_STRINGS_MAX];
    int stop_count;
    bool include_stop, ignore_eos, skip_special, return_token_ids;
    bool tokens_as_ids;  // tokens of logprobs are "token_id:5"
    bool add_special;    // BOS and EOS as the tokenizer says, around the prompt
    bool echo;           // the prompt is part of a completion's text
    int prompt_logprobs; // likeliest tokens beside each of the prompt's; -1: its tokens are not listed
    int truncate_prompt; // to so many tokens; -1: to what the context has room for; 0: it is not
    bool truncate_right; // at its end
    bool include_reasoning, keeps_thoughts, stream_reasoning; // in the answer; in the content; as it comes
    int max_reasoning_tokens;                                 // -1: any number
    bool close_at_max_tokens; // an answer of a grammar is finished the shortest way when its tokens run out
};

// Does every field of a request belong there, and is none of them one that is refused?
// `chat`: whose variables they may be; NULL: there is no template.
bool fields_check(const struct chat *chat, const json_t *body, enum endpoint endpoint, struct api_error *err);

// The same of one field that stands within another.
bool fields_check_one(const struct chat *chat, const char *name, const json_t *value, enum endpoint endpoint,
                      struct api_error *err);

// Fields of a type, as json_get_bool and the others; the error is about them.
bool fields_read_bool(const json_t *body, const char *name, bool *value, struct api_error *err);
bool fields_read_int(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *value,
                     struct api_error *err);
bool fields_read_text(const json_t *body, const char *name, const char **value, struct api_error *err);
// The error is about a member of this field. Always false.
bool fields_fail_within(const char *field, struct api_error *err);

bool fields_read(struct request_params *params, const struct api *api, const json_t *body, enum endpoint endpoint,
                 struct api_error *err);
void fields_free(struct request_params *params);

// The part of it that is about samplers (read_sampling.c).
bool fields_read_sampling(struct nibble_request *request, const struct api *api, const json_t *body,
                          struct api_error *err);

// The model's own end tokens end the answer, whatever was asked for: where a grammar says when they come.
void fields_end_naturally(struct request_params *params, const struct api *api);

// More tokens that end the answer, unless it ignores the model's own ends.
void fields_add_ends(struct request_params *params, const int32_t *ids, int count);

// Is `model` (absent or "": the default) one that is served?
bool fields_check_model(const struct api *api, const json_t *body, struct api_error *err);

// An object whose keys are all among the WORDS: nothing in it is ignored.
bool fields_check_keys(const json_t *object, const char *name, const char *const *words, struct api_error *err);

// A list of token ids that the model knows, on the heap.
bool fields_read_ids(const struct api *api, const json_t *list, const char *name, int32_t **ids, size_t *count,
                     struct api_error *err);

#endif
