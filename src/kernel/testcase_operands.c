// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_operands.c: what each op's arguments point to. The types are those of kernel/cuda/params.h.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/minifloat.h"
#include "kernel/testcase_draw.h"

struct list {
    const struct sample *sample;
    const struct kernel *kernel;
    struct sample_operand *out;
    int count;
};

static void add(struct list *list, void *slot, int rows, size_t width, enum sample_type type)
{
    const void *address;
    memcpy(&address, slot, sizeof address);
    if (!address)
        return;
    assert(list->count < SAMPLE_OPERANDS_MAX);
    list->out[list->count++] = (struct sample_operand){ slot, rows, width, type };
}

static void add_rows(struct list *list, void *slot, int width, enum sample_type type)
{
    add(list, slot, sample_rows(list->sample), (size_t)width, type);
}

static void add_constant(struct list *list, void *slot, int count) { add(list, slot, 0, (size_t)count, SAMPLE_F32); }

static void list_embed(struct list *list, union op_args *all)
{
    struct embed_args *args = &all->embed;
    size_t bytes = dtype_bytes(args->table.dtype, (size_t)args->table.rows * (size_t)args->table.cols);
    add(list, &args->table.data, 0, bytes, SAMPLE_BYTES);
    add_rows(list, &args->out, args->table.cols, SAMPLE_F32);
}

static void list_norm_input(struct list *list, struct norm_args *args)
{
    add_rows(list, &args->x, args->groups * args->width + args->gap, args->f32_x ? SAMPLE_F32 : SAMPLE_BF16);
    add_constant(list, &args->weight, args->own_weights ? args->groups * args->width : args->width);
}

static void list_norm(struct list *list, union op_args *all)
{
    list_norm_input(list, &all->norm);
    add_rows(list, &all->norm.out, all->norm.groups * all->norm.width + all->norm.gap, SAMPLE_BF16);
}

static void list_linear(struct list *list, union op_args *all)
{
    struct linear_args *args = &all->linear;
    const struct kernel_packing *packing = list->kernel->packing;
    if (args->norm)
        list_norm_input(list, (struct norm_args *)args->norm);
    else
        add_rows(list, &args->x, args->in, SAMPLE_BF16);
    for (int i = 0; i < args->outputs; i++) {
        struct linear_output *output = &args->output[i];
        const struct weight *weight = &output->weight;
        size_t bytes = packing ? packing->bytes(weight->dtype, weight->rows, weight->cols)
                               : dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
        add(list, &output->weight.data, 0, bytes, SAMPLE_BYTES);
        add_constant(list, &output->bias, weight->rows);
        if (!args->act_mul && !args->add)
            add_rows(list, &output->y, weight->rows, args->f32_y ? SAMPLE_F32 : SAMPLE_BF16);
    }
    if (args->act_mul)
        add_rows(list, &((struct act_mul_args *)args->act_mul)->out, args->act_mul->width, SAMPLE_BF16);
    if (args->add)
        add_rows(list, &((struct add_args *)args->add)->x, args->add->width, SAMPLE_F32);
    add(list, &args->scratch, 0, draw_scratch_bytes(list->sample, list->kernel), SAMPLE_SCRATCH);
}

static void list_per_head_linear(struct list *list, union op_args *all)
{
    struct per_head_linear_args *args = &all->per_head_linear;
    size_t values = (size_t)args->heads * (size_t)args->out * (size_t)args->in;
    add_rows(list, &args->x, args->heads * (args->in + args->rest), SAMPLE_BF16);
    add(list, &args->weight.data, 0, dtype_bytes(args->weight.dtype, values), SAMPLE_BYTES);
    add_rows(list, &args->y, args->heads * (args->out + args->rest), SAMPLE_BF16);
}

static void list_rope_args(struct list *list, struct rope_args *args)
{
    add_rows(list, &args->q, args->heads * args->head_dim, SAMPLE_BF16);
    add_rows(list, &args->k, args->kv_heads * args->head_dim, SAMPLE_BF16);
    add_constant(list, &args->frequencies, args->rotated / 2);
}

static void list_rope(struct list *list, union op_args *all) { list_rope_args(list, &all->rope); }

static void list_transform_args(struct list *list, struct transform_args *args)
{
    add_rows(list, &args->q, args->heads * args->head_dim, SAMPLE_BF16);
    add_rows(list, &args->k, args->kv_heads * args->head_dim, SAMPLE_BF16);
    add_constant(list, &args->centre, args->kv_heads * args->head_dim);
}

static void list_transform(struct list *list, union op_args *all) { list_transform_args(list, &all->transform); }

