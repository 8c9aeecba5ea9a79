// SPDX-License-Identifier: Apache-2.0
#include "server/http_connection.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

enum {
    READ_BYTES = 16 << 10,      // at a time
    AHEAD_BYTES_MAX = 16 << 10, // taken of what a client sends before its answer is complete
    STEPS_PER_TURN = 16,        // then it is the others' turn
    SURPLUS_MAX = 64,           // connections that may take their time to read 503; further ones are closed behind it
    EVICT_LOOKS_MAX = 16,       // idle connections that are looked at for one that has sent nothing
    LINGER_SECONDS = 2,
    LINGER_BYTES_MAX = 64 << 20, // a client may read the refusal of its body only when it has sent it all
    KEEPALIVE_SECONDS = 30,      // of silence before a client's machine is asked whether it still exists,
    KEEPALIVE_ASK_SECONDS = 10,  // how often it is asked again,
    KEEPALIVE_ASKS = 3,          // and how many times
};

static const double stalled_seconds = 0.5; // of a body, before its connection may be closed for a new one

enum progress { PROGRESS_MORE, PROGRESS_WAIT, PROGRESS_OVER };

// ---- idle connections ---------------------------------------------------------------------------------------------

static void leave_idle_queue(struct http_connection *connection)
{
    if (connection->idle_queue)
        TAILQ_REMOVE(connection->idle_queue, connection, idle);
    connection->idle_queue = NULL;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// To the end of its queue: something has come. The surplus have no place to give up.
static void join_idle_queue(struct http_connection *connection)
{
    enum http_idle which = connection->state == HTTP_BODY ? HTTP_IDLE_BODY
        : connection->known                               ? HTTP_IDLE_KNOWN
                                                          : HTTP_IDLE_STRANGER;
    leave_idle_queue(connection);
    if (connection->surplus)
        return;
    connection->idle_queue = &connection->server->idle[which];
    connection->idle_since = seconds_now();
    TAILQ_INSERT_TAIL(connection->idle_queue, connection, idle);
}

static void set_state(struct http_connection *connection, enum http_state state)
{
    connection->state = state;
    if (state == HTTP_ANSWERING || state == HTTP_SENDING)
        leave_idle_queue(connection);
    else
        join_idle_queue(connection);
}

// Whether the socket holds bytes of a request that were not read yet.
static bool has_sent(const struct http_connection *connection)
{
    char byte;
    return connection->state != HTTP_LINGERING && recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool http_connection_evict(struct http_server *server)
{
    int looks = 0;
    for (size_t i = 0; i < HTTP_IDLE_QUEUES; i++) {
        struct http_connection *connection;
        while ((connection = TAILQ_FIRST(&server->idle[i])) && looks++ < EVICT_LOOKS_MAX) {
            if (i == HTTP_IDLE_BODY && seconds_now() - connection->idle_since < stalled_seconds)
                return false;
            if (has_sent(connection)) {
                join_idle_queue(connection);
                continue;
            }
            http_connection_close(connection);
            server->counts.evicted++;
            return true;
        }
    }
    return false;
}

// ---- its life -----------------------------------------------------------------------------------------------------

struct timeval http_seconds(double seconds)
{
    time_t whole = (time_t)seconds;
    return (struct timeval){ .tv_sec = whole, .tv_usec = (suseconds_t)((seconds - (double)whole) * 1e6) };
}

static void set_deadline(struct http_connection *connection, double seconds)
{
    struct timeval wait = http_seconds(seconds);
    evtimer_add(&connection->deadline, &wait);
}

void http_connection_wake(struct http_connection *connection)
{
    evtimer_add(&connection->turn, &(struct timeval){ 0 });
}

static struct http_exchange *exchange_open(struct http_connection *connection)
{
    struct http_exchange *exchange = memory_new(1, sizeof *exchange);
    exchange->connection = connection;
    http_head_clear(&exchange->head);
    request_id_random(exchange->request_id);
    return exchange;
}

static void exchange_close(struct http_exchange *exchange)
{
    if (!exchange)
        return;
    http_content_free(&exchange->content);
    strbuf_free(&exchange->answer_fields);
    free(exchange->head_text);
    free(exchange);
}

void http_connection_answered(struct http_connection *connection)
{
    exchange_close(connection->exchange);
    connection->exchange = NULL;
    set_state(connection, HTTP_SENDING);
    http_connection_wake(connection);
}

// The owner answers at once; then the connection is closed, as the start of the next request cannot be found.
static void refuse(struct http_connection *connection, int status, const char *sentence)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    if (!connection->exchange)
        connection->exchange = exchange_open(connection);
    set_state(connection, HTTP_ANSWERING);
    connection->closes = true;
    evtimer_del(&connection->deadline);
    callbacks->refuse(callbacks->context, connection->exchange, status, sentence);
    assert(connection->state == HTTP_SENDING);
}

// ---- sending ------------------------------------------------------------------------------------------------------

static size_t unsent(const struct http_connection *connection) { return connection->output.len - connection->sent; }

// The rest moves to the front only when it is the smaller part, so that moving never costs more than sending did.
static void forget_sent(struct http_connection *connection)
{
    struct strbuf *output = &connection->output;
    if (connection->sent < output->len - connection->sent)
        return;
    output->len -= connection->sent;
    memmove(output->data, output->data + connection->sent, output->len);
    connection->sent = 0;
}

// As much as the socket takes. false: the client is not there any more.
static bool send_output(struct http_connection *connection)
{
    size_t before = unsent(connection);
    if (!before)
        return true;
    while (unsent(connection)) {
        const char *rest = connection->output.data + connection->sent;
        ssize_t count = send(connection->fd, rest, unsent(connection), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return false;
        if (count < 0)
            break;
        connection->sent += (size_t)count;
    }
    bool progress = unsent(connection) < before;
    forget_sent(connection);
    if (connection->state != HTTP_ANSWERING && connection->state != HTTP_SENDING)
        return true; // another deadline holds
    if (!unsent(connection))
        evtimer_del(&connection->deadline);
    else if (progress || !evtimer_pending(&connection->deadline, NULL))
        set_deadline(connection, connection->server->limits.send_seconds);
    return true;
}

// Notifies the owner of a stream when the socket has taken all of it.
static void notify_sent(struct http_connection *connection)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    struct http_exchange *exchange = connection->exchange;
    if (!exchange->unsent || unsent(connection) || !callbacks->sent)
        return;
    exchange->unsent = false;
    callbacks->sent(callbacks->context, exchange);
}

// The answer is sent.
static void end_answer(struct http_connection *connection)
{
    strbuf_free(&connection->output);
    if (connection->closes) {
        // Closing now would turn bytes on their way to us into a reset, which can overtake the answer.
        shutdown(connection->fd, SHUT_WR);
        set_state(connection, HTTP_LINGERING);
        set_deadline(connection, LINGER_SECONDS);
        return;
    }
    if (!connection->input.len)
        strbuf_free(&connection->input);
    connection->known = true;
    set_state(connection, HTTP_IDLE);
    set_deadline(connection, connection->server->limits.idle_seconds);
}

// ---- taking a request ---------------------------------------------------------------------------------------------

static void consume(struct http_connection *connection, size_t count)
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
    set_state(connection, HTTP_ANSWERING);
    evtimer_del(&connection->deadline);
    callbacks->request(callbacks->context, connection->exchange);
}

