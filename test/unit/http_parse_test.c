// SPDX-License-Identifier: Apache-2.0
// Heads and chunked bodies as bytes. Every input is parsed from a block of exactly its size, so that a sanitizer sees
// the first byte read behind it.
#include "container.h"
#include "server/http_parse.h"

// The copy, which *head borrows from, is the caller's.
static int parse(const char *text, size_t len, struct http_head *head, struct bytes *copy, struct error *err)
{
    *copy = exact_copy((struct bytes){ text, len });
    err->text[0] = '\0';
    return http_parse_head(*copy, head, err);
}

static void check_text(struct bytes got, const char *want) { assert_true(bytes_equal(got, bytes_of(want))); }

// ---- heads ----

static void test_fields(void **state)
{
    (void)state;
    struct http_head head;
    struct error err;
    struct bytes copy;
    const char text[] = "POST /v1/chat?x=1&y=%20 HTTP/1.1\r\n"
                        "Host: a:1\r\nX-One:1\r\nx-two: \t two words \t\r\nEmpty:\r\n"
                        "Content-Length: 12\r\nContent-Length: 012\r\nExpect: 100-Continue\r\n\r\n";
    assert_int_equal(parse(text, sizeof text - 1, &head, &copy, &err), 0);
    check_text(head.method, "POST");
    check_text(head.path, "/v1/chat");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.field_count, 7);
    check_text(http_head_field(&head, "x-ONE"), "1");
    check_text(http_head_field(&head, "X-Two"), "two words");
    assert_non_null(http_head_field(&head, "empty").data);
    assert_int_equal(http_head_field(&head, "empty").len, 0);
    assert_null(http_head_field(&head, "X-On").data);
    assert_null(http_head_field(&head, "X-One1").data);
    assert_true(head.has_length && head.length == 12 && !head.chunked);
    assert_true(head.expects_continue && head.keep_alive);
    free((char *)copy.data);
}

