// SPDX-License-Identifier: Apache-2.0
#include "engine/program.h"

#include "engine/gpu.h"
#include "engine/weights.h"
#include "kernel/cuda/params.h"
#include "kernel/fault.h"

// The number itself, or on a GPU its place there.
static const int *rows_of(const struct engine *engine, const struct op *op)
{
    if (engine->gpu)
        return engine->batch.on_device->counts + (op->on_outputs ? CUDA_OUTPUTS : CUDA_TOKENS);
    return op->on_outputs ? &engine->batch.outputs : &engine->batch.tokens;
}

// What the checkpoint says, for formats that have a scale.
static bool cache_scale(const struct kv_side *side, const struct tensor *tensor, float *out, struct error *err)
{
    enum dtype_scale scale = dtype_table[side->dtype].scale;
    bool has_one = scale == DTYPE_SCALE_LAYER || scale == DTYPE_SCALE_BLOCK;
    return weights_cache_scale(has_one ? tensor : NULL, out, err);
}

static bool place_of(const struct engine *engine, int layer, struct kv_place *out, struct error *err)
{
    const struct plan_layer *placed = &engine->plan.layer[layer];
    const struct layer *described = &engine->model.layer[layer];
    *out = (struct kv_place){
        .pool = engine->pools[placed->class_index].bytes,
        .page_bytes = engine->plan.classes[placed->class_index].page_bytes,
        .layer_offset = placed->offset,
        .class_index = placed->class_index,
        .layout = engine->plan.classes[placed->class_index].layout,
    };
    const struct tensor *v_scale = out->layout.latent ? described->k_scale : described->v_scale;
    return cache_scale(&out->layout.k, described->k_scale, &out->k_scale, err)
        && cache_scale(&out->layout.v, v_scale, &out->v_scale, err);
}

static float factor_of(const struct op_matrix *matrix)
{
    return matrix->factor != 0 ? (float)matrix->factor : 1;
}

static bool bind_matrix(struct engine *engine, const struct op *op, int number, struct weight *out, struct error *err)
{
    size_t at = engine->plan.ops[op - engine->model.ops].placed_at[number];
    if (!weights_matrix(&op->matrix[number], out, err))
        return false;
    if (at != PLAN_IN_FILE)
        out->data = engine->placed + at;
    out->scale *= factor_of(&op->matrix[number]);
    return true;
}

static bool bind_vector(struct engine *engine, const struct tensor *tensor, float offset, const float **out,
                        struct error *err)
{
    return weights_vector(&engine->arena, tensor, offset, out, err)
        && (!engine->gpu || gpu_constant(engine->gpu, *out, tensor ? (size_t)tensor_values(tensor) : 0, out, err));
}

static bool bind_bias(struct engine *engine, const struct op_matrix *matrix, const float **out, struct error *err)
{
    size_t count = matrix->bias ? (size_t)tensor_values(matrix->bias) : 0;
    if (!weights_vector(&engine->arena, matrix->bias, 0, out, err))
        return false;
    if (count && factor_of(matrix) != 1) {
        float *scaled = ARENA_NEW(&engine->arena, float, count);
        for (size_t i = 0; i < count; i++)
            scaled[i] = (*out)[i] * factor_of(matrix);
        *out = scaled;
    }
    return !engine->gpu || gpu_constant(engine->gpu, *out, count, out, err);
}

static bool bind_embed(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->embed = (struct embed_args){ .batch = &engine->batch, .scale = (float)engine->model.config.embed_scale,
                                       .out = engine->buffers[BUFFER_X] };
    return bind_matrix(engine, op, 0, &args->embed.table, err);
}

static bool bind_norm(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_config *config = &engine->model.config;
    args->norm = (struct norm_args){ .rows = rows_of(engine, op),
                                     .x = engine->buffers[op->in],
                                     .out = engine->buffers[op->out],
                                     .groups = op->groups,
                                     .width = op->width,
                                     .gap = op->rest,
                                     .epsilon = (float)config->norm_epsilon,
                                     .f32_x = plan_value_bytes(&engine->plan, op->in) == sizeof(float) };
    return bind_vector(engine, op->vector, (float)config->norm_offset, &args->norm.weight, err);
}

