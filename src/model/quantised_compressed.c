// SPDX-License-Identifier: Apache-2.0
// model/quantised_compressed.c: the quantisation config of compressed-tensors (llm-compressor): groups of modules, each
// with a format and quantisation parameters.
#include <stdio.h>
#include <string.h>

#include "format/json.h"
#include "model/quantised.h"

// A group's declared weight parameters.
struct weights {
    const char *format, *type, *strategy;
    int64_t bits, group, block[2];
    bool symmetric, ordered, byte_scales;
};

// The supported combinations; others are refused.
static const struct rule {
    const char *format, *type, *strategies;
    int bits, group; // 0: any
    bool zeros;
    const struct weight_layout *layout;
    const char *word;
} rules[] = {
    { "nvfp4-pack-quantized", "float", "tensor_group", 4, 16, false, &weight_layout_nvfp4_compressed, "NVFP4" },
    { "mxfp4-pack-quantized", "float", "group", 4, 32, false, &weight_layout_mxfp4, "MXFP4" },
    { "mxfp8-quantized", "float", "group", 8, 32, false, &weight_layout_mxfp8, "MXFP8" },
    { "float-quantized", "float", "group", 8, 32, false, &weight_layout_mxfp8, "MXFP8" },
    { "float-quantized", "float", "tensor channel block group", 8, 0, false, &weight_layout_fp8, "FP8" },
    { "naive-quantized", "float", "tensor channel block group", 8, 0, false, &weight_layout_fp8, "FP8" },
    { "int-quantized", "int", "tensor channel group", 8, 0, false, &weight_layout_int8, "int8" },
    { "naive-quantized", "int", "tensor channel group", 8, 0, false, &weight_layout_int8, "int8" },
    { "pack-quantized", "int", "tensor channel group", 4, 0, true, &weight_layout_packed, "int4" },
    { "pack-quantized", "int", "tensor channel group", 8, 0, true, &weight_layout_packed, "int8" },
};

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = words; len && (at = strstr(at, word)); at += len)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
            return true;
    return false;
}

// [128, 128], or in old versions "128x128".
static bool read_block(const json_t *weights, int64_t block[2], struct error *err)
{
    const json_t *structure = json_object_get(weights, "block_structure");
    const char *text = json_string_value(structure);
    int rows = 0, cols = 0;
    if (text && sscanf(text, "%6dx%6d", &rows, &cols) != 2)
        rows = cols = 0;
    block[0] = text ? rows : json_integer_value(json_array_get(structure, 0));
    block[1] = text ? cols : json_integer_value(json_array_get(structure, 1));
    return (block[0] > 0 && block[0] <= INT32_MAX && block[1] > 0 && block[1] <= INT32_MAX)
        || fail(err, "weights in blocks need a block_structure of two positive numbers");
}

static bool read_weights(const json_t *group, const char *format, struct weights *out, struct error *err)
{
    const json_t *weights = json_object_get(group, "weights"), *order = json_object_get(weights, "actorder");
    const char *scale_type = "";
    *out = (struct weights){ .format = format, .type = "int", .strategy = "", .bits = 8, .symmetric = true };
    if (!json_get_text(group, "format", &out->format, err) || !json_get_text(weights, "type", &out->type, err)
        || !json_get_text(weights, "strategy", &out->strategy, err)
        || !json_get_int(weights, "num_bits", 1, 64, &out->bits, err)
        || !json_get_int(weights, "group_size", -1, INT32_MAX, &out->group, err)
        || !json_get_bool(weights, "symmetric", &out->symmetric, err)
        || !json_get_text(weights, "scale_dtype", &scale_type, err))
        return false;
    out->byte_scales = strstr(scale_type, "uint8");
    if (!*out->strategy) // implied by the sizes
        out->strategy = json_is_array(json_object_get(weights, "block_structure")) ? "block"
            : out->group > 0                                                       ? "group"
            : out->group < 0                                                       ? "channel"
                                                                                   : "tensor";
    out->ordered = json_is_true(order) || (json_is_string(order) && !strcmp(json_string_value(order), "group"));
    return strcmp(out->strategy, "block") || read_block(weights, out->block, err);
}

