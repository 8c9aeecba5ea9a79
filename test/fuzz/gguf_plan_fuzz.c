// SPDX-License-Identifier: Apache-2.0
// From any GGUF header to a description and a plan. The first byte chooses the device and the cache.
#include "format/gguf.h"

#include "plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf gguf;
    struct error err;
    if (size < 2 || !gguf_parse(with_weights((struct bytes){ (const char *)data + 1, size - 1 }), &gguf, &err))
        return 0;
    struct checkpoint checkpoint = { .path = "fuzz", .gguf = &gguf };
    add_tensors(&checkpoint, gguf.tensors, gguf.tensor_count);
    describe_and_plan(&checkpoint, data[0]);
    map_free(&checkpoint.names);
    gguf_free(&gguf);
    return 0;
}
