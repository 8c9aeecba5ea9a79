// SPDX-License-Identifier: Apache-2.0
#include "server/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "format/json.h"

static bool read_real(const struct field *field, double *target, const json_t *body, struct error *err)
{
    double value = *target;
    if (!json_get_real(body, field->name, &value, err))
        return false;
    if (!(value >= field->low && value <= field->high))
        return fail(err, "\"%s\" is %g, expected a number from %g to %g", field->name, value, field->low, field->high);
    *target = value;
    return true;
}

static bool read_int(const struct field *field, int *target, const json_t *body, struct error *err)
{
    int64_t value = *target;
    bool ok = json_get_int(body, field->name, (int64_t)field->low, (int64_t)field->high, &value, err);
    *target = (int)value;
    return ok;
}

static bool read_field(const struct field *field, void *target, const json_t *body, struct error *err)
{
    switch (field->kind) {
    case FIELD_BOOL: return json_get_bool(body, field->name, target, err);
    case FIELD_INT: return read_int(field, target, body, err);
    case FIELD_REAL: return read_real(field, target, body, err);
    default: // not one of struct request_params, or refused already
        return true;
    }
}

bool fields_read_bool(const json_t *body, const char *name, bool *value, struct api_error *err)
{
    struct error cause;
    return json_get_bool(body, name, value, &cause) || api_fail_field(err, name, &cause);
}

bool fields_read_int(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *value,
                     struct api_error *err)
{
    struct error cause;
    return json_get_int(body, name, low, high, value, &cause) || api_fail_field(err, name, &cause);
}

bool fields_read_text(const json_t *body, const char *name, const char **value, struct api_error *err)
{
    struct error cause;
    return json_get_text(body, name, value, &cause) || api_fail_field(err, name, &cause);
}

bool fields_fail_within(const char *field, struct api_error *err)
{
    snprintf(err->param, sizeof err->param, "%s", field);
    return false;
}

// ---- which fields there may be ------------------------------------------------------------------------------------

static bool refuse_unknown(const char *name, enum endpoint endpoint, struct api_error *err)
{
    const char *near = field_suggest(name, endpoint);
    return api_fail_code(err, 400, name, "unknown_parameter", "there is no field \"%.60s\"%s%s%s", name,
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool refuse(const struct field *field, const char *code, struct api_error *err)
{
    return api_fail_code(err, 400, field->name, code, "\"%s\" is not supported%s; %s", field->name,
                         field->kind == FIELD_ONLY ? " with this value" : "", field->instead);
}

static bool check_variable(const struct chat *chat, const struct field *field, const json_t *value,
                           struct api_error *err)
{
    if (field->kind == FIELD_SWITCH && !json_is_boolean(value))
        return api_fail(err, 400, field->name, "\"%s\" is true or false", field->name);
    return field_is_empty(value) || field_is_usual(field, value) || (chat && chat_reads(chat, field->name))
        || api_fail_code(err, 400, field->name, "unsupported_parameter",
                         "\"%s\" is not supported with this model: its chat template does not read it", field->name);
}

bool fields_check_one(const struct chat *chat, const char *name, const json_t *value, enum endpoint endpoint,
                      struct api_error *err)
{
    const struct field *field = field_find(name, endpoint);
    if (json_is_null(value))
        return true; // as if it were absent
    if (!field)
        return refuse_unknown(name, endpoint, err);
    if (field->kind == FIELD_HARMLESS)
        return true;
    if (!(field->endpoints & (int)endpoint))
        return field_is_empty(value)
            || api_fail_code(err, 400, field->name, "unsupported_parameter", "\"%s\" belongs to %s", field->name,
                             field_endpoint(field->endpoints));
    if (field->kind == FIELD_VARIABLE || field->kind == FIELD_SWITCH)
        return check_variable(chat, field, value, err);
    if (field->kind == FIELD_ONLY)
        return field_is_usual(field, value) || refuse(field, "unsupported_value", err);
    return field->kind != FIELD_REFUSED || field_is_empty(value) || refuse(field, "unsupported_parameter", err);
}

bool fields_check(const struct chat *chat, const json_t *body, enum endpoint endpoint, struct api_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)body, name, value)
        if (!fields_check_one(chat, name, value, endpoint, err))
            return false;
    return true;
}

static bool is_among(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word))
        words++;
    return *words;
}

bool fields_check_keys(const json_t *object, const char *name, const char *const *words, struct api_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value)
        if (!json_is_null(value) && !is_among(key, words))
            return api_fail_code(err, 400, name, "unknown_parameter", "there is no \"%.60s\" in \"%s\"", key, name);
    return true;
}

bool fields_check_model(const struct api *api, const json_t *body, struct api_error *err)
{
    const char *model = NULL;
    return fields_read_text(body, "model", &model, err)
        && (!model || !*model || api_has_model(api, bytes_of(model)) || api_fail_model(api, model, err));
}

