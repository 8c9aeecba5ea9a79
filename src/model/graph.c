// SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <assert.h>

#include "model/tensor_lookup.h"
#include "model/tensor_source.h"

enum { OPS_PER_LAYER_MAX = 28, OPS_OUTSIDE_MAX = 8 };

void graph_append(struct graph *graph, struct op op)
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
    graph_append(graph, (struct op){ .kind = OP_EMBED, .width = config->hidden, .matrices = 1, .matrix = { table } });
}

static void append_norm(struct graph *graph, enum buffer in, enum buffer out, enum weight_name name, bool on_outputs)
{
    int width = graph->model->config.hidden;
    graph_append(graph,
                 (struct op){ .kind = OP_NORM,
                              .in = in,
                              .out = out,
                              .groups = 1,
                              .width = width,
                              .on_outputs = on_outputs,
                              .offset = graph->model->config.norm_offset,
                              .vector = find_vector(graph, name, width) });
}

void graph_norm(struct graph *graph, enum buffer in, enum buffer out, enum weight_name name)
{
    append_norm(graph, in, out, name, false);
}

void graph_head_norm(struct graph *graph, enum buffer qk, enum weight_name name, int heads)
{
    int width = graph->model->config.head_dim;
    graph_append(graph,
                 (struct op){ .kind = OP_NORM,
                              .in = qk,
                              .out = qk,
                              .groups = heads,
                              .width = width,
                              .offset = graph->model->config.norm_offset,
                              .vector = find_vector(graph, name, width) });
}

void graph_latent_norm(struct graph *graph, enum buffer in, enum weight_name name, int width)
{
    graph_append(graph,
                 (struct op){ .kind = OP_NORM,
                              .in = in,
                              .out = in,
                              .groups = 1,
                              .width = width,
                              .rest = graph->model->buffer_width[in] - width,
                              .offset = graph->model->config.norm_offset,
                              .vector = find_vector(graph, name, width) });
}

void graph_result_norm(struct graph *graph, enum buffer in, enum weight_name name, int groups, int width)
{
    graph_append(graph,
                 (struct op){ .kind = OP_NORM,
                              .in = in,
                              .out = in,
                              .groups = groups,
                              .width = width,
                              .vector = find_vector(graph, name, width) });
}

void graph_group_norm(struct graph *graph, enum buffer in, enum weight_name name, int groups, int width)
{
    graph_append(graph,
                 (struct op){ .kind = OP_NORM,
                              .in = in,
                              .out = in,
                              .groups = groups,
                              .width = width,
                              .own_weights = true,
                              .vector = find_groups(graph, name, groups, width) });
}

void graph_heads(struct graph *graph, enum buffer in, struct op_matrix matrix, int width)
{
    int heads = graph->model->config.heads;
    graph_append(graph,
                 (struct op){ .kind = OP_PER_HEAD_LINEAR,
                              .in = in,
                              .out = matrix.out,
                              .groups = heads,
                              .width = width,
                              .rest = graph->model->buffer_width[in] / heads - width,
                              .matrices = 1,
                              .matrix = { matrix } });
}

static void append_linear(struct graph *graph, enum buffer in, int width, const struct graph_output *outputs, int count,
                          bool on_outputs)
{
    struct op op = {
        .kind = OP_LINEAR, .in = in, .groups = 1, .width = width, .matrices = count, .on_outputs = on_outputs
    };
    for (int i = 0; i < count; i++) {
        op.matrix[i] = find_matrix(graph, outputs[i].name, outputs[i].rows, width, outputs[i].out);
        op.matrix[i].factor = outputs[i].factor;
    }
    graph_append(graph, op);
}

void graph_linear_of(struct graph *graph, enum buffer in, int width, const struct graph_output *outputs, int count)
{
    append_linear(graph, in, width, outputs, count, false);
}

void graph_linear(struct graph *graph, enum buffer in, const struct graph_output *outputs, int count)
{
    graph_linear_of(graph, in, graph->model->buffer_width[in], outputs, count);
}

