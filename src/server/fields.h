// SPDX-License-Identifier: Apache-2.0
// server/fields.h: what chat and completion requests have in common, out of their JSON into values: checked, with the
// model's defaults in place of what is absent. Unknown fields are ignored; known ones that would change the answer and
// are not built are refused by name.
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "server/api.h"
#include "text/stop.h"

struct fields {
    bool stream, include_usage, continuous_usage;
    int64_t n;
    int64_t max_tokens;                  // -1: as many as the endpoint gives by default
    int64_t min_tokens;
    struct nibble_sampling sampling;
    struct bytes stops[STOP_STRINGS_MAX]; // borrowed from the JSON
    int stop_count;
    bool include_stop, ignore_eos, skip_special, return_token_ids;
    int32_t *stop_ids;                   // with the model's own end tokens, unless ignore_eos
    int stop_id_count;
    struct nibble_bias *bias;
    int bias_count;
    int64_t top_logprobs;                // -1: none are asked for
    bool echo;
    bool close_at_max_tokens;            // an answer of a grammar is finished the shortest way when its tokens run out
    int64_t priority;
    struct bytes cache_salt;
};

bool fields_read(struct fields *fields, const struct api *api, const json_t *body, bool chat, struct api_error *err);
void fields_free(struct fields *fields);

// The model's own end tokens end the answer, whatever was asked for: where a grammar says when they come.
void fields_end_naturally(struct fields *fields, const struct api *api);

// Is `model` (absent: the default) one that is served?
bool fields_check_model(const struct api *api, const json_t *body, struct api_error *err);

// A list of token ids that the model knows, on the heap.
bool fields_read_ids(const struct api *api, const json_t *list, const char *name, int32_t **ids, size_t *count,
                     struct api_error *err);

#endif
