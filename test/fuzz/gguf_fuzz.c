// SPDX-License-Identifier: Apache-2.0
#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf gguf;
    struct error err;
    if (gguf_parse((struct bytes){ (const char *)data, size }, &gguf, &err))
        gguf_free(&gguf);
    return 0;
}
