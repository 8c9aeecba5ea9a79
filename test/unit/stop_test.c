// SPDX-License-Identifier: Apache-2.0
// Stop strings against the plain definition: look at every prefix of the text until one ends in a stop string.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "base/random.h"
#include "text/stop.h"

#include <cmocka.h> // last: it has a macro called fail

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { STRINGS_MAX = 4 };

// The string that stops the text, -1: none; *end: how much of the text is left.
static int naive(const struct bytes *strings, int count, bool include, struct bytes text, size_t *end)
{
    for (size_t prefix = 1; prefix <= text.len; prefix++) {
        int hit = -1;
        for (int i = 0; i < count; i++)
            if (prefix >= strings[i].len && (hit < 0 || strings[i].len > strings[hit].len)
                && memcmp(text.data + prefix - strings[i].len, strings[i].data, strings[i].len) == 0)
                hit = i;
        *end = prefix - (hit >= 0 && !include ? strings[hit].len : 0);
        if (hit >= 0)
            return hit;
    }
    *end = text.len;
    return -1;
}

// Feeds the text in pieces; cuts come from *seed, 0: one byte each.
static int feed(struct stop *stop, struct bytes text, uint64_t *seed, struct strbuf *out)
{
    int hit = -1;
    for (size_t at = 0, bytes; at < text.len && hit < 0; at += bytes) {
        bytes = *seed ? (size_t)random_between(seed, 0, 5) : 1;
        if (bytes > text.len - at)
            bytes = text.len - at;
        hit = stop_add(stop, (struct bytes){ text.data + at, bytes }, out);
    }
    if (hit < 0)
        stop_finish(stop, out);
    return hit;
}

static void check(const struct bytes *strings, int count, bool include, struct bytes text, uint64_t seed)
{
    size_t end = 0;
    int expected = naive(strings, count, include, text, &end);
    struct stop stop = { .strings = strings, .count = count, .include = include };
    struct strbuf out = { 0 };
    int hit = feed(&stop, text, &seed, &out);
    if (hit != expected || out.len != end || (end && memcmp(out.data, text.data, end) != 0))
        fail_msg("\"%.*s\" gave %d and \"%s\", expected %d and %zu bytes", (int)text.len, text.data, hit,
                 strbuf_text(&out), expected, end);
    stop_free(&stop);
    strbuf_free(&out);
}

static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *strings[STRINGS_MAX], *text;
        int hit;
        const char *left;
    } cases[] = {
        { { "END" }, "the END of it", 0, "the " },
        { { "END" }, "the EN", -1, "the EN" },
        { { "aab" }, "aaaab", 0, "aa" },
        { { "abcd", "bc" }, "abcd", 1, "a" }, // the text ends as soon as it holds one
        { { "bc", "abc" }, "abc", 1, "" },    // both end here: the one that began first
        { { "b", "x", "b" }, "ab", 0, "a" },  // the same twice: the first listed
        { { "\n\n", "\n" }, "a\n\n", 1, "a" },
        { { "x" }, "x", 0, "" },
        { { "\xC3\xA9" }, "caf\xC3\xA9s", 0, "caf" },
        { { 0 }, "all of it", -1, "all of it" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct bytes strings[STRINGS_MAX];
        int count = 0;
        for (; count < STRINGS_MAX && cases[i].strings[count]; count++)
            strings[count] = bytes_of(cases[i].strings[count]);
        for (uint64_t seed = 0; seed < 20; seed++) {
            check(strings, count, false, bytes_of(cases[i].text), seed);
            check(strings, count, true, bytes_of(cases[i].text), seed);
        }
        struct stop stop = { .strings = strings, .count = count };
        struct strbuf out = { 0 };
        uint64_t bytewise = 0;
        assert_int_equal(feed(&stop, bytes_of(cases[i].text), &bytewise, &out), cases[i].hit);
        assert_string_equal(strbuf_text(&out), cases[i].left);
        strbuf_free(&out);
    }
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        char text[64], letters[STRINGS_MAX][8];
        struct bytes strings[STRINGS_MAX];
        size_t len = (size_t)random_between(&seed, 0, sizeof text);
        int count = random_between(&seed, 0, STRINGS_MAX), alphabet = random_between(&seed, 1, 3);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)('a' + random_between(&seed, 0, alphabet));
        for (int i = 0; i < count; i++) {
            strings[i] = (struct bytes){ letters[i], (size_t)random_between(&seed, 1, sizeof letters[i]) };
            for (size_t j = 0; j < strings[i].len; j++)
                letters[i][j] = (char)('a' + random_between(&seed, 0, alphabet));
        }
        check(strings, count, round & 1, (struct bytes){ text, len }, random_next(&seed));
    }
}

// Text that cannot become a stop string is delivered at once, and nothing else is.
static void test_holds_no_more_than_it_must(void **state)
{
    (void)state;
    struct bytes strings[] = { bytes_of("abab!"), bytes_of("?") };
    struct stop stop = { .strings = strings, .count = 2 };
    struct strbuf out = { 0 };
    static const struct {
        const char *piece, *told;
    } steps[] = {
        { "xab", "x" }, { "ab", "x" }, { "ab", "xab" }, { "", "xab" }, { "a", "xabab" }, { "c", "xabababac" },
    };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        assert_int_equal(stop_add(&stop, bytes_of(steps[i].piece), &out), -1);
        assert_string_equal(strbuf_text(&out), steps[i].told);
    }
    stop_free(&stop);
    stop_free(&stop); // twice does no harm
    strbuf_free(&out);
}

// Two megabytes, one byte at a time, of what nearly is the longest string allowed.
static void test_long_and_nearly(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 2 << 20 };
    struct strbuf string = { 0 }, out = { 0 };
    for (int i = 0; i < STOP_BYTES_MAX - 1; i++)
        strbuf_add_byte(&string, 'a');
    strbuf_add_byte(&string, 'b');
    struct bytes strings[] = { strbuf_bytes(&string) };
    struct stop stop = { .strings = strings, .count = 1 };
    clock_t start = clock();
    for (int i = 0; i < TEXT_BYTES; i++)
        assert_int_equal(stop_add(&stop, bytes_of("a"), &out), -1);
    assert_int_equal(out.len, TEXT_BYTES - (STOP_BYTES_MAX - 1));
    assert_true(stop.held.cap <= 4 * STOP_BYTES_MAX);
    assert_int_equal(stop_add(&stop, bytes_of("b"), &out), 0);
    assert_true((clock() - start) / CLOCKS_PER_SEC < 5); // not 4096 times as long as it takes
    strbuf_free(&string);
    strbuf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_holds_no_more_than_it_must),
        cmocka_unit_test(test_long_and_nearly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
