// SPDX-License-Identifier: Apache-2.0
#include "server/cors.h"

#include "base/strbuf.h"
#include "server/http_parse.h"

// A browser's own word that the page is this server's counts where a proxy in between has changed the host: pages
// cannot set that header.
static bool allows(const struct access *access, const struct http_exchange *exchange, struct bytes origin)
{
    return access_allows_origin(access, origin, http_header(exchange, "Host"))
        || http_is_word(http_header(exchange, "Sec-Fetch-Site"), "same-origin");
}

bool cors_check(const struct access *access, const struct http_exchange *exchange, struct api_error *err)
{
    struct bytes origin = http_header(exchange, "Origin");
    bool reads = http_is_method(exchange, "GET") || http_is_method(exchange, "HEAD");
    if (!origin.data || reads || allows(access, exchange, origin))
        return true;
    int len = origin.len < 200 ? (int)origin.len : 200;
    return api_fail(err, 403, NULL,
                    "pages of %.*s may not use this server; start it with --allowed-origins %.*s if "
                    "they should",
                    len, origin.data, len, origin.data);
}

static void add_text_header(struct http_exchange *exchange, const char *name, struct bytes value)
{
    struct strbuf text = { 0 };
    strbuf_add(&text, value.data, value.len);
    http_add_header(exchange, name, text.data);
    strbuf_free(&text);
}

void cors_add_headers(const struct access *access, struct http_exchange *exchange)
{
    struct bytes origin = http_header(exchange, "Origin");
    if (!access->any_origin) // a cache must not give one page's answer to another
        http_add_header(exchange, "Vary", "Origin");
    if (!origin.data || !allows(access, exchange, origin))
        return;
    add_text_header(exchange, "Access-Control-Allow-Origin", access->any_origin ? bytes_of("*") : origin);
    http_add_header(exchange, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

void cors_add_preflight_headers(const struct access *access, struct http_exchange *exchange)
{
    struct bytes origin = http_header(exchange, "Origin");
    struct bytes headers = http_header(exchange, "Access-Control-Request-Headers");
    if (!origin.data || !allows(access, exchange, origin))
        return;
    http_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    if (headers.data)
        add_text_header(exchange, "Access-Control-Allow-Headers", headers);
    http_add_header(exchange, "Access-Control-Max-Age", "3600");
    http_add_header(exchange, "Vary", "Access-Control-Request-Headers");
    if (http_is_word(http_header(exchange, "Access-Control-Request-Private-Network"), "true"))
        http_add_header(exchange, "Access-Control-Allow-Private-Network", "true");
}