static bool bind_linear(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->linear = (struct linear_args){
        .rows = rows_of(engine, op), .x = engine->buffers[op->in], .in = op->width, .outputs = op->matrices,
        .scratch = engine->scratch, .f32_y = plan_value_bytes(&engine->plan, op->matrix[0].out) == sizeof(float),
    };
    for (int i = 0; i < op->matrices; i++) {
        struct linear_output *output = &args->linear.output[i];
        output->y = engine->buffers[op->matrix[i].out];
        if (!bind_matrix(engine, op, i, &output->weight, err)
            || !bind_bias(engine, &op->matrix[i], &output->bias, err))
            return false;
    }
    return true;
}

// ---- mixture of experts ----

static struct routes routes_of(const struct engine *engine)
{
    return (struct routes){ .experts = engine->model.config.experts.count,
                            .chosen = engine->model.config.experts.chosen,
                            .expert = (int32_t *)(void *)engine->buffers[BUFFER_EXPERT],
                            .share = engine->buffers[BUFFER_SHARE],
                            .first = (int32_t *)(void *)engine->buffers[BUFFER_FIRST],
                            .pair = (int32_t *)(void *)engine->buffers[BUFFER_PAIR] };
}

static bool bind_route(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_experts *experts = &engine->model.config.experts;
    args->route = (struct route_args){ .rows = rows_of(engine, op),
                                       .logits = engine->buffers[op->in],
                                       .score = experts->score,
                                       .groups = experts->groups,
                                       .groups_chosen = experts->groups_chosen,
                                       .group_best = experts->group_best,
                                       .normalise = experts->normalise,
                                       .scale = (float)experts->scale,
                                       .routes = routes_of(engine) };
    return bind_vector(engine, op->vector, 0, &args->route.bias, err);
}

static bool bind_scales(struct engine *engine, const struct op_matrix *matrix, const float **out, struct error *err)
{
    return weights_scales(&engine->arena, matrix, out, err)
        && (!engine->gpu || gpu_constant(engine->gpu, *out, *out ? (size_t)tensor_values(matrix->scale) : 0, out, err));
}

static bool bind_experts(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->experts = (struct experts_args){ .rows = rows_of(engine, op),
                                           .x = engine->buffers[op->in],
                                           .x_per_slot = op->in == BUFFER_GATE, // what an activation gave
                                           .in = op->width,
                                           .routes = routes_of(engine),
                                           .scratch = engine->scratch,
                                           .outputs = op->matrices };
    for (int i = 0; i < op->matrices; i++) {
        struct experts_output *output = &args->experts.output[i];
        output->y = engine->buffers[op->matrix[i].out];
        if (!bind_matrix(engine, op, i, &output->weight, err)
            || !bind_scales(engine, &op->matrix[i], &output->scales, err)
            || !bind_bias(engine, &op->matrix[i], &output->bias, err))
            return false;
    }
    return true;
}

static bool bind_combine(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->combine = (struct combine_args){ .rows = rows_of(engine, op),
                                           .x = engine->buffers[op->in],
                                           .out = engine->buffers[op->out],
                                           .width = op->width,
                                           .routes = routes_of(engine) };
    return true;
}

// ---- attention ----

static bool bind_heads(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->heads = (struct heads_args){ .rows = rows_of(engine, op),
                                       .x = engine->buffers[op->in],
                                       .y = engine->buffers[op->out],
                                       .heads = op->groups,
                                       .in = op->width,
                                       .out = (int)op->matrix[0].tensor->shape[0] / op->groups,
                                       .rest = op->rest };
    return bind_matrix(engine, op, 0, &args->heads.weight, err);
}

static bool bind_rope(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct layer *layer = &engine->model.layer[op->layer];
    size_t pairs = (size_t)engine->model.config.rotated / 2;
    bool has_short = layer->short_frequencies && engine->plan.max_model_len <= layer->short_context;
    const float *frequencies = has_short ? layer->short_frequencies : layer->frequencies;
    args->rope = (struct rope_args){
        .batch = &engine->batch,
        .q = engine->buffers[op->in],
        .k = engine->buffers[op->second],
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .head_dim = layer->head_dim,
        .first = layer->latent,
        .rotated = engine->model.config.rotated,
        .interleaved = engine->model.config.rope_interleaved,
        .frequencies = frequencies,
        .magnitude = layer->rope_magnitude,
    };
    return !engine->gpu
        || gpu_constant(engine->gpu, frequencies, pairs, &args->rope.frequencies, err);
}

