// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <stdarg.h>
#include <stdio.h>

const char *const api_finish_words[API_FINISHES] = {
    [NIBBLE_FINISH_STOP] = "stop",
    [NIBBLE_FINISH_LENGTH] = "length",
    [NIBBLE_FINISH_CANCELLED] = "abort",
    [NIBBLE_FINISH_FAILED] = "error",
};

// Types are vLLM's, codes are OpenAI's, for errors that have no code of their own.
static const struct {
    int status;
    const char *type, *code;
} error_types[] = {
    { 400, "BadRequestError", NULL },
    { 401, "AuthenticationError", "invalid_api_key" },
    { 403, "PermissionDeniedError", "permission_denied" },
    { 404, "NotFoundError", "unknown_url" },
    { 405, "MethodNotAllowedError", "method_not_allowed" },
    { 408, "RequestTimeoutError", "request_timeout" },
    { 413, "RequestTooLargeError", "request_too_large" },
    { 415, "UnsupportedMediaTypeError", "unsupported_media_type" },
    { 422, "UnprocessableEntityError", NULL },
    { 429, "RateLimitError", "rate_limit_exceeded" },
    { 431, "RequestTooLargeError", "request_too_large" },
    { 500, "InternalServerError", "server_error" },
    { 501, "NotImplementedError", "not_implemented" },
    { 503, "ServiceUnavailableError", "service_unavailable" },
    { 505, "NotImplementedError", "not_implemented" },
};

static void set_error(struct api_error *err, int status, const char *param, const char *code, const char *format,
                      va_list args)
{
    err->status = status;
    err->code = code;
    err->quotes = false;
    snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    vsnprintf(err->text, sizeof err->text, format, args);
}

bool api_fail(struct api_error *err, int status, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(err, status, param, status == 400 && param ? "invalid_value" : NULL, format, args);
    va_end(args);
    return false;
}

bool api_fail_code(struct api_error *err, int status, const char *param, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(err, status, param, code, format, args);
    va_end(args);
    return false;
}

bool api_fail_field(struct api_error *err, const char *param, const struct error *cause)
{
    return api_fail(err, 400, param, "%s", cause->text);
}

const struct grammar_vocabulary *api_vocabulary(const struct api *api)
{
    struct lazy_vocabulary *lazy = api->vocabulary;
    pthread_mutex_lock(&lazy->lock);
    if (!lazy->made)
        lazy->made = grammar_vocabulary_open(api->tokenizer);
    pthread_mutex_unlock(&lazy->lock);
    return lazy->made;
}

static bool has_name(const struct api *api, struct bytes name)
{
    bool known = api->alias && bytes_equal(name, bytes_of(api->alias));
    for (int i = 0; i < api->name_count; i++)
        known |= bytes_equal(name, bytes_of(api->names[i]));
    return known;
}

bool api_has_model(const struct api *api, struct bytes name)
{
    struct bytes tag = bytes_of(API_DEFAULT_TAG);
    bool tagged = name.len > tag.len && bytes_equal(bytes_from(name, name.len - tag.len), tag);
    return has_name(api, name) || (tagged && has_name(api, (struct bytes){ name.data, name.len - tag.len }));
}

bool api_fail_model(const struct api *api, const char *name, struct api_error *err)
{
    return api_fail_code(err, 404, "model", "model_not_found",
                         "The model `%.200s` does not exist; this server has `%s`.", name, api->names[0]);
}

static json_t *openai_error(const struct api_error *err)
{
    const char *type = "BadRequestError", *code = err->code;
    for (size_t i = 0; i < sizeof error_types / sizeof *error_types; i++) {
        if (error_types[i].status != err->status)
            continue;
        type = error_types[i].type;
        code = code ? code : error_types[i].code;
    }
    json_t *param = *err->param ? api_text(bytes_of(err->param)) : json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", api_text(bytes_of(err->text)), "type", type,
                     "param", param, "code", code);
}

// Clients that shorten a conversation by themselves look for Anthropic's first words.
static json_t *anthropic_error(const struct api_error *err)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {
        { 401, "authentication_error" }, { 403, "permission_error" }, { 404, "not_found_error" },
        { 413, "request_too_large" },    { 429, "rate_limit_error" }, { 503, "overloaded_error" },
    };
    const char *type = err->status < 500 ? "invalid_request_error" : "api_error";
    bool too_long = err->code && !strcmp(err->code, "context_length_exceeded");
    struct strbuf text = { 0 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        type = types[i].status == err->status ? types[i].type : type;
    strbuf_add_text(&text, too_long ? "prompt is too long: " : "");
    strbuf_add_text(&text, err->text);
    json_t *error = json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                              api_text(strbuf_bytes(&text)));
    strbuf_free(&text);
    return error;
}

json_t *api_error_json(const struct api_error *err, enum api_style style)
{
    if (style == API_ANTHROPIC)
        return anthropic_error(err);
    if (style == API_RESPONSES_EVENT)
        return json_pack("{s:s, s:i, s:s, s:n, s:o}", "type", "error", "sequence_number", 0, "code", "server_error",
                         "param", "message", api_text(bytes_of(err->text)));
    if (style == API_OLLAMA)
        return json_pack("{s:o}", "error", api_text(bytes_of(err->text)));
    return openai_error(err);
}

static int add_dumped(const char *data, size_t len, void *out)
{
    strbuf_add(out, data, len);
    return 0;
}

void api_dump(const json_t *value, struct strbuf *out)
{
    enum { FLOAT_DIGITS = 9 }; // enough for every float, and logprobs are floats
    json_dump_callback(value, add_dumped, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(FLOAT_DIGITS));
}

void api_format_time(time_t when, char out[API_TIME_BYTES])
{
    struct tm parts;
    gmtime_r(&when, &parts);
    strftime(out, API_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

json_t *api_text(struct bytes text)
{
    json_t *value = json_stringn(text.data ? text.data : "", text.len);
    if (value)
        return value;
    struct strbuf clean = { 0 };
    strbuf_add_clean(&clean, text);
    value = json_stringn_nocheck(clean.data, clean.len);
    strbuf_free(&clean);
    return value;
}
