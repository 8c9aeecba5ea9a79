// SPDX-License-Identifier: Apache-2.0
// Any config.json, as far as an architecture reads it; the weights it asks for are never there.
#include "format/json.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint checkpoint = { .path = "fuzz" };
    struct model model;
    struct error err;
    if (!json_read((struct bytes){ (const char *)data, size }, &checkpoint.config, &err))
        return 0;
    if (json_is_object(checkpoint.config) && model_describe(&model, &checkpoint, &err))
        model_free(&model);
    json_decref(checkpoint.config);
    return 0;
}
