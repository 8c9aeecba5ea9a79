// SPDX-License-Identifier: Apache-2.0
// server/http_request.c: takes one request out of a connection's input: empty lines, the head, admission, the body.
#include <assert.h>
#include <stdio.h>

#include "base/memory.h"
#include "server/http_connection.h"

void http_connection_consume(struct http_connection *connection, size_t count)
{
    struct strbuf *input = &connection->input;
    input->len -= count;
    if (count && input->len)
        memmove(input->data, input->data + count, input->len);
    connection->scanned = 0;
}

static void give_request(struct http_connection *connection)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    http_connection_set_state(connection, HTTP_ANSWERING);
    evtimer_del(&connection->deadline);
    callbacks->request(callbacks->context, connection->exchange);
}

// Has the owner decide on the head alone. A body that is not wanted is not read: the start of the next request cannot
// be found then, and the connection closes behind the answer.
static bool admit(struct http_connection *connection, bool has_body)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    http_connection_set_state(connection, HTTP_ANSWERING);
    evtimer_del(&connection->deadline);
    connection->closes = has_body;
    if (callbacks->admit(callbacks->context, connection->exchange)) {
        connection->closes = false;
        return true;
    }
    assert(connection->state == HTTP_SENDING);
    return false;
}

static void begin_body(struct http_connection *connection)
{
    const struct http_limits *limits = &connection->server->limits;
    struct http_exchange *exchange = connection->exchange;
    const struct http_head *head = &exchange->head;
    struct error err;
    int status = http_content_open(&exchange->content, head, limits, &err);
    if (status == 415)
        http_add_header(exchange, "Accept-Encoding", HTTP_CODINGS);
    if (status) {
        http_connection_refuse(connection, status, err.text);
        return;
    }
    http_connection_set_state(connection, HTTP_BODY);
    connection->chunks = (struct http_chunks){ 0 };
    connection->body_taken = 0;
    http_connection_set_deadline(connection, limits->body_seconds);
    if (head->expects_continue && head->minor == 1 && !connection->input.len)
        strbuf_add_text(&connection->output, "HTTP/1.1 100 Continue\r\n\r\n");
}

// Takes the head: the first `length` bytes of the input.
static void take_head(struct http_connection *connection, size_t length)
{
    struct http_exchange *exchange = connection->exchange = http_exchange_open(connection);
    struct error err;
    exchange->head_text = memory_new(length, 1);
    memcpy(exchange->head_text, connection->input.data, length);
    http_connection_consume(connection, length);
    const struct http_head *head = &exchange->head;
    int status = http_parse_head((struct bytes){ exchange->head_text, length }, &exchange->head, &err);
    struct bytes id = http_head_field(head, "X-Request-Id");
    if (request_id_is_sane(id))
        snprintf(exchange->request_id, sizeof exchange->request_id, "%.*s", (int)id.len, id.data);
    bool has_body = head->length || head->chunked;
    if (status)
        http_connection_refuse(connection, status, err.text);
    else if (!admit(connection, has_body))
        return;
    else if (has_body)
        begin_body(connection);
    else
        give_request(connection);
}

// Some clients send an empty line behind a body.
static void skip_empty_lines(struct http_connection *connection)
{
    const struct strbuf *input = &connection->input;
    size_t count = 0;
    for (;;) {
        size_t left = input->len - count;
        if (left >= 1 && input->data[count] == '\n')
            count += 1;
        else if (left >= 2 && input->data[count] == '\r' && input->data[count + 1] == '\n')
            count += 2;
        else
            break;
    }
    if (count)
        http_connection_consume(connection, count);
}

// false: more bytes are needed first.
bool http_request_find_head(struct http_connection *connection)
{
    const struct http_limits *limits = &connection->server->limits;
    skip_empty_lines(connection);
    if (!connection->input.len)
        return false;
    if (connection->state == HTTP_IDLE) {
        http_connection_set_state(connection, HTTP_HEAD);
        if (connection->known) // the first one's time runs since the connection was accepted
            http_connection_set_deadline(connection, limits->head_seconds);
    }
    struct bytes in = strbuf_bytes(&connection->input);
    size_t length = http_head_length(in, &connection->scanned);
    struct error err;
    if (!http_is_token_byte(in.data[0]) && !(in.len == 1 && in.data[0] == '\r')) {
        http_connection_refuse(connection, 400, "what came is not HTTP; this server speaks http:// and not https://");
    } else if (length > limits->head_bytes || (!length && in.len >= limits->head_bytes)) {
        fail(&err, "the request line and headers take more than %zu bytes", limits->head_bytes);
        http_connection_refuse(connection, 431, err.text);
    } else if (length) {
        take_head(connection, length);
    } else {
        return false;
    }
    return true;
}

// Takes chunks of the body. Returns 0, or the status of a refusal.
static int take_chunks(struct http_connection *connection, struct bytes *in, struct error *err)
{
    size_t limit = connection->server->limits.body_bytes;
    while (in->len && connection->chunks.state != HTTP_CHUNKS_DONE) {
        struct bytes data;
        int status = http_chunks_read(&connection->chunks, in, &data, err);
        if (status)
            return status;
        if (data.len + connection->chunks.left > limit - connection->body_taken)
            return fail(err, "the body has more than the %zu bytes that are taken", limit), 413;
        connection->body_taken += data.len;
        status = http_content_add(&connection->exchange->content, data, err);
        if (status)
            return status;
    }
    return 0;
}

// false: more bytes are needed first.
bool http_request_take_body(struct http_connection *connection)
{
    struct http_exchange *exchange = connection->exchange;
    struct bytes in = strbuf_bytes(&connection->input);
    struct error err;
    int status = 0;
    bool done;
    if (exchange->head.chunked) {
        status = take_chunks(connection, &in, &err);
        done = connection->chunks.state == HTTP_CHUNKS_DONE;
    } else {
        size_t missing = (size_t)exchange->head.length - connection->body_taken;
        size_t count = in.len < missing ? in.len : missing;
        status = http_content_add(&exchange->content, (struct bytes){ in.data, count }, &err);
        connection->body_taken += count;
        in.len -= count;
        done = count == missing;
    }
    http_connection_consume(connection, connection->input.len - in.len);
    if (!status && done)
        status = http_content_end(&exchange->content, &err);
    if (status)
        http_connection_refuse(connection, status, err.text);
    else if (done)
        give_request(connection);
    return status || done;
}
