// SPDX-License-Identifier: Apache-2.0
// test/unit/http_site.h: a real server on a loopback port, and clients that are plain sockets in the same thread: they
// take turns with the loop.
#ifndef TEST_HTTP_SITE_H
#define TEST_HTTP_SITE_H

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "server/http.h"

#include <cmocka.h> // last: it has a macro called fail

enum { OPEN_MAX = 8, PATIENCE_MS = 2000 };

// ---- the server: paths say what it does ----

struct site {
    struct event_base *base;
    struct http_server *server;
    int port;
    struct http_exchange *open[OPEN_MAX]; // /later, in order of arrival
    int open_count, gone_count, sent_count;
    int refused;  // the latest status
    int admitted; // heads that were let through
};

static const struct http_limits usual_limits = {
    .connections = 8,
    .head_bytes = 4096,
    .body_bytes = 100000,
    .unsent_bytes = 200000,
    .head_seconds = 5,
    .body_seconds = 5,
    .idle_seconds = 5,
    .send_seconds = 5,
};

// Requests for /secret are answered before their body.
static inline bool on_admit(void *context, struct http_exchange *exchange)
{
    struct site *site = context;
    if (bytes_equal(http_path(exchange), bytes_of("/secret"))) {
        assert_int_equal(http_body(exchange).len, 0);
        http_reply(exchange, 401, "text/plain", bytes_of("no key"));
        return false;
    }
    site->admitted++;
    return true;
}

static inline void on_request(void *context, struct http_exchange *exchange)
{
    struct site *site = context;
    struct bytes path = http_path(exchange), tag = http_header(exchange, "x-tag");
    if (tag.data) {
        char value[32];
        snprintf(value, sizeof value, "%.*s\n!", (int)tag.len, tag.data);
        http_add_header(exchange, "X-Tag", value);
    }
    if (bytes_equal(path, bytes_of("/later"))) {
        assert_true(site->open_count < OPEN_MAX);
        assert_null(http_owner(exchange));
        http_set_owner(exchange, site);
        site->open[site->open_count++] = exchange;
    } else if (bytes_equal(path, bytes_of("/stream"))) {
        http_stream_open(exchange, 200, "text/event-stream");
        http_stream_write(exchange, bytes_of("data: 1\n\n"));
        http_stream_write(exchange, bytes_of(""));
        http_stream_write(exchange, bytes_of("data: 2\n\n"));
        http_stream_close(exchange);
    } else if (bytes_equal(path, bytes_of("/nothing"))) {
        http_reply(exchange, 204, NULL, bytes_of(""));
    } else {
        struct strbuf text = { 0 };
        strbuf_add_format(&text, "%.*s %.*s [%.*s]", (int)http_method(exchange).len, http_method(exchange).data,
                          (int)path.len, path.data, (int)http_body(exchange).len, http_body(exchange).data);
        http_reply(exchange, 200, "text/plain", strbuf_bytes(&text));
        strbuf_free(&text);
    }
}

static inline void on_refuse(void *context, struct http_exchange *exchange, int status, const char *sentence)
{
    struct site *site = context;
    site->refused = status;
    http_reply(exchange, status, "text/plain", bytes_of(sentence));
}

static inline void on_gone(void *context, struct http_exchange *exchange)
{
    struct site *site = context;
    assert_ptr_equal(http_owner(exchange), site);
    site->gone_count++;
    for (int i = 0; i < site->open_count; i++)
        if (site->open[i] == exchange)
            site->open[i] = NULL;
}

static inline void on_sent(void *context, struct http_exchange *exchange)
{
    struct site *site = context;
    assert_ptr_equal(http_owner(exchange), site);
    site->sent_count++;
}

static inline struct site *site_open(const struct http_limits *limits)
{
    struct site *site = calloc(1, sizeof *site);
    struct error err;
    site->base = event_base_new();
    site->server = http_open(site->base, limits,
                             &(struct http_callbacks){ site, on_admit, on_request, on_refuse, on_gone, on_sent });
    if (!http_bind(site->server, "127.0.0.1", 0, &site->port, &err) || !http_listen(site->server, &err))
        fail_msg("%s", err.text);
    return site;
}

static inline void site_close(struct site *site)
{
    http_close(site->server);
    event_base_free(site->base);
    free(site);
}

static inline void turn(struct site *site) { event_base_loop(site->base, EVLOOP_NONBLOCK); }

static inline double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

// Turns the loop until the condition holds.
#define TURN_UNTIL(site, condition)                                     \
    do {                                                                \
        double begin = now_ms();                                        \
        while (!(condition)) {                                          \
            turn(site);                                                 \
            if (now_ms() - begin > PATIENCE_MS)                         \
                fail_msg("line %d waits for %s", __LINE__, #condition); \
        }                                                               \
    } while (0)

// ---- a client ----

struct client {
    struct site *site;
    int fd;
    struct strbuf got;
    bool ended, reset;
};

static inline struct client client_open(struct site *site)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)site->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return (struct client){ .site = site, .fd = fd };
}

static inline struct client client_open_unix(struct site *site, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return (struct client){ .site = site, .fd = fd };
}

static inline void client_close(struct client *client)
{
    close(client->fd);
    strbuf_free(&client->got);
}

// Sends all of it, the loop taking turns where the socket is full. false: the server does not want it.
static inline bool client_send_bytes(struct client *client, struct bytes data)
{
    while (data.len) {
        ssize_t count = send(client->fd, data.data, data.len, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            return false;
        if (count > 0)
            data = (struct bytes){ data.data + count, data.len - (size_t)count };
        else
            turn(client->site);
    }
    return true;
}

static inline void client_send(struct client *client, const char *text)
{
    assert_true(client_send_bytes(client, bytes_of(text)));
}

static inline void client_read(struct client *client)
{
    char bytes[4096];
    ssize_t count;
    while ((count = recv(client->fd, bytes, sizeof bytes, 0)) > 0)
        strbuf_add(&client->got, bytes, (size_t)count);
    client->ended |= count == 0;
    client->reset |= count < 0 && errno != EAGAIN;
}

static inline int occurrences(const struct client *client, const char *text)
{
    int count = 0;
    for (const char *at = strbuf_text(&client->got); (at = strstr(at, text)); at++)
        count++;
    return count;
}

static inline bool client_has(struct client *client, const char *text)
{
    client_read(client);
    return occurrences(client, text) > 0;
}

static inline bool client_ended(struct client *client)
{
    client_read(client);
    return client->ended || client->reset;
}

static inline void await(struct client *client, const char *text)
{
    double begin = now_ms();
    while (!client_has(client, text)) {
        turn(client->site);
        if (now_ms() - begin > PATIENCE_MS)
            fail_msg("waiting for \"%s\", got \"%s\"", text, strbuf_text(&client->got));
    }
}

// The answer comes and the connection ends behind it, without a reset.
static inline void await_refusal(struct client *client, int status)
{
    char line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    await(client, line);
    await(client, "Connection: close\r\n");
    TURN_UNTIL(client->site, client_ended(client));
    assert_false(client->reset);
    if (client->site->refused != status)
        fail_msg("refused with %d, not %d: %s", client->site->refused, status, strbuf_text(&client->got));
}

static inline void client_forget(struct client *client) { strbuf_free(&client->got); }

#endif
