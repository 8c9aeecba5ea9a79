// SPDX-License-Identifier: Apache-2.0
// Admission of requests: heads before bodies, compressed bodies within their limit, bodies within the budget, and new
// connections when all are in use.
#include "http_site.h"

#include <zlib.h>
#include <zstd.h>

#include "server/budget.h"

// ---- heads ----

static void test_answered_on_the_head(void **state)
{
    (void)state;
    static const char *const heads[] = { "Content-Length: 90000\r\n\r\n",
                                         "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
                                         "Content-Length: 99999999\r\n\r\n", // who may not ask is not told the limits
                                         "Content-Encoding: br\r\nContent-Length: 2\r\n\r\n",
                                         "Transfer-Encoding: chunked\r\n\r\n" };
    struct site *site = site_open(&usual_limits);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct client client = client_open(site);
        client_send(&client, "POST /secret HTTP/1.1\r\nHost: x\r\n");
        client_send(&client, heads[i]);
        await(&client, "HTTP/1.1 401 Unauthorized\r\n"); // no byte of the body was sent
        TURN_UNTIL(site, client_ended(&client));
        assert_true(client_has(&client, "Connection: close\r\n"));
        assert_false(client_has(&client, "100 Continue"));
        client_close(&client);
    }
    struct client client = client_open(site); // without a body the connection stays
    client_send(&client, "GET /secret HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /a []");
    assert_true(client_has(&client, "401 Unauthorized"));
    assert_int_equal(site->admitted, 1);
    assert_int_equal(site->refused, 0);
    client_close(&client);
    site_close(site);
}

static void test_request_ids(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        bool kept;
    } cases[] = {
        { "abc-1_2.3:4/5+6=7@8", true }, { "a b", false }, { "a\"b", false }, { "", false }, { "\xe4", false }
    };
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[128];
        client_forget(&client);
        client_send(&client, "GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: ");
        client_send(&client, cases[i].given);
        client_send(&client, "\r\n\r\n");
        await(&client, "GET /a []");
        snprintf(want, sizeof want, "\r\nX-Request-Id: %s\r\n", cases[i].given);
        assert_int_equal(client_has(&client, want), cases[i].kept);
        const char *id = strstr(client.got.data, "\r\nX-Request-Id: ");
        assert_non_null(id);
        assert_true(cases[i].kept || strcspn(id + 16, "\r") == 32);
    }
    client_forget(&client);
    char long_id[200];
    memset(long_id, 'x', sizeof long_id);
    long_id[129] = '\0';
    client_send(&client, "GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: ");
    client_send(&client, long_id);
    client_send(&client, "\r\n\r\n");
    await(&client, "GET /a []");
    assert_false(client_has(&client, "xxxx"));
    client_forget(&client);
    client_send(&client, "what is not HTTP\r\n\r\n"); // errors have one, too
    await_refusal(&client, 400);
    assert_true(client_has(&client, "\r\nX-Request-Id: "));
    client_close(&client);
    site_close(site);
}

// ---- compressed bodies ----

static struct bytes gzipped(struct bytes text, char *out, size_t size)
{
    z_stream stream = { 0 };
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (unsigned char *)text.data;
    stream.avail_in = (unsigned)text.len;
    stream.next_out = (unsigned char *)out;
    stream.avail_out = (unsigned)size;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return (struct bytes){ out, size - stream.avail_out };
}

static struct bytes zstandard(struct bytes text, char *out, size_t size)
{
    size_t len = ZSTD_compress(out, size, text.data, text.len, 9);
    assert_false(ZSTD_isError(len));
    return (struct bytes){ out, len };
}

static const struct {
    const char *name;
    struct bytes (*compress)(struct bytes text, char *out, size_t size);
} codings[] = { { "gzip", gzipped }, { "X-GZIP", gzipped }, { "zstd", zstandard } };

