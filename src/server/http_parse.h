// SPDX-License-Identifier: Apache-2.0
// server/http_parse.h: HTTP/1.1 request parser: the head of a request, and chunked bodies. Strict (RFC 9112) wherever
// two readers of the same bytes could disagree about what a request says or where it ends. A refusal is a status and a
// sentence; the sentence is plain ASCII whatever came.
#ifndef SERVER_HTTP_PARSE_H
#define SERVER_HTTP_PARSE_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

enum { HTTP_FIELDS_MAX = 100, HTTP_CHUNK_LINE_BYTES_MAX = 256, HTTP_TRAILER_BYTES_MAX = 8192 };

struct http_head {
    struct bytes method, path, query; // as they were sent: nothing is decoded; the path is without the query
    int minor;                        // HTTP/1.minor: 0 or 1
    struct http_field {
        struct bytes name, value;
    } fields[HTTP_FIELDS_MAX];
    int field_count;
    uint64_t length; // of the body, unless chunked; 0 without has_length
    bool has_length, chunked;
    bool has_host, asks_close, asks_keep_alive, expects_continue;
    bool keep_alive; // another request may follow this one
};

// Bytes up to and with the empty line that ends a head; 0: it has not come. *scanned is 0 at first and then remembers
// what need not be looked at again when more bytes stand behind the same ones.
size_t http_head_length(struct bytes in, size_t *scanned);

void http_head_clear(struct http_head *head); // nothing was read: no method, no path, HTTP/1.1

// `in` is a whole head; *head borrows from it. 0, or the status to refuse with and why; *head then has what was read.
int http_parse_head(struct bytes in, struct http_head *head, struct error *err);

bool http_is_word(struct bytes text, const char *word);                       // upper or lower case alike
bool http_is_token_byte(char byte);                                           // of a method or a header's name
struct bytes http_head_field(const struct http_head *head, const char *name); // the first so named; .data NULL: none

// A body in chunks, read as it comes; zeroed at first. Line ends are CR LF here, and nothing else.
struct http_chunks {
    enum {
        HTTP_CHUNK_SIZE,
        HTTP_CHUNK_EXTENSION,
        HTTP_CHUNK_SIZE_LF,
        HTTP_CHUNK_DATA,
        HTTP_CHUNK_DATA_CR,
        HTTP_CHUNK_DATA_LF,
        HTTP_CHUNK_TRAILER, // at the start of a line
        HTTP_CHUNK_TRAILER_LINE,
        HTTP_CHUNK_TRAILER_LF,
        HTTP_CHUNK_LAST_LF,
        HTTP_CHUNKS_DONE,
    } state;
    uint64_t left;     // bytes of this chunk still to come; below 2^60
    size_t line_bytes; // of the size line, or of all trailers
};

// Takes bytes off the front of *in until some of the body were among them (*data, borrowed), or the body or *in ends.
// 0, or the status to refuse with and why.
int http_chunks_read(struct http_chunks *chunks, struct bytes *in, struct bytes *data, struct error *err);

// Decodes percent-encoding in a path: %2F is a slash.
void http_add_unescaped(struct strbuf *out, struct bytes text);
// Takes the next NAME=VALUE off the front of a URL's query (application/x-www-form-urlencoded), decoded. False: there
// is none.
bool http_query_next(struct bytes *query, struct strbuf *name, struct strbuf *value);

#endif