void graph_matrices(struct graph *graph, enum buffer in, const struct op_matrix *matrices, int count)
{
    struct op op = {
        .kind = OP_LINEAR, .in = in, .groups = 1, .width = graph->model->buffer_width[in], .matrices = count
    };
    for (int i = 0; i < count; i++)
        op.matrix[i] = matrices[i];
    graph_append(graph, op);
}

void graph_fused(struct graph *graph, const struct graph_output *outputs, int count)
{
    struct model *model = graph->model;
    struct op_matrix matrices[LINEAR_OUTPUTS_MAX];
    int64_t rows = 0, first = 0;
    for (int i = 0; i < count; i++)
        rows += outputs[i].rows;
    struct op_matrix whole = find_matrix(graph, outputs->name, rows, model->config.hidden, BUFFER_H);
    for (int i = 0; i < count && !graph->failed; i++) {
        matrices[i] = whole;
        matrices[i].out = outputs[i].out;
        matrices[i].tensor = tensor_source_rows(&model->arena, whole.tensor, first, outputs[i].rows);
        if (whole.bias)
            matrices[i].bias = tensor_source_rows(&model->arena, whole.bias, first, outputs[i].rows);
        first += outputs[i].rows;
    }
    if (!graph->failed)
        graph_matrices(graph, BUFFER_H, matrices, count);
}

static const struct tensor *find_sinks(struct graph *graph)
{
    return find_named_vector(graph, W_SINKS, graph->source.json ? "" : "weight", graph->model->config.heads);
}

void graph_attention(struct graph *graph)
{
    const struct layer *layer = &graph->model->layer[graph->layer];
    if (layer->frequencies)
        graph_append(graph, (struct op){ .kind = OP_ROPE, .in = BUFFER_Q, .second = BUFFER_K });
    if (!layer->latent)
        graph_append(graph, (struct op){ .kind = OP_TRANSFORM, .in = BUFFER_Q, .second = BUFFER_K });
    graph_append(graph,
                 (struct op){ .kind = OP_KV_WRITE,
                              .in = BUFFER_K,
                              .second = graph->model->config.latent ? BUFFER_K : BUFFER_V });
    graph_append(graph,
                 (struct op){ .kind = OP_ATTENTION,
                              .in = BUFFER_Q,
                              .out = BUFFER_A,
                              .width = graph->model->buffer_width[BUFFER_A],
                              .vector = graph->sinks ? find_sinks(graph) : NULL });
}

// act(GATE) * UP -> GATE, where nothing is gated with GATE itself in place of UP
static void append_act_mul(struct graph *graph, enum buffer up, int width)
{
    graph_append(graph,
                 (struct op){ .kind = OP_ACT_MUL,
                              .in = BUFFER_GATE,
                              .second = up,
                              .out = BUFFER_GATE,
                              .width = width,
                              .activation = graph->model->config.activation });
}

void graph_act_mul(struct graph *graph) { append_act_mul(graph, BUFFER_UP, graph->model->config.feed_forward); }

static void append_gate(struct graph *graph, enum activation activation, enum buffer gate, enum buffer x, int width,
                        bool per_row)
{
    graph_append(graph,
                 (struct op){ .kind = OP_ACT_MUL,
                              .in = gate,
                              .second = x,
                              .out = x,
                              .width = width,
                              .gate_per_row = per_row,
                              .activation = activation });
}

void graph_gate(struct graph *graph, enum activation activation, enum buffer gate, enum buffer x, int width)
{
    append_gate(graph, activation, gate, x, width, false);
}

void graph_gate_rows(struct graph *graph, enum buffer gate, enum buffer x, int width)
{
    append_gate(graph, ACT_SIGMOID, gate, x, width, true);
}

void graph_add(struct graph *graph, enum buffer out, enum buffer in)
{
    graph_append(graph, (struct op){ .kind = OP_ADD, .in = in, .out = out, .width = graph->model->config.hidden });
}

void graph_copy(struct graph *graph)
{
    graph_append(graph,
                 (struct op){ .kind = OP_COPY, .in = BUFFER_X, .out = BUFFER_H, .width = graph->model->config.hidden });
}