// ---- stops --------------------------------------------------------------------------------------------------------

static bool add_stop(struct request_params *params, const json_t *value, struct api_error *err)
{
    if (!json_is_string(value))
        return api_fail(err, 400, "stop", "\"stop\" is a string or a list of strings");
    struct bytes text = json_bytes(value);
    if (!text.len)
        return api_fail(err, 400, "stop", "a string in \"stop\" is empty; it would end every answer at once");
    if (text.len > STOP_BYTES_MAX || params->stop_count == STOP_STRINGS_MAX)
        return api_fail(err, 400, "stop", "\"stop\" takes up to %d strings of up to %d bytes", STOP_STRINGS_MAX,
                        STOP_BYTES_MAX);
    params->stops[params->stop_count++] = text;
    return true;
}

static bool read_stops(struct request_params *params, const json_t *body, struct api_error *err)
{
    const json_t *stop = field_of(body, "stop"), *value;
    size_t index;
    if (!stop)
        return true;
    if (!json_is_array(stop))
        return add_stop(params, stop, err);
    json_array_foreach (stop, index, value)
        if (!add_stop(params, value, err))
            return false;
    return true;
}

bool fields_read_ids(const struct api *api, const json_t *list, const char *name, int32_t **ids, size_t *count,
                     struct api_error *err)
{
    size_t index;
    const json_t *value;
    *count = json_array_size(list);
    *ids = memory_new(*count + 1, sizeof **ids);
    json_array_foreach (list, index, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= api->logits) {
            free(*ids);
            *ids = NULL;
            return api_fail(err, 400, name, "entry %zu of \"%s\" is not a token id of the model, which are 0 to %d",
                            index, name, api->logits - 1);
        }
        (*ids)[index] = (int32_t)id;
    }
    return true;
}

static void add_ends(struct nibble_request *request, const int32_t *end_ids, int end_count)
{
    size_t ends = (size_t)end_count;
    int32_t *ids = memory_grow((int32_t *)request->stop_ids, request->stop_count + ends + 1, sizeof *ids);
    memcpy(ids + request->stop_count, end_ids, ends * sizeof *ids);
    request->stop_ids = ids;
    request->stop_count += ends;
}

void fields_add_ends(struct request_params *params, const int32_t *ids, int count)
{
    if (!params->ignore_eos && count)
        add_ends(&params->request, ids, count);
}

static bool read_stop_ids(struct request_params *params, const struct api *api, const json_t *body,
                          struct api_error *err)
{
    const json_t *list = field_of(body, "stop_token_ids");
    int32_t *ids;
    if (list && (!json_is_array(list) || json_array_size(list) > API_STOP_IDS_MAX))
        return api_fail(err, 400, "stop_token_ids", "\"stop_token_ids\" is a list of up to %d token ids",
                        API_STOP_IDS_MAX);
    if (!fields_read_ids(api, list, "stop_token_ids", &ids, &params->request.stop_count, err))
        return false;
    params->request.stop_ids = ids;
    if (!params->ignore_eos)
        add_ends(&params->request, api->end_ids, api->end_count);
    return true;
}

void fields_end_naturally(struct request_params *params, const struct api *api)
{
    if (params->ignore_eos)
        add_ends(&params->request, api->end_ids, api->end_count);
    params->ignore_eos = false;
}

// ---- the rest -----------------------------------------------------------------------------------------------------

// {"token id": bias}
static bool read_bias(struct nibble_request *request, const struct api *api, const json_t *body, struct api_error *err)
{
    json_t *table = field_of(body, "logit_bias"), *value;
    const char *key;
    if (!table)
        return true;
    if (!json_is_object(table) || json_object_size(table) > API_BIAS_MAX)
        return api_fail(err, 400, "logit_bias", "\"logit_bias\" is an object of up to %d token ids", API_BIAS_MAX);
    struct nibble_bias *biases = memory_new(json_object_size(table) + 1, sizeof *biases);
    request->bias = biases;
    json_object_foreach (table, key, value) {
        char *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        double bias = json_number_value(value);
        if (!*key || *end || errno || id < 0 || id >= api->logits)
            return api_fail(err, 400, "logit_bias", "\"%.40s\" in \"logit_bias\" is not a token id, which are 0 to %d",
                            key, api->logits - 1);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return api_fail(err, 400, "logit_bias",
                            "the bias of token %ld in \"logit_bias\" is not a number from -100 "
                            "to 100",
                            id);
        biases[request->bias_count++] = (struct nibble_bias){ (int32_t)id, (float)bias };
    }
    return true;
}

static bool read_stream_options(struct request_params *params, const json_t *body, struct api_error *err)
{
    const json_t *options = field_of(body, "stream_options");
    if (!options)
        return true;
    if (!json_is_object(options) || !params->stream)
        return api_fail(err, 400, "stream_options", "\"stream_options\" is an object, and goes with \"stream\": true");
    return (fields_check_keys(options, "stream_options",
                              WORDS("include_usage", "continuous_usage_stats", "include_obfuscation"), err)
            && fields_read_bool(options, "include_usage", &params->include_usage, err)
            && fields_read_bool(options, "continuous_usage_stats", &params->continuous_usage, err))
        || fields_fail_within("stream_options", err);
}

