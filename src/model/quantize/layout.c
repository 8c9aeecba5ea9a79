// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/layout.h"

#include <stdio.h>

#include "format/json.h"

#define MODELOPT NIBBLE_LAYOUT_MODELOPT
#define COMPRESSED NIBBLE_LAYOUT_COMPRESSED_TENSORS

#define BY_WORD(word) weight_encode_##word, gptq_##word

static const struct layout layouts[] = {
    { NIBBLE_WEIGHTS_NVFP4, COMPRESSED, "nvfp4-pack-quantized", BY_WORD(nvfp4), 4, 16, "weight_packed", "weight_scale",
      "weight_global_scale", DTYPE_U8, DTYPE_FP8_E4M3, 2, 1, .divides = true },
    { NIBBLE_WEIGHTS_NVFP4, MODELOPT, "W4A16_NVFP4", BY_WORD(nvfp4), 4, 16, "weight", "weight_scale", "weight_scale_2",
      DTYPE_U8, DTYPE_FP8_E4M3, 2, 0 },
    { NIBBLE_WEIGHTS_MXFP4, COMPRESSED, "mxfp4-pack-quantized", BY_WORD(mxfp4), 4, 32, "weight_packed", "weight_scale",
      NULL, DTYPE_U8, DTYPE_U8, 2 },
    { NIBBLE_WEIGHTS_FP8, COMPRESSED, "float-quantized", BY_WORD(fp8), 8, 0, "weight", "weight_scale", NULL,
      DTYPE_FP8_E4M3, DTYPE_F32, 2, .has_activations = true },
    { NIBBLE_WEIGHTS_FP8, MODELOPT, "FP8_PER_CHANNEL_PER_TOKEN", BY_WORD(fp8), 8, 0, "weight", "weight_scale", NULL,
      DTYPE_FP8_E4M3, DTYPE_F32, 1, .has_activations = true },
    { NIBBLE_WEIGHTS_INT8, COMPRESSED, "int-quantized", BY_WORD(int8), 8, 0, "weight", "weight_scale", NULL, DTYPE_I8,
      DTYPE_F32, 2, .has_activations = true },
    { NIBBLE_WEIGHTS_BF16, COMPRESSED, .bits = 16 },
};

const char *layout_weights_word(enum nibble_weights weights)
{
    static const char *const words[] = {
        [NIBBLE_WEIGHTS_NVFP4] = "nvfp4", [NIBBLE_WEIGHTS_MXFP4] = "mxfp4", [NIBBLE_WEIGHTS_FP8] = "fp8",
        [NIBBLE_WEIGHTS_INT8] = "int8",   [NIBBLE_WEIGHTS_BF16] = "bf16",
    };
    return words[weights];
}

const struct layout *layout_find(enum nibble_weights weights, enum nibble_layout layout, struct error *err)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].weights == weights && layouts[i].layout == layout)
            return &layouts[i];
    if (weights == NIBBLE_WEIGHTS_BF16)
        fail_usage(err, "bf16 weights are the same in every layout; leave --layout out");
    else
        fail_usage(err, "the modelopt layout has no %s weights; --layout compressed-tensors has them",
                   layout_weights_word(weights));
    return NULL;
}

// ---- tensors ----

size_t layout_code_bytes(const struct layout *layout, int64_t cols) { return (size_t)cols * (size_t)layout->bits / 8; }

size_t layout_scale_bytes(const struct layout *layout, int64_t cols)
{
    size_t scales = layout->block ? (size_t)(cols / layout->block) : 1;
    return scales * (size_t)dtype_table[layout->scales_dtype].block_bytes;
}

static size_t add(struct safetensors_out *out, struct bytes module, const char *suffix, enum dtype dtype, int rank,
                  int64_t rows, int64_t cols)
{
    char name[TENSOR_NAME_BYTES_MAX + 64];
    snprintf(name, sizeof name, "%.*s.%s", (int)module.len, module.data, suffix);
    return safetensors_out_add(out, name, dtype, rank, (int64_t[]){ rows, cols });
}

struct layout_entries layout_add(const struct layout *layout, const struct item *item, struct safetensors_out *out)
{
    struct bytes module = item_module(item);
    int64_t code_bytes = (int64_t)layout_code_bytes(layout, item->cols);
    struct layout_entries entries = {
        .codes = add(out, module, layout->codes, layout->codes_dtype, 2, item->rows, code_bytes),
        .scales = add(out, module, layout->scales, layout->scales_dtype, layout->scales_rank, item->rows,
                      layout->block ? item->cols / layout->block : 1),
    };
    if (layout->overall)
        entries.overall = add(out, module, layout->overall, DTYPE_F32, layout->overall_rank, 1, 1);
    return entries;
}

void layout_add_kv(const struct layout *layout, const char *attention, struct safetensors_out *out, size_t entries[2])
{
    static const char *const names[2][2] = { [MODELOPT] = { "k_proj.k_scale", "v_proj.v_scale" },
                                             [COMPRESSED] = { "k_scale", "v_scale" } };
    bool modelopt = layout->layout == MODELOPT;
    for (int side = 0; side < 2; side++)
        entries[side] = add(out, bytes_of(attention), names[layout->layout][side], DTYPE_F32, modelopt ? 0 : 1, 1, 1);
}