static bool bind_kv_write(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->kv_write = (struct kv_write_args){ .batch = &engine->batch,
                                             .k = engine->buffers[op->in],
                                             .v = engine->buffers[op->second] };
    return place_of(engine, op->layer, &args->kv_write.cache, err);
}

static bool bind_attention(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_config *config = &engine->model.config;
    const struct layer *layer = &engine->model.layer[op->layer];
    args->attention = (struct attention_args){
        .batch = &engine->batch, .q = engine->buffers[op->in], .out = engine->buffers[op->out], .heads = layer->heads,
        .scale = (float)config->attention_scale, .window = layer->window, .softcap = (float)config->attention_softcap,
        .scratch = engine->scratch,
    };
    return place_of(engine, op->layer, &args->attention.cache, err)
        && bind_vector(engine, op->vector, 0, &args->attention.sinks, err);
}

static bool bind_act_mul(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->act_mul = (struct act_mul_args){ .rows = rows_of(engine, op),
                                           .gate = engine->buffers[op->in],
                                           .up = engine->buffers[op->second],
                                           .out = engine->buffers[op->out],
                                           .width = op->width,
                                           .act = engine->model.config.activation };
    return true;
}

static bool bind_add(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->add = (struct add_args){
        .rows = rows_of(engine, op), .x = engine->buffers[op->out], .y = engine->buffers[op->in], .width = op->width
    };
    return true;
}

static bool bind_copy(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->copy = (struct copy_args){
        .rows = rows_of(engine, op), .x = engine->buffers[op->in], .out = engine->buffers[op->out], .width = op->width
    };
    return true;
}

static bool bind_pick(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->pick = (struct pick_args){
        .batch = &engine->batch, .x = engine->buffers[op->in], .out = engine->buffers[op->out], .width = op->width
    };
    return true;
}

static bool bind_softcap(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->softcap = (struct softcap_args){ .rows = rows_of(engine, op),
                                           .x = engine->buffers[op->in],
                                           .width = op->width,
                                           .cap = (float)engine->model.config.final_softcap };
    return true;
}

static bool (*const binders[OP_COUNT])(struct engine *, const struct op *, union op_args *, struct error *) = {
    [OP_EMBED] = bind_embed,       [OP_NORM] = bind_norm,           [OP_LINEAR] = bind_linear,   [OP_ROPE] = bind_rope,
    [OP_KV_WRITE] = bind_kv_write, [OP_ATTENTION] = bind_attention, [OP_ACT_MUL] = bind_act_mul, [OP_ADD] = bind_add,
    [OP_PICK] = bind_pick,         [OP_SOFTCAP] = bind_softcap,     [OP_HEADS] = bind_heads,     [OP_COPY] = bind_copy,
    [OP_ROUTE] = bind_route,       [OP_EXPERTS] = bind_experts,     [OP_COMBINE] = bind_combine,
};

static void add_call(struct program *program, struct kernel_call call)
{
    if (call.prepare)
        program->phases[program->count++] = (struct phase){ call.prepare, call.args };
    program->phases[program->count++] = (struct phase){ call.run, call.args };
}

bool program_bind(struct engine *engine, struct error *err)
{
    int count = engine->model.op_count;
    union op_args *args = ARENA_NEW(&engine->arena, union op_args, count);
    for (int i = 0; i < count; i++) {
        const struct op *op = &engine->model.ops[i];
        if (!binders[op->kind](engine, op, &args[i], err))
            return false;
    }
    if (engine->gpu)
        return gpu_bind(engine->gpu, engine, args), true;
    engine->few.phases = ARENA_NEW(&engine->arena, struct phase, 2 * count);
    engine->many.phases = ARENA_NEW(&engine->arena, struct phase, 2 * count);
    for (int i = 0; i < count; i++) {
        add_call(&engine->few, fault_bind(engine->plan.ops[i].few, &args[i], &engine->arena));
        add_call(&engine->many, fault_bind(engine->plan.ops[i].many, &args[i], &engine->arena));
    }
    return true;
}
