// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <unistd.h>

#include "cli/cache_options.h"
#include "cli/cli.h"

struct request {
    bool json, verbose;
    struct nibble_options options;
};

static bool wants_colour(void)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && !(no_colour && *no_colour);
}

static int print_plan(const char *model, const struct request *request)
{
    struct nibble_error error;
    struct nibble_text text = { 0 };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_HEADERS, &error);
    struct nibble_plan *plan = checkpoint ? nibble_plan_make(checkpoint, &request->options, &error) : NULL;
    bool accepted = plan && nibble_plan_accepted(plan);
    int status = accepted ? EXIT_DONE : cli_fail(&error, request->json && !plan);
    int style = (wants_colour() ? NIBBLE_PLAN_COLOUR : 0) | (request->verbose ? NIBBLE_PLAN_VERBOSE : 0);
    if (plan && (accepted || request->json))
        nibble_plan_print(plan, request->json ? NIBBLE_PLAN_JSON : NIBBLE_PLAN_FULL, style, &text);
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
    struct request request = { 0 };
    struct cache_options cache = { 0 };
    const struct option_row options[] = {
        CACHE_OPTION_ROWS(cache),
        SERVING_OPTION_ROWS(cache),
        RANKS_OPTION_ROW(cache),
        { "--memory", OPTION_SIZE, &request.options.memory_bytes, "BYTES",
          "what weights and cache may take (what is free)" },
        { "--json", OPTION_FLAG, &request.json, NULL, "as JSON" },
        { "--verbose", OPTION_FLAG, &request.verbose, NULL, "every kernel that was passed over, and why" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble plan MODEL [options]",
        .about = "Says what would run: formats, kernels and memory of every layer, from headers alone. Loads nothing.\n"
                 "--device may be imagined: cpu:avx2, cpu:amx, sm_80 ... sm_121, none.",
        .example = "nibble plan model.gguf --kv-cache-dtype nvfp4 --device cpu:avx2",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed < 0) {
        cache_options_apply(&cache, &request.options);
        parsed = print_plan(argv[0], &request);
    }
    strbuf_free(&cache.skip_layers);
    return parsed;
}
