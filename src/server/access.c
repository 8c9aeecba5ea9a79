// SPDX-License-Identifier: Apache-2.0
#include "server/access.h"

#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "server/api.h"
#include "server/http.h"
#include "server/http_parse.h"

static const char *const loopback_hosts[] = { "localhost", "127.0.0.1", "[::1]" };

static bool is_loopback(const char *address)
{
    return http_is_word(bytes_of(address), "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

static bool has_word(const char *const *words, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(words[i], word))
            return true;
    return false;
}

void access_open(struct access *access, const struct access_options *options)
{
    bool loopback = options->listens_at && is_loopback(options->listens_at);
    *access = (struct access){
        .options = *options,
        .keys = memory_new((size_t)options->key_count + 1, sizeof *access->keys),
        .any_host = has_word(options->hosts, options->host_count, "*") || (!loopback && !options->host_count),
        .any_origin = has_word(options->origins, options->origin_count, "*"),
    };
    for (int i = 0; i < options->key_count; i++)
        sha256_of(bytes_of(options->keys[i]), access->keys[i]);
}

void access_close(struct access *access) { free(access->keys); }

// ---- hosts --------------------------------------------------------------------------------------------------------

bool access_check_host_word(const char *word, struct error *err)
{
    bool bracketed = word[0] == '[' && word[strlen(word) - 1] == ']';
    return (*word && !strpbrk(word, "/ ") && (bracketed || !strchr(word, ':')))
        || fail(err,
                "--allowed-hosts has \"%.200s\"; expected a name without scheme and port, like gpu1.example.org, "
                "or * for any",
                word);
}

// Without the port; an IPv6 address keeps its brackets.
static struct bytes host_name(struct bytes host)
{
    size_t len = host.len;
    while (len && host.data[len - 1] >= '0' && host.data[len - 1] <= '9')
        len--;
    if (len && host.data[len - 1] == ':' && (host.data[0] != '[' || (len > 1 && host.data[len - 2] == ']')))
        host.len = len - 1;
    return host;
}

bool access_allows_host(const struct access *access, struct bytes host)
{
    const struct access_options *options = &access->options;
    struct bytes name = host_name(host);
    bool known = access->any_host || !host.data; // HTTP/1.0 has none, and no browser speaks that
    for (size_t i = 0; i < sizeof loopback_hosts / sizeof *loopback_hosts; i++)
        known |= http_is_word(name, loopback_hosts[i]);
    for (int i = 0; i < options->host_count; i++)
        known |= http_is_word(name, options->hosts[i]);
    return known || (options->listens_at && http_is_word(name, options->listens_at));
}

// ---- origins ------------------------------------------------------------------------------------------------------

bool access_check_origin_word(const char *word, struct error *err)
{
    const char *host = strstr(word, "://");
    if (!strcmp(word, "*") || !strcmp(word, "null") || (host && host > word && host[3] && !strpbrk(host + 3, "/ ")))
        return true;
    return fail(err,
                "--allowed-origins has \"%.200s\"; expected an origin without a path, like https://example.org or "
                "http://localhost:3000, or * for any",
                word);
}

// A page that this server gave out comes from the host that the request is for.
static bool is_own(struct bytes origin, struct bytes host)
{
    static const char *const schemes[] = { "http://", "https://" }; // the latter behind a proxy
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i]);
        if (host.len && origin.len == length + host.len && !memcmp(origin.data, schemes[i], length)
            && !memcmp(origin.data + length, host.data, host.len))
            return true;
    }
    return false;
}

bool access_allows_origin(const struct access *access, struct bytes origin, struct bytes host)
{
    bool known = access->any_origin || is_own(origin, host);
    for (int i = 0; i < access->options.origin_count; i++)
        known |= bytes_equal(origin, bytes_of(access->options.origins[i]));
    return known;
}

// ---- keys ---------------------------------------------------------------------------------------------------------

// The word behind "Bearer", whatever its case; .data NULL: there is none.
static struct bytes bearer_key(struct bytes authorization)
{
    static const char scheme[] = "bearer";
    size_t length = strlen(scheme);
    if (authorization.len <= length || authorization.data[length] != ' '
        || !http_is_word((struct bytes){ authorization.data, length }, scheme))
        return (struct bytes){ 0 };
    while (length < authorization.len && authorization.data[length] == ' ')
        length++;
    return (struct bytes){ authorization.data + length, authorization.len - length };
}

const unsigned char *access_find_key(const struct access *access, struct bytes authorization, struct bytes api_key)
{
    const struct bytes given[] = { bearer_key(authorization), api_key };
    const unsigned char *found = NULL;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        unsigned char digest[KEY_DIGEST_BYTES];
        if (!given[i].data)
            continue;
        sha256_of(given[i], digest);
        for (int key = 0; key < access->options.key_count; key++)
            if (CRYPTO_memcmp(digest, access->keys[key], sizeof digest) == 0)
                found = access->keys[key];
    }
    return found;
}

// ---- pages of other origins ---------------------------------------------------------------------------------------

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
