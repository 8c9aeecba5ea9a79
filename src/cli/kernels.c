// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

struct request {
    bool test, bench, quick, json, markdown, ops_markdown;
    long long seed, threads;
    struct nibble_kernels_options options;
};

static int usage_error(const struct request *request, const char *sentence)
{
    struct nibble_error error = { .usage = true };
    snprintf(error.text, sizeof error.text, "%s", sentence);
    return cli_fail(&error, request->json);
}

static int report(struct request *request)
{
    struct cli_progress progress = { .label = request->test ? "testing" : "measuring", .shown = -1 };
    struct nibble_kernels_options *options = &request->options;
    options->action = request->test ? NIBBLE_KERNELS_TEST
        : request->bench            ? NIBBLE_KERNELS_BENCH
        : request->ops_markdown     ? NIBBLE_KERNELS_OPS
                                    : NIBBLE_KERNELS_LIST;
    options->form = request->json ? NIBBLE_FORM_JSON : request->markdown ? NIBBLE_FORM_MARKDOWN : NIBBLE_FORM_TEXT;
    options->seed = (uint64_t)request->seed;
    options->quick = request->quick;
    options->threads = (int)request->threads;
    options->columns = cli_columns(STDOUT_FILENO, 0);
    options->progress = cli_progress_show;
    options->progress_context = &progress;
    struct nibble_error error;
    struct nibble_text text = { 0 };
    int failed;
    if (!nibble_kernels(options, &text, &failed, &error))
        return cli_fail(&error, request->json);
    int status = cli_output(text.data, text.len);
    free(text.data);
    return failed ? EXIT_FAILED : status;
}

int command_kernels(int argc, char **argv)
{
    struct request request = { .seed = 1 };
    const struct option_row options[] = {
        { "--device", OPTION_TEXT, &request.options.device, "D", "which rows run there (cpu); as for nibble plan" },
        { "--test", OPTION_FLAG, &request.test, NULL, "run what this machine can run against the reference" },
        { "--quick", OPTION_FLAG, &request.quick, NULL, "with --test: one seed, small shapes; for memory checkers" },
        { "--bench", OPTION_FLAG, &request.bench, NULL, "time it, beside the machine's ceiling" },
        { "--seed", OPTION_INT, &request.seed, "N", "of the random input (1)", 0, INT_MAX },
        { "--threads", OPTION_INT, &request.threads, "N", "of --bench (every core)", 1, 256 },
        { "--json", OPTION_FLAG, &request.json, NULL, "as JSON" },
        { "--markdown", OPTION_FLAG, &request.markdown, NULL, "the table as doc/kernels.md has it" },
        { "--ops-markdown", OPTION_FLAG, &request.ops_markdown, NULL, "the table of ops as doc/ops.md has it" },
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
    if (request.test && request.bench)
        return usage_error(&request, "--test and --bench are two commands; give one of them");
    if (request.quick && !request.test)
        return usage_error(&request, "--quick goes with --test");
    if (request.markdown && (request.json || request.test || request.bench))
        return usage_error(&request, "--markdown prints the table of kernels and goes with no other form");
    if (request.ops_markdown && (request.json || request.test || request.bench || request.markdown || count))
        return usage_error(&request, "--ops-markdown prints the table of ops and goes with no other option");
    request.options.name = count ? argv[0] : NULL;
    return report(&request);
}