// ---- declarations ----

// The ignore list: unquantised modules by full path, which all engines read alike.
static json_t *ignored(const struct items *items)
{
    json_t *list = json_array();
    struct bytes last = { 0 };
    for (size_t i = 0; i < items->count; i++) {
        const struct item *item = &items->items[i];
        struct bytes module = item_module(item);
        if (!item->listed && !item->kept)
            continue;
        if (!bytes_equal(module, last))
            json_array_append_new(list, json_stringn(module.data, module.len));
        if (item->tensor->rank == 3 && !item->rows) // not a module, but some engines expect its name
            json_array_append_new(list, json_string(item->name));
        last = module;
    }
    int64_t known;
    if (!map_get(&items->names, bytes_of("lm_head" ITEM_SUFFIX), &known)) // tied lm_head is a module, too
        json_array_append_new(list, json_string("lm_head"));
    return list;
}

static json_t *cache_scheme(void)
{
    return json_pack("{s:i, s:s, s:s, s:b, s:b}", "num_bits", 8, "type", "float", "strategy", "tensor", "dynamic", 0,
                     "symmetric", 1);
}

static json_t *compressed_weights(const struct layout *layout)
{
    static const struct {
        const char *type, *strategy, *scale_dtype;
    } words[] = {
        [NIBBLE_WEIGHTS_NVFP4] = { "float", "tensor_group", "torch.float8_e4m3fn" },
        [NIBBLE_WEIGHTS_MXFP4] = { "float", "group", "torch.uint8" },
        [NIBBLE_WEIGHTS_FP8] = { "float", "channel", NULL },
        [NIBBLE_WEIGHTS_INT8] = { "int", "channel", NULL },
    };
    json_t *weights = json_pack("{s:i, s:s, s:b, s:s, s:b}", "num_bits", layout->bits, "type",
                                words[layout->weights].type, "symmetric", 1, "strategy",
                                words[layout->weights].strategy, "dynamic", 0);
    json_object_set_new(weights, "group_size", layout->block ? json_integer(layout->block) : json_null());
    if (words[layout->weights].scale_dtype)
        json_object_set_new(weights, "scale_dtype", json_string(words[layout->weights].scale_dtype));
    return weights;
}

static json_t *declare_compressed(const struct layout *layout, const struct items *items, bool kv_scales)
{
    json_t *activations = json_null(), *weights = compressed_weights(layout);
    if (layout->has_activations) {
        activations = json_deep_copy(weights);
        json_object_set_new(activations, "strategy", json_string("token"));
        json_object_set_new(activations, "dynamic", json_true());
    }
    return json_pack("{s:s, s:s, s:s, s:{s:{s:[s], s:o, s:o, s:n, s:s}}, s:o, s:o}", "quant_method",
                     "compressed-tensors", "format", layout->word, "quantization_status", "compressed", "config_groups",
                     "group_0", "targets", "Linear", "weights", weights, "input_activations", activations,
                     "output_activations", "format", layout->word, "ignore", ignored(items), "kv_cache_scheme",
                     kv_scales ? cache_scheme() : json_null());
}

static json_t *declare_modelopt(const struct layout *layout, const struct items *items, bool kv_scales)
{
    json_t *declared = json_pack("{s:s, s:s, s:o, s:{s:s, s:s}}", "quant_method", "modelopt", "quant_algo",
                                 layout->word, "ignore", ignored(items), "producer", "name", "nibble", "version",
                                 NIBBLE_VERSION);
    if (layout->block)
        json_object_set_new(declared, "group_size", json_integer(layout->block));
    if (kv_scales)
        json_object_set_new(declared, "kv_cache_scheme", cache_scheme());
    return declared;
}

// hf_quant_config.json, the older file that some engines read first.
static bool save_hf_quant_config(const struct layout *layout, const struct items *items, bool kv_scales,
                                 const char *folder, struct error *err)
{
    json_t *quantization = json_pack("{s:s, s:s?, s:o}", "quant_algo", layout->word, "kv_cache_quant_algo",
                                     kv_scales ? "FP8" : NULL, "exclude_modules", ignored(items));
    if (layout->block)
        json_object_set_new(quantization, "group_size", json_integer(layout->block));
    json_t *root = json_pack("{s:{s:s, s:s}, s:o}", "producer", "name", "nibble", "version", NIBBLE_VERSION,
                             "quantization", quantization);
    bool ok = json_save(root, folder, "hf_quant_config.json", err);
    json_decref(root);
    return ok;
}

bool layout_declare(const struct layout *layout, const struct items *items, bool kv_scales, json_t *config,
                    const char *folder, struct error *err)
{
    json_object_del(config, "quantization_config");
    json_object_del(json_object_get(config, "text_config"), "quantization_config");
    if (!layout->encode)
        return true;
    bool modelopt = layout->layout == MODELOPT;
    json_object_set_new(config, "quantization_config",
                        (modelopt ? declare_modelopt : declare_compressed)(layout, items, kv_scales));
    return !modelopt || save_hf_quant_config(layout, items, kv_scales, folder, err);
}