static void list_kv_write(struct list *list, union op_args *all)
{
    struct kv_write_args *args = &all->kv_write;
    const struct kv_layout *layout = &args->cache.layout;
    add_rows(list, &args->k, layout->k.heads * layout->k.dim, SAMPLE_BF16);
    add_rows(list, &args->v, layout->v.heads * layout->v.dim, SAMPLE_BF16);
    add(list, &args->cache.pool, 0, list->sample->pages_bytes, SAMPLE_BYTES);
    add(list, &args->sink.pool, 0, list->sample->pages_bytes, SAMPLE_BYTES);
    if (args->rope)
        list_rope_args(list, (struct rope_args *)args->rope);
    if (args->transform)
        list_transform_args(list, (struct transform_args *)args->transform);
}

static void list_attention(struct list *list, union op_args *all)
{
    struct attention_args *args = &all->attention;
    const struct kv_layout *layout = &args->cache.layout;
    add_rows(list, &args->q, args->heads * layout->k.dim, SAMPLE_BF16);
    add_rows(list, &args->out, args->heads * layout->v.dim, SAMPLE_BF16);
    add_constant(list, &args->sinks, args->heads);
    add(list, &args->cache.pool, 0, list->sample->pages_bytes, SAMPLE_BYTES);
    add(list, &args->sink.pool, 0, list->sample->pages_bytes, SAMPLE_BYTES);
    add(list, &args->scratch, 0, draw_scratch_bytes(list->sample, list->kernel), SAMPLE_SCRATCH);
}

static void list_act_mul(struct list *list, union op_args *all)
{
    struct act_mul_args *args = &all->act_mul;
    add_rows(list, &args->gate, args->gate_per_row ? 1 : args->width, SAMPLE_BF16);
    add_rows(list, &args->up, args->width, SAMPLE_BF16);
    add_rows(list, &args->out, args->width, SAMPLE_BF16);
}

static void list_add(struct list *list, union op_args *all)
{
    add_rows(list, &all->add.x, all->add.width, SAMPLE_F32);
    add_rows(list, &all->add.y, all->add.width, SAMPLE_BF16);
}

// Rows that are picked are there, even where the batch was cut.
static void list_pick(struct list *list, union op_args *all)
{
    const struct batch *batch = &list->sample->batch;
    int rows = batch->tokens;
    for (int i = 0; i < batch->outputs; i++)
        rows = batch->output_rows[i] < rows ? rows : batch->output_rows[i] + 1;
    add(list, &all->pick.x, rows, (size_t)all->pick.width, SAMPLE_F32);
    add_rows(list, &all->pick.out, all->pick.width, SAMPLE_F32);
}

static void list_softcap(struct list *list, union op_args *all)
{
    add_rows(list, &all->softcap.x, all->softcap.width, SAMPLE_F32);
}

static void list_copy(struct list *list, union op_args *all)
{
    add_rows(list, &all->copy.x, all->copy.width, SAMPLE_F32);
    add_rows(list, &all->copy.out, all->copy.width, SAMPLE_BF16);
}

static void list_all_reduce(struct list *list, union op_args *all)
{
    add_constant(list, &all->all_reduce.parts, (int)all->all_reduce.stride * all->all_reduce.ranks);
    add_rows(list, &all->all_reduce.out, all->all_reduce.width, all->all_reduce.f32_out ? SAMPLE_F32 : SAMPLE_BF16);
}

static void list_all_gather(struct list *list, union op_args *all)
{
    add_constant(list, &all->all_gather.parts, (int)all->all_gather.stride * all->all_gather.ranks);
    add_rows(list, &all->all_gather.out, all->all_gather.width, SAMPLE_F32);
}

static void list_routes(struct list *list, struct routes *routes)
{
    add_rows(list, &routes->expert, routes->chosen, SAMPLE_F32);
    add_rows(list, &routes->share, routes->chosen, SAMPLE_F32);
    add_rows(list, &routes->pair, routes->chosen, SAMPLE_F32);
    add_constant(list, &routes->first, routes->experts + 1);
}

static void list_route(struct list *list, union op_args *all)
{
    struct route_args *args = &all->route;
    add_rows(list, &args->logits, args->routes.experts, SAMPLE_F32);
    add_constant(list, &args->bias, args->routes.experts);
    list_routes(list, &args->routes);
}

static void list_experts(struct list *list, union op_args *all)
{
    struct experts_args *args = &all->experts;
    const struct kernel_packing *packing = list->kernel->packing;
    int experts = args->routes.experts, chosen = args->routes.chosen;
    add_rows(list, &args->x, args->in * (args->x_per_slot ? chosen : 1), SAMPLE_BF16);
    for (int i = 0; i < args->outputs; i++) {
        struct experts_output *output = &args->output[i];
        const struct weight *weight = &output->weight;
        size_t bytes = packing ? packing->bytes(weight->dtype, weight->rows, weight->cols)
                               : dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
        add(list, &output->weight.data, 0, bytes * (size_t)experts, SAMPLE_BYTES);
        add_constant(list, &output->scales, experts);
        add_constant(list, &output->bias, experts * weight->rows);
        add_rows(list, &output->y, chosen * weight->rows, SAMPLE_BF16);
    }
    list_routes(list, &args->routes);
    add(list, &args->scratch, 0, draw_scratch_bytes(list->sample, list->kernel), SAMPLE_SCRATCH);
}

