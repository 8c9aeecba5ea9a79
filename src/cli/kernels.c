// SPDX-License-Identifier: Apache-2.0
// cli/kernels.c: `nibble kernels`: lists, tests or times the kernels of this build.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/options.h"

struct kernels_command {
    bool test, bench, json, markdown, ops_markdown;
    struct nibble_kernels_options options;
};

static int usage_error(const struct kernels_command *command, const char *sentence)
{
    struct error err;
    fail_usage(&err, "%s", sentence);
    return cli_fail(&err, command->json);
}

static int report(struct kernels_command *command)
{
    struct cli_progress progress = { .label = command->test ? "testing" : "measuring", .shown = -1 };
    struct nibble_kernels_options *options = &command->options;
    options->action = command->test ? NIBBLE_KERNELS_TEST
        : command->bench            ? NIBBLE_KERNELS_BENCH
        : command->ops_markdown     ? NIBBLE_KERNELS_OPS
                                    : NIBBLE_KERNELS_LIST;
    options->form = command->json ? NIBBLE_FORM_JSON : command->markdown ? NIBBLE_FORM_MARKDOWN : NIBBLE_FORM_TEXT;
    options->columns = cli_columns(STDOUT_FILENO, 0);
    options->progress = cli_progress_show;
    options->progress_context = &progress;
    struct error err;
    struct nibble_text text = { 0 };
    int failed;
    if (!nibble_kernels(options, &text, &failed, &err))
        return cli_fail(&err, command->json);
    int status = cli_output(text.data, text.len);
    free(text.data);
    return failed ? EXIT_FAILED : status;
}

int command_kernels(int argc, char **argv)
{
    struct kernels_command command = { .options.seed = 1 };
    const struct option_row options[] = {
        { "--device", OPTION_TEXT, &command.options.device, "D", "which rows run there (cpu); as for nibble plan" },
        { "--test", OPTION_FLAG, &command.test, NULL, "run what this machine can run against the reference" },
        { "--quick", OPTION_FLAG, &command.options.quick, NULL,
          "with --test: one seed, small shapes; for memory checkers" },
        { "--bench", OPTION_FLAG, &command.bench, NULL, "time it, beside the machine's ceiling" },
        { "--seed", OPTION_LONG, &command.options.seed, "N", "of the random input (1)", 0, INT_MAX },
        { "--threads", OPTION_INT, &command.options.threads, "N", "of --bench (every core)", 1, 256 },
        { "--json", OPTION_FLAG, &command.json, NULL, "as JSON" },
        { "--markdown", OPTION_FLAG, &command.markdown, NULL, "the table as doc/kernels.md has it" },
        { "--ops-markdown", OPTION_FLAG, &command.ops_markdown, NULL, "the table of ops as doc/ops.md has it" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble kernels [NAME] [options]",
        .about = "Lists the kernels of this build: op, formats, head sizes, needs. NAME is a kernel's or an op's.",
        .example = "nibble kernels attention --test",
        .options = options,
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    if (command.test && command.bench)
        return usage_error(&command, "--test and --bench are two commands; give one of them");
    if (command.options.quick && !command.test)
        return usage_error(&command, "--quick goes with --test");
    if (command.markdown && (command.json || command.test || command.bench))
        return usage_error(&command, "--markdown prints the table of kernels and goes with no other form");
    if (command.ops_markdown && (command.json || command.test || command.bench || command.markdown || count))
        return usage_error(&command, "--ops-markdown prints the table of ops and goes with no other option");
    command.options.name = count ? argv[0] : NULL;
    return report(&command);
}
