// SPDX-License-Identifier: Apache-2.0
// The progress bar as a terminal gets it: one line that is always erased as a whole.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

#include <cmocka.h>

enum { COLUMNS = 60 };

// stderr is a terminal while this is open.
struct screen {
    int master, before;
};

static void open_screen(struct screen *screen)
{
    screen->master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(screen->master >= 0 && !grantpt(screen->master) && !unlockpt(screen->master));
    int slave = open(ptsname(screen->master), O_RDWR | O_NOCTTY);
    struct winsize size = { .ws_row = 24, .ws_col = COLUMNS };
    assert_true(slave >= 0 && !ioctl(slave, TIOCSWINSZ, &size));
    screen->before = dup(STDERR_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
    setenv("TERM", "xterm", true);
}

static void close_screen(struct screen *screen)
{
    dup2(screen->before, STDERR_FILENO);
    close(screen->before);
    close(screen->master);
}

// All that was written since the last call: a terminal hands it on when it likes, so a last byte is waited for.
static const char *read_screen(const struct screen *screen)
{
    static char text[4096];
    size_t len = 0;
    const char last = '|';
    fflush(stderr);
    assert_int_equal(write(STDERR_FILENO, &last, 1), 1);
    while (!len || text[len - 1] != last) {
        ssize_t got = read(screen->master, text + len, sizeof text - len);
        assert_true(got > 0);
        len += (size_t)got;
    }
    text[len - 1] = '\0';
    return text;
}

static void assert_bar(const char *text, const char *label, const char *percent)
{
    size_t len = strlen(text), erase = strlen("\033[K");
    if (text[0] != '\r' || strncmp(text + 1, label, strlen(label)) || strcmp(text + len - erase, "\033[K")
        || !strstr(text, percent) || len - 1 - erase >= COLUMNS)
        fail_msg("not a bar of \"%s\" with%s in %d columns: %s", label, percent, COLUMNS, text + 1);
}

// A bar within another one's time, then a line.
static void test_bars_and_a_line(void **state)
{
    struct cli_progress outer = { .label = "measuring layers", .shown = -1 };
    struct cli_progress inner = { .label = "loading weights", .shown = -1 };
    struct cli_progress wide = { .label = "a label that leaves no room for a bar in this terminal", .shown = -1 };
    struct screen screen;
    (void)state;
    open_screen(&screen);
    cli_progress_show(&outer, 0.17);
    assert_bar(read_screen(&screen), "measuring layers [", " 17 %");
    cli_progress_show(&inner, 0.17);
    assert_bar(read_screen(&screen), "loading weights [", " 17 %");
    cli_progress_show(&inner, 0.171);
    assert_string_equal(read_screen(&screen), "");
    cli_print("a line\n");
    assert_string_equal(read_screen(&screen), "\r\033[Ka line\r\n");
    cli_print("another\n");
    assert_string_equal(read_screen(&screen), "another\r\n");
    cli_progress_show(&inner, 0.172);
    assert_bar(read_screen(&screen), "loading weights [", " 17 %");
    cli_progress_show(&inner, 1);
    assert_string_equal(read_screen(&screen), "\r\033[K");
    cli_progress_show(&outer, 1);
    assert_string_equal(read_screen(&screen), "");
    cli_progress_show(&wide, 0.5);
    assert_bar(read_screen(&screen), "a label that leaves", " 50 %");
    cli_progress_clear();
    assert_string_equal(read_screen(&screen), "\r\033[K");
    close_screen(&screen);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bars_and_a_line) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