// Has the owner decide on the head alone. A body that is not wanted is not read: the start of the next request cannot
// be found then, and the connection closes behind the answer.
static bool admit(struct http_connection *connection, bool has_body)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    set_state(connection, HTTP_ANSWERING);
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
        refuse(connection, status, err.text);
        return;
    }
    set_state(connection, HTTP_BODY);
    connection->chunks = (struct http_chunks){ 0 };
    connection->body_taken = 0;
    set_deadline(connection, limits->body_seconds);
    if (head->expects_continue && head->minor == 1 && !connection->input.len)
        strbuf_add_text(&connection->output, "HTTP/1.1 100 Continue\r\n\r\n");
}

// The head of `length` bytes stands at the front of the input.
static void take_head(struct http_connection *connection, size_t length)
{
    struct http_exchange *exchange = connection->exchange = exchange_open(connection);
    struct error err;
    exchange->head_text = memory_new(length, 1);
    memcpy(exchange->head_text, connection->input.data, length);
    consume(connection, length);
    const struct http_head *head = &exchange->head;
    int status = http_parse_head((struct bytes){ exchange->head_text, length }, &exchange->head, &err);
    struct bytes id = http_head_field(head, "X-Request-Id");
    if (request_id_is_sane(id))
        snprintf(exchange->request_id, sizeof exchange->request_id, "%.*s", (int)id.len, id.data);
    bool has_body = head->length || head->chunked;
    if (status)
        refuse(connection, status, err.text);
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
        consume(connection, count);
}

