// SPDX-License-Identifier: Apache-2.0
#include "server/fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "format/json.h"

enum field_kind { FIELD_BOOL, FIELD_INT, FIELD_REAL };

// offset: of a bool, an int64_t or a double in struct fields. Absent or null keeps what is there.
static const struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    double low, high; // of numbers
} field_table[] = {
    { "stream", FIELD_BOOL, offsetof(struct fields, stream) },
    { "n", FIELD_INT, offsetof(struct fields, n), 1, API_CHOICES_MAX },
    { "max_tokens", FIELD_INT, offsetof(struct fields, max_tokens), 0, INT32_MAX },
    { "max_completion_tokens", FIELD_INT, offsetof(struct fields, max_tokens), 0, INT32_MAX },
    { "min_tokens", FIELD_INT, offsetof(struct fields, min_tokens), 0, INT32_MAX },
    { "temperature", FIELD_REAL, offsetof(struct fields, sampling.temperature), 0, 100 },
    { "top_p", FIELD_REAL, offsetof(struct fields, sampling.top_p), 0, 1 },
    { "min_p", FIELD_REAL, offsetof(struct fields, sampling.min_p), 0, 1 },
    { "repetition_penalty", FIELD_REAL, offsetof(struct fields, sampling.repetition_penalty), 0.01, 100 },
    { "presence_penalty", FIELD_REAL, offsetof(struct fields, sampling.presence_penalty), -2, 2 },
    { "frequency_penalty", FIELD_REAL, offsetof(struct fields, sampling.frequency_penalty), -2, 2 },
    { "include_stop_str_in_output", FIELD_BOOL, offsetof(struct fields, include_stop) },
    { "ignore_eos", FIELD_BOOL, offsetof(struct fields, ignore_eos) },
    { "skip_special_tokens", FIELD_BOOL, offsetof(struct fields, skip_special) },
    { "return_token_ids", FIELD_BOOL, offsetof(struct fields, return_token_ids) },
    { "echo", FIELD_BOOL, offsetof(struct fields, echo) },
    { "close_at_max_tokens", FIELD_BOOL, offsetof(struct fields, close_at_max_tokens) },
    { "priority", FIELD_INT, offsetof(struct fields, priority), INT32_MIN, INT32_MAX },
};

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

static bool read_field(const struct field *field, void *target, const json_t *body, struct error *err)
{
    switch (field->kind) {
    case FIELD_BOOL:
        return json_get_bool(body, field->name, target, err);
    case FIELD_INT:
        return json_get_int(body, field->name, (int64_t)field->low, (int64_t)field->high, target, err);
    default:
        return read_real(field, target, body, err);
    }
}

static bool refused(struct api_error *out, const char *param, const struct error *err)
{
    return api_fail(out, 400, param, "%s", err->text);
}

// Fields of OpenAI's or vLLM's that ask for something else than what would come.
static const struct {
    const char *name, *instead;
} unsupported[] = {
    { "allowed_token_ids", "use logit_bias" },
    { "audio", "this model reads and writes text" },
    { "bad_words", "use logit_bias" },
    { "function_call", "use tool_choice" },
    { "functions", "use tools" },
    { "guided_choice", "use response_format with an enum" },
    { "guided_grammar", "use response_format" },
    { "guided_json", "use response_format" },
    { "guided_regex", "use response_format with a pattern" },
    { "prompt_embeds", "send text or token ids" },
    { "prompt_logprobs", "use /v1/completions with echo and logprobs" },
    { "structured_outputs", "use response_format" },
    { "suffix", "put it into the prompt" },
    { "truncate_prompt_tokens", "shorten the prompt" },
    { "use_beam_search", "leave it out" },
};

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value)
        || (json_is_string(value) && !json_string_length(value)) || (json_is_array(value) && !json_array_size(value))
        || (json_is_object(value) && !json_object_size(value));
}

static bool check_unsupported(const json_t *body, struct api_error *err)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!is_empty(json_object_get(body, unsupported[i].name)))
            return api_fail(err, 400, unsupported[i].name, "\"%s\" is not supported here; %s", unsupported[i].name,
                            unsupported[i].instead);
    int64_t best_of = 1;
    struct error trouble;
    if (!json_get_int(body, "best_of", 1, 1, &best_of, &trouble))
        return api_fail(err, 400, "best_of", "\"best_of\" is not supported; ask for n answers and choose among them");
    return true;
}