static void test_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path;
        bool keep_alive, chunked;
    } cases[] = {
        { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "/", true, false },
        { "GET / HTTP/1.1\nHost: a\n\n", "/", true, false },
        { "GET / HTTP/1.1\nHost: a\r\n\n", "/", true, false },
        { "GET / HTTP/1.1\r\nHost:\r\n\r\n", "/", true, false },
        { "GET / HTTP/1.0\r\n\r\n", "/", false, false },
        { "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", true, false },
        { "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "/", false, false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: x,\tCLOSE\r\n\r\n", "/", false, false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", "/", true, false },
        { "GET http://a:80/b/c?d HTTP/1.1\r\nHost: a\r\n\r\n", "/b/c", true, false },
        { "GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n", "/", true, false },
        { "GET http://a?b=/c HTTP/1.1\r\nHost: a\r\n\r\n", "/", true, false },
        { "PURGE /a%2Fb//../c HTTP/1.1\r\nHost: a\r\n\r\n", "/a%2Fb//../c", true, false },
        { "POST /?/? HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", "/", true, true },
        { "POST / HTTP/1.1\r\nHost: a\r\nX: \x80\xff\t\r\n\r\n", "/", true, false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct http_head head;
        struct error err;
        struct bytes copy;
        if (parse(cases[i].text, strlen(cases[i].text), &head, &copy, &err))
            fail_msg("%s: %s", cases[i].text, err.text);
        check_text(head.path, cases[i].path);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
        assert_int_equal(head.chunked, cases[i].chunked);
        free((char *)copy.data);
    }
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"

static const struct {
    int status;
    struct bytes text;
} refused[] = {
#define REFUSED(status, text) { status, { text, sizeof text - 1 } }
    REFUSED(400, "\r\n\r\n"),
    REFUSED(400, "GET\r\n\r\n"),
    REFUSED(400, "GET /\r\n\r\n"),
    REFUSED(400, "GET / \r\n\r\n"),
    REFUSED(400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "G\xc3\xa9T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET / http/1.1\r\nHost: a\r\n\r\n"),
    REFUSED(400, "GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    REFUSED(505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    REFUSED(505, "GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    REFUSED(505, "PRI * HTTP/2.0\r\n\r\n"),
    REFUSED(400, "GET / HTTP/1.1\r\n\r\n"),
    REFUSED(400, GET "Host: a\r\n\r\n"),
    REFUSED(400, GET "A\r\n\r\n"),
    REFUSED(400, GET ": b\r\n\r\n"),
    REFUSED(400, GET "A : b\r\n\r\n"),
    REFUSED(400, GET "A\0: b\r\n\r\n"),
    REFUSED(400, GET "A: b\r\n c\r\n\r\n"),
    REFUSED(400, GET "\tA: b\r\n\r\n"),
    REFUSED(400, GET "A: b\0\r\n\r\n"),
    REFUSED(400, GET "A: b\rc\r\n\r\n"),
    REFUSED(400, GET "A: b\r\r\n\r\n"),
    REFUSED(400, GET "A: \x7f\r\n\r\n"),
    REFUSED(400, GET "Content-Length:\r\n\r\n"),
    REFUSED(400, GET "Content-Length: +1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: -1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: 0x1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: 1 1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: 1, 1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    REFUSED(413, GET "Content-Length: 18446744073709551616\r\n\r\n"),
    REFUSED(413, GET "Content-Length: 99999999999999999999999999\r\n\r\n"),
    REFUSED(501, GET "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    REFUSED(501, GET "Transfer-Encoding:\r\n\r\n"),
    REFUSED(501, GET "Transfer-Encoding: identity\r\n\r\n"),
    REFUSED(400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    REFUSED(400, GET "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
    REFUSED(400, GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    REFUSED(400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        struct http_head head;
        struct error err;
        struct bytes copy;
        int status = parse(refused[i].text.data, refused[i].text.len, &head, &copy, &err);
        if (status != refused[i].status || !err.text[0])
            fail_msg("%d \"%s\" instead of %d for: %s", status, err.text, refused[i].status, refused[i].text.data);
        for (const char *c = err.text; *c; c++)
            assert_true(*c >= ' ' && *c < 0x7f);
        free((char *)copy.data);
    }
}

static void test_field_count(void **state)
{
    (void)state;
    for (int count = HTTP_FIELDS_MAX; count <= HTTP_FIELDS_MAX + 1; count++) {
        struct strbuf text = { 0 };
        struct http_head head;
        struct error err;
        strbuf_add_text(&text, GET);
        for (int i = 1; i < count; i++)
            strbuf_add_format(&text, "X-%d: %d\r\n", i, i);
        strbuf_add_text(&text, "\r\n");
        assert_int_equal(http_parse_head(strbuf_bytes(&text), &head, &err), count > HTTP_FIELDS_MAX ? 431 : 0);
        strbuf_free(&text);
    }
}

static const char whole[] = "POST http://h/a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";

static void test_cut_anywhere(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        struct http_head head;
        struct error err;
        struct bytes copy;
        size_t scanned = 0;
        assert_int_equal(parse(whole, len, &head, &copy, &err), 400);
        assert_true(err.text[0]);
        assert_int_equal(http_head_length(copy, &scanned), 0);
        free((char *)copy.data);
    }
}

// Where a head ends does not depend on how its bytes come.
static void test_head_length(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        { "", 0 },          { "a", 0 },       { "a\n", 0 },         { "a\r\n", 0 },       { "a\r\n\r", 0 },
        { "a\n\n", 3 },     { "a\n\r\n", 4 }, { "a\r\n\r\n", 5 },   { "a\r\n\n", 4 },     { "a\r\r\n", 0 },
        { "a\n\r\r\n", 0 }, { "\n\n", 2 },    { "\n\r\nb\n\n", 3 }, { "a\nb\nc\n\n", 7 }, { "a\n\rb\r\n\r\nx", 8 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct bytes in = bytes_of(cases[i].text);
        size_t scanned = 0, carried = 0, length = 0;
        assert_int_equal(http_head_length(in, &scanned), cases[i].length);
        for (size_t len = 0; len <= in.len && !length; len++) {
            struct bytes copy = exact_copy((struct bytes){ in.data, len });
            length = http_head_length(copy, &carried);
            assert_true(carried <= len);
            free((char *)copy.data);
        }
        assert_int_equal(length, cases[i].length);
    }
}

// ---- chunks ----

// The body in `body`, the bytes that were taken in *used. At most `step` bytes come at a time.
static int read_chunks(struct bytes in, size_t step, struct strbuf *body, size_t *used, bool *done)
{
    struct http_chunks chunks = { 0 };
    struct error err;
    int status = 0;
    for (*used = 0; *used < in.len && !status && chunks.state != HTTP_CHUNKS_DONE;) {
        size_t len = in.len - *used < step ? in.len - *used : step;
        struct bytes copy = exact_copy((struct bytes){ in.data + *used, len }), piece = copy, data;
        while (piece.len && !status && chunks.state != HTTP_CHUNKS_DONE) {
            status = http_chunks_read(&chunks, &piece, &data, &err);
            if (!status)
                strbuf_add(body, data.data, data.len);
        }
        *used += len - piece.len;
        free((char *)copy.data);
    }
    *done = chunks.state == HTTP_CHUNKS_DONE;
    return status;
}

static void check_chunks(const char *text, int status, const char *body, size_t rest)
{
    struct bytes in = bytes_of(text);
    for (size_t step = in.len ? in.len : 1; step; step /= 2) {
        struct strbuf got = { 0 };
        size_t used;
        bool done;
        if (read_chunks(in, step, &got, &used, &done) != status)
            fail_msg("not %d: %s", status, text);
        if (!status) {
            assert_true(done);
            assert_string_equal(strbuf_text(&got), body);
            assert_int_equal(in.len - used, rest);
        }
        strbuf_free(&got);
    }
}

static void test_chunks(void **state)
{
    (void)state;
    check_chunks("0\r\n\r\n", 0, "", 0);
    check_chunks("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET", 0, "hello world", 3);
    check_chunks("00A\r\n0123456789\r\n000\r\n\r\n", 0, "0123456789", 0);
    check_chunks("a\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", 0, "\r\n\r\n\r\n\r\n\r\n", 0);
    check_chunks("1;a=\"b;c\";\td\r\nx\r\n0;e\r\nTrailer: 1\r\nOther: 2\r\n\r\nrest", 0, "x", 4);
    static const char *const bad[] = {
        "\r\n",
        ";\r\n",
        "g\r\n",
        "-1\r\n",
        "0x1\r\n",
        "1 \r\nx\r\n",
        "1\nx\r\n",
        "1;a\nx\r\n",
        "1;\x7f\r\n",
        "1\rx",
        "1;\rx",
        "1\r\nxy",
        "1\r\nx\n",
        "1\r\nx\ry",
        "0\r\nA: b\n",
        "0\r\n\n",
        "0\r\n\rx",
        "0\r\nA\rb",
        "0\r\nA\x01",
        "1000000000000000\r\n",
        "ffffffffffffffffffff\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        check_chunks(bad[i], 400, NULL, 0);
}

static void test_chunks_cut_anywhere(void **state)
{
    (void)state;
    const char text[] = "5;x\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nT: 1\r\n\r\n";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct strbuf got = { 0 };
        size_t used;
        bool done;
        assert_int_equal(read_chunks((struct bytes){ text, len }, 1 + len % 3, &got, &used, &done), 0);
        assert_false(done);
        assert_int_equal(used, len);
        assert_true(bytes_start_with(bytes_of("hello0123456789abcdef"), strbuf_bytes(&got)));
        strbuf_free(&got);
    }
}

static void test_chunk_limits(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        size_t fill;
        int status;
    } cases[] = {
        { "0;", "\r\n\r\n", HTTP_CHUNK_LINE_BYTES_MAX - 4, 0 },
        { "0;", "\r\n\r\n", HTTP_CHUNK_LINE_BYTES_MAX - 3, 400 },
        { "0\r\nA:", "\r\n\r\n", HTTP_TRAILER_BYTES_MAX - 6, 0 },
        { "0\r\nA:", "\r\n\r\n", HTTP_TRAILER_BYTES_MAX - 5, 400 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct strbuf text = { 0 };
        strbuf_add_text(&text, cases[i].before);
        for (size_t at = 0; at < cases[i].fill; at++)
            strbuf_add_byte(&text, 'x');
        strbuf_add_text(&text, cases[i].after);
        check_chunks(text.data, cases[i].status, "", 0);
        strbuf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),       cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_field_count),
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_head_length),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_chunks_cut_anywhere),
        cmocka_unit_test(test_chunk_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
