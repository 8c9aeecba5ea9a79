// SPDX-License-Identifier: Apache-2.0
// server/http_connection.h: internals of the HTTP server, shared by its files. One connection is one state machine,
// driven by the loop: bytes, room to send, deadlines, and `wake` when its owner has written something.
//   (1) a connection has an exchange from the end of a request's head to the end of its answer; its owner has it while
//       the state is ANSWERING and at no other time
//   (2) only http_connection.c receives, sends and closes, and only from the loop (or http_close): the functions of
//       http.h write to memory and wake, so that no owner loses an exchange inside a call of its own
#ifndef SERVER_HTTP_CONNECTION_H
#define SERVER_HTTP_CONNECTION_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/queue.h>

#include "base/strbuf.h"
#include "server/http.h"
#include "server/http_content.h"
#include "server/http_parse.h"
#include "server/request_id.h"

struct http_exchange {
    struct http_connection *connection;
    char *head_text; // owned; `head` borrows from it
    struct http_head head;
    struct http_content content;
    char request_id[REQUEST_ID_BYTES_MAX + 1];
    struct strbuf answer_fields; // lines of http_add_header
    void *owner;
    bool streams;      // http_stream_open was called
    bool sends_chunks; // and its pieces are framed,
    bool sends_body;   // unless there is nothing to send but headers
    bool unsent;       // something was written since the last call of `sent`
    bool left;         // `gone` is being called
};

enum http_state {
    HTTP_IDLE,      // no byte of a request has come
    HTTP_HEAD,      // some have
    HTTP_BODY,      // the head is whole, the body is not
    HTTP_ANSWERING, // the request is with its owner
    HTTP_SENDING,   // the answer is whole, but not all sent
    HTTP_LINGERING, // all was said and sent; what still comes is thrown away
};

struct http_connection {
    struct http_server *server;
    struct http_connection *next, **link; // among the server's; *link is this one
    TAILQ_ENTRY(http_connection) idle;    // in the queue of server->idle that idle_queue points to
    struct http_idle_queue *idle_queue;   // NULL: in none
    double idle_since;                    // in seconds of a clock that only goes forward
    int fd;
    bool surplus; // one more than the server takes: answered 503 and closed
    bool known;   // it has sent a request before, and got its answer
    enum http_state state;
    bool readable;     // there may be bytes in the socket: events come once per change, not as long as it holds
    bool closes;       // behind the answer
    struct event io;   // the socket changed
    struct event turn; // something is to be done in the loop's next turn
    struct event deadline;
    struct strbuf input; // came and not taken yet
    size_t scanned;      // of the input, for the head's end
    struct strbuf output;
    size_t sent; // of the output
    size_t discarded;
    struct http_chunks chunks;
    size_t body_taken; // bytes of the body, as they came
    struct http_exchange *exchange;
};

TAILQ_HEAD(http_idle_queue, http_connection);

// Connections that may be closed for new ones, in the order in which they are.
enum http_idle {
    HTTP_IDLE_STRANGER, // has never sent a request, and is owed nothing
    HTTP_IDLE_KNOWN,    // is owed nothing
    HTTP_IDLE_BODY,     // has announced a body
    HTTP_IDLE_QUEUES,
};

struct http_server {
    struct event_base *base;
    struct http_limits limits;
    struct http_callbacks callbacks;
    struct http_connection *connections;
    int connection_count, surplus_count;           // the surplus are not among the first
    bool failing;                                  // epoll refused the latest connection's socket
    struct http_idle_queue idle[HTTP_IDLE_QUEUES]; // in each the longest idle first
    struct http_counts counts;
    struct http_listener *listeners;
    int reserve_fd;      // given up for a moment to answer 503 when the system has no more descriptors; -1: not there
    struct event resume; // accepting again after that
};

void http_connection_open(struct http_server *server, int fd);                            // takes the descriptor
void http_connection_turn_away(struct http_server *server, int fd, const char *sentence); // 503, and closed at once
bool http_connection_evict(struct http_server *server);         // closes the longest idle one; false: none is idle
void http_connection_close(struct http_connection *connection); // after one more attempt to send what waits
void http_connection_wake(struct http_connection *connection);
void http_connection_answered(struct http_connection *connection); // the exchange's answer is whole; it is freed

// ---- shared by http_connection.c, http_idle.c and http_request.c ---------------------------------------------------

void http_connection_set_state(struct http_connection *connection, enum http_state state);
void http_connection_set_deadline(struct http_connection *connection, double seconds);
// The owner answers with an error; the connection closes behind it, as the next request's start cannot be found.
void http_connection_refuse(struct http_connection *connection, int status, const char *sentence);
void http_connection_consume(struct http_connection *connection, size_t count); // bytes at the front of the input

struct http_exchange *http_exchange_open(struct http_connection *connection);
void http_exchange_close(struct http_exchange *exchange);

void http_idle_join(struct http_connection *connection); // at the end of its queue: it has just been active
void http_idle_leave(struct http_connection *connection);

// Both: false: more input is needed first.
bool http_request_find_head(struct http_connection *connection);
bool http_request_take_body(struct http_connection *connection);

void http_listeners_open(struct http_server *server);
void http_listeners_close(struct http_server *server);

struct timeval http_seconds(double seconds);

#endif
