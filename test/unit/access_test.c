// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>

#include "server/access.h"

#include <cmocka.h>

static bool host_passes(const char *listens_at, const char *const *hosts, int count, const char *host)
{
    struct access access;
    access_open(&access, &(struct access_options){ .hosts = hosts, .host_count = count, .listens_at = listens_at });
    bool passes = access_allows_host(&access, host ? bytes_of(host) : (struct bytes){ 0 });
    access_close(&access);
    return passes;
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const loopbacks[] = { "127.0.0.1", "localhost", "::1", "127.0.0.2" };
    static const char *const own[] = {
        "localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000"
    };
    static const char *const foreign[] = {
        "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "", ":8000",
        "[::1",         "localhost:80x"
    };
    for (size_t i = 0; i < sizeof loopbacks / sizeof *loopbacks; i++) {
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            assert_true(host_passes(loopbacks[i], NULL, 0, own[j]));
        for (size_t j = 0; j < sizeof foreign / sizeof *foreign; j++)
            assert_false(host_passes(loopbacks[i], NULL, 0, foreign[j]));
        assert_true(host_passes(loopbacks[i], NULL, 0, NULL)); // HTTP/1.0
    }
    assert_true(host_passes("127.0.0.2", NULL, 0, "127.0.0.2:8000"));
    assert_false(host_passes("127.0.0.1", NULL, 0, "127.0.0.2:8000"));
    static const char *const list[] = { "gpu1.example", "[fe80::1]" }, *const any[] = { "*" };
    assert_true(host_passes("127.0.0.1", list, 2, "GPU1.example:80"));
    assert_true(host_passes("127.0.0.1", list, 2, "[fe80::1]:80"));
    assert_false(host_passes("127.0.0.1", list, 2, "gpu2.example"));
    assert_true(host_passes("127.0.0.1", any, 1, "evil.example"));
    assert_true(host_passes("0.0.0.0", NULL, 0, "evil.example")); // everybody's network, everybody's name
    assert_true(host_passes(NULL, NULL, 0, "nibble"));
    assert_false(host_passes("0.0.0.0", list, 2, "evil.example"));
    assert_true(host_passes("0.0.0.0", list, 2, "localhost"));
}

static bool origin_passes(const char *const *origins, int count, const char *origin, const char *host)
{
    struct access access;
    access_open(&access,
                &(struct access_options){ .origins = origins, .origin_count = count, .listens_at = "127.0.0.1" });
    bool passes = access_allows_origin(&access, bytes_of(origin), bytes_of(host));
    access_close(&access);
    return passes;
}

static void test_origins(void **state)
{
    (void)state;
    static const char *const list[] = { "https://a.example", "http://localhost:3000" }, *const any[] = { "*" };
    assert_true(origin_passes(NULL, 0, "http://localhost:8000", "localhost:8000"));
    assert_true(origin_passes(NULL, 0, "https://localhost:8000", "localhost:8000"));
    assert_false(origin_passes(NULL, 0, "http://localhost:8001", "localhost:8000"));
    assert_false(origin_passes(NULL, 0, "http://evil.example", "localhost:8000"));
    assert_false(origin_passes(NULL, 0, "null", "localhost:8000"));
    assert_false(origin_passes(NULL, 0, "http://", ""));
    assert_true(origin_passes(list, 2, "https://a.example", "localhost:8000"));
    assert_true(origin_passes(list, 2, "http://localhost:3000", "localhost:8000"));
    assert_false(origin_passes(list, 2, "https://a.example.evil", "localhost:8000"));
    assert_false(origin_passes(list, 2, "https://a.exampl", "localhost:8000"));
    assert_true(origin_passes(any, 1, "null", "localhost:8000"));
}

static void test_words(void **state)
{
    (void)state;
    static const char *const good_origins[] = { "*", "null", "https://a.example", "http://localhost:3000",
                                                "chrome-extension://abc" };
    static const char *const bad_origins[] = {
        "", "a.example", "https://", "://a", "https://a.example/", "https://a b"
    };
    static const char *const good_hosts[] = { "*", "a.example", "10.0.0.1", "[::1]" };
    static const char *const bad_hosts[] = { "", "a.example:80", "http://a", "::1", "a b" };
    struct error err;
    for (size_t i = 0; i < sizeof good_origins / sizeof *good_origins; i++)
        assert_true(access_check_origin_word(good_origins[i], &err));
    for (size_t i = 0; i < sizeof bad_origins / sizeof *bad_origins; i++)
        assert_false(access_check_origin_word(bad_origins[i], &err));
    for (size_t i = 0; i < sizeof good_hosts / sizeof *good_hosts; i++)
        assert_true(access_check_host_word(good_hosts[i], &err));
    for (size_t i = 0; i < sizeof bad_hosts / sizeof *bad_hosts; i++)
        assert_false(access_check_host_word(bad_hosts[i], &err));
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const keys[] = { "first", "second" };
    static const struct {
        const char *authorization, *api_key;
        int key; // -1: none
    } cases[] = {
        { "Bearer first", NULL, 0 },
        { "bearer second", NULL, 1 },
        { "BEARER  first", NULL, 0 },
        { NULL, "second", 1 },
        { "Basic abc", "first", 0 },
        { "Bearer wrong", "second", 1 },
        { NULL, NULL, -1 },
        { "first", NULL, -1 },
        { "Bearerfirst", NULL, -1 },
        { "Bearer ", NULL, -1 },
        { "Bearer", NULL, -1 },
        { "Bearer FIRST", NULL, -1 },
        { NULL, "", -1 },
        { NULL, "Bearer first", -1 },
        { "Bearer first ", NULL, -1 },
    };
    struct access access;
    access_open(&access, &(struct access_options){ .keys = keys, .key_count = 2 });
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned char *found = access_find_key(
            &access, cases[i].authorization ? bytes_of(cases[i].authorization) : (struct bytes){ 0 },
            cases[i].api_key ? bytes_of(cases[i].api_key) : (struct bytes){ 0 });
        assert_ptr_equal(found, cases[i].key < 0 ? NULL : access.keys[cases[i].key]);
    }
    access_close(&access);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
