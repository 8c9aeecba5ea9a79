// SPDX-License-Identifier: Apache-2.0
#include "format/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *value;
    struct error err;
    if (json_read((struct bytes){ (const char *)data, size }, &value, &err))
        json_decref(value);
    return 0;
}
