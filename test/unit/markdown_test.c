// SPDX-License-Identifier: Apache-2.0
// Markdown and word wrap on a terminal: the same text comes out whole, and letter by letter.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cli/markdown.h"

// Escape sequences as letters, for the expectations.
static const struct {
    const char *sequence, *shown;
} styles[] = { { "\033[1m", "<b>" },   { "\033[22m", "</b>" }, { "\033[2m", "<d>" },
               { "\033[3m", "<i>" },   { "\033[23m", "</i>" }, { "\033[9m", "<s>" },
               { "\033[29m", "</s>" }, { "\033[36m", "<c>" },  { "\033[39m", "</c>" } };

static const struct {
    const char *text;
    int columns; // 0: no wrap
    const char *shown;
} cases[] = {
    { "plain text", 0, "plain text" },
    { "a **bold** word", 0, "a <b>bold</b> word" },
    { "an *italic* and _another_ one", 0, "an <i>italic</i> and <i>another</i> one" },
    { "***both***", 0, "<b><i>both</b></i>" },
    { "**bold with *italic* inside**", 0, "<b>bold with <i>italic</i> inside</b>" },
    { "~~gone~~ and ~ not", 0, "<s>gone</s> and ~ not" },
    { "2 * 3 * 4 and 2**3**4", 0, "2 * 3 * 4 and 2**3**4" },
    { "snake_case_name and f(*args, **kwargs)", 0, "snake_case_name and f(*args, **kwargs)" },
    { "**never closed\nnext *line*", 0, "**never closed\nnext <i>line</i>" },
    { "call `f(*a*)` or ``a ` b``", 0, "call <c>f(*a*)</c> or <c>a ` b</c>" },
    { "an open ` mark", 0, "an open ` mark" },
    { "\\*not italic\\* and \\n", 0, "*not italic* and \\n" },
    { "# Heading **bold**\ntext", 0, "<b>Heading <b>bold</b>\ntext" },
    { "#hashtag\n####### seven", 0, "#hashtag\n####### seven" },
    { "- one\n* two\n  + three\n-no", 0, "• one\n• two\n  • three\n-no" },
    { "1. one\n12) two\n3.14 is pi", 0, "1. one\n12) two\n3.14 is pi" },
    { "> quoted", 0, "<d>│</b> quoted" },
    { "above\n\n---\n\nbelow", 0, "above\n\n<d>---</b>\n\nbelow" },
    { "**bold** starts a line", 0, "<b>bold</b> starts a line" },
    { "```python\ndef f():\n    return **x**\n```\nafter *it*", 12,
      "<d>```python</b>\n<c>def f():</c>\n<c>    return **x**</c>\n<d>```</b>\nafter <i>it</i>" },
    { "~~~\na ``` b\n~~~~\n", 0, "<d>~~~</b>\n<c>a ``` b</c>\n<d>~~~~</b>\n" },
    { "``` is code ``` here", 0, "<c> is code</c>  here" },
    { "| a table | with *rows* |\n|---|---|", 10, "| a table | with <i>rows</i> |\n|---|---|" },
    { "", 0, "" },
    { "*", 0, "*" },
    { "```", 0, "<d>```</b>" },
    { "the quick brown fox", 10, "the quick\nbrown fox" },
    { "exactly 10 fits", 10, "exactly 10\nfits" },
    { "- a list that wraps", 10, "• a list\n  that\n  wraps" },
    { "incomprehensibilities ok", 10, "incomprehensibilities ok" },
    { "Grüße, 世界。你好", 10, "Grüße, 世\n界。你好" },
    { "世界世界。", 8, "世界世\n界。" },
    { "👩‍👩‍👧 ab cde", 6, "👩‍👩‍👧 ab\ncde" },
    { "e\xcc\x81t\xc3\xa9 noir", 8, "e\xcc\x81t\xc3\xa9 noir" },
    { "a\033]0;title\007b\x7f", 0,
      "a\xef\xbf\xbd]0;title\xef\xbf\xbd"
      "b\xef\xbf\xbd" },
    { "windows\r\nline", 0, "windows\nline" },
};
enum { CASES = sizeof cases / sizeof *cases };

