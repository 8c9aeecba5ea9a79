// SPDX-License-Identifier: Apache-2.0
// server/cors.h: cross-origin resource sharing (WHATWG Fetch): which pages of a browser may send requests here and read
// the answers. Browsers enforce it for reading alone; so a request that changes something is refused here, too, when it
// comes from a page that may not read the answer.
#ifndef SERVER_CORS_H
#define SERVER_CORS_H

#include "server/access.h"
#include "server/api.h"
#include "server/http.h"

bool cors_check(const struct access *access, const struct http_exchange *exchange, struct api_error *err);

// Headers of every answer.
void cors_add_headers(const struct access *access, struct http_exchange *exchange);

// Headers of the answer to a preflight (OPTIONS), of a page that passed cors_check.
void cors_add_preflight_headers(const struct access *access, struct http_exchange *exchange);

#endif
