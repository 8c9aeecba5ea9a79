// SPDX-License-Identifier: Apache-2.0
// cli/progress.c: the progress bar on stderr, and printing beside it.
//   (1) the bar is one line that fits the terminal, so that \r and "erase to the end of the line" remove all of it
//   (2) whatever the command prints, on stderr or stdout, removes the bar first
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

enum { BAR_WIDTH = 40, BAR_FRAME = sizeof " [] 100 %", COLUMNS_MIN = 20 };

static bool bar_is_shown;

bool cli_stderr_is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
}

int cli_columns(int fd, int otherwise)
{
    struct winsize size;
    if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) < 0 || !size.ws_col)
        return otherwise;
    return size.ws_col > COLUMNS_MIN ? size.ws_col : COLUMNS_MIN;
}

void cli_progress_clear(void)
{
    if (!bar_is_shown)
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    bar_is_shown = false;
}

static void show_bar(const char *label, double done, int percent)
{
    int room = cli_columns(STDERR_FILENO, 80) - (int)BAR_FRAME, label_len = (int)strlen(label);
    int label_max = label_len < room ? label_len : room;
    int width = room - label_max < BAR_WIDTH ? room - label_max : BAR_WIDTH, filled = (int)(done * width);
    fprintf(stderr, "\r%.*s [%.*s%*s] %3d %%\033[K", label_max, label, filled,
            "########################################", width - filled, "", percent);
    fflush(stderr);
    bar_is_shown = true;
}

void cli_progress_show(void *context, double done)
{
    struct cli_progress *progress = context;
    int percent = (int)(done * 100);
    if ((percent == progress->shown && bar_is_shown) || !cli_stderr_is_terminal())
        return;
    progress->shown = percent;
    if (done < 1)
        show_bar(progress->label, done, percent);
    else
        cli_progress_clear();
}

void cli_calibrating_show(void *context, double done)
{
    struct cli_progress *progress = context;
    struct cli_progress own = { .label = "calibrating the cache", .shown = progress->shown };
    cli_progress_show(&own, done);
    progress->shown = done < 1 ? own.shown : -1;
}

void cli_print(const char *format, ...)
{
    va_list args;
    cli_progress_clear();
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}