static void send_coded(struct client *client, const char *coding, struct bytes body, bool chunked)
{
    struct strbuf text = { 0 };
    strbuf_add_format(&text, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Encoding: %s\r\n", coding);
    if (!chunked) {
        strbuf_add_format(&text, "Content-Length: %zu\r\n\r\n", body.len);
        strbuf_add(&text, body.data, body.len);
    } else {
        strbuf_add_text(&text, "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t i = 0; i < body.len; i++) {
            strbuf_add_text(&text, "1\r\n");
            strbuf_add(&text, body.data + i, 1);
            strbuf_add_text(&text, "\r\n");
        }
        strbuf_add_text(&text, "0\r\n\r\n");
    }
    client_send_bytes(client, strbuf_bytes(&text));
    strbuf_free(&text);
}

static void test_compressed_bodies(void **state)
{
    (void)state;
    struct budget budget;
    budget_open(&budget, 1 << 20);
    struct http_limits limits = usual_limits;
    limits.budget = &budget;
    struct site *site = site_open(&limits);
    char out[1024];
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)
        for (int way = 0; way < 3; way++) { // at once, byte by byte, and two streams one behind the other
            struct client client = client_open(site);
            struct bytes body = codings[i].compress(bytes_of("{\"prompt\": \"Hello\"}"), out, sizeof out / 2);
            if (way == 2)
                body.len += codings[i].compress(bytes_of(" and more"), out + body.len, sizeof out - body.len).len;
            send_coded(&client, codings[i].name, body, way == 1);
            await(&client,
                  way == 2 ? "POST /b [{\"prompt\": \"Hello\"} and more]" : "POST /b [{\"prompt\": \"Hello\"}]");
            client_close(&client);
        }
    TURN_UNTIL(site, http_connections(site->server) == 0);
    assert_int_equal(budget_used(&budget), 0);
    site_close(site);
}

// A body that is small and would be huge is refused when it passes the limit, and has taken no more than that.
static void test_bombs(void **state)
{
    (void)state;
    enum { HUGE_BYTES = 64 << 20, ROOM = 1 << 20 };
    struct budget budget;
    budget_open(&budget, 16 << 20);           // zstd's window is charged, too
    struct http_limits limits = usual_limits; // 100,000 bytes of body
    limits.budget = &budget;
    struct site *site = site_open(&limits);
    char *text = malloc(HUGE_BYTES), *out = malloc(ROOM);
    memset(text, 'z', HUGE_BYTES);
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)
        for (int just = 0; just < 2; just++) {
            struct client client = client_open(site);
            struct bytes body = codings[i].compress((struct bytes){ text, just ? 100000 : HUGE_BYTES }, out, ROOM);
            assert_true(body.len < limits.body_bytes);
            site->refused = 0;
            send_coded(&client, codings[i].name, body, false);
            if (just)
                TURN_UNTIL(site, (client_read(&client), client.got.len > 100000));
            else
                await_refusal(&client, 413);
            client_close(&client);
            TURN_UNTIL(site, http_connections(site->server) == 0);
            assert_int_equal(budget_used(&budget), 0);
        }
    free(text);
    free(out);
    site_close(site);
}

static void test_bad_codings(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    char out[1024];
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        struct bytes body = codings[i].compress(bytes_of("{\"prompt\": \"Hello\"}"), out, sizeof out);
        const struct bytes wrong[] = { bytes_of("{\"prompt\": 1}"), { out, body.len - 1 }, { out, 1 } };
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
            struct client client = client_open(site);
            send_coded(&client, codings[i].name, wrong[j], false);
            await_refusal(&client, 400);
            client_close(&client);
        }
    }
    static const char *const unknown[] = { "br", "gzip, zstd", "deflate" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct client client = client_open(site);
        send_coded(&client, unknown[i], bytes_of("x"), false);
        await_refusal(&client, 415);
        assert_true(client_has(&client, "\r\nAccept-Encoding: gzip, zstd\r\n"));
        client_close(&client);
    }
    struct client client = client_open(site);
    send_coded(&client, "identity", bytes_of("as it is"), false);
    await(&client, "POST /b [as it is]");
    client_close(&client);
    site_close(site);
}

// ---- the budget ----