static bool fits(const struct rule *rule, const struct weights *weights)
{
    if (!strcmp(rule->format, "float-quantized") && weights->byte_scales != (rule->layout == &weight_layout_mxfp8))
        return false;
    return !strcmp(rule->format, weights->format) && !strcmp(rule->type, weights->type) && rule->bits == weights->bits
        && has_word(rule->strategies, weights->strategy) && (!rule->group || rule->group == weights->group)
        && (rule->zeros || weights->symmetric) && (rule->layout == &weight_layout_packed || !weights->ordered);
}

static struct scheme scheme_of(const struct rule *rule, const struct weights *weights, struct arena *arena)
{
    bool blocks = !strcmp(weights->strategy, "block"), grouped = strstr(weights->strategy, "group");
    const char *zeros = weights->symmetric ? "" : " with zero points", *order = weights->ordered ? ", reordered" : "";
    struct scheme scheme = { rule->layout, rule->word, .bits = rule->bits, .zeros = !weights->symmetric,
                             .ordered = weights->ordered };
    scheme.group = (int)(blocks ? weights->block[1] : grouped && weights->group > 0 ? weights->group : 0);
    scheme.rows_each = blocks ? (int)weights->block[0] : strcmp(weights->strategy, "tensor") != 0;
    if (rule->group) // the word implies the group
        return scheme;
    scheme.word = grouped ? arena_format(arena, "%s in groups of %d%s%s", rule->word, scheme.group, zeros, order)
                          : arena_format(arena, "%s by %s%s", rule->word, weights->strategy, zeros);
    return scheme;
}

static bool add_group(struct quantised *quantised, const json_t *group, const char *format, struct error *err)
{
    struct weights weights;
    int number;
    if (!read_weights(group, format, &weights, err))
        return false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(&rules[i], &weights))
            return quantised_add_scheme(quantised, scheme_of(&rules[i], &weights, quantised->arena), &number, err)
                && quantised_add_modules(&quantised->chosen, group, "targets", number, err);
    return fail(err, "format \"%.60s\" with %s weights of %lld bits by %.60s%s%s is one that nibble does not read",
                weights.format, weights.type, (long long)weights.bits, weights.strategy,
                weights.symmetric ? "" : ", asymmetric", weights.ordered ? ", with actorder" : "");
}

// A group that targets attention modules only describes the KV cache.
static bool is_attention(const json_t *targets)
{
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        size_t len = name ? strlen(name) : 0, ending = strlen("Attention");
        if (len < ending || strcmp(name + len - ending, "Attention"))
            return false;
    }
    return json_array_size(targets);
}

// Refuses keys that change the weights' meaning.
static bool refuse_key(const json_t *object, const char *key, struct error *err)
{
    const json_t *value = json_object_get(object, key);
    const char *format = json_string_value(json_object_get(value, "format"));
    bool nothing = !value || json_is_null(value) || (json_is_object(value) && !json_object_size(value))
        || (format && !strcmp(format, "dense"));
    return nothing
        || fail(err, "%s is declared, which nibble does not apply: the weights would mean something else", key);
}

bool quantised_read_compressed(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    const char *format = "", *name;
    json_t *group;
    quantised->complete = quantised->chosen_only = true;
    if (!refuse_key(declaration, "transform_config", err) || !refuse_key(declaration, "sparsity_config", err)
        || !json_get_text(declaration, "format", &format, err)
        || !quantised_add_modules(&quantised->excluded, declaration, "ignore", 0, err))
        return false;
    json_object_foreach (json_object_get(declaration, "config_groups"), name, group) {
        const json_t *weights = json_object_get(group, "weights");
        if (is_attention(json_object_get(group, "targets")))
            continue;
        if (!refuse_key(group, "output_activations", err)
            || (json_is_object(weights) && !add_group(quantised, group, format, err)))
            return fail_within(err, "config_groups: %.60s", name);
    }
    return true;
}