static void list_combine(struct list *list, union op_args *all)
{
    struct combine_args *args = &all->combine;
    add_rows(list, &args->x, args->routes.chosen * args->width, SAMPLE_BF16);
    add_rows(list, &args->out, args->width, args->f32_out ? SAMPLE_F32 : SAMPLE_BF16);
    list_routes(list, &args->routes);
}

static void list_state(struct list *list, struct state_place *place)
{
    add(list, &place->pool, 0, list->sample->output[list->sample->outputs - 1].bytes, SAMPLE_BYTES);
}

static void list_conv(struct list *list, union op_args *all)
{
    struct conv_args *args = &all->conv;
    const struct kv_state *layout = &args->state.layout;
    add_rows(list, &args->x, layout->channels, SAMPLE_BF16);
    add_rows(list, &args->out, layout->channels, SAMPLE_BF16);
    add_constant(list, &args->kernel, (layout->inputs + 1) * layout->channels);
    add_constant(list, &args->bias, layout->channels);
    list_state(list, &args->state);
}

static void list_ssm_scan(struct list *list, union op_args *all)
{
    struct ssm_scan_args *args = &all->ssm_scan;
    const struct kv_state *layout = &args->state.layout;
    int inner = layout->heads * layout->values;
    add_rows(list, &args->mixed, inner + 2 * args->groups * layout->keys, SAMPLE_BF16);
    add_rows(list, &args->time, layout->heads, SAMPLE_BF16);
    add_rows(list, &args->out, inner, SAMPLE_BF16);
    add_constant(list, &args->a, layout->heads);
    add_constant(list, &args->d, layout->heads);
    add_constant(list, &args->dt_bias, layout->heads);
    list_state(list, &args->state);
}

static void list_gated_delta(struct list *list, union op_args *all)
{
    struct gated_delta_args *args = &all->gated_delta;
    const struct kv_state *layout = &args->state.layout;
    int inner = layout->heads * layout->values;
    add_rows(list, &args->mixed, inner + 2 * args->groups * layout->keys, SAMPLE_BF16);
    add_rows(list, &args->time, layout->heads, SAMPLE_BF16);
    add_rows(list, &args->beta, layout->heads, SAMPLE_BF16);
    add_rows(list, &args->out, inner, SAMPLE_BF16);
    add_constant(list, &args->a, layout->heads);
    add_constant(list, &args->dt_bias, layout->heads);
    list_state(list, &args->state);
}

static void (*const listers[OP_COUNT])(struct list *, union op_args *) = {
    [OP_EMBED] = list_embed,
    [OP_NORM] = list_norm,
    [OP_LINEAR] = list_linear,
    [OP_ROPE] = list_rope,
    [OP_KV_WRITE] = list_kv_write,
    [OP_ATTENTION] = list_attention,
    [OP_ACT_MUL] = list_act_mul,
    [OP_ADD] = list_add,
    [OP_PICK] = list_pick,
    [OP_SOFTCAP] = list_softcap,
    [OP_ROUTE] = list_route,
    [OP_EXPERTS] = list_experts,
    [OP_COMBINE] = list_combine,
    [OP_COPY] = list_copy,
    [OP_PER_HEAD_LINEAR] = list_per_head_linear,
    [OP_TRANSFORM] = list_transform,
    [OP_CONV] = list_conv,
    [OP_SSM_SCAN] = list_ssm_scan,
    [OP_GATED_DELTA] = list_gated_delta,
    [OP_ALL_REDUCE] = list_all_reduce,
    [OP_ALL_GATHER] = list_all_gather,
};

int sample_operands(const struct sample *sample, const struct kernel *kernel, union op_args *args,
                    struct sample_operand out[SAMPLE_OPERANDS_MAX])
{
    struct list list = { sample, kernel, out, 0 };
    listers[sample->op](&list, args);
    return list.count;
}

void sample_round(struct sample *sample, const struct kernel *kernel)
{
    struct sample_operand operands[SAMPLE_OPERANDS_MAX];
    int count = sample_operands(sample, kernel, &sample->args, operands);
    for (int i = 0; i < count; i++) {
        float *values;
        size_t total = (size_t)operands[i].rows * operands[i].width;
        memcpy(&values, operands[i].slot, sizeof values);
        for (size_t j = 0; operands[i].type == SAMPLE_BF16 && j < total; j++)
            values[j] = isnan(values[j]) ? values[j] : bf16_to_f32(f32_to_bf16(values[j]));
    }
}
