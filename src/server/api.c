// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    int status;
    const char *type;
} error_types[] = {
    { 400, "BadRequestError" },         { 401, "AuthenticationError" }, { 403, "PermissionDeniedError" },
    { 404, "NotFoundError" },           { 415, "UnsupportedMediaTypeError" },
    { 405, "MethodNotAllowedError" },   { 408, "RequestTimeoutError" }, { 413, "RequestTooLargeError" },
    { 422, "UnprocessableEntityError" }, { 429, "RateLimitError" },      { 431, "RequestTooLargeError" },
    { 500, "InternalServerError" },     { 501, "NotImplementedError" }, { 503, "ServiceUnavailableError" },
    { 505, "NotImplementedError" },
};

bool api_fail(struct api_error *err, int status, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->status = status;
    err->param = param;
    err->quotes = false;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return false;
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

json_t *api_error_json(const struct api_error *err)
{
    const char *type = "BadRequestError";
    for (size_t i = 0; i < sizeof error_types / sizeof *error_types; i++)
        if (error_types[i].status == err->status)
            type = error_types[i].type;
    return json_pack("{s:{s:o, s:s, s:s?, s:i}}", "error", "message", api_text(bytes_of(err->text)), "type", type,
                     "param", err->param, "code", err->status);
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

json_t *api_logprob(float logprob)
{
    enum { LOWEST = -9999 };
    return json_real(logprob > LOWEST ? (double)logprob : LOWEST);
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