static char *show(const struct strbuf *out)
{
    struct strbuf shown = { 0 };
    for (size_t at = 0, i; at < out->len;) {
        for (i = 0; i < sizeof styles / sizeof *styles; i++)
            if (!strncmp(out->data + at, styles[i].sequence, strlen(styles[i].sequence)))
                break;
        bool known = i < sizeof styles / sizeof *styles;
        if (known)
            strbuf_add_text(&shown, styles[i].shown);
        else
            strbuf_add_byte(&shown, out->data[at]);
        at += known ? strlen(styles[i].sequence) : 1;
    }
    strbuf_add(&shown, "", 0);
    return shown.data;
}

// Adjoining pieces of a code line have styles of their own.
static void join_styles(char *text)
{
    char *at;
    while ((at = strstr(text, "</c><c>")))
        memmove(at, at + 7, strlen(at + 7) + 1);
}

static char *print(const char *text, int columns, size_t piece)
{
    struct markdown markdown = { .wrap.columns = columns };
    size_t len = strlen(text);
    for (size_t at = 0, next; at < len; at = next) {
        for (next = at + piece < len ? at + piece : len; next < len && (text[next] & 0xc0) == 0x80;)
            next++;
        markdown_add(&markdown, (struct bytes){ text + at, next - at });
    }
    markdown_finish(&markdown);
    char *shown = show(&markdown.wrap.out);
    markdown_free(&markdown);
    join_styles(shown);
    return shown;
}

static void whole(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char *shown = print(cases[i].text, cases[i].columns, 1000);
        assert_string_equal(shown, cases[i].shown);
        free(shown);
    }
}

static void letter_by_letter(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (size_t piece = 1; piece < 5; piece++) {
            char *shown = print(cases[i].text, cases[i].columns, piece);
            assert_string_equal(shown, cases[i].shown);
            free(shown);
        }
}

// Any text comes out the same however it is cut, and none of its letters is lost.
static void random_texts(void **state)
{
    static const char *const parts[] = { "*", "**", "_",  "`",  "```", "~~", "#", "- ", "+", ">",  "|", "1",
                                         ".", " ",  "  ", "\\", "\n",  "a",  "b", "世", "é", "\r", "\t" };
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct strbuf text = { 0 };
        size_t letters = 0;
        for (int count = 0; count < 40; count++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const char *part = parts[(random >> 33) % (sizeof parts / sizeof *parts)];
            letters += part[0] == 'a' || part[0] == 'b';
            strbuf_add_text(&text, part);
        }
        char *whole = print(text.data, 20, 1000), *cut = print(text.data, 20, 1 + (size_t)i % 7);
        for (const char *at = whole; *at; at++)
            letters -= (*at == 'a' || *at == 'b') && (at == whole || (at[-1] != '<' && at[-1] != '/'));
        if (strcmp(whole, cut) || letters)
            fail_msg("text %s\nwhole %s\ncut %s\n%zu letters are lost", text.data, whole, cut, letters);
        free(whole);
        free(cut);
        strbuf_free(&text);
    }
}

// Text appears while it comes: only what may still become a mark, and the last word, wait.
static void nothing_waits_long(void **state)
{
    (void)state;
    struct markdown markdown = { 0 };
    markdown_add(&markdown, bytes_of("Some words that have come "));
    assert_string_equal(strbuf_text(&markdown.wrap.out), "Some words that have come");
    markdown_add(&markdown, bytes_of("*maybe "));
    for (int i = 0; i < 100; i++)
        markdown_add(&markdown, bytes_of("and on "));
    assert_non_null(strstr(markdown.wrap.out.data, "*maybe and on and on"));
    markdown_free(&markdown);
}

// The width is that of the moment.
static void a_terminal_that_becomes_narrow(void **state)
{
    (void)state;
    struct wrap wrap = { .columns = 20 };
    wrap_add(&wrap, bytes_of("one two three four "));
    wrap.columns = 10;
    wrap_add(&wrap, bytes_of("five six seven"));
    wrap_flush(&wrap);
    assert_string_equal(wrap.out.data, "one two three four\nfive six\nseven");
    wrap_free(&wrap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(letter_by_letter),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(nothing_waits_long),
        cmocka_unit_test(a_terminal_that_becomes_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
