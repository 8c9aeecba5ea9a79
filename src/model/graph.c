// SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <assert.h>
#include <stdio.h>

enum { OPS_PER_LAYER_MAX = 24, OPS_OUTSIDE_MAX = 8, NAME_BYTES_MAX = 160, VOCABULARY_MAX = 1 << 23 };

static const struct {
    const char *json, *gguf;
} weight_names[W_COUNT] = {
#define X(id, json, gguf) { json, gguf },
    WEIGHTS(X)
#undef X
};

static void append(struct graph *graph, struct op op)
{
    struct model *model = graph->model;
    if (graph->failed)
        return;
    assert(model->op_count < graph->capacity);
    op.layer = graph->layer;
    model->ops[model->op_count++] = op;
}

static void name_of(const struct graph *graph, enum weight_name name, const char *suffix, char out[NAME_BYTES_MAX])
{
    bool gguf = graph->source.checkpoint->gguf;
    const char *word = gguf ? weight_names[name].gguf : weight_names[name].json;
    if (gguf && graph->layer >= 0)
        snprintf(out, NAME_BYTES_MAX, "blk.%d.%s.%s", graph->layer, word, suffix);
    else if (gguf)
        snprintf(out, NAME_BYTES_MAX, "%s.%s", word, suffix);
    else if (graph->layer >= 0)
        snprintf(out, NAME_BYTES_MAX, "%slayers.%d.%s.%s", graph->prefix, graph->layer, word, suffix);
    else
        snprintf(out, NAME_BYTES_MAX, "%s%s.%s", name == W_HEAD ? "" : graph->prefix, word, suffix);
}

static const struct tensor *find_optional(struct graph *graph, enum weight_name name, const char *suffix)
{
    char full[NAME_BYTES_MAX];
    name_of(graph, name, suffix, full);
    return graph->failed ? NULL : checkpoint_find(graph->source.checkpoint, full);
}

// A weight that must be there. rows 0: whatever it has.
static const struct tensor *find_weight(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols)
{
    char full[NAME_BYTES_MAX];
    name_of(graph, name, "weight", full);
    const struct tensor *tensor = find_optional(graph, name, "weight");
    if (graph->failed)
        return NULL;
    if (!tensor)
        graph->failed = !fail(graph->err, "tensor %s is missing; the checkpoint is incomplete or not a %s model", full,
                              graph->model->config.architecture);
    else if (!(dtype_table[tensor->dtype].use & DTYPE_USE_W))
        graph->failed = !fail(graph->err, "tensor %s is stored as %s, which nibble does not read as a weight", full,
                              dtype_word(tensor->dtype));
    else if (tensor->rank != 2 || (rows && tensor->shape[0] != rows) || tensor->shape[1] != cols)
        graph->failed = !fail(
            graph->err,
            "tensor %s has shape (%lld, %lld) in %d dimensions; (%lld, %lld) was expected from the model's config",
            full, (long long)tensor->shape[0], (long long)tensor->shape[1], tensor->rank,
            (long long)(rows ? rows : tensor->shape[0]), (long long)cols);
    return graph->failed ? NULL : tensor;
}

// Norm weights and biases: plain floats.
static const struct tensor *check_vector(struct graph *graph, const struct tensor *tensor, const char *name,
                                         int64_t width)
{
    const uint64_t plain = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
    if (graph->failed)
        return NULL;
    if (!tensor)
        graph->failed = !fail(graph->err, "tensor %s is missing; the checkpoint is incomplete or not a %s model", name,
                              graph->model->config.architecture);
    else if (!(plain >> tensor->dtype & 1) || tensor->rank != 1 || tensor->shape[0] != width)
        graph->failed = !fail(
            graph->err,
            "tensor %s is %s of %lld values in %d dimensions; %lld plain 16- or 32-bit floats in one were expected",
            name, dtype_word(tensor->dtype), (long long)tensor_values(tensor), tensor->rank, (long long)width);
    return graph->failed ? NULL : tensor;
}

