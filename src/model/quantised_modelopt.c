// SPDX-License-Identifier: Apache-2.0
// model/quantised_modelopt.c: the quantisation config of NVIDIA ModelOpt: one algorithm for all modules that are not
// excluded, or one per module.
#include <string.h>
#include <strings.h>

#include "base/strbuf.h"
#include "format/json.h"
#include "model/quantised.h"

static const struct scheme algorithms[] = {
    { &weight_layout_nvfp4_modelopt, "NVFP4", .bits = 4, .group = 16, .rows_each = 1 },
    { &weight_layout_nvfp4_modelopt, "W4A16_NVFP4", .bits = 4, .group = 16, .rows_each = 1 },
    { &weight_layout_fp8, "FP8" },
    { &weight_layout_fp8, "FP8_PER_CHANNEL_PER_TOKEN", .rows_each = 1 },
    { &weight_layout_fp8, "FP8_PB_WO", .group = 128, .rows_each = 128 },
    { &weight_layout_mxfp8, "MXFP8", .group = 32, .rows_each = 1 },
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static bool refuse_algorithm(const char *word, struct error *err)
{
    struct strbuf known = { 0 };
    for (int i = 0; i < ALGORITHMS; i++)
        strbuf_add_format(&known, "%s, ", algorithms[i].word);
    fail(err, "quant_algo \"%.60s\" is one that nibble does not read; it reads %sMIXED_PRECISION", word, known.data);
    strbuf_free(&known);
    return false;
}

// If `object` has a group_size, it must be the algorithm's.
static bool add_algorithm(struct quantised *quantised, const char *word, const json_t *object, int *number,
                          struct error *err)
{
    for (int i = 0; i < ALGORITHMS; i++) {
        int64_t group = algorithms[i].group;
        if (strcasecmp(word, algorithms[i].word))
            continue;
        if (!json_get_int(object, "group_size", 0, INT32_MAX, &group, err))
            return false;
        if (algorithms[i].layout != &weight_layout_fp8 && group != algorithms[i].group)
            return fail(err, "%s in groups of %lld; nibble reads groups of %d", word, (long long)group,
                        algorithms[i].group);
        return quantised_add_scheme(quantised, algorithms[i], number, err);
    }
    return refuse_algorithm(word, err);
}

static bool read_layers(struct quantised *quantised, const json_t *layers, struct error *err)
{
    const char *path;
    json_t *layer;
    if (!json_is_object(layers))
        return fail(err, "MIXED_PRECISION comes without quantized_layers, so nothing says which module has what");
    json_object_foreach ((json_t *)layers, path, layer) {
        const char *word = NULL;
        int number;
        if (!json_get_text(layer, "quant_algo", &word, err) || !word)
            return fail(err, "quantized_layers: %.200s has no quant_algo", path);
        if (!add_algorithm(quantised, word, layer, &number, err) || !modules_add(&quantised->chosen, path, number, err))
            return fail_within(err, "quantized_layers: %.200s", path);
    }
    return true;
}

bool quantised_read_modelopt(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    const json_t *inner = json_object_get(declaration, "quantization");
    const json_t *object = json_is_object(inner) ? inner : declaration;
    const json_t *algorithm = quantised_key(declaration, "quant_algo");
    const char *word = json_string_value(algorithm);
    int number;
    quantised->complete = true;
    quantised->excluded.way = quantised->chosen.way = MODULES_PARTS;
    if (!quantised_add_modules(&quantised->excluded, object, "exclude_modules", 0, err)
        || !quantised_add_modules(&quantised->excluded, object, "ignore", 0, err))
        return false;
    if (algorithm && !word)
        return fail(err, "quant_algo is no text");
    quantised->chosen_only = !word || !strcasecmp(word, "MIXED_PRECISION");
    if (!word) // only the KV cache is quantised
        return true;
    return quantised->chosen_only ? read_layers(quantised, quantised_key(declaration, "quantized_layers"), err)
                                  : add_algorithm(quantised, word, object, &number, err);
}
