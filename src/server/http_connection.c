// SPDX-License-Identifier: Apache-2.0
// server/http_connection.c: the state machine of a connection: opening, receiving, sending, deadlines and closing.
#include "server/http_connection.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

enum {
    READ_BYTES = 16 << 10,      // at a time
    AHEAD_BYTES_MAX = 16 << 10, // taken of what a client sends before its answer is complete
    STEPS_PER_TURN = 16,        // then it is the others' turn
    SURPLUS_MAX = 64,           // connections that may take their time to read 503; further ones are closed behind it
    LINGER_SECONDS = 2,
    LINGER_BYTES_MAX = 64 << 20, // a client may read the refusal of its body only when it has sent it all
    KEEPALIVE_SECONDS = 30,      // of silence before a client's machine is asked whether it still exists,
    KEEPALIVE_ASK_SECONDS = 10,  // how often it is asked again,
    KEEPALIVE_ASKS = 3,          // and how many times
};

enum progress { PROGRESS_MORE, PROGRESS_WAIT, PROGRESS_OVER };

// ---- its life -----------------------------------------------------------------------------------------------------

struct timeval http_seconds(double seconds)
{
    time_t whole = (time_t)seconds;
    return (struct timeval){ .tv_sec = whole, .tv_usec = (suseconds_t)((seconds - (double)whole) * 1e6) };
}

void http_connection_set_deadline(struct http_connection *connection, double seconds)
{
    struct timeval wait = http_seconds(seconds);
    evtimer_add(&connection->deadline, &wait);
}

void http_connection_wake(struct http_connection *connection)
{
    evtimer_add(&connection->turn, &(struct timeval){ 0 });
}

struct http_exchange *http_exchange_open(struct http_connection *connection)
{
    struct http_exchange *exchange = memory_new(1, sizeof *exchange);
    exchange->connection = connection;
    http_head_clear(&exchange->head);
    request_id_random(exchange->request_id);
    return exchange;
}

void http_exchange_close(struct http_exchange *exchange)
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
    http_exchange_close(connection->exchange);
    connection->exchange = NULL;
    http_connection_set_state(connection, HTTP_SENDING);
    http_connection_wake(connection);
}

// The owner answers at once; then the connection is closed, as the start of the next request cannot be found.
void http_connection_refuse(struct http_connection *connection, int status, const char *sentence)
{
    const struct http_callbacks *callbacks = &connection->server->callbacks;
    if (!connection->exchange)
        connection->exchange = http_exchange_open(connection);
    http_connection_set_state(connection, HTTP_ANSWERING);
    connection->closes = true;
    evtimer_del(&connection->deadline);
    callbacks->refuse(callbacks->context, connection->exchange, status, sentence);
    assert(connection->state == HTTP_SENDING);
}

// ---- sending ------------------------------------------------------------------------------------------------------

static size_t unsent(const struct http_connection *connection) { return connection->output.len - connection->sent; }

// Moves the rest to the front, but only when it is the smaller part, so that moving never costs more than sending did.
static void forget_sent(struct http_connection *connection)
{
    struct strbuf *output = &connection->output;
    if (connection->sent < output->len - connection->sent)
        return;
    output->len -= connection->sent;
    memmove(output->data, output->data + connection->sent, output->len);
    connection->sent = 0;
}

// Sends as much as the socket takes. false: the client is gone.
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
        http_connection_set_deadline(connection, connection->server->limits.send_seconds);
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

// Called when the answer is sent.
static void end_answer(struct http_connection *connection)
{
    strbuf_free(&connection->output);
    if (connection->closes) {
        // Closing now would turn bytes on their way to us into a reset, which can overtake the answer.
        shutdown(connection->fd, SHUT_WR);
        http_connection_set_state(connection, HTTP_LINGERING);
        http_connection_set_deadline(connection, LINGER_SECONDS);
        return;
    }
    if (!connection->input.len)
        strbuf_free(&connection->input);
    connection->known = true;
    http_connection_set_state(connection, HTTP_IDLE);
    http_connection_set_deadline(connection, connection->server->limits.idle_seconds);
}

// ---- receiving ----------------------------------------------------------------------------------------------------

// Returns how many bytes the current state may receive.
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
            http_idle_join(connection);
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
        if (http_request_find_head(connection))
            return PROGRESS_MORE;
        break;
    case HTTP_BODY:
        if (http_request_take_body(connection))
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
        http_connection_consume(connection, connection->input.len);
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
    http_connection_refuse(connection, 408, err.text);
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
    http_connection_set_state(connection, HTTP_IDLE);
    http_connection_set_deadline(connection, server->limits.head_seconds);
    server->counts.refused += surplus;
    server->failing = event_add(&connection->io, NULL) != 0;
    if (server->failing)
        http_connection_close(connection);
    else if (surplus)
        http_connection_refuse(connection, 503, err.text);
}

// A request that stays unread would turn the close into a reset, which can overtake the answer.
void http_connection_turn_away(struct http_server *server, int fd, const char *sentence)
{
    char ignored[READ_BYTES];
    struct http_connection *connection = connection_new(server, fd, true);
    server->counts.refused++;
    http_connection_refuse(connection, 503, sentence);
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
    http_exchange_close(connection->exchange);
    event_del(&connection->io);
    event_del(&connection->turn);
    event_del(&connection->deadline);
    http_idle_leave(connection);
    close(connection->fd);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    --*count_of(connection);
    strbuf_free(&connection->input);
    strbuf_free(&connection->output);
    free(connection);
}
