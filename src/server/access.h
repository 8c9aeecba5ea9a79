// SPDX-License-Identifier: Apache-2.0
// server/access.h: access control on a request's headers alone: API keys, the Host list (against DNS rebinding, where a
// foreign page reaches a server on loopback under its own name) and the Origin list (CORS, WHATWG Fetch).
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "base/bytes.h"
#include "base/error.h"

struct api_error;
struct http_exchange;

enum { KEY_DIGEST_BYTES = 32 };

// Lists are borrowed as long as the access is.
struct access_options {
    const char *const *keys;
    int key_count;              // 0: everyone may ask
    const char *const *origins; // "https://example.org:8443", "null" or "*"; the server's own always may
    int origin_count;
    const char *const *hosts; // names without a port, or "*"
    int host_count;
    const char *listens_at; // the address; NULL: a Unix socket
};

struct access {
    struct access_options options;
    unsigned char (*keys)[KEY_DIGEST_BYTES]; // SHA-256 of each
    bool any_host, any_origin;
};

void access_open(struct access *access, const struct access_options *options);
void access_close(struct access *access);

bool access_check_origin_word(const char *word, struct error *err); // of --allowed-origins
bool access_check_host_word(const char *word, struct error *err);   // of --allowed-hosts

// Whether a request with this Host header means this server. Where it listens on loopback that is localhost,
// 127.0.0.1, [::1], its own address and the list; elsewhere any name, unless there is a list.
bool access_allows_host(const struct access *access, struct bytes host);

// Whether pages of this origin may use the server: those that it served itself, and the list.
bool access_allows_origin(const struct access *access, struct bytes origin, struct bytes host);

// The digest of the key that a request has, of "Authorization: Bearer KEY" or "X-Api-Key: KEY"; NULL: it has none of
// the server's. Takes the same time whatever the key is.
const unsigned char *access_find_key(const struct access *access, struct bytes authorization, struct bytes api_key);

// ---- cross-origin resource sharing (WHATWG Fetch): which pages of a browser may send requests here and read the
// answers. Browsers enforce it for reading alone; so a request that changes something is refused here, too, when it
// comes from a page that may not read the answer.

bool cors_check(const struct access *access, const struct http_exchange *exchange, struct api_error *err);
void cors_add_headers(const struct access *access, struct http_exchange *exchange); // of every answer
// Headers of the answer to a preflight (OPTIONS), of a page that passed cors_check.
void cors_add_preflight_headers(const struct access *access, struct http_exchange *exchange);

#endif
