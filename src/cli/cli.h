// SPDX-License-Identifier: Apache-2.0
// cli/cli.h: the commands and their shared helpers. Each returns the exit status: 0 done, 1 failed or refused, 2 usage,
// 141 when the reader of its output left early (as `head` does): what shells report for a program that SIGPIPE ended.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <jansson.h>
#include <signal.h>

#include "base/error.h"
#include "base/strbuf.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_READER_LEFT = 128 + SIGPIPE };

// The offline ones, in src/tools.
int command_bench(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_tune(int argc, char **argv);

int command_env(int argc, char **argv);
int command_kernels(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_render(int argc, char **argv);
int command_run(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_tokenize(int argc, char **argv);

// Prints the sentence to stderr and, with json, {"error": sentence} to stdout; gives the exit status it calls for. When
// the reader of stdout has left, it prints nothing.
int cli_fail(const struct error *err, bool json);

// Writes all of it to stdout.
bool cli_write(const char *data, size_t len, struct error *err);
bool cli_reader_left(void);                   // a write failed because nobody reads stdout any more
int cli_output(const char *data, size_t len); // the same as a command's last deed: gives the exit status

// Appends a value as JSON and a line end, and releases the reference. flags: of json_dumps.
void cli_add_json(struct strbuf *out, json_t *root, size_t flags);

int cli_compare_reals(const void *a, const void *b); // for qsort

// A whole file, or standard input for "-", on the heap.
bool cli_read(const char *path, struct nibble_text *out, struct error *err);

// A bar on stderr while something takes its time; nothing where stderr is no terminal.
struct cli_progress {
    const char *label;
    int shown; // percent, -1 before the first
};
void cli_progress_show(void *progress, double done);    // a struct cli_progress; done 0 .. 1, 1 clears the line
void cli_calibrating_show(void *progress, double done); // the same, while the model is measured first
void cli_progress_clear(void);                          // before anything else is printed

// nibble_engine_open with that bar; and the plan of an engine in a few lines on stderr.
struct nibble_engine *cli_engine_open(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                                      struct error *err);
void cli_print_plan(const struct nibble_engine *engine);

void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2))); // to stderr, in place of the bar
int cli_columns(int fd, int otherwise); // width of the terminal behind fd; `otherwise` where there is none
bool cli_stderr_is_terminal(void);

#endif
