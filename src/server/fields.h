// SPDX-License-Identifier: Apache-2.0
// server/fields.h: what chat and completion requests have in common, out of their JSON into values: checked, with the
// model's defaults in place of what is absent. Which fields there are stands in field_table.c.
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "server/api.h"
#include "server/field_table.h"
#include "text/stop.h"

// Values of max_tokens that are no number of tokens.
enum { FIELDS_REST_OF_CONTEXT = -1, FIELDS_DEFAULT_LENGTH = -2 };

struct fields {
    bool stream, include_usage, continuous_usage;
    int64_t n;
    int64_t max_tokens; // or FIELDS_REST_OF_CONTEXT, FIELDS_DEFAULT_LENGTH: what the endpoint gives
    int64_t min_tokens;
    struct nibble_sampling sampling;
    struct bytes stops[STOP_STRINGS_MAX]; // borrowed from the JSON
    int stop_count;
    bool include_stop, ignore_eos, skip_special, return_token_ids;
    bool tokens_as_ids; // tokens of logprobs are "token_id:5"
    bool add_special;   // BOS and EOS as the tokenizer says, around the prompt
    int32_t *stop_ids;  // with the model's own end tokens, unless ignore_eos
    int stop_id_count;
    struct nibble_bias *bias;
    int bias_count;
    int64_t top_logprobs; // -1: none are asked for
    bool echo;
    bool close_at_max_tokens; // an answer of a grammar is finished the shortest way when its tokens run out
    int64_t priority;
    struct bytes cache_salt;
};

// Does every field of a request belong there, and is none of them one that is refused?
bool fields_check(const struct api *api, const json_t *body, enum endpoint endpoint, struct api_error *err);

bool fields_read(struct fields *fields, const struct api *api, const json_t *body, enum endpoint endpoint,
                 struct api_error *err);
void fields_free(struct fields *fields);

// The model's own end tokens end the answer, whatever was asked for: where a grammar says when they come.
void fields_end_naturally(struct fields *fields, const struct api *api);

// Is `model` (absent or "": the default) one that is served?
bool fields_check_model(const struct api *api, const json_t *body, struct api_error *err);

// An object whose keys are all among the words, which end with NULL: nothing in it is ignored.
bool fields_check_keys(const json_t *object, const char *name, const char *const *words, struct api_error *err);

// A list of token ids that the model knows, on the heap.
bool fields_read_ids(const struct api *api, const json_t *list, const char *name, int32_t **ids, size_t *count,
                     struct api_error *err);

#endif