static void test_budget(void **state)
{
    (void)state;
    struct budget budget;
    budget_open(&budget, 60000);
    struct http_limits limits = usual_limits;
    limits.budget = &budget;
    struct site *site = site_open(&limits);
    char body[50000];
    memset(body, 'b', sizeof body);
    struct client first = client_open(site), second = client_open(site);
    client_send(&first, "POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n");
    for (int i = 0; i < 5; i++)
        turn(site);
    assert_int_equal(budget_used(&budget), 0); // announced is not sent
    client_send_bytes(&first, (struct bytes){ body, sizeof body });
    TURN_UNTIL(site, site->open_count == 1);
    size_t used = budget_used(&budget);
    assert_true(used >= 50000 && used < 51000);
    client_send(&second, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    await_refusal(&second, 429); // on its head
    client_close(&second);
    second = client_open(site);
    client_send(&second, "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n");
    client_send_bytes(&second, (struct bytes){ body, 20000 });
    await_refusal(&second, 429); // when it has grown too much
    client_close(&second);
    size_t charge;
    struct strbuf taken = http_take_body(site->open[0], &charge);
    assert_int_equal(charge, used);
    assert_int_equal(taken.len, sizeof body);
    assert_int_equal(http_body(site->open[0]).len, 0);
    http_reply(site->open[0], 200, "text/plain", bytes_of("done"));
    await(&first, "done");
    assert_int_equal(budget_used(&budget), charge); // the owner of the body gives it back
    budget_give_back(&budget, charge);
    strbuf_free(&taken);
    client_send(&first, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
    TURN_UNTIL(site, budget_used(&budget) > 0);
    client_close(&first);
    TURN_UNTIL(site, http_connections(site->server) == 0);
    assert_int_equal(budget_used(&budget), 0);
    site_close(site);
}

// ---- connections ----

// The longest idle one gives way: first of those that never asked anything, then of the others.
static void test_idle_connections_give_way(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.connections = 3;
    struct site *site = site_open(&limits);
    struct client regular = client_open(site);
    client_send(&regular, "GET /regular HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&regular, "GET /regular []");
    struct client silent = client_open(site), slow = client_open(site);
    client_send(&slow, "GET /sl");
    TURN_UNTIL(site, http_connections(site->server) == 3);
    for (int i = 0; i < 5; i++)
        turn(site);
    struct client fourth = client_open(site);
    client_send(&fourth, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    assert_true(client_ended(&silent));
    assert_false(client_ended(&slow) || client_ended(&regular));
    struct client fifth = client_open(site);
    client_send(&fifth, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 2);
    assert_true(client_ended(&slow));
    assert_false(client_ended(&regular));
    struct client sixth = client_open(site);
    client_send(&sixth, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 3);
    assert_true(client_ended(&regular));
    assert_int_equal(http_counts(site->server).evicted, 3);
    assert_int_equal(http_connections(site->server), 3);
    struct client *const all[] = { &regular, &silent, &slow, &fourth, &fifth, &sixth };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        client_close(all[i]);
    site_close(site);
}

// A body that was announced and does not come holds no place that others need, but one that comes does.
static void test_stalled_bodies_give_way(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.connections = 2;
    struct site *site = site_open(&limits);
    struct client stalled = client_open(site), steady = client_open(site);
    client_send(&stalled, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    client_send(&steady, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    TURN_UNTIL(site, site->admitted == 2);
    for (double begin = now_ms(); now_ms() - begin < 600;)
        turn(site);
    client_send(&steady, "some");
    for (int i = 0; i < 5; i++)
        turn(site);
    struct client third = client_open(site);
    client_send(&third, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    assert_true(client_ended(&stalled));
    assert_false(client_ended(&steady));
    assert_int_equal(site->gone_count, 0);
    client_close(&stalled);
    client_close(&steady);
    client_close(&third);
    site_close(site);
}

// Requests that come all at once: those beyond the limit are told so, and none of the others is taken for idle.
static void test_a_burst(void **state)
{
    (void)state;
    enum { BURST = 6, CONNECTIONS = 4 };
    struct http_limits limits = usual_limits;
    limits.connections = CONNECTIONS;
    struct site *site = site_open(&limits);
    struct client clients[BURST];
    for (int i = 0; i < BURST; i++) {
        clients[i] = client_open(site);
        client_send(&clients[i], "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for (int i = 0; i < BURST; i++)
        await(&clients[i], i < CONNECTIONS ? "GET /a []" : "HTTP/1.1 503 ");
    assert_int_equal(http_counts(site->server).evicted, 0);
    for (int i = 0; i < BURST; i++)
        client_close(&clients[i]);
    site_close(site);
}

// The time for the first headers runs from accept on, whether a byte comes or not: who came first ends first, although
// his first byte is the last to come.
static void test_header_time_from_accept(void **state)
{
    (void)state;
    struct http_limits limits = usual_limits;
    limits.head_seconds = 0.4;
    limits.idle_seconds = 100;
    struct site *site = site_open(&limits);
    struct client silent = client_open(site), first = client_open(site);
    TURN_UNTIL(site, http_connections(site->server) == 2);
    for (double begin = now_ms(); now_ms() - begin < 200;)
        turn(site);
    struct client second = client_open(site);
    client_send(&second, "GET /s");
    TURN_UNTIL(site, http_connections(site->server) == 3);
    turn(site);
    client_send(&first, "GET /f");
    TURN_UNTIL(site, client_has(&second, "HTTP/1.1 408 "));
    assert_true(client_ended(&silent));
    assert_int_equal(silent.got.len, 0);
    assert_true(client_has(&first, "HTTP/1.1 408 ") || client_ended(&first));
    client_close(&silent);
    client_close(&first);
    client_close(&second);
    site_close(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answered_on_the_head),
        cmocka_unit_test(test_request_ids),
        cmocka_unit_test(test_compressed_bodies),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_bad_codings),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_idle_connections_give_way),
        cmocka_unit_test(test_stalled_bodies_give_way),
        cmocka_unit_test(test_a_burst),
        cmocka_unit_test(test_header_time_from_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
