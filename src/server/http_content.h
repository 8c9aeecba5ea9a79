// SPDX-License-Identifier: Apache-2.0
// server/http_content.h: streaming decompression of request bodies: Content-Encoding (gzip, zstd; RFC 9110, section
// 8.4) is undone while bytes arrive. Content is never longer than its limit, whatever a small body would decompress to,
// and its memory is charged to the budget before it is allocated.
#ifndef SERVER_HTTP_CONTENT_H
#define SERVER_HTTP_CONTENT_H

#include "base/strbuf.h"
#include "server/budget.h"
#include "server/http.h"
#include "server/http_parse.h"

#define HTTP_CODINGS "gzip, zstd" // those that are understood, as Accept-Encoding lists them

struct http_content {
    struct strbuf data;               // decoded so far
    size_t bytes_max;                 // of data
    struct budget *budget;            // NULL: nothing is charged
    size_t charged_bytes;             // for data and decoder
    const struct http_coding *coding; // NULL: data is the body as it came
    void *decoder;                    // NULL: no byte has come yet
    size_t decoder_bytes;             // of charged_bytes
    bool ended;                       // a whole compressed stream has come, and nothing behind it
};

// For the body that `head` announces. Each gives 0, or the status to refuse with and why.
int http_content_open(struct http_content *content, const struct http_head *head, const struct http_limits *limits,
                      struct error *err);
int http_content_add(struct http_content *content, struct bytes body, struct error *err); // some more of the body
int http_content_end(struct http_content *content, struct error *err);                    // there is no more of it
void http_content_free(struct http_content *content);

#endif
