// SPDX-License-Identifier: Apache-2.0
#include "cli/run_print.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

static bool is_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb");
}

bool run_print_may_style(int fd)
{
    const char *no_colour = getenv("NO_COLOR");
    return is_terminal(fd) && !(no_colour && *no_colour);
}

void run_print_open(struct run_print *print, const struct session *session)
{
    *print = (struct run_print){ .terminal = is_terminal(STDOUT_FILENO),
                                 .markdown = run_print_may_style(STDOUT_FILENO) && !session->plain_text,
                                 .wraps = !session->no_wrap };
}

static bool write_out(struct run_print *print, struct error *err)
{
    struct strbuf *out = &print->text.wrap.out;
    bool ok = !out->len || cli_write(out->data, out->len, err);
    out->len = 0;
    return ok;
}

// The terminal may have another width than a moment ago.
bool run_print_add(struct run_print *print, struct bytes text, struct error *err)
{
    if (!print->terminal)
        return cli_write(text.data, text.len, err);
    print->text.wrap.columns = print->wraps ? cli_columns(STDOUT_FILENO, 0) : 0;
    if (print->markdown)
        markdown_add(&print->text, text);
    else
        wrap_add(&print->text.wrap, text);
    return write_out(print, err);
}

bool run_print_finish(struct run_print *print, struct error *err)
{
    if (!print->terminal)
        return cli_write("\n", 1, err);
    if (print->markdown)
        markdown_finish(&print->text);
    wrap_flush(&print->text.wrap);
    wrap_add(&print->text.wrap, bytes_of("\n"));
    return write_out(print, err);
}

void run_print_close(struct run_print *print) { markdown_free(&print->text); }
