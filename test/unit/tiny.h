// SPDX-License-Identifier: Apache-2.0
// test/unit/tiny.h: checkpoints of a few thousand random weights, built in memory: no file is written or mapped.
#ifndef TEST_TINY_H
#define TEST_TINY_H

#include <stdio.h>

#include "base/random.h"
#include "container.h"
#include "format/checkpoint.h"
#include "format/json.h"

struct tiny {
    struct checkpoint checkpoint; // checkpoint_close gives everything back
    uint64_t seed;
    const char *without; // this tensor is left out
};

struct tiny_sizes {
    int layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary, context;
};

// One more tensor; cols 0: a vector. Plain ones hold small random numbers, norms numbers near 1, all others zeros.
static inline void tiny_tensor(struct tiny *tiny, const char *name, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct checkpoint *checkpoint = &tiny->checkpoint;
    struct tensor tensor = { .dtype = dtype, .rank = cols ? 2 : 1, .shape = { rows, cols } };
    if (tiny->without && !strcmp(name, tiny->without))
        return;
    size_t values = (size_t)(rows * (cols ? cols : 1));
    tensor.bytes = dtype_bytes(dtype, values);
    char *data = arena_new(&checkpoint->arena, tensor.bytes + 1, 1);
    for (size_t i = 0; i < values && dtype == DTYPE_F32; i++) {
        float value = strstr(name, "norm") ? 1 + 0.1f * random_real(&tiny->seed) : 0.3f * random_real(&tiny->seed);
        memcpy(data + i * sizeof value, &value, sizeof value);
    }
    tensor.data = data;
    tensor.name = arena_text(&checkpoint->arena, name, strlen(name));
    struct tensor *all = realloc((void *)checkpoint->tensors, (checkpoint->tensor_count + 1) * sizeof tensor);
    map_put(&checkpoint->names, bytes_of(tensor.name), (int64_t)checkpoint->tensor_count);
    all[checkpoint->tensor_count++] = tensor;
    checkpoint->tensors = all;
}

static inline void tiny_layer_tensor(struct tiny *tiny, int layer, const char *name, int64_t rows, int64_t cols)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    tiny_tensor(tiny, full, DTYPE_F32, rows, cols);
}

static inline void tiny_layer(struct tiny *tiny, int layer, const char *type, const struct tiny_sizes *sizes)
{
    int q = sizes->heads * sizes->head_dim, kv = sizes->kv_heads * sizes->head_dim;
    bool gemma = !strncmp(type, "gemma", 5), head_norms = strstr(type, "3"); // gemma3 and qwen3
    tiny_layer_tensor(tiny, layer, "input_layernorm.weight", sizes->hidden, 0);
    tiny_layer_tensor(tiny, layer, "post_attention_layernorm.weight", sizes->hidden, 0);
    tiny_layer_tensor(tiny, layer, "self_attn.q_proj.weight", q, sizes->hidden);
    tiny_layer_tensor(tiny, layer, "self_attn.k_proj.weight", kv, sizes->hidden);
    tiny_layer_tensor(tiny, layer, "self_attn.v_proj.weight", kv, sizes->hidden);
    tiny_layer_tensor(tiny, layer, "self_attn.o_proj.weight", sizes->hidden, q);
    tiny_layer_tensor(tiny, layer, "mlp.gate_proj.weight", sizes->feed_forward, sizes->hidden);
    tiny_layer_tensor(tiny, layer, "mlp.up_proj.weight", sizes->feed_forward, sizes->hidden);
    tiny_layer_tensor(tiny, layer, "mlp.down_proj.weight", sizes->hidden, sizes->feed_forward);
    if (gemma) {
        tiny_layer_tensor(tiny, layer, "pre_feedforward_layernorm.weight", sizes->hidden, 0);
        tiny_layer_tensor(tiny, layer, "post_feedforward_layernorm.weight", sizes->hidden, 0);
    }
    if (head_norms) {
        tiny_layer_tensor(tiny, layer, "self_attn.q_norm.weight", sizes->head_dim, 0);
        tiny_layer_tensor(tiny, layer, "self_attn.k_norm.weight", sizes->head_dim, 0);
    }
    if (!strcmp(type, "qwen2")) {
        tiny_layer_tensor(tiny, layer, "self_attn.q_proj.bias", q, 0);
        tiny_layer_tensor(tiny, layer, "self_attn.k_proj.bias", kv, 0);
        tiny_layer_tensor(tiny, layer, "self_attn.v_proj.bias", kv, 0);
    }
}

// A model as transformers would save it. `more` is a JSON object of further or other members of config.json; a member
// that it makes null counts as absent.
static inline void tiny_model(struct tiny *tiny, const char *type, const struct tiny_sizes *sizes, const char *more)
{
    struct error err;
    json_t *others = NULL;
    tiny->checkpoint.config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", type,
                                        "num_hidden_layers", sizes->layers, "hidden_size", sizes->hidden,
                                        "num_attention_heads", sizes->heads, "num_key_value_heads", sizes->kv_heads,
                                        "head_dim", sizes->head_dim, "intermediate_size", sizes->feed_forward,
                                        "max_position_embeddings", sizes->context);
    if (!json_read(bytes_of(more), &others, &err))
        fail_msg("%s", err.text);
    json_object_update(tiny->checkpoint.config, others);
    json_decref(others);
    tiny_tensor(tiny, "model.embed_tokens.weight", DTYPE_F32, sizes->vocabulary, sizes->hidden);
    tiny_tensor(tiny, "model.norm.weight", DTYPE_F32, sizes->hidden, 0);
    tiny_tensor(tiny, "lm_head.weight", DTYPE_F32, sizes->vocabulary, sizes->hidden);
    for (int layer = 0; layer < sizes->layers; layer++)
        tiny_layer(tiny, layer, type, sizes);
}

// For the flaw a test is about.
static inline struct tensor *tiny_find(struct tiny *tiny, const char *name)
{
    struct tensor *tensor = (struct tensor *)checkpoint_find(&tiny->checkpoint, name);
    assert_non_null(tensor);
    return tensor;
}

#endif
