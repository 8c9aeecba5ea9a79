// SPDX-License-Identifier: Apache-2.0
// Streams as their owner sees them: when the client has taken what was written, and how one ends that cannot be
// finished; and what is known of sockets that the system does not watch.
#include "http_site.h"
#include "server/http_connection.h"

static struct http_exchange *open_stream(struct site *site, struct client *client)
{
    client_send(client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    TURN_UNTIL(site, site->open_count == 1);
    http_stream_open(site->open[0], 200, "text/plain");
    await(client, "chunked\r\n\r\n");
    return site->open[0];
}

// Once for all that was written, and not before the client has taken it.
static void test_sent(void **state)
{
    (void)state;
    static char piece[60000];
    struct http_limits limits = usual_limits;
    limits.unsent_bytes = SIZE_MAX;
    struct site *site = site_open(&limits);
    struct client client = client_open(site);
    struct http_exchange *exchange = open_stream(site, &client);
    assert_int_equal(site->sent_count, 0);
    http_stream_write(exchange, bytes_of("a"));
    http_stream_write(exchange, bytes_of("b"));
    assert_int_equal(site->sent_count, 0); // never from within a call of the owner's
    await(&client, "1\r\nb\r\n");
    TURN_UNTIL(site, site->sent_count == 1);

    size_t written = 0;
    memset(piece, 'p', sizeof piece);
    while (site->sent_count < 2 || written < (size_t)64 << 20) { // more than the system's buffers hold
        int before = site->sent_count;
        http_stream_write(exchange, (struct bytes){ piece, sizeof piece });
        written += sizeof piece;
        for (int i = 0; i < 10 && site->sent_count == before; i++)
            turn(site);
        if (site->sent_count == before)
            break;
    }
    int stopped = site->sent_count;
    for (int i = 0; i < 10; i++)
        turn(site);
    assert_int_equal(site->sent_count, stopped); // the client does not read
    TURN_UNTIL(site, (client_forget(&client), client_read(&client), site->sent_count > stopped));
    http_stream_close(exchange);
    client_close(&client);
    site_close(site);
}

// Without the last chunk the client knows that something is missing.
static void test_cut(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    struct client client = client_open(site);
    struct http_exchange *exchange = open_stream(site, &client);
    http_stream_write(exchange, bytes_of("half"));
    http_stream_cut(exchange);
    TURN_UNTIL(site, client_ended(&client));
    assert_true(client_has(&client, "4\r\nhalf\r\n"));
    assert_false(client_has(&client, "0\r\n\r\n"));
    client_close(&client);
    site_close(site);
}

// epoll takes no plain files.
static void test_failing(void **state)
{
    (void)state;
    struct site *site = site_open(&usual_limits);
    assert_false(http_failing(site->server));
    http_connection_open(site->server, open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    assert_true(http_failing(site->server));
    struct client client = client_open(site);
    client_send(&client, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&client, "GET /again []");
    assert_false(http_failing(site->server));
    client_close(&client);
    site_close(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
