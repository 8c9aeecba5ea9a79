// SPDX-License-Identifier: Apache-2.0
// The server among clients of all manners: proper ones, old ones, slow ones, broken ones, and those that leave.
#include "http_site.h"

#include <sys/resource.h>
#include <sys/stat.h>

// ---- answers ----

static void test_whole_answers(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client, "GET /a?b HTTP/1.1\r\nHost: x\r\nX-Tag: t\r\n\r\n");
    await(&client, "\r\n\r\nGET /a []");
    assert_true(client_has(&client, "HTTP/1.1 200 OK\r\nDate: "));
    assert_true(client_has(&client, " GMT\r\nContent-Type: text/plain\r\nX-Request-Id: "));
    assert_true(client_has(&client, "\r\nX-Tag: t?!\r\nContent-Length: 9\r\n\r\n"));
    assert_false(client_has(&client, "Connection:"));
    client_forget(&client);
    client_send(&client, "\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"); // the same connection
    await(&client, "POST /b [hello]");
    client_forget(&client);
    client_send(&client, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "HTTP/1.1 204 No Content\r\n");
    await(&client, "\r\n\r\n");
    assert_false(client_has(&client, "Content-Length"));
    assert_int_equal(http_connections(site->server), 1);
    client_close(&client);
    TURN_UNTIL(site, http_connections(site->server) == 0);
    assert_int_equal(site->gone_count, 0);
    site_close(site);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    for (const char *c = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "2\r\nab\r\n1;x\r\nc\r\n0\r\nT: 1\r\n\r\n"
                         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\ndef";
         *c; c++) {
        client_send(&client, (char[]){ *c, '\0' });
        turn(site);
    }
    await(&client, "POST / [def]");
    assert_true(client_has(&client, "POST / [abc]"));
    client_close(&client);
    site_close(site);
}

static void test_pipelining(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client,
                "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
                "POST /later HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
                "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
                "GET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /1 []");
    TURN_UNTIL(site, site->open_count == 1);
    for (int i = 0; i < 5; i++)
        turn(site);
    assert_false(client_has(&client, "data: "));
    http_reply(site->open[0], 200, "text/plain", bytes_of("late"));
    await(&client, "GET /4 []");
    const char *text = client.got.data;
    assert_true(strstr(text, "GET /1 []") < strstr(text, "late"));
    assert_true(strstr(text, "late") < strstr(text, "data: 1"));
    assert_true(strstr(text, "data: 1") < strstr(text, "GET /4 []"));
    assert_non_null(strstr(text, "\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\nHTTP/1.1"));
    TURN_UNTIL(site, client_ended(&client));
    assert_false(client.reset);
    assert_int_equal(occurrences(&client, "HTTP/1.1 200 OK"), 4);
    client_close(&client);
    site_close(site);
}

