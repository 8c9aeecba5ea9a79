// SPDX-License-Identifier: Apache-2.0
#include "cli/run_thought.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/run_print.h"

#define DIM "\033[2m"
#define PLAIN "\033[0m"

void run_thought_open(struct run_thought *thought, struct nibble_reasoning *reasoning, const struct session *session)
{
    *thought = (struct run_thought){ .reasoning = reasoning,
                                     .hidden = session->hide_thoughts,
                                     .wraps = cli_stderr_is_terminal() && !session->no_wrap };
}

static void print_dimmed(struct bytes text)
{
    bool dimmed = run_print_may_style(STDERR_FILENO);
    if (text.len)
        cli_print("%s%.*s%s", dimmed ? DIM : "", (int)text.len, text.data, dimmed ? PLAIN : "");
}

static void print_wrapped(struct run_thought *thought, struct bytes text, bool last)
{
    thought->wrap.columns = thought->wraps ? cli_columns(STDERR_FILENO, 0) : 0;
    wrap_add(&thought->wrap, text);
    if (last)
        wrap_flush(&thought->wrap);
    print_dimmed(strbuf_bytes(&thought->wrap.out));
    thought->wrap.out.len = 0;
}

static void print_thought(struct run_thought *thought)
{
    struct nibble_text *text = &thought->text;
    if (!text->len)
        return;
    if (!thought->open)
        thought->begun = clock_now();
    thought->open = true;
    thought->ended_line = text->data[text->len - 1] == '\n';
    if (!thought->hidden && cli_stderr_is_terminal())
        print_wrapped(thought, (struct bytes){ text->data, text->len }, false);
    else if (!thought->hidden)
        cli_print("%.*s", (int)text->len, text->data);
    text->len = 0;
}

// An empty line between the thought and the answer; on a terminal behind a line with the time it took.
static void close_thought(struct run_thought *thought)
{
    char line[64];
    if (!thought->open)
        return;
    thought->open = false;
    if (cli_stderr_is_terminal())
        print_wrapped(thought, bytes_of(""), true);
    if (!thought->hidden)
        cli_print(thought->ended_line ? "" : "\n");
    snprintf(line, sizeof line, "(thought for %.1f s)\n", clock_now() - thought->begun);
    if (cli_stderr_is_terminal())
        print_dimmed(bytes_of(line));
    if (!thought->hidden || cli_stderr_is_terminal())
        cli_print("\n");
}

static void add(struct nibble_text *to, struct nibble_text *from)
{
    struct nibble_text none = { 0 };
    nibble_reasoning_add(NULL, from->data, from->len, &none, to);
    from->len = 0;
}

void run_thought_take(struct run_thought *thought, struct nibble_text *answer)
{
    size_t before = answer->len;
    if (!thought->reasoning) {
        add(answer, &thought->piece);
        return;
    }
    nibble_reasoning_add(thought->reasoning, thought->piece.data, thought->piece.len, &thought->text, answer);
    thought->piece.len = 0;
    print_thought(thought);
    if (answer->len > before)
        close_thought(thought);
}

void run_thought_finish(struct run_thought *thought, struct nibble_text *answer)
{
    run_thought_take(thought, answer);
    if (thought->reasoning)
        nibble_reasoning_finish(thought->reasoning, &thought->text, answer);
    print_thought(thought);
    close_thought(thought);
}

void run_thought_free(struct run_thought *thought)
{
    free(thought->piece.data);
    free(thought->text.data);
    wrap_free(&thought->wrap);
    *thought = (struct run_thought){ 0 };
}
