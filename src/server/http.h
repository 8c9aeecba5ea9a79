// SPDX-License-Identifier: Apache-2.0
// server/http.h: HTTP/1.1 on one libevent loop, written for clients that are slow, broken or hostile. A connection has
// one request at a time; what it pipelines waits in the socket. Every state has a deadline and every buffer a limit, so
// that a connection costs what http_limits says and no more. All functions belong to the loop's thread.
//
// The life of an exchange: it begins with `request` or `refuse` and ends with http_reply, http_stream_close or `gone`,
// whichever comes first; behind it the pointer is dead. `gone` is called by the loop and by http_close, never from
// within another function of this page: until then an exchange is there, and writing to a client that has just left is
// harmless. Any exchange may be answered from within any callback but its own `gone`; http_close belongs in none.
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

struct event_base;
struct http_server;
struct http_exchange; // one request and its answer; gone when the answer has been given or the client has left

struct budget;

struct http_limits {
    int connections;       // for one more, the longest idle one is closed; where none is idle: 503
    size_t head_bytes;     // request line and headers: 431
    size_t body_bytes;     // 413, on Content-Length already; of a compressed body what it decompresses to
    size_t unsent_bytes;   // of a stream that the client does not read: it is closed
    double head_seconds;   // from accept, or from the first byte of a later request, to the end of its headers: 408
    double body_seconds;   // and from there to the end of its body: 408
    double idle_seconds;   // between requests: closed
    double send_seconds;   // without the client taking a byte of what waits for it: closed
    struct budget *budget; // pays for bodies from their first byte on, else 429; NULL: nothing is charged
};

struct http_callbacks {
    void *context;
    // The head of a request has come, and no byte of its body was read. None will be if this answers, by http_reply,
    // and returns false.
    bool (*admit)(void *context, struct http_exchange *exchange);
    // A whole request has come, one that was admitted. It is answered now or later, by http_reply or http_stream_*.
    void (*request)(void *context, struct http_exchange *exchange);
    // The input is not HTTP or past a limit (or one connection too many: 503): to be answered at once with http_reply;
    // the connection closes behind it. Method, path and headers are there as far as they could be read.
    void (*refuse)(void *context, struct http_exchange *exchange, int status, const char *sentence);
    // The client left, or was closed by a limit, before its answer ended. The exchange is gone after this.
    void (*gone)(void *context, struct http_exchange *exchange);
    // All that was written to a stream so far has gone to the client's socket: more may be written. NULL: no callback.
    void (*sent)(void *context, struct http_exchange *exchange);
};

// The loop must offer EV_FEATURE_ET (epoll does).
struct http_server *http_open(struct event_base *base, const struct http_limits *limits,
                              const struct http_callbacks *callbacks);
void http_close(struct http_server *server); // every connection too

// An address is taken first (bind) and served later (listen): in between nobody else can have it, and connections to
// it are refused; at a path they wait. Port 0 takes a free one; *bound says which. A port or path in use is an
// error of its own. A host name is bound at all its addresses. A socket left behind by a dead server is replaced; ours
// is removed by http_close.
bool http_bind(struct http_server *server, const char *host, int port, int *bound, struct error *err);
bool http_bind_unix(struct http_server *server, const char *path, struct error *err);
bool http_listen(struct http_server *server, struct error *err);

// Raises the process's limit of open files (RLIMIT_NOFILE) to what so many connections need beside the files that are
// open already. How many of them it has room for.
int http_raise_file_limit(int connections);

int http_connections(const struct http_server *server);
bool http_failing(const struct http_server *server); // the system refused to watch the latest connection's socket

struct http_counts {
    uint64_t refused; // connections that were answered 503, as all were in use or the system had no more descriptors
    uint64_t evicted; // idle ones that were closed for new ones
};
struct http_counts http_counts(const struct http_server *server);
bool http_sending(const struct http_server *server); // an answer is under way, or not all of it is sent

// ---- a request (borrowed: as long as the exchange) ----------------------------------------------------------------

struct bytes http_method(const struct http_exchange *exchange); // "GET"
bool http_is_method(const struct http_exchange *exchange, const char *method);
struct bytes http_path(const struct http_exchange *exchange);                     // without the query
struct bytes http_query(const struct http_exchange *exchange);                    // behind the ?, not decoded
struct bytes http_header(const struct http_exchange *exchange, const char *name); // .data NULL: absent
struct bytes http_body(const struct http_exchange *exchange);
// The body becomes the caller's, without a copy, and so does its charge to limits.budget: *charged_bytes.
struct strbuf http_take_body(struct http_exchange *exchange, size_t *charged_bytes);
// The client's own X-Request-Id, if that is one that can be logged as it is, else a random one. Every answer has it.
const char *http_request_id(const struct http_exchange *exchange);
// The owner's own pointer, NULL at first.
void http_set_owner(struct http_exchange *exchange, void *owner);
void *http_owner(const struct http_exchange *exchange);

// ---- its answer ---------------------------------------------------------------------------------------------------

// One more header for the answer; before http_reply or http_stream_open. Control bytes in the value become '?'.
// Date, Connection, Content-Type, X-Request-Id and what frames the body are written without being asked for.
void http_add_header(struct http_exchange *exchange, const char *name, const char *value);

// The whole answer; content_type may be NULL. The exchange is gone after it. A HEAD request gets the headers alone.
void http_reply(struct http_exchange *exchange, int status, const char *content_type, struct bytes body);

// An answer in pieces (chunked; to an HTTP/1.0 client up to the close). Pieces written in one turn of the loop leave
// together in the next.
void http_stream_open(struct http_exchange *exchange, int status, const char *content_type);
void http_stream_write(struct http_exchange *exchange, struct bytes piece);
void http_stream_close(struct http_exchange *exchange); // the exchange is gone after it
// The same for an answer that cannot be finished: the connection closes behind what was written, without a last chunk.
void http_stream_cut(struct http_exchange *exchange);

#endif