static void test_stream(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    struct http_exchange *exchange = site->open[0];
    assert_true(http_sending(site->server));
    http_stream_open(exchange, 200, "text/event-stream");
    await(&client, "\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_true(client_has(&client, "Content-Type: text/event-stream\r\n"));
    client_forget(&client);
    http_stream_write(exchange, bytes_of("0123456789"));
    await(&client, "a\r\n0123456789\r\n");
    http_stream_write(exchange, bytes_of("x"));
    http_stream_write(exchange, bytes_of("y"));
    http_stream_close(exchange);
    assert_true(http_sending(site->server)); // until the last byte
    await(&client, "1\r\nx\r\n1\r\ny\r\n0\r\n\r\n");
    assert_false(http_sending(site->server));
    client_forget(&client);
    client_send(&client, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /again []");
    client_close(&client);
    site_close(site);
}

static void test_head(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client,
                "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n"
                "GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    await(&client, "GET /end []");
    assert_true(client_has(&client, "Content-Length: 12\r\n\r\nHTTP/1.1 200 OK\r\n"));
    assert_true(client_has(&client, "Transfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n"));
    client_close(&client);
    site_close(site);
}

static void test_http_1_0(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    await(&client, "GET /a []");
    assert_true(client_has(&client, "Connection: keep-alive\r\n"));
    client_forget(&client);
    client_send(&client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); // only the close can end it
    TURN_UNTIL(site, client_ended(&client));
    assert_true(client_has(&client, "Connection: close\r\n\r\ndata: 1\n\ndata: 2\n\n"));
    assert_false(client.reset);
    client_close(&client);
    TURN_UNTIL(site, http_connections(site->server) == 0);
    client = client_open(site);
    client_send(&client, "GET /b HTTP/1.0\n\n");
    await(&client, "GET /b []");
    TURN_UNTIL(site, client_ended(&client));
    client_close(&client);
    site_close(site);
}

static void test_expect(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    await(&client, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(&client, "ok");
    await(&client, "POST / [ok]");
    client_forget(&client);
    client_send(&client,
                "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok"
                "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100001\r\n\r\n");
    await_refusal(&client, 413);
    assert_false(client_has(&client, "100 Continue"));
    client_close(&client);
    site_close(site);
}

// An answer larger than any socket buffer arrives whole, although a stream of that size might not.
static void test_large_answer(void **state)
{
    (void)state;
    enum { LARGE = 8 << 20 };
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    char *body = malloc(LARGE);
    memset(body, 'x', LARGE - 1);
    body[LARGE - 1] = '!';
    client_send(&client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    http_reply(site->open[0], 200, "text/plain", (struct bytes){ body, LARGE });
    turn(site);
    shutdown(client.fd, SHUT_WR); // it has said all and still reads
    for (int i = 0; i < 5; i++)
        turn(site);
    TURN_UNTIL(site, (client_read(&client), client.got.len > LARGE));
    assert_int_equal(client.got.data[client.got.len - 1], '!');
    free(body);
    client_close(&client);
    site_close(site);
}

// ---- clients that leave ----

static void leave(struct client *client, bool abruptly)
{
    struct linger linger = { .l_onoff = abruptly };
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    client_close(client);
}

static void test_leaving_is_noticed(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        bool abruptly = way & 1, streams = way & 2, sent_ahead = way & 4;
        struct site *site = site_open(&usual_limits);
        struct client client = client_open(site);
        client_send(&client, "POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
        TURN_UNTIL(site, site->open_count == 1);
        if (streams)
            http_stream_open(site->open[0], 200, "text/plain");
        if (sent_ahead) { // more than is taken before the answer
            char ahead[40000];
            memset(ahead, '\n', sizeof ahead);
            assert_true(client_send_bytes(&client, (struct bytes){ ahead, sizeof ahead }));
            for (int i = 0; i < 5; i++)
                turn(site);
        }
        turn(site);
        leave(&client, abruptly);
        turn(site);
        assert_int_equal(site->gone_count, 1);
        assert_int_equal(http_connections(site->server), 0);
        site_close(site);
    }
}

// Its request and its end come together: what is answered at once arrives, what takes its time is given up.
static void test_half_close(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    client_send(&client, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client.fd, SHUT_WR);
    await(&client, "GET /2 []");
    TURN_UNTIL(site, client_ended(&client));
    assert_true(client_has(&client, "GET /1 []"));
    assert_false(client.reset);
    client_close(&client);
    client = client_open(site);
    client_send(&client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client.fd, SHUT_WR);
    TURN_UNTIL(site, site->gone_count == 1);
    client_close(&client);
    site_close(site);
}

static void test_half_requests(void **state)
{
    (void)state;
    static const char *const halves[] = { "",
                                          "GE",
                                          "GET / HTTP/1.1\r\nHost: x\r\n",
                                          "\r",
                                          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
                                          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na" };
    struct site *site = site_open(&usual_limits);
    for (size_t i = 0; i < 2 * sizeof halves / sizeof *halves; i++) {
        struct client client = client_open(site);
        client_send(&client, halves[i / 2]);
        TURN_UNTIL(site, http_connections(site->server) == 1);
        turn(site);
        leave(&client, i % 2);
        TURN_UNTIL(site, http_connections(site->server) == 0);
    }
    assert_int_equal(site->gone_count + site->open_count + site->refused, 0);
    site_close(site);
}

static void test_close_with_open_exchanges(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client clients[5];
    for (int i = 0; i < 5; i++) {
        clients[i] = client_open(site);
        client_send(&clients[i], i < 4 ? "GET /later HTTP/1.1\r\nHost: x\r\n\r\n" : "GET /la");
    }
    TURN_UNTIL(site, site->open_count == 4);
    http_stream_open(site->open[1], 200, "text/plain");
    http_stream_write(site->open[1], bytes_of("begun"));
    http_reply(site->open[2], 200, "text/plain", bytes_of("just in time"));
    http_close(site->server);
    assert_int_equal(site->gone_count, 3);
    for (int i = 0; i < 5; i++)
        assert_true(client_ended(&clients[i]));
    assert_true(client_has(&clients[2], "just in time"));
    for (int i = 0; i < 5; i++)
        client_close(&clients[i]);
    event_base_free(site->base);
    free(site);
}

// ---- limits ----

static void test_slow_head(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.head_seconds = 0.12;
    struct site *site = site_open(&limits);
    struct client client = client_open(site);
    double begin = now_ms();
    const char *c = "GET / HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaa";
    for (; *c && !site->refused; c++) { // each byte comes in time, the whole would take four times too long
        client_send(&client, (char[]){ *c, '\0' });
        for (double next = now_ms() + 10; now_ms() < next && !site->refused;)
            turn(site);
    }
    assert_true(*c && now_ms() - begin > 100);
    await_refusal(&client, 408);
    client_close(&client);
    site_close(site);
}

static void test_slow_body(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.body_seconds = 0.1;
    struct site *site = site_open(&limits);
    struct client client = client_open(site);
    client_send(&client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
    double begin = now_ms();
    await_refusal(&client, 408);
    assert_true(now_ms() - begin > 80);
    assert_true(client_has(&client, "body did not come within 0.1 seconds"));
    client_close(&client);
    site_close(site);
}

static void test_idle(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.idle_seconds = limits.head_seconds = 0.1; // the latter from accept on
    struct site *site = site_open(&limits);
    struct client silent = client_open(site), quiet = client_open(site);
    client_send(&quiet, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&quiet, "GET /a []");
    client_forget(&quiet);
    TURN_UNTIL(site, client_ended(&silent) && client_ended(&quiet));
    assert_int_equal(silent.got.len + quiet.got.len, 0);
    assert_int_equal(http_connections(site->server), 0);
    client_close(&silent);
    client_close(&quiet);
    site_close(site);
}

static void test_head_limits(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    for (int way = 0; way < 3; way++) { // one long line, a whole head too long, too many lines
        struct client client = client_open(site);
        struct strbuf text = { 0 };
        strbuf_add_text(&text, "GET / HTTP/1.1\r\nHost: x\r\nX: ");
        while (way < 2 && text.len < (way == 0 ? 1 << 20 : 5000))
            strbuf_add_byte(&text, 'x');
        strbuf_add_text(&text, "\r\n");
        for (int i = 0; way == 2 && i < 100; i++)
            strbuf_add_text(&text, "A:\r\n");
        if (way > 0)
            strbuf_add_text(&text, "\r\n");
        site->refused = 0;
        client_send_bytes(&client, strbuf_bytes(&text));
        await_refusal(&client, 431);
        strbuf_free(&text);
        client_close(&client);
    }
    site_close(site);
}

static void test_body_limits(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "Content-Length: 100001\r\n\r\n",
        "Content-Length: 99999999999999999999999\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n186a1\r\n",
        "Transfer-Encoding: chunked\r\n\r\n186a0\r\n",
    };
    struct site *site = site_open(&usual_limits);
    char *body = malloc(100000);
    memset(body, 'b', 100000);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct client client = client_open(site);
        site->refused = 0;
        client_send(&client, "POST / HTTP/1.1\r\nHost: x\r\n");
        client_send(&client, heads[i]);
        if (i < 3) // before a byte of it has come
            TURN_UNTIL(site, site->refused);
        client_send_bytes(&client, (struct bytes){ body, 100000 }); // the whole, although it is not wanted
        client_send_bytes(&client, bytes_of("\r\n1\r\nb\r\n"));
        await_refusal(&client, 413);
        client_close(&client);
    }
    struct client client = client_open(site); // what is just allowed
    client_send(&client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n");
    client_send_bytes(&client, (struct bytes){ body, 100000 });
    client_send(&client, "\r\n0\r\n\r\n");
    await(&client, "bbb]");
    client_close(&client);
    free(body);
    site_close(site);
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        int status;
        struct bytes text;
    } cases[] = {
#define CASE(status, text)                \
    {                                     \
        status, { text, sizeof text - 1 } \
    }
        CASE(400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), // TLS
        CASE(400, "\0\0\0\0"),
        CASE(400, "\rx"),
        CASE(400, "hello\n\n"),
        CASE(505, "GET / HTTP/3.0\r\n\r\n"),
        CASE(501, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
        CASE(400, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        CASE(400, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\x80\x80"),
    };
    struct site *site = site_open(&usual_limits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client client = client_open(site);
        client_send_bytes(&client, cases[i].text);
        site->refused = 0;
        await_refusal(&client, cases[i].status);
        client_close(&client);
    }
    site_close(site);
}

static void test_too_many_connections(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.connections = 2;
    struct site *site = site_open(&limits);
    struct client first = client_open(site), second = client_open(site);
    client_send(&first, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    client_send(&second, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 2);
    struct client third = client_open(site);
    client_send(&third, "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
    await_refusal(&third, 503);
    assert_int_equal(http_connections(site->server), 2);
    assert_int_equal(http_counts(site->server).refused, 1);
    http_reply(site->open[1], 200, "text/plain", bytes_of("two"));
    await(&second, "two");
    client_close(&first);
    client_close(&third);
    TURN_UNTIL(site, http_connections(site->server) == 1);
    third = client_open(site);
    client_send(&third, "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&third, "GET /3 []");
    client_close(&second);
    client_close(&third);
    site_close(site);
}

static void test_client_that_does_not_read(void **state)
{
    (void)state;
    static char piece[100000];
    char path[64];
    snprintf(path, sizeof path, "/tmp/nibble_http_test.%d", (int)getpid());
    memset(piece, 'p', sizeof piece);
    struct http_limits limits = usual_limits;
    for (int way = 0; way < 2; way++) { // too much waits for it, or for too long
        limits.unsent_bytes = way == 0 ? 200000 : SIZE_MAX;
        limits.send_seconds = way == 0 ? 5 : 0.1;
        struct site *site = site_open(&limits);
        struct error err;
        assert_true(http_bind_unix(site->server, path, &err) && http_listen(site->server, &err));
        // TCP would have a timeout of its own.
        struct client client = way == 0 ? client_open(site) : client_open_unix(site, path);
        client_send(&client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
        TURN_UNTIL(site, site->open_count == 1);
        http_stream_open(site->open[0], 200, "text/plain");
        for (int i = 0; i < 200 && site->open[0]; i++) { // more than the system's buffers hold
            http_stream_write(site->open[0], (struct bytes){ piece, sizeof piece });
            turn(site);
        }
        TURN_UNTIL(site, site->gone_count == 1);
        assert_int_equal(http_connections(site->server), 0);
        client_close(&client);
        site_close(site);
    }
}

// A system that has no more descriptors: who comes is told so, the loop does not spin, and it accepts again once there
// are some.
static void test_no_descriptors(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site); // waits in the backlog
    struct rlimit usual, tight;
    getrlimit(RLIMIT_NOFILE, &usual);
    tight = usual;
    tight.rlim_cur = (rlim_t)client.fd;
    setrlimit(RLIMIT_NOFILE, &tight);
    await_refusal(&client, 503);
    assert_int_equal(http_connections(site->server), 0);
    assert_int_equal(event_base_get_num_events(site->base, EVENT_BASE_COUNT_ADDED), 1); // the moment's rest alone
    setrlimit(RLIMIT_NOFILE, &usual);
    client_close(&client);
    client = client_open(site);
    client_send(&client, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /a []");
    client_close(&client);
    site_close(site);
}

// ---- addresses ----

static void test_ports(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct error err;
    char want[160];
    int bound;
    snprintf(want, sizeof want,
             "port %d on 127.0.0.1 is already in use, perhaps by another nibble serve; stop it or "
             "choose another with --port",
             site->port);
    assert_false(http_bind(site->server, "127.0.0.1", site->port, &bound, &err));
    assert_string_equal(err.text, want);
    assert_false(http_bind(site->server, "203.0.113.7", 0, &bound, &err));
    assert_non_null(strstr(err.text, "203.0.113.7 is not an address of this machine"));
    assert_false(http_bind(site->server, "no such host", 0, &bound, &err));
    assert_non_null(strstr(err.text, "\"no such host\" cannot be found"));
    assert_true(http_bind(site->server, "localhost", 0, &bound, &err) && http_listen(site->server, &err));
    assert_true(bound > 0 && bound != site->port);
    site->port = bound;
    struct client client = client_open(site);
    client_send(&client, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /local []");
    client_close(&client);
    site_close(site);
}

// Bound and not listening: refused to clients and to other servers, whatever an earlier server left in TIME_WAIT.
static void test_bound_before_it_listens(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits), *second = site_open(&usual_limits);
    struct error err;
    int port, bound;
    for (int round = 0; round < 2; round++) {
        assert_true(http_bind(site->server, "127.0.0.1", round ? port : 0, &port, &err));
        assert_false(http_bind(second->server, "127.0.0.1", port, &bound, &err));
        assert_non_null(strstr(err.text, "is already in use"));
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)port),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), -1);
        assert_int_equal(errno, ECONNREFUSED);
        close(fd);
        assert_true(http_listen(site->server, &err));
        site->port = port;
        struct client client = client_open(site);
        client_send(&client, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); // TIME_WAIT is the server's
        TURN_UNTIL(site, client_ended(&client));
        client_close(&client);
        site_close(site);
        site = site_open(&usual_limits);
    }
    site_close(site);
    site_close(second);
}

static void test_unix_socket(void **state)
{
    (void)state;
    char folder[] = "/tmp/nibble_http_XXXXXX", path[64], other[64], long_path[200];
    struct error err;
    struct stat file;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(other, sizeof other, "%s/absent/socket", folder);
    snprintf(long_path, sizeof long_path, "%s/%0150d", folder, 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path, path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&address, sizeof address), 0);
    close(stale); // its file stays

    struct site *site = site_open(&usual_limits), *second = site_open(&usual_limits);
    assert_true(http_bind_unix(site->server, path, &err));
    assert_false(http_bind_unix(second->server, path, &err)); // taken, although nobody listens yet
    assert_true(http_listen(site->server, &err));
    struct client client = client_open_unix(site, path);
    client_send(&client, "GET /unix HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /unix []");
    client_forget(&client);
    client_send(&client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    client_close(&client);
    turn(site);
    assert_int_equal(site->gone_count, 1);

    assert_false(http_bind_unix(second->server, path, &err));
    assert_non_null(strstr(err.text, "is already in use, perhaps by another nibble serve"));
    assert_false(http_bind_unix(second->server, folder, &err));
    assert_non_null(strstr(err.text, "exists and is not a socket"));
    assert_false(http_bind_unix(second->server, other, &err));
    assert_non_null(strstr(err.text, "No such file"));
    assert_false(http_bind_unix(second->server, long_path, &err));
    assert_non_null(strstr(err.text, "1 to 107 are possible"));
    site_close(site);
    assert_int_not_equal(lstat(path, &file), 0);

    site = site_open(&usual_limits); // a file that has become another server's is left to it
    assert_true(http_bind_unix(site->server, path, &err));
    assert_int_equal(unlink(path), 0);
    assert_true(http_bind_unix(second->server, path, &err));
    site_close(site);
    assert_int_equal(lstat(path, &file), 0);
    site_close(second);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_http_1_0),
        cmocka_unit_test(test_expect),
        cmocka_unit_test(test_large_answer),
        cmocka_unit_test(test_leaving_is_noticed),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_half_requests),
        cmocka_unit_test(test_close_with_open_exchanges),
        cmocka_unit_test(test_slow_head),
        cmocka_unit_test(test_slow_body),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_head_limits),
        cmocka_unit_test(test_body_limits),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_bound_before_it_listens),
        cmocka_unit_test(test_unix_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
