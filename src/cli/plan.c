// SPDX-License-Identifier: Apache-2.0
// cli/plan.c: `nibble plan`: prints the execution plan of a model (EXPLAIN) without loading it.
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/engine_options.h"

struct plan_command {
    bool json, verbose;
    struct nibble_options options;
};

static bool wants_colour(void)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && !(no_colour && *no_colour);
}

static int print_plan(const char *model, const struct plan_command *command)
{
    struct error err;
    struct nibble_text text = { 0 };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_HEADERS, &err);
    struct nibble_plan *plan = checkpoint ? nibble_plan_make(checkpoint, &command->options, &err) : NULL;
    bool accepted = plan && nibble_plan_accepted(plan);
    int status = accepted ? EXIT_DONE : cli_fail(&err, command->json && !plan);
    int style = (wants_colour() ? NIBBLE_PLAN_COLOUR : 0) | (command->verbose ? NIBBLE_PLAN_VERBOSE : 0);
    if (plan && (accepted || command->json))
        nibble_plan_print(plan, command->json ? NIBBLE_PLAN_JSON : NIBBLE_PLAN_FULL, style, &text);
    int written = text.len ? cli_output(text.data, text.len) : EXIT_DONE;
    if (written != EXIT_DONE)
        status = written;
    free(text.data);
    nibble_plan_close(plan);
    nibble_checkpoint_close(checkpoint);
    return status;
}

int command_plan(int argc, char **argv)
{
    struct plan_command command = { 0 };
    const struct option_row options[] = {
        ENGINE_OPTION_ROWS(command.options),
        SERVING_OPTION_ROWS(command.options),
        RANKS_OPTION_ROW(command.options),
        { "--memory", OPTION_SIZE, &command.options.memory_bytes, "BYTES",
          "budget of weights and cache (free memory)" },
        { "--json", OPTION_FLAG, &command.json, NULL, "as JSON" },
        { "--verbose", OPTION_FLAG, &command.verbose, NULL,
          "the kernel of every op, and every rejected one with its reason" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble plan MODEL [options]",
        .about = "Says what would run: formats, kernels and memory of every layer, from headers alone. Loads nothing.\n"
                 "--device need not be present: cpu:avx2, cpu:amx, sm_80 ... sm_121, none.",
        .example = "nibble plan model.gguf --kv-cache-dtype nvfp4 --device cpu:avx2",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    return parsed >= 0 ? parsed : print_plan(argv[0], &command);
}
