// SPDX-License-Identifier: Apache-2.0
#include "model/kv_declared.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/quantised.h"

static bool dtype_of_algorithm(const char *word, enum dtype *out)
{
    if (!strcasecmp(word, "FP8"))
        return *out = DTYPE_FP8_E4M3, true;
    if (!strcasecmp(word, "NVFP4"))
        return *out = DTYPE_NVFP4, true;
    return false;
}

// "FP8", {"quant_algo": "FP8"} or {"num_bits": 8, "type": "float"}.
static bool dtype_of_scheme(const json_t *scheme, enum dtype *out)
{
    if (json_is_string(scheme))
        return dtype_of_algorithm(json_string_value(scheme), out);
    const json_t *algorithm = json_object_get(scheme, "quant_algo");
    if (json_is_string(algorithm))
        return dtype_of_algorithm(json_string_value(algorithm), out);
    const char *type = json_string_value(json_object_get(scheme, "type"));
    json_int_t bits = json_integer_value(json_object_get(scheme, "num_bits"));
    if (!type || strcmp(type, "float") || (bits != 8 && bits != 4))
        return false;
    return *out = bits == 8 ? DTYPE_FP8_E4M3 : DTYPE_NVFP4, true;
}

static void note_unknown(struct model *model, const char *key, const json_t *scheme)
{
    char *text = json_dumps(scheme, JSON_ENCODE_ANY | JSON_COMPACT);
    model->kv_declared_unknown = arena_format(&model->arena,
                                              "the checkpoint declares %s %.200s for its cache, which nibble does not "
                                              "know; "
                                              "name a format",
                                              key, text ? text : "");
    free(text);
}

// "model.layers.7.self_attn" -> 7
static int layer_of_path(const char *path, int layers)
{
    const char *at = strstr(path, "layers.");
    int layer = at && at[7] >= '0' && at[7] <= '9' ? atoi(at + 7) : -1;
    return layer < layers ? layer : -1;
}

static void read_layers(struct model *model, const json_t *map)
{
    const char *path;
    json_t *scheme;
    json_object_foreach ((json_t *)map, path, scheme) {
        int layer = layer_of_path(path, model->config.layers);
        if (layer < 0 || !dtype_of_scheme(scheme, &model->layer[layer].kv_dtype))
            note_unknown(model, path, scheme);
    }
}

void kv_declared_read(struct model *model, const struct checkpoint *checkpoint)
{
    static const char *const keys[] = { "kv_cache_scheme", "kv_cache_quant_algo" };
    const json_t *declaration = quantised_declaration(checkpoint), *scheme = NULL;
    enum dtype dtype = model->config.kv_dtype;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !scheme; i++) {
        scheme = quantised_key(declaration, keys[i]);
        if (scheme && !dtype_of_scheme(scheme, &dtype))
            note_unknown(model, keys[i], scheme);
    }
    for (int i = 0; i < model->config.layers; i++)
        model->layer[i].kv_dtype = dtype;
    read_layers(model, quantised_key(declaration, "kv_cache_quantized_layers"));
}