static const struct tensor *find_vector(struct graph *graph, enum weight_name name, const char *suffix, int64_t width)
{
    char full[NAME_BYTES_MAX];
    name_of(graph, name, suffix, full);
    return check_vector(graph, find_optional(graph, name, suffix), full, width);
}

static struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols,
                                    enum buffer out)
{
    struct op_matrix matrix = { .out = out, .tensor = find_weight(graph, name, rows, cols) };
    bool required = graph->qkv_bias && (name == W_Q || name == W_K || name == W_V);
    if (required || find_optional(graph, name, "bias"))
        matrix.bias = find_vector(graph, name, "bias", rows);
    if (graph->source.checkpoint->gguf
        && find_optional(graph, name, "scale")) // NVFP4's overall scale travels beside it
        matrix.scale = find_vector(graph, name, "scale", 1);
    return matrix;
}

void graph_embed(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    struct op_matrix table = find_matrix(graph, W_EMBED, 0, config->hidden, BUFFER_X);
    int64_t rows = graph->failed ? 1 : table.tensor->shape[0];
    if (rows < 1 || rows > VOCABULARY_MAX)
        graph->failed = !fail(graph->err, "tensor %s has %lld rows; a vocabulary of 1 to %d tokens was expected",
                              table.tensor->name, (long long)rows, VOCABULARY_MAX);
    config->vocabulary = (int)rows;
    append(graph, (struct op){ .kind = OP_EMBED, .width = config->hidden, .matrices = 1, .matrix = { table } });
}

void graph_norm(struct graph *graph, enum buffer in, enum buffer out, enum weight_name name)
{
    int width = graph->model->config.hidden;
    append(graph,
           (struct op){ .kind = OP_NORM,
                        .in = in,
                        .out = out,
                        .groups = 1,
                        .width = width,
                        .on_outputs = in == BUFFER_LAST,
                        .vector = find_vector(graph, name, "weight", width) });
}

void graph_head_norm(struct graph *graph, enum buffer qk, enum weight_name name, int heads)
{
    int width = graph->model->config.head_dim;
    append(graph, (struct op){ .kind = OP_NORM, .in = qk, .out = qk, .groups = heads, .width = width,
                               .vector = find_vector(graph, name, "weight", width) });
}

void graph_linear(struct graph *graph, enum buffer in, const struct graph_output *outputs, int count)
{
    int width = graph->model->buffer_width[in];
    struct op op = {
        .kind = OP_LINEAR, .in = in, .groups = 1, .width = width, .matrices = count, .on_outputs = in == BUFFER_LAST
    };
    for (int i = 0; i < count; i++)
        op.matrix[i] = find_matrix(graph, outputs[i].name, outputs[i].rows, width, outputs[i].out);
    append(graph, op);
}

void graph_attention(struct graph *graph)
{
    append(graph, (struct op){ .kind = OP_ROPE, .in = BUFFER_Q, .second = BUFFER_K });
    append(graph, (struct op){ .kind = OP_KV_WRITE, .in = BUFFER_K, .second = BUFFER_V });
    append(graph, (struct op){ .kind = OP_ATTENTION, .in = BUFFER_Q, .out = BUFFER_A });
}

void graph_act_mul(struct graph *graph)
{
    append(graph, (struct op){ .kind = OP_ACT_MUL, .in = BUFFER_GATE, .second = BUFFER_UP, .out = BUFFER_GATE,
                               .width = graph->model->config.feed_forward });
}

void graph_add(struct graph *graph, enum buffer out, enum buffer in)
{
    append(graph, (struct op){ .kind = OP_ADD, .in = in, .out = out, .width = graph->model->config.hidden });
}

