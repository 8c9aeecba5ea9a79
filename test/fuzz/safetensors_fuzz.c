// SPDX-License-Identifier: Apache-2.0
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors file;
    struct error err;
    if (safetensors_parse((struct bytes){ (const char *)data, size }, &file, &err))
        safetensors_free(&file);
    return 0;
}
