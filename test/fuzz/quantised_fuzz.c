// SPDX-License-Identifier: Apache-2.0
// Any declaration of quantised modules, and what it says of some.
#include "format/json.h"
#include "model/quantised.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const modules[] = { "lm_head", "model.layers.0.self_attn.q_proj",
                                           "layers.11.mlp.experts.3.up_proj" };
    struct checkpoint checkpoint = { .path = "fuzz" };
    struct quantised quantised;
    struct arena arena = { 0 };
    struct error err;
    const struct scheme *scheme;
    if (!json_read((struct bytes){ (const char *)data, size }, &checkpoint.hf_quant_config, &err))
        return 0;
    if (quantised_read(&quantised, &checkpoint, &arena, &err))
        for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
            quantised_find(&quantised, modules[i], "Linear", &scheme, &err);
    quantised_free(&quantised);
    json_decref(checkpoint.hf_quant_config);
    arena_free(&arena);
    return 0;
}