// A config that says the head is no copy of the embedding table means a head that is missing, where there is none.
static bool may_be_tied(const struct graph *graph)
{
    return !graph->source.json || !json_is_false(json_object_get(graph->source.json, "tie_word_embeddings"));
}

void graph_logits(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    append(graph,
           (struct op){
               .kind = OP_PICK, .in = BUFFER_X, .out = BUFFER_LAST, .width = config->hidden, .on_outputs = true });
    graph_norm(graph, BUFFER_LAST, BUFFER_LAST, W_FINAL_NORM);
    bool tied = !find_optional(graph, W_HEAD, "weight") && may_be_tied(graph); // then the embedding table is the head
    graph_linear(graph, BUFFER_LAST,
                 &(struct graph_output){ BUFFER_LOGITS, tied ? W_EMBED : W_HEAD, config->vocabulary }, 1);
    if (config->final_softcap > 0)
        append(graph,
               (struct op){ .kind = OP_SOFTCAP,
                            .in = BUFFER_LOGITS,
                            .out = BUFFER_LOGITS,
                            .width = config->vocabulary,
                            .on_outputs = true });
}

void graph_qkv(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    int kv_width = config->kv_heads * config->head_dim;
    graph_linear(graph, BUFFER_H,
                 (struct graph_output[]){ { BUFFER_Q, W_Q, config->heads * config->head_dim },
                                          { BUFFER_K, W_K, kv_width },
                                          { BUFFER_V, W_V, kv_width } },
                 3);
}

void graph_output(struct graph *graph)
{
    graph_linear(graph, BUFFER_A, &(struct graph_output){ BUFFER_H, W_O, graph->model->config.hidden }, 1);
}

void graph_feed_forward(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    graph_linear(graph, BUFFER_H,
                 (struct graph_output[]){ { BUFFER_GATE, W_GATE, config->feed_forward },
                                          { BUFFER_UP, W_UP, config->feed_forward } },
                 2);
    graph_act_mul(graph);
    graph_linear(graph, BUFFER_GATE, &(struct graph_output){ BUFFER_H, W_DOWN, config->hidden }, 1);
}

static void set_buffer_widths(struct model *model)
{
    const struct model_config *config = &model->config;
    int q_width = config->heads * config->head_dim, kv_width = config->kv_heads * config->head_dim;
    const int widths[BUFFER_COUNT] = {
        [BUFFER_X] = config->hidden,
        [BUFFER_H] = config->hidden,
        [BUFFER_Q] = q_width,
        [BUFFER_K] = kv_width,
        [BUFFER_V] = kv_width,
        [BUFFER_A] = q_width,
        [BUFFER_GATE] = config->feed_forward,
        [BUFFER_UP] = config->feed_forward,
        [BUFFER_LAST] = config->hidden,
    };
    for (int i = 0; i < BUFFER_COUNT; i++)
        model->buffer_width[i] = widths[i];
}

// Published safetensors put different things in front of the same names.
static const char *find_prefix(const struct checkpoint *checkpoint)
{
    static const char *const prefixes[] = { "model.", "language_model.model.", "model.language_model.", "" };
    char name[NAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (checkpoint_find(checkpoint, name))
            return prefixes[i];
    }
    return prefixes[0];
}

bool graph_write(struct graph *graph, void (*write_layer)(struct graph *graph))
{
    struct model *model = graph->model;
    graph->prefix = find_prefix(graph->source.checkpoint);
    graph->capacity = model->config.layers * OPS_PER_LAYER_MAX + OPS_OUTSIDE_MAX;
    model->ops = ARENA_NEW(&model->arena, struct op, graph->capacity);
    set_buffer_widths(model);
    graph->layer = -1;
    graph_embed(graph);
    for (graph->layer = 0; graph->layer < model->config.layers; graph->layer++)
        write_layer(graph);
    graph->layer = -1;
    graph_logits(graph);
    model->buffer_width[BUFFER_LOGITS] = model->config.vocabulary;
    return !graph->failed;
}
