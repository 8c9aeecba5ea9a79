// SPDX-License-Identifier: Apache-2.0
// cli/env.c: `nibble env`: reports hardware, drivers, build and libraries.
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"

int command_env(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {
        { "--json", OPTION_FLAG, &json, NULL, "as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble env [--json]",
        .about = "Reports CPU, memory, GPUs, drivers, MPI and NCCL as found, build and libraries. Never fails.",
        .example = "nibble env",
        .options = options,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    struct nibble_text report = { 0 };
    nibble_environment(&report, json);
    int status = cli_output(report.data, report.len);
    free(report.data);
    return status;
}