bool fields_check_model(const struct api *api, const json_t *body, struct api_error *err)
{
    const char *model = NULL;
    struct error trouble;
    if (!json_get_text(body, "model", &model, &trouble))
        return refused(err, "model", &trouble);
    for (int i = 0; model && i < api->name_count; i++)
        if (!strcmp(model, api->names[i]))
            return true;
    return !model
        || api_fail(err, 404, "model", "The model `%.200s` does not exist; this server has `%s`.", model,
                    api->names[0]);
}

// ---- stops --------------------------------------------------------------------------------------------------------

static bool add_stop(struct fields *fields, const json_t *value, struct api_error *err)
{
    if (!json_is_string(value))
        return api_fail(err, 400, "stop", "\"stop\" is a string or a list of strings");
    struct bytes text = { json_string_value(value), json_string_length(value) };
    if (!text.len)
        return api_fail(err, 400, "stop", "a string in \"stop\" is empty; it would end every answer at once");
    if (text.len > STOP_BYTES_MAX || fields->stop_count == STOP_STRINGS_MAX)
        return api_fail(err, 400, "stop", "\"stop\" takes up to %d strings of up to %d bytes", STOP_STRINGS_MAX,
                        STOP_BYTES_MAX);
    fields->stops[fields->stop_count++] = text;
    return true;
}

