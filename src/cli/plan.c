// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"

static int print_plan(const char *model, const struct nibble_options *options, bool json)
{
    struct nibble_error error;
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_HEADERS, &error);
    struct nibble_plan *plan = checkpoint ? nibble_plan_make(checkpoint, options, &error) : NULL;
    int status = plan ? EXIT_DONE : cli_fail(&error, json);
    if (plan) {
        struct nibble_text text = { 0 };
        nibble_plan_print(plan, json ? NIBBLE_PLAN_JSON : NIBBLE_PLAN_FULL, &text);
        status = cli_write(text.data, text.len) ? EXIT_DONE : EXIT_FAILED;
        free(text.data);
    }
    nibble_plan_close(plan);
    nibble_checkpoint_close(checkpoint);
    return status;
}

int command_plan(int argc, char **argv)
{
    struct nibble_options plan_options = { 0 };
    long long length = 0, sequences = 0;
    bool json = false;
    const struct option_row options[] = {
        { "--kv-cache-dtype", OPTION_TEXT, &plan_options.kv_cache_dtype, "FORMAT",
          "cache format; K/V and ranges too: 0-3:bfloat16,4-:fp8/nvfp4" },
        { "--max-model-len", OPTION_INT, &length, "N", "longest sequence in tokens (the model's own)", 1, 1 << 28 },
        { "--max-num-seqs", OPTION_INT, &sequences, "N", "sequences at once (1)", 1, 4096 },
        { "--json", OPTION_FLAG, &json, NULL, "as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble plan MODEL [options]",
        .about = "Says what would run: formats, kernels and memory of every layer, from headers alone. Loads nothing.",
        .example = "nibble plan model.gguf --kv-cache-dtype nvfp4",
        .options = options,
        .positional_min = 1,
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    plan_options.max_model_len = (int)length;
    plan_options.max_num_seqs = (int)sequences;
    return print_plan(argv[0], &plan_options, json);
}