// false: more bytes are needed first.
static bool find_head(struct http_connection *connection)
{
    const struct http_limits *limits = &connection->server->limits;
    skip_empty_lines(connection);
    if (!connection->input.len)
        return false;
    if (connection->state == HTTP_IDLE) {
        set_state(connection, HTTP_HEAD);
        if (connection->known) // the first one's time runs since the connection was accepted
            set_deadline(connection, limits->head_seconds);
    }
    struct bytes in = strbuf_bytes(&connection->input);
    size_t length = http_head_length(in, &connection->scanned);
    struct error err;
    if (!http_is_token_byte(in.data[0]) && !(in.len == 1 && in.data[0] == '\r')) {
        refuse(connection, 400, "what came is not HTTP; this server speaks http:// and not https://");
    } else if (length > limits->head_bytes || (!length && in.len >= limits->head_bytes)) {
        fail(&err, "the request line and headers take more than %zu bytes", limits->head_bytes);
        refuse(connection, 431, err.text);
    } else if (length) {
        take_head(connection, length);
    } else {
        return false;
    }
    return true;
}

// 0, or the status of a refusal.
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
static bool take_body(struct http_connection *connection)
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
    consume(connection, connection->input.len - in.len);
    if (!status && done)
        status = http_content_end(&exchange->content, &err);
    if (status)
        refuse(connection, status, err.text);
    else if (done)
        give_request(connection);
    return status || done;
}

// ---- receiving ----------------------------------------------------------------------------------------------------

// How much more input the state has a use for.
static size_t room(const struct http_connection *connection)
{
    size_t most = connection->state == HTTP_IDLE || connection->state == HTTP_HEAD
        ? connection->server->limits.head_bytes
        : AHEAD_BYTES_MAX;
    size_t has = connection->input.len;
    size_t more = has < most ? most - has : 0;
    return more < READ_BYTES ? more : READ_BYTES;
}

static bool hung_up(int fd)
{
    struct pollfd socket = { .fd = fd, .events = POLLRDHUP };
    return poll(&socket, 1, 0) > 0;
}

// A client that ends its side while it waits for an answer is taken to have left: most that do have, and a stream to
// nobody would cost the others. (One that only shuts down its sending side, as `nc -N` does, gets the answers that are
// given at once and no others.)
static enum progress receive(struct http_connection *connection)
{
    size_t size = room(connection);
    if (!connection->readable)
        return PROGRESS_WAIT;
    if (!size) // too much was sent ahead, and its end cannot be read before the rest
        return connection->state == HTTP_ANSWERING && hung_up(connection->fd) ? PROGRESS_OVER : PROGRESS_WAIT;
    char bytes[READ_BYTES];
    ssize_t count = recv(connection->fd, bytes, size, 0);
    if (count > 0) {
        strbuf_add(&connection->input, bytes, (size_t)count);
        if (connection->state == HTTP_BODY)
            join_idle_queue(connection);
        return PROGRESS_MORE;
    }
    if (count == 0)
        return connection->state == HTTP_SENDING ? PROGRESS_WAIT : PROGRESS_OVER;
    if (errno == EINTR)
        return PROGRESS_MORE;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return PROGRESS_OVER;
    connection->readable = false;
    return PROGRESS_WAIT;
}

// ---- the machine --------------------------------------------------------------------------------------------------

static enum progress step(struct http_connection *connection)
{
    if (!send_output(connection))
        return PROGRESS_OVER;
    switch (connection->state) {
    case HTTP_IDLE:
    case HTTP_HEAD:
        if (find_head(connection))
            return PROGRESS_MORE;
        break;
    case HTTP_BODY:
        if (take_body(connection))
            return PROGRESS_MORE;
        break;
    case HTTP_ANSWERING:
        if (unsent(connection) > connection->server->limits.unsent_bytes)
            return PROGRESS_OVER;
        notify_sent(connection);
        break;
    case HTTP_SENDING:
        if (unsent(connection))
            break;
        end_answer(connection);
        return PROGRESS_MORE;
    case HTTP_LINGERING:
        connection->discarded += connection->input.len;
        consume(connection, connection->input.len);
        if (connection->discarded > LINGER_BYTES_MAX)
            return PROGRESS_OVER;
        break;
    }
    return receive(connection);
}

