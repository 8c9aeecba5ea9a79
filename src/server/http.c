// SPDX-License-Identifier: Apache-2.0
#include "server/http.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "server/http_connection.h"

struct http_server *http_open(struct event_base *base, const struct http_limits *limits,
                              const struct http_callbacks *callbacks)
{
    assert(event_base_get_features(base) & EV_FEATURE_ET);
    struct http_server *server = memory_new(1, sizeof *server);
    server->base = base;
    server->limits = *limits;
    server->callbacks = *callbacks;
    for (int i = 0; i < HTTP_IDLE_QUEUES; i++)
        TAILQ_INIT(&server->idle[i]);
    http_listeners_open(server);
    return server;
}

void http_close(struct http_server *server)
{
    if (!server)
        return;
    http_listeners_close(server);
    while (server->connections)
        http_connection_close(server->connections);
    free(server);
}

int http_connections(const struct http_server *server) { return server->connection_count; }

bool http_failing(const struct http_server *server) { return server->failing; }

struct http_counts http_counts(const struct http_server *server) { return server->counts; }

bool http_sending(const struct http_server *server)
{
    for (const struct http_connection *connection = server->connections; connection; connection = connection->next)
        if (connection->state == HTTP_ANSWERING || connection->state == HTTP_SENDING)
            return true;
    return false;
}

// ---- a request ----------------------------------------------------------------------------------------------------

struct bytes http_method(const struct http_exchange *exchange) { return exchange->head.method; }

bool http_is_method(const struct http_exchange *exchange, const char *method)
{
    return bytes_equal(exchange->head.method, bytes_of(method));
}

struct bytes http_path(const struct http_exchange *exchange) { return exchange->head.path; }

struct bytes http_query(const struct http_exchange *exchange) { return exchange->head.query; }

struct bytes http_header(const struct http_exchange *exchange, const char *name)
{
    return http_head_field(&exchange->head, name);
}

struct bytes http_body(const struct http_exchange *exchange)
{
    const struct strbuf *data = &exchange->content.data;
    return (struct bytes){ strbuf_text(data), data->len };
}

struct strbuf http_take_body(struct http_exchange *exchange, size_t *charged_bytes)
{
    struct http_content *content = &exchange->content;
    struct strbuf body = content->data;
    *charged_bytes = content->charged_bytes;
    content->data = (struct strbuf){ 0 };
    content->charged_bytes = 0;
    return body;
}

const char *http_request_id(const struct http_exchange *exchange) { return exchange->request_id; }

void http_set_owner(struct http_exchange *exchange, void *owner) { exchange->owner = owner; }

void *http_owner(const struct http_exchange *exchange) { return exchange->owner; }

// ---- its answer ---------------------------------------------------------------------------------------------------

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    { 200, "OK" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 304, "Not Modified" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 413, "Content Too Large" },
    { 415, "Unsupported Media Type" },
    { 422, "Unprocessable Content" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" },
};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "";
}

// Written by hand, because strftime takes the names from the locale.
static void add_date(struct strbuf *out)
{
    static const char days[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[][4] = {
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
    };
    struct tm now;
    gmtime_r(&(time_t){ time(NULL) }, &now);
    strbuf_add_format(out, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[now.tm_wday], now.tm_mday,
                      months[now.tm_mon], 1900 + now.tm_year, now.tm_hour, now.tm_min, now.tm_sec);
}

// Writes the head up to the line that frames the body.
static void begin_answer(struct http_exchange *exchange, int status, const char *content_type)
{
    struct http_connection *connection = exchange->connection;
    struct strbuf *out = &connection->output;
    assert(!exchange->left && !exchange->streams && status >= 200 && status <= 599);
    exchange->sends_body = status != 204 && status != 304 && !http_is_method(exchange, "HEAD");
    connection->closes |= !exchange->head.keep_alive;
    strbuf_add_format(out, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
    add_date(out);
    if (content_type)
        strbuf_add_format(out, "Content-Type: %s\r\n", content_type);
    strbuf_add_format(out, "X-Request-Id: %s\r\n", exchange->request_id);
    strbuf_add(out, exchange->answer_fields.data, exchange->answer_fields.len);
    if (connection->closes)
        strbuf_add_text(out, "Connection: close\r\n");
    else if (exchange->head.minor == 0)
        strbuf_add_text(out, "Connection: keep-alive\r\n");
}

void http_add_header(struct http_exchange *exchange, const char *name, const char *value)
{
    struct strbuf *lines = &exchange->answer_fields;
    assert(!exchange->left && !exchange->streams);
    strbuf_add_format(lines, "%s: ", name);
    for (const char *c = value; *c; c++)
        strbuf_add_byte(lines, (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c);
    strbuf_add_text(lines, "\r\n");
}

void http_reply(struct http_exchange *exchange, int status, const char *content_type, struct bytes body)
{
    struct strbuf *out = &exchange->connection->output;
    begin_answer(exchange, status, content_type);
    if (status != 204)
        strbuf_add_format(out, "Content-Length: %zu\r\n", body.len);
    strbuf_add_text(out, "\r\n");
    if (exchange->sends_body)
        strbuf_add(out, body.data, body.len);
    http_connection_answered(exchange->connection);
}

void http_stream_open(struct http_exchange *exchange, int status, const char *content_type)
{
    bool chunks = exchange->head.minor == 1;
    exchange->connection->closes |= !chunks; // then nothing else ends the body
    begin_answer(exchange, status, content_type);
    exchange->streams = true;
    exchange->sends_chunks = chunks;
    strbuf_add_text(&exchange->connection->output, chunks ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    http_connection_wake(exchange->connection);
}

void http_stream_write(struct http_exchange *exchange, struct bytes piece)
{
    struct strbuf *out = &exchange->connection->output;
    assert(!exchange->left && exchange->streams);
    if (!exchange->sends_body || !piece.len) // an empty chunk would be the last
        return;
    if (exchange->sends_chunks)
        strbuf_add_format(out, "%zx\r\n", piece.len);
    strbuf_add(out, piece.data, piece.len);
    if (exchange->sends_chunks)
        strbuf_add_text(out, "\r\n");
    exchange->unsent = true;
    http_connection_wake(exchange->connection);
}

void http_stream_close(struct http_exchange *exchange)
{
    assert(!exchange->left && exchange->streams);
    if (exchange->sends_body && exchange->sends_chunks)
        strbuf_add_text(&exchange->connection->output, "0\r\n\r\n");
    http_connection_answered(exchange->connection);
}

void http_stream_cut(struct http_exchange *exchange)
{
    assert(!exchange->left && exchange->streams);
    exchange->connection->closes = true;
    http_connection_answered(exchange->connection);
}