// A chat asks with "logprobs": true and "top_logprobs": n, a completion with "logprobs": n.
static bool read_logprobs(int *top_logprobs, const json_t *body, bool chat, struct api_error *err)
{
    const char *name = chat ? "top_logprobs" : "logprobs";
    bool wanted = false;
    int64_t top = chat ? 0 : -1;
    if ((chat && !fields_read_bool(body, "logprobs", &wanted, err))
        || !fields_read_int(body, name, 0, API_LOGPROBS_MAX, &top, err))
        return false;
    if (chat && top && !wanted)
        return api_fail(err, 400, "top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
    *top_logprobs = chat && !wanted ? -1 : (int)top;
    return true;
}

static bool read_seed(uint64_t *seed, const struct api *api, const json_t *body, struct api_error *err)
{
    enum { RANDOM_SEED = -1 }; // as vLLM and llama-server have it
    int64_t value = RANDOM_SEED;
    if (!fields_read_int(body, "seed", INT64_MIN, INT64_MAX, &value, err))
        return false;
    if (value != RANDOM_SEED)
        *seed = (uint64_t)value;
    else if (!api->has_seed && getrandom(seed, sizeof *seed, 0) < 0)
        return api_fail(err, 500, NULL, "the system gives no random numbers; send a \"seed\"");
    return true;
}

static void settle_top(struct nibble_sampling *sampling)
{
    sampling->top_k = sampling->top_k > 0 ? sampling->top_k : 0;
    if (sampling->top_p == 0) { // the fewest tokens that sum to 0: the likeliest alone
        sampling->top_k = 1;
        sampling->top_p = 1;
    }
}

static bool read_truncation_side(struct request_params *params, const json_t *body, struct api_error *err)
{
    const char *text = NULL;
    int side = field_word(body, "truncation_side", WORDS("left", "right"));
    params->truncate_right = side == 1;
    return fields_read_text(body, "truncation_side", &text, err)
        && (!text || side >= 0 || api_fail(err, 400, "truncation_side", "\"truncation_side\" is left or right"));
}

static bool read_salt(struct nibble_request *request, const json_t *body, struct api_error *err)
{
    const json_t *salt = field_of(body, "cache_salt");
    if (!salt)
        return true;
    request->cache_salt = json_string_value(salt);
    request->cache_salt_len = json_string_length(salt);
    return (request->cache_salt_len && request->cache_salt_len <= API_SALT_BYTES_MAX)
        || api_fail(err, 400, "cache_salt", "\"cache_salt\" is a string of 1 to %d bytes", API_SALT_BYTES_MAX);
}

// SGLang's name for the opposite.
static bool read_separate_reasoning(struct request_params *params, const json_t *body, struct api_error *err)
{
    bool separate = true;
    bool ok = fields_read_bool(body, "separate_reasoning", &separate, err);
    params->keeps_thoughts = !separate;
    return ok;
}

bool fields_read(struct request_params *params, const struct api *api, const json_t *body, enum endpoint endpoint,
                 struct api_error *err)
{
    bool chat = endpoint == ON_CHAT;
    // A chat template writes the special tokens itself.
    *params = (struct request_params){
        .request = { .max_tokens = FIELDS_DEFAULT_LENGTH, .sampling = api->defaults, .top_logprobs = -1 },
        .n = 1,
        .prompt_logprobs = -1,
        .skip_special = true,
        .add_special = !chat,
        .include_reasoning = true,
        .stream_reasoning = true,
        .max_reasoning_tokens = api->max_reasoning_tokens,
    };
    struct nibble_request *request = &params->request;
    struct error cause;
    for (size_t i = 0; i < field_count; i++)
        if (!read_field(&field_table[i], (char *)params + field_table[i].offset, body, &cause))
            return api_fail_field(err, field_table[i].name, &cause);
    settle_top(&request->sampling);
    return read_separate_reasoning(params, body, err) && read_stream_options(params, body, err)
        && read_logprobs(&request->top_logprobs, body, chat, err) && read_seed(&request->sampling.seed, api, body, err)
        && read_truncation_side(params, body, err) && read_salt(request, body, err) && read_stops(params, body, err)
        && read_stop_ids(params, api, body, err) && read_bias(request, api, body, err)
        && fields_read_sampling(request, api, body, err);
}

void fields_free(struct request_params *params)
{
    free((int32_t *)params->request.stop_ids);
    free((struct nibble_bias *)params->request.bias);
    free((int32_t *)params->request.allowed_ids);
    free((int32_t *)params->request.bad_words.ids);
    free((int32_t *)params->request.dry_breakers.ids);
    *params = (struct request_params){ 0 };
}
