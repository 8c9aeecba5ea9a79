// SPDX-License-Identifier: Apache-2.0
// model/phi.c: Phi 3 and Phi 4: a plain layer whose q, k and v are one matrix, as are gate and up.
#include "model/architecture.h"
#include "model/find.h"
#include "model/stored.h"

// Matrices that the file has as one, the first one's rows first.
static void write_fused(struct graph *graph, enum weight_name name, const enum buffer *out, int count)
{
    struct model *model = graph->model;
    struct op_matrix matrices[LINEAR_OUTPUTS_MAX];
    int64_t rows = 0, first = 0;
    for (int i = 0; i < count; i++)
        rows += model->buffer_width[out[i]];
    struct op_matrix whole = find_matrix(graph, name, rows, model->config.hidden, BUFFER_H);
    for (int i = 0; i < count && !graph->failed; i++) {
        int width = model->buffer_width[out[i]];
        matrices[i] = whole;
        matrices[i].out = out[i];
        matrices[i].tensor = stored_run(&model->arena, whole.tensor, first, width);
        if (whole.bias)
            matrices[i].bias = stored_run(&model->arena, whole.bias, first, width);
        first += width;
    }
    if (!graph->failed)
        graph_matrices(graph, BUFFER_H, matrices, count);
}

static void write_layer(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    write_fused(graph, W_QKV, (const enum buffer[]){ BUFFER_Q, BUFFER_K, BUFFER_V }, 3);
    graph_attention(graph);
    graph_output(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);

    graph_norm(graph, BUFFER_X, BUFFER_H, W_FFN_NORM);
    write_fused(graph, W_GATE_UP, (const enum buffer[]){ BUFFER_GATE, BUFFER_UP }, 2);
    graph_act_mul(graph);
    graph_linear(graph, BUFFER_GATE, &(struct graph_output){ BUFFER_H, W_DOWN, config->hidden }, 1);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

static bool describe(struct graph *graph)
{
    int window = 0;
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu")
        && source_int(&graph->source, "sliding_window", "attention.sliding_window", 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window < graph->model->config.context ? window : 0,
                                    architecture_every_layer)
        && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

const struct architecture phi3_architecture = {
    .name = "phi3", .model_types = { "phi3" }, .gguf = "phi3", .describe = describe
};
