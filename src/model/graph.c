// SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <assert.h>

#include "model/find.h"

enum { OPS_PER_LAYER_MAX = 24, OPS_OUTSIDE_MAX = 8 };

static void append(struct graph *graph, struct op op)
{
    struct model *model = graph->model;
    if (graph->failed)
        return;
    assert(model->op_count < graph->capacity);
    op.layer = graph->layer;
    model->ops[model->op_count++] = op;
}

void graph_embed(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    struct op_matrix table = find_matrix(graph, W_EMBED, 0, config->hidden, BUFFER_X);
    config->vocabulary = graph->failed ? 0 : (int)table.tensor->shape[0];
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
                        .vector = find_vector(graph, name, width) });
}

void graph_head_norm(struct graph *graph, enum buffer qk, enum weight_name name, int heads)
{
    int width = graph->model->config.head_dim;
    append(graph, (struct op){ .kind = OP_NORM, .in = qk, .out = qk, .groups = heads, .width = width,
                               .vector = find_vector(graph, name, width) });
}

void graph_linear(struct graph *graph, enum buffer in, const struct graph_output *outputs, int count)
{
    int width = graph->model->buffer_width[in];
    struct op op = {
        .kind = OP_LINEAR, .in = in, .groups = 1, .width = width, .matrices = count,
        .on_outputs = outputs->out == BUFFER_LOGITS
    };
    for (int i = 0; i < count; i++)
        op.matrix[i] = find_matrix(graph, outputs[i].name, outputs[i].rows, width, outputs[i].out);
    append(graph, op);
}

void graph_attention(struct graph *graph)
{
    append(graph, (struct op){ .kind = OP_ROPE, .in = BUFFER_Q, .second = BUFFER_K });
    append(graph, (struct op){ .kind = OP_KV_WRITE, .in = BUFFER_K, .second = BUFFER_V });
    append(graph, (struct op){ .kind = OP_ATTENTION, .in = BUFFER_Q, .out = BUFFER_A,
                               .width = graph->model->config.heads * graph->model->config.head_dim });
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

void graph_logits(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    append(graph,
           (struct op){
               .kind = OP_PICK, .in = BUFFER_X, .out = BUFFER_LAST, .width = config->hidden, .on_outputs = true });
    graph_norm(graph, BUFFER_LAST, BUFFER_H, W_FINAL_NORM);
    bool tied = find_tied_head(graph); // then the embedding table is the head
    graph_linear(graph, BUFFER_H,
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

void graph_attention_block(struct graph *graph, bool head_norms)
{
    const struct model_config *config = &graph->model->config;
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    graph_qkv(graph);
    if (head_norms) {
        graph_head_norm(graph, BUFFER_Q, W_Q_NORM, config->heads);
        graph_head_norm(graph, BUFFER_K, W_K_NORM, config->kv_heads);
    }
    graph_attention(graph);
    graph_output(graph);
}

void graph_plain_layer(struct graph *graph, bool head_norms)
{
    graph_attention_block(graph, head_norms);
    graph_add(graph, BUFFER_X, BUFFER_H);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_FFN_NORM);
    graph_feed_forward(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
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

bool graph_write(struct graph *graph, void (*write_layer)(struct graph *graph))
{
    struct model *model = graph->model;
    find_begin(graph);
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
