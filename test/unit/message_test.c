// SPDX-License-Identifier: Apache-2.0
// Lines of input and the messages they become.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cli/message.h"

enum { LINES_MAX = 6 };

static const struct {
    const char *lines[LINES_MAX];
    const char *text;
    bool open; // at the end of the lines
} cases[] = {
    { { "Hello" }, "Hello", false },
    { { "" }, "", false },
    { { "one \\", "two" }, "one \ntwo", false },
    { { "one\\", "\\", "three" }, "one\n\nthree", false },
    { { "a line that ends in \\\\" }, "a line that ends in \\\\", false },
    { { "three \\\\\\", "more" }, "three \\\\\nmore", false },
    { { "cut \\" }, "cut ", true },
    { { "\"\"\"", "one", "two", "\"\"\"" }, "one\ntwo", false },
    { { "\"\"\"one", "two\"\"\"" }, "one\ntwo", false },
    { { "\"\"\"one\"\"\"" }, "one", false },
    { { "\"\"\"\"\"\"" }, "", false },
    { { "\"\"\"", "", "one", "", "\"\"\"" }, "\none\n", false },
    { { "\"\"\"", "no \\ and no \\", "end\"\"\"" }, "no \\ and no \\\nend", false },
    { { "\"\"\"", "a \"\"\" within is text", "\"\"\"" }, "a \"\"\" within is text", false },
    { { "\"\"\"", "cut" }, "cut", true },
    { { "\"\"\"" }, "", true },
    { { "say \"\"\"" }, "say \"\"\"", false },
    { { "def f():\n    pass" }, "def f():\n    pass", false },
    { { "a paste\nthat ends in \\" }, "a paste\nthat ends in \\", false },
    { { "\"\"\"A docstring.\"\"\"\nx = 1" }, "\"\"\"A docstring.\"\"\"\nx = 1", false },
    { { "\"\"\"a paste\nin marks\"\"\"" }, "a paste\nin marks", false },
    { { "\"\"\"", "a paste\nwithin", "\"\"\"" }, "a paste\nwithin", false },
    { { "before: \\", "a paste\nafter" }, "before: \na paste\nafter", false },
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message message = { 0 };
        bool complete = false;
        for (int line = 0; line < LINES_MAX && cases[i].lines[line]; line++) {
            assert_false(complete);
            complete = message_add_line(&message, bytes_of(cases[i].lines[line]));
        }
        assert_string_equal(strbuf_text(&message.text), cases[i].text);
        assert_int_equal(complete, !cases[i].open);
        assert_int_equal(message_is_open(&message), cases[i].open);
        strbuf_free(&message.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
