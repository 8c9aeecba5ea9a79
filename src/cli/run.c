// SPDX-License-Identifier: Apache-2.0
// cli/run.c: `nibble run`: the options of one answer, or of a chat in the terminal (a REPL).
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/ranks.h"
#include "cli/run_chat.h"

enum { PIPE_HINT_MS = 2000 };

// ---- the prompt ---------------------------------------------------------------------------------------------------

// A file or a pipe as standard input belongs to the prompt. A launcher of ranks has one of its own.
static bool has_input(const struct run_options *options)
{
    struct stat file;
    return !options->engine.ranks && fstat(STDIN_FILENO, &file) == 0
        && (S_ISREG(file.st_mode) || S_ISFIFO(file.st_mode));
}

// Waits for a pipe, with a line on stderr if nothing comes: it may be one that nobody writes to.
static bool read_input(struct nibble_text *out, struct error *err)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    if (poll(&input, 1, PIPE_HINT_MS) == 0)
        cli_print("waiting for the end of standard input, a pipe; < /dev/null for none\n");
    return cli_read("-", out, err);
}

// PROMPT, standard input for "-", or both: a file behind what shall be done with it. *text is heap.
static bool gather_prompt(const char *prompt, const struct run_options *options, struct strbuf *text, struct error *err)
{
    struct nibble_text input = { 0 };
    bool standard = !strcmp(prompt, "-");
    bool ok = (!standard && !has_input(options)) || read_input(&input, err);
    if (!standard)
        strbuf_add_text(text, prompt);
    if (text->len && input.len)
        strbuf_add_text(text, "\n\n");
    strbuf_add(text, input.data, input.len);
    free(input.data);
    return ok;
}

static int answer_once(struct run_chat *chat, struct bytes prompt)
{
    struct error err;
    session_print_start(chat->session);
    return run_chat_answer(chat, prompt, &err) ? EXIT_DONE : cli_fail(&err, false);
}

static int run(const char *model, const char *prompt, const struct run_options *options)
{
    struct session session = { 0 };
    struct run_chat chat = { 0 };
    struct error err = { 0 };
    struct strbuf text = { 0 };
    int status;
    bool ok = (!prompt || gather_prompt(prompt, options, &text, &err))
        && run_chat_open(&chat, &session, options->system, &err) && session_open(&session, model, options, &err);
    if (!ok)
        status = cli_fail(&err, false);
    else if (prompt)
        status = answer_once(&chat, strbuf_bytes(&text));
    else
        status = run_chat_converse(&chat);
    session_close(&session);
    run_chat_close(&chat);
    strbuf_free(&text);
    return status;
}

// ---- the command line ---------------------------------------------------------------------------------------------

int command_run(int argc, char **argv)
{
    struct run_options command = {
        .sampling = { .temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1, .repetition_penalty = -1 }, .seed = -1
    };
    const struct option_row options[] = {
        { "--max-tokens", OPTION_INT, &command.max_tokens, "N", "longest answer in tokens (what the context holds)", 1,
          1 << 28 },
        { "--temperature", OPTION_REAL, &command.sampling.temperature, "X",
          "0: always the most likely token (the model's)", 0, 100 },
        { "--top-p", OPTION_REAL, &command.sampling.top_p, "X", "draw from the likeliest tokens that sum to X", 0, 1 },
        { "--top-k", OPTION_INT, &command.sampling.top_k, "N", "draw from the N likeliest tokens (0: all)", 0,
          1 << 28 },
        { "--min-p", OPTION_REAL, &command.sampling.min_p, "X", "drop tokens below X times the likeliest", 0, 1 },
        { "--repetition-penalty", OPTION_REAL, &command.sampling.repetition_penalty, "X",
          "make tokens that occurred less likely (1: off)", 0, 100 },
        DEFAULTS_OPTION_ROWS(command.defaults),
        { "--seed", OPTION_LONG, &command.seed, "N", "the same seed draws the same answer", 0, 9007199254740991 },
        { "--system", OPTION_TEXT, &command.system, "TEXT", "a system message before the chat" },
        { "--chat-template", OPTION_TEXT, &command.template_file, "FILE", "a Jinja template instead of the model's" },
        { "--raw", OPTION_FLAG, &command.raw, NULL, "no chat template: continue the text as it is" },
        { "--no-reasoning", OPTION_FLAG, &command.no_reasoning, NULL, "leave the model's thoughts in the answer" },
        ENGINE_OPTION_ROWS(command.engine),
        RANKS_OPTION_ROW(command.engine),
        { "--threads", OPTION_INT, &command.engine.threads, "N", "threads (all cores)", 1, 256 },
        { "--no-self-test", OPTION_FLAG, &command.engine.no_self_test, NULL, "do not check the kernels first" },
        { "--trace", OPTION_WORD, &command.trace, "WORD", "ops: a line per op, with time and checksum (none)",
          .words = trace_words },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble run MODEL [PROMPT | -] [options]",
        .about = "Streams the answer to PROMPT; its thought goes to stderr. A file or pipe as standard input is "
                 "appended to\n"
                 "PROMPT, or is all of it (-). Without PROMPT, a chat in the terminal: /help lists its commands, "
                 "Ctrl-C stops an\n"
                 "answer, Ctrl-D leaves. A message of several lines: paste it, surround it with \"\"\", or end each "
                 "line but the\n"
                 "last with \\.",
        .example = "nibble run model.gguf \"What is a nibble?\" --kv-cache-dtype nvfp4 --temperature 0",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 2,
    };
    int count = 0;
    int status = ranks_begin(&command.engine.ranks);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = ranks_settle(&command.engine, false);
    if (status < 0)
        status = run(argv[0], count == 2 ? argv[1] : NULL, &command);
    nibble_ranks_close(command.engine.ranks);
    return status;
}