void graph_logits(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    graph_append(
        graph,
        (struct op){
            .kind = OP_PICK, .in = BUFFER_X, .out = BUFFER_LAST, .width = config->hidden, .on_outputs = true });
    append_norm(graph, BUFFER_LAST, BUFFER_H, W_FINAL_NORM, true);
    bool tied = find_tied_head(graph); // then the embedding table is the head
    append_linear(graph, BUFFER_H, config->hidden,
                  &(struct graph_output){ BUFFER_LOGITS, tied ? W_EMBED : W_HEAD, config->vocabulary,
                                          .factor = config->logit_scale },
                  1, true);
    if (config->final_softcap > 0)
        graph_append(graph,
                     (struct op){ .kind = OP_SOFTCAP,
                                  .in = BUFFER_LOGITS,
                                  .out = BUFFER_LOGITS,
                                  .width = config->vocabulary,
                                  .on_outputs = true });
}

void graph_conv(struct graph *graph, enum weight_name name, const struct tensor *bias)
{
    const struct model_recurrent *recurrent = &graph->model->config.recurrent;
    graph_append(graph,
                 (struct op){ .kind = OP_CONV,
                              .in = BUFFER_MIX,
                              .out = BUFFER_MIXED,
                              .width = recurrent->channels,
                              .vector = find_conv_kernel(graph, name, recurrent->channels, recurrent->conv_width),
                              .more = { bias } });
}

void graph_delta(struct graph *graph, const struct tensor *decay, const struct tensor *dt_bias)
{
    const struct model_recurrent *recurrent = &graph->model->config.recurrent;
    graph_append(graph,
                 (struct op){ .kind = OP_GATED_DELTA,
                              .in = BUFFER_MIXED,
                              .second = BUFFER_DT,
                              .third = BUFFER_BETA,
                              .out = BUFFER_MIX,
                              .width = recurrent->channels,
                              .a_log = graph->source.json,
                              .vector = decay,
                              .more = { dt_bias } });
}

void graph_scan(struct graph *graph, const struct tensor *decay, const struct tensor *dt_bias,
                const struct tensor *skip)
{
    const struct model_recurrent *recurrent = &graph->model->config.recurrent;
    graph_append(graph,
                 (struct op){ .kind = OP_SSM_SCAN,
                              .in = BUFFER_MIXED,
                              .second = BUFFER_DT,
                              .out = BUFFER_MIX,
                              .width = recurrent->channels,
                              .a_log = graph->source.json,
                              .vector = decay,
                              .more = { dt_bias, skip } });
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
    const struct model_config *config = &graph->model->config;
    graph_linear(graph, BUFFER_A,
                 &(struct graph_output){ BUFFER_H, W_O, config->hidden, .factor = config->residual_scale }, 1);
}

void graph_gated(struct graph *graph, const enum weight_name names[3], int width, enum buffer out)
{
    const struct model_config *config = &graph->model->config;
    graph_linear(graph, BUFFER_H,
                 (struct graph_output[]){ { BUFFER_GATE, names[0], width }, { BUFFER_UP, names[1], width } }, 2);
    append_act_mul(graph, BUFFER_UP, width);
    graph_linear_of(graph, BUFFER_GATE, width,
                    &(struct graph_output){ out, names[2], config->hidden, .factor = config->residual_scale }, 1);
}

void graph_ungated(struct graph *graph, const enum weight_name names[2], int width, enum buffer out)
{
    graph_linear(graph, BUFFER_H, &(struct graph_output){ BUFFER_GATE, names[0], width }, 1);
    append_act_mul(graph, BUFFER_GATE, width);
    graph_linear_of(graph, BUFFER_GATE, width, &(struct graph_output){ out, names[1], graph->model->config.hidden }, 1);
}

void graph_feed_forward(struct graph *graph)
{
    graph_gated(graph, (const enum weight_name[]){ W_GATE, W_UP, W_DOWN }, graph->model->config.feed_forward, BUFFER_H);
}