static bool read_stops(struct fields *fields, const json_t *body, struct api_error *err)
{
    const json_t *stop = json_object_get(body, "stop"), *value;
    size_t index;
    if (!stop || json_is_null(stop))
        return true;
    if (!json_is_array(stop))
        return add_stop(fields, stop, err);
    json_array_foreach(stop, index, value)
        if (!add_stop(fields, value, err))
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
    json_array_foreach(list, index, value) {
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

static void add_ends(struct fields *fields, const struct api *api)
{
    size_t given = (size_t)fields->stop_id_count, ends = (size_t)api->end_count;
    fields->stop_ids = memory_grow(fields->stop_ids, given + ends + 1, sizeof *fields->stop_ids);
    memcpy(fields->stop_ids + given, api->end_ids, ends * sizeof *fields->stop_ids);
    fields->stop_id_count += api->end_count;
}

static bool read_stop_ids(struct fields *fields, const struct api *api, const json_t *body, struct api_error *err)
{
    const json_t *list = json_object_get(body, "stop_token_ids");
    size_t given = 0;
    if (list && !json_is_null(list) && (!json_is_array(list) || json_array_size(list) > API_STOP_IDS_MAX))
        return api_fail(err, 400, "stop_token_ids", "\"stop_token_ids\" is a list of up to %d token ids",
                        API_STOP_IDS_MAX);
    if (!fields_read_ids(api, list, "stop_token_ids", &fields->stop_ids, &given, err))
        return false;
    fields->stop_id_count = (int)given;
    if (!fields->ignore_eos)
        add_ends(fields, api);
    return true;
}

void fields_end_naturally(struct fields *fields, const struct api *api)
{
    if (fields->ignore_eos)
        add_ends(fields, api);
    fields->ignore_eos = false;
}

// ---- the rest -----------------------------------------------------------------------------------------------------

// {"token id": bias}
static bool read_bias(struct fields *fields, const struct api *api, const json_t *body, struct api_error *err)
{
    json_t *table = json_object_get(body, "logit_bias"), *value;
    const char *key;
    if (!table || json_is_null(table))
        return true;
    if (!json_is_object(table) || json_object_size(table) > API_BIAS_MAX)
        return api_fail(err, 400, "logit_bias", "\"logit_bias\" is an object of up to %d token ids", API_BIAS_MAX);
    fields->bias = memory_new(json_object_size(table) + 1, sizeof *fields->bias);
    json_object_foreach(table, key, value) {
        char *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        double bias = json_number_value(value);
        if (!*key || *end || errno || id < 0 || id >= api->logits)
            return api_fail(err, 400, "logit_bias", "\"%.40s\" in \"logit_bias\" is not a token id, which are 0 to %d",
                            key, api->logits - 1);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return api_fail(err, 400, "logit_bias", "the bias of token %ld in \"logit_bias\" is not a number from -100 "
                            "to 100", id);
        fields->bias[fields->bias_count++] = (struct nibble_bias){ (int32_t)id, (float)bias };
    }
    return true;
}

static bool read_stream_options(struct fields *fields, const json_t *body, struct api_error *err)
{
    const json_t *options = json_object_get(body, "stream_options");
    struct error trouble;
    if (!options || json_is_null(options))
        return true;
    if (!json_is_object(options) || !fields->stream)
        return api_fail(err, 400, "stream_options", "\"stream_options\" is an object, and goes with \"stream\": true");
    return (json_get_bool(options, "include_usage", &fields->include_usage, &trouble)
            && json_get_bool(options, "continuous_usage_stats", &fields->continuous_usage, &trouble))
        || refused(err, "stream_options", &trouble);
}

// A chat asks with "logprobs": true and "top_logprobs": n, a completion with "logprobs": n.
static bool read_logprobs(struct fields *fields, const json_t *body, bool chat, struct api_error *err)
{
    struct error trouble;
    if (!chat)
        return json_get_int(body, "logprobs", 0, API_LOGPROBS_MAX, &fields->top_logprobs, &trouble)
            || refused(err, "logprobs", &trouble);
    bool wanted = false;
    int64_t top = 0;
    if (!json_get_bool(body, "logprobs", &wanted, &trouble))
        return refused(err, "logprobs", &trouble);
    if (!json_get_int(body, "top_logprobs", 0, API_LOGPROBS_MAX, &top, &trouble))
        return refused(err, "top_logprobs", &trouble);
    if (top && !wanted)
        return api_fail(err, 400, "top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
    fields->top_logprobs = wanted ? top : -1;
    return true;
}

static bool read_seed(struct fields *fields, const struct api *api, const json_t *body, struct api_error *err)
{
    int64_t seed = 0;
    struct error trouble;
    const json_t *given = json_object_get(body, "seed");
    if (!json_get_int(body, "seed", INT64_MIN, INT64_MAX, &seed, &trouble))
        return refused(err, "seed", &trouble);
    if (given && !json_is_null(given))
        fields->sampling.seed = (uint64_t)seed;
    else if (!api->has_seed && getrandom(&fields->sampling.seed, sizeof fields->sampling.seed, 0) < 0)
        return api_fail(err, 500, NULL, "the system gives no random numbers; send a \"seed\"");
    return true;
}

static bool read_top(struct fields *fields, const json_t *body, struct api_error *err)
{
    int64_t top_k = fields->sampling.top_k;
    struct error trouble;
    if (!json_get_int(body, "top_k", -1, INT32_MAX, &top_k, &trouble)) // -1 and 0 are both off
        return refused(err, "top_k", &trouble);
    fields->sampling.top_k = top_k > 0 ? (int)top_k : 0;
    if (fields->sampling.top_p == 0) { // the fewest tokens that sum to 0: the likeliest alone
        fields->sampling.top_k = 1;
        fields->sampling.top_p = 1;
    }
    return true;
}

static bool read_salt(struct fields *fields, const json_t *body, struct api_error *err)
{
    const json_t *salt = json_object_get(body, "cache_salt");
    if (!salt || json_is_null(salt))
        return true;
    fields->cache_salt = (struct bytes){ json_string_value(salt), json_string_length(salt) };
    return (fields->cache_salt.len && fields->cache_salt.len <= API_SALT_BYTES_MAX)
        || api_fail(err, 400, "cache_salt", "\"cache_salt\" is a string of 1 to %d bytes", API_SALT_BYTES_MAX);
}

bool fields_read(struct fields *fields, const struct api *api, const json_t *body, bool chat, struct api_error *err)
{
    *fields = (struct fields){ .n = 1, .max_tokens = -1, .sampling = api->defaults, .skip_special = true,
                               .top_logprobs = -1 };
    struct error trouble;
    for (size_t i = 0; i < sizeof field_table / sizeof *field_table; i++)
        if (!read_field(&field_table[i], (char *)fields + field_table[i].offset, body, &trouble))
            return refused(err, field_table[i].name, &trouble);
    return check_unsupported(body, err)
        && read_stream_options(fields, body, err)
        && read_logprobs(fields, body, chat, err)
        && read_seed(fields, api, body, err)
        && read_top(fields, body, err)
        && read_salt(fields, body, err)
        && read_stops(fields, body, err)
        && read_stop_ids(fields, api, body, err)
        && read_bias(fields, api, body, err);
}

void fields_free(struct fields *fields)
{
    free(fields->stop_ids);
    free(fields->bias);
    *fields = (struct fields){ 0 };
}
