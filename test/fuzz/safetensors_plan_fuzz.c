// SPDX-License-Identifier: Apache-2.0
// From any config.json and header of safetensors to a description and a plan. The first byte chooses the device and the
// cache; a zero byte parts config.json from the header.
#include "base/strbuf.h"
#include "format/json.h"
#include "format/safetensors.h"

#include "plan.h"

static bool parse_header(struct bytes json, struct safetensors *out)
{
    struct strbuf header = { 0 };
    struct error err;
    uint64_t length = json.len;
    strbuf_add(&header, (const char *)&length, sizeof length); // little endian, as all machines that we have
    strbuf_add(&header, json.data, json.len);
    bool ok = safetensors_parse(with_weights(strbuf_bytes(&header)), out, &err);
    strbuf_free(&header);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint checkpoint = { .path = "fuzz" };
    struct safetensors file;
    struct error err;
    const char *config = (const char *)data + 1, *zero = size ? memchr(config, 0, size - 1) : NULL;
    if (!zero || !json_read((struct bytes){ config, (size_t)(zero - config) }, &checkpoint.config, &err))
        return 0;
    struct bytes header = { zero + 1, (size_t)((const char *)data + size - zero - 1) };
    if (json_is_object(checkpoint.config) && parse_header(header, &file)) {
        add_tensors(&checkpoint, file.tensors, file.tensor_count);
        describe_and_plan(&checkpoint, data[0]);
        map_free(&checkpoint.names);
        safetensors_free(&file);
    }
    json_decref(checkpoint.config);
    return 0;
}
