// SPDX-License-Identifier: Apache-2.0
#include "cli/run_thought.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define DIM "\033[2m"
#define PLAIN "\033[0m"

static bool is_dimmed(void)
{
    const char *no_colour = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && getenv("TERM") && !(no_colour && *no_colour);
}

static void print_thought(struct run_thought *thought)
{
    struct nibble_text *text = &thought->text;
    bool dimmed = is_dimmed();
    if (!text->len)
        return;
    cli_print("%s%.*s%s", dimmed ? DIM : "", (int)text->len, text->data, dimmed ? PLAIN : "");
    thought->open = true;
    thought->ended_line = text->data[text->len - 1] == '\n';
    text->len = 0;
}

// An empty line between the thought and the answer.
static void close_thought(struct run_thought *thought)
{
    if (thought->open)
        cli_print(thought->ended_line ? "\n" : "\n\n");
    thought->open = false;
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
    *thought = (struct run_thought){ 0 };
}