static void work(struct http_connection *connection)
{
    enum progress progress = PROGRESS_MORE;
    for (int i = 0; i < STEPS_PER_TURN && progress == PROGRESS_MORE; i++)
        progress = step(connection);
    if (progress == PROGRESS_OVER)
        http_connection_close(connection);
    else if (progress == PROGRESS_MORE)
        http_connection_wake(connection);
}

static void on_io(int fd, short what, void *context)
{
    (void)fd;
    struct http_connection *connection = context;
    connection->readable |= (what & EV_READ) != 0;
    work(connection);
}

static void on_turn(int fd, short what, void *context)
{
    (void)fd, (void)what;
    work(context);
}

static void on_deadline(int fd, short what, void *context)
{
    (void)fd, (void)what;
    struct http_connection *connection = context;
    const struct http_limits *limits = &connection->server->limits;
    bool in_head = connection->state == HTTP_HEAD;
    if (!in_head && connection->state != HTTP_BODY) {
        http_connection_close(connection);
        return;
    }
    struct error err;
    fail(&err, "the request's %s did not come within %g seconds", in_head ? "headers" : "body",
         in_head ? limits->head_seconds : limits->body_seconds);
    refuse(connection, 408, err.text);
    work(connection);
}

// ---- opening and closing ------------------------------------------------------------------------------------------

// Pieces of a stream leave at once, and a client whose machine vanished is noticed. A UNIX socket refuses these
// options, and needs none.
static void set_options(int fd, double send_seconds)
{
    const struct {
        int level, name, value;
    } options[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_SECONDS },
        { IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_ASK_SECONDS },
        { IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_ASKS },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(send_seconds * 1e3) },
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

static int *count_of(struct http_connection *connection)
{
    return connection->surplus ? &connection->server->surplus_count : &connection->server->connection_count;
}

static struct http_connection *connection_new(struct http_server *server, int fd, bool surplus)
{
    struct http_connection *connection = memory_new(1, sizeof *connection);
    *connection = (struct http_connection){ .server = server, .fd = fd, .surplus = surplus };
    connection->next = server->connections;
    connection->link = &server->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    server->connections = connection;
    ++*count_of(connection);
    event_assign(&connection->io, server->base, fd, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_io, connection);
    evtimer_assign(&connection->turn, server->base, on_turn, connection);
    evtimer_assign(&connection->deadline, server->base, on_deadline, connection);
    return connection;
}

void http_connection_open(struct http_server *server, int fd)
{
    struct error err;
    bool surplus = server->connection_count >= server->limits.connections && !http_connection_evict(server);
    if (surplus)
        fail(&err, "all %d connections of this server are in use; try again in a moment", server->limits.connections);
    if (surplus && server->surplus_count >= SURPLUS_MAX) {
        http_connection_turn_away(server, fd, err.text);
        return;
    }
    struct http_connection *connection = connection_new(server, fd, surplus);
    set_options(fd, server->limits.send_seconds);
    set_state(connection, HTTP_IDLE);
    set_deadline(connection, server->limits.head_seconds);
    server->counts.refused += surplus;
    server->failing = event_add(&connection->io, NULL) != 0;
    if (server->failing)
        http_connection_close(connection);
    else if (surplus)
        refuse(connection, 503, err.text);
}

// A request that stays unread would turn the close into a reset, which can overtake the answer.
void http_connection_turn_away(struct http_server *server, int fd, const char *sentence)
{
    char ignored[READ_BYTES];
    struct http_connection *connection = connection_new(server, fd, true);
    server->counts.refused++;
    refuse(connection, 503, sentence);
    (void)!recv(fd, ignored, sizeof ignored, MSG_DONTWAIT);
    http_connection_close(connection);
}

void http_connection_close(struct http_connection *connection)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    (void)send_output(connection);
    if (connection->state == HTTP_ANSWERING) {
        connection->exchange->left = true;
        callbacks->gone(callbacks->context, connection->exchange);
    }
    exchange_close(connection->exchange);
    event_del(&connection->io);
    event_del(&connection->turn);
    event_del(&connection->deadline);
    leave_idle_queue(connection);
    close(connection->fd);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    --*count_of(connection);
    strbuf_free(&connection->input);
    strbuf_free(&connection->output);
    free(connection);
}
