// SPDX-License-Identifier: Apache-2.0
// Any configuration, against a table with an option of each kind that one can set.
#include "cli/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct option_row options[] = {
        { "--port", OPTION_INT },
        { "--host", OPTION_TEXT },
        { "--api-key", OPTION_TEXTS },
        { "--skip", OPTION_LIST },
        { "--caching", OPTION_SWITCH },
        { "--log-json", OPTION_FLAG },
        { 0 },
    };
    struct config config;
    struct error err;
    config_parse((struct bytes){ (const char *)data, size }, options, &config, &err);
    config_free(&config);
    return 0;
}