static void append_experts(struct graph *graph, enum buffer in, int width, const struct op_matrix *matrices, int count,
                           bool per_slot)
{
    struct op op = { .kind = OP_EXPERTS,
                     .in = in,
                     .routes = BUFFER_EXPERT,
                     .width = width,
                     .matrices = count,
                     .groups = graph->model->config.experts.top_k,
                     .per_slot = per_slot };
    for (int i = 0; i < count; i++)
        op.matrix[i] = matrices[i];
    graph_append(graph, op);
}

void graph_route(struct graph *graph, enum weight_name router, const struct tensor *bias)
{
    int count = graph->model->config.experts.count;
    graph_linear(graph, BUFFER_H, &(struct graph_output){ BUFFER_ROUTER, router, count }, 1);
    graph_append(graph,
                 (struct op){ .kind = OP_ROUTE,
                              .in = BUFFER_ROUTER,
                              .out = BUFFER_EXPERT,
                              .routes = BUFFER_EXPERT,
                              .groups = 1,
                              .width = count,
                              .vector = bias });
}

void graph_routed_experts(struct graph *graph, enum buffer in_out, int width, const struct op_matrix *matrices,
                          int count)
{
    const struct model_experts *experts = &graph->model->config.experts;
    append_experts(graph, in_out, width, matrices, count - 1, false);
    append_act_mul(graph, count > 2 ? BUFFER_UP : BUFFER_GATE, experts->top_k * experts->width);
    append_experts(graph, BUFFER_GATE, experts->width, matrices + count - 1, 1, true);
    graph_append(graph,
                 (struct op){ .kind = OP_COMBINE,
                              .in = BUFFER_SLOTS,
                              .out = in_out,
                              .routes = BUFFER_EXPERT,
                              .groups = 1,
                              .width = width });
}

void graph_experts(struct graph *graph, enum weight_name router, const struct tensor *bias,
                   const struct op_matrix matrices[3])
{
    graph_route(graph, router, bias);
    graph_routed_experts(graph, BUFFER_H, graph->model->config.hidden, matrices, 3);
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

static void widen(struct model *model, enum buffer buffer, int width)
{
    if (model->buffer_width[buffer] < width)
        model->buffer_width[buffer] = width;
}

static void set_experts_widths(struct model *model)
{
    const struct model_experts *experts = &model->config.experts;
    int slots = experts->top_k * experts->width;
    if (!experts->count)
        return;
    for (int i = BUFFER_EXPERT; i <= BUFFER_PAIR; i++)
        model->buffer_width[i] = experts->top_k;
    model->buffer_width[BUFFER_FIRST] = experts->count + 1;
    model->buffer_width[BUFFER_ROUTER] = experts->count;
    model->buffer_width[BUFFER_EXPERT_LATENT] = experts->latent;
    model->buffer_width[BUFFER_SLOTS] = model->config.hidden; // of those that every token goes through
    widen(model, BUFFER_SLOTS, experts->top_k * (experts->latent ? experts->latent : model->config.hidden));
    model->buffer_width[BUFFER_SHARED] = experts->shared_gated;
    if (experts->shared_width > slots)
        slots = experts->shared_width;
    for (int i = BUFFER_GATE; i <= BUFFER_UP; i++)
        widen(model, (enum buffer)i, slots);
}

static void set_recurrent_widths(struct model *model)
{
    const struct model_recurrent *recurrent = &model->config.recurrent;
    model->buffer_width[BUFFER_MIX] = model->buffer_width[BUFFER_MIXED] = recurrent->channels;
    model->buffer_width[BUFFER_DT] = recurrent->heads;
    model->buffer_width[BUFFER_BETA] = recurrent->delta ? recurrent->heads : 0;
    widen(model, BUFFER_GATE, recurrent->heads * recurrent->values);
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
    set_experts_widths(model);
    set_recurrent_widths(model);
    widen(model, BUFFER_GATE, config->attention_gated ? q_width : 0);
    if (!config->latent)
        return;
    model->buffer_width[BUFFER_Q_RANK] = config->q_rank;
    model->buffer_width[BUFFER_Q_HEADS] = config->heads * (config->nope_dim + config->rotated);
    model->buffer_width[BUFFER_A] = config->heads * config->latent;
    model->buffer_width[BUFFER_V] = config->heads * config->value_dim;
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
