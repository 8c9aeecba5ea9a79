// SPDX-License-Identifier: Apache-2.0
#include "engine/program.h"

#include <math.h>

#include "engine/ranks/collectives.h"
#include "engine/gpu/gpu.h"
#include "engine/weights.h"
#include "kernel/cuda/params.h"
#include "kernel/fault.h"

enum { PHASES_PER_OP_MAX = 4 }; // exchanging, preparing, running, being looked at

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

static bool place_in(const struct engine *engine, int layer, int class_index, size_t offset, struct kv_place *out,
                     struct error *err)
{
    const struct layer *described = &engine->model.layer[layer];
    *out = (struct kv_place){
        .pool = engine->pools[class_index].bytes,
        .page_bytes = engine->plan.classes[class_index].page_bytes,
        .layer_offset = offset,
        .class_index = class_index,
        .layout = engine->plan.classes[class_index].layout,
    };
    const struct tensor *v_scale = out->layout.latent ? described->k_scale : described->v_scale;
    return cache_scale(&out->layout.k, described->k_scale, &out->k_scale, err)
        && cache_scale(&out->layout.v, v_scale, &out->v_scale, err);
}

// A layer's place, and that of its first pages, of which there may be none.
static bool place_of(const struct engine *engine, int layer, struct kv_place *out, struct kv_place *sink,
                     int *sink_pages, struct error *err)
{
    const struct plan_layer *placed = &engine->plan.layer[layer];
    bool has_sink = placed->sink_class != PLAN_NO_CLASS;
    *sink_pages = has_sink ? engine->plan.classes[placed->sink_class].kind.end : 0;
    return place_in(engine, layer, placed->class_index, placed->offset, out, err)
        && (!has_sink || place_in(engine, layer, placed->sink_class, placed->sink_offset, sink, err));
}

static float factor_of(const struct op_matrix *matrix) { return matrix->factor != 0 ? (float)matrix->factor : 1; }

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

// Values that were made here, where kernels find them.
static bool gpu_or_here(struct engine *engine, const float *values, size_t count, const float **out, struct error *err)
{
    *out = values;
    return !engine->gpu || gpu_constant(engine->gpu, values, count, out, err);
}

static bool bind_vector(struct engine *engine, const struct tensor *tensor, float offset, const float **out,
                        struct error *err)
{
    const float *values;
    return weights_vector(&engine->arena, tensor, offset, &values, err)
        && gpu_or_here(engine, values, tensor ? (size_t)tensor_values(tensor) : 0, out, err);
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
    args->embed = (struct embed_args){ .batch = &engine->batch,
                                       .scale = (float)engine->model.config.embed_scale,
                                       .first = op->first,
                                       .out = exchange_place(engine, op->out) };
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
                                     .own_weights = tensor_values(op->vector) > op->width,
                                     .gap = op->rest,
                                     .epsilon = (float)config->norm_epsilon,
                                     .f32_x = plan_value_bytes(&engine->plan, op->in) == sizeof(float) };
    return bind_vector(engine, op->vector, (float)op->offset, &args->norm.weight, err);
}

static bool bind_linear(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->linear = (struct linear_args){
        .rows = rows_of(engine, op),
        .x = engine->buffers[op->in],
        .in = op->width,
        .outputs = op->matrices,
        .scratch = engine->scratch,
        .f32_y = plan_value_bytes(&engine->plan, op->matrix[0].out) == sizeof(float),
    };
    for (int i = 0; i < op->matrices; i++) {
        struct linear_output *output = &args->linear.output[i];
        output->y = exchange_place(engine, op->matrix[i].out);
        if (!bind_matrix(engine, op, i, &output->weight, err) || !bind_bias(engine, &op->matrix[i], &output->bias, err))
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
                                           .out = exchange_place(engine, op->out),
                                           .width = op->width,
                                           .f32_out = plan_value_bytes(&engine->plan, op->out) == sizeof(float),
                                           .routes = routes_of(engine) };
    return true;
}

// ---- attention ----

static bool bind_per_head_linear(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->per_head_linear = (struct per_head_linear_args){ .rows = rows_of(engine, op),
                                                           .x = engine->buffers[op->in],
                                                           .y = engine->buffers[op->out],
                                                           .heads = op->groups,
                                                           .in = op->width,
                                                           .out = (int)op->matrix[0].tensor->shape[0] / op->groups,
                                                           .rest = op->rest };
    return bind_matrix(engine, op, 0, &args->per_head_linear.weight, err);
}

static bool bind_rope(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct layer *layer = &engine->model.layer[op->layer];
    size_t pairs = (size_t)engine->model.config.rotated / 2;
    const float *frequencies = layer_frequencies(layer, engine->plan.max_model_len);
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
    return !engine->gpu || gpu_constant(engine->gpu, frequencies, pairs, &args->rope.frequencies, err);
}

// A layer that is left as it is has neither centre nor block.
static bool bind_transform(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct layer *layer = &engine->model.layer[op->layer];
    const struct kv_calibration *known = engine->plan.calibration;
    int transform = engine->plan.layer[op->layer].transform;
    size_t first = (size_t)engine->model.shard.first_kv_head * (size_t)layer->head_dim; // centres are the whole model's
    if (transform & KV_CENTRE && (!known || !known->layers))
        return fail(err, "keys cannot be centred before they are measured on a text");
    args->transform = (struct transform_args){
        .rows = rows_of(engine, op),
        .q = engine->buffers[op->in],
        .k = engine->buffers[op->second],
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .head_dim = layer->head_dim,
        .centre = transform & KV_CENTRE ? known->layer[op->layer].centre + first : NULL,
        .block = transform & KV_ROTATE ? layer->head_dim & -layer->head_dim : 0,
    };
    const float **centre = &args->transform.centre;
    size_t values = (size_t)layer->kv_heads * (size_t)layer->head_dim;
    return !engine->gpu || gpu_constant(engine->gpu, *centre, values, centre, err);
}

static bool bind_kv_write(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->kv_write = (struct kv_write_args){ .batch = &engine->batch,
                                             .k = engine->buffers[op->in],
                                             .v = engine->buffers[op->second],
                                             .scale_search = engine->plan.scale_search };
    return place_of(engine, op->layer, &args->kv_write.cache, &args->kv_write.sink, &args->kv_write.sink_pages, err);
}

static bool bind_attention(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_config *config = &engine->model.config;
    const struct layer *layer = &engine->model.layer[op->layer];
    args->attention = (struct attention_args){
        .batch = &engine->batch,
        .q = engine->buffers[op->in],
        .out = engine->buffers[op->out],
        .heads = layer->heads,
        .group = layer->group,
        .lead = layer->lead,
        .scale = (float)config->attention_scale,
        .window = layer->window,
        .softcap = (float)config->attention_softcap,
        .scratch = engine->scratch,
    };
    return place_of(engine, op->layer, &args->attention.cache, &args->attention.sink, &args->attention.sink_pages, err)
        && bind_vector(engine, op->vector, 0, &args->attention.sinks, err);
}

// ---- recurrent layers ----

static struct state_place state_of(const struct engine *engine, int layer)
{
    const struct plan_layer *placed = &engine->plan.layer[layer];
    const struct plan_class *class = &engine->plan.classes[placed->class_index];
    return (struct state_place){ .pool = engine->pools[placed->class_index].bytes,
                                 .page_bytes = class->page_bytes,
                                 .layer_offset = placed->offset,
                                 .class_index = placed->class_index,
                                 .page_tokens = class->kind.page_tokens,
                                 .layout = engine->model.layer[layer].state };
}

// The file has the taps of each channel side by side.
static bool bind_kernel(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    const struct kv_state *layout = &engine->model.layer[op->layer].state;
    int taps = layout->inputs + 1;
    const float *stored;
    if (!weights_vector(&engine->arena, op->vector, 0, &stored, err))
        return false;
    float *turned = ARENA_NEW(&engine->arena, float, (size_t)taps *(size_t)layout->channels);
    for (int channel = 0; channel < layout->channels; channel++)
        for (int i = 0; i < taps; i++)
            turned[i * layout->channels + channel] = stored[channel * taps + i];
    return gpu_or_here(engine, turned, (size_t)taps * (size_t)layout->channels, out, err);
}

static bool bind_conv(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->conv = (struct conv_args){ .batch = &engine->batch,
                                     .x = engine->buffers[op->in],
                                     .out = engine->buffers[op->out],
                                     .state = state_of(engine, op->layer) };
    return bind_kernel(engine, op, &args->conv.kernel, err)
        && bind_vector(engine, op->more[0], 0, &args->conv.bias, err);
}

// What a state is multiplied with as time goes by, of which some files have the logarithms.
static bool bind_decay(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    size_t count = (size_t)tensor_values(op->vector);
    const float *stored;
    if (!weights_vector(&engine->arena, op->vector, 0, &stored, err))
        return false;
    float *values = ARENA_NEW(&engine->arena, float, count);
    for (size_t i = 0; i < count; i++) {
        values[i] = op->logarithms ? -expf(stored[i]) : stored[i];
        if (!isfinite(values[i]) || values[i] > 0)
            return fail(err, "tensor %s: value %zu is %g, with which a state would grow", op->vector->name, i,
                        stored[i]);
    }
    return gpu_or_here(engine, values, count, out, err);
}

static bool bind_ssm_scan(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_recurrent *recurrent = &engine->model.config.recurrent;
    args->ssm_scan = (struct ssm_scan_args){ .batch = &engine->batch,
                                             .mixed = engine->buffers[op->in],
                                             .time = engine->buffers[op->second],
                                             .out = engine->buffers[op->out],
                                             .groups = recurrent->groups,
                                             .dt_min = (float)recurrent->dt_min,
                                             .dt_max = (float)recurrent->dt_max,
                                             .state = state_of(engine, op->layer) };
    return bind_decay(engine, op, &args->ssm_scan.a, err)
        && bind_vector(engine, op->more[0], 0, &args->ssm_scan.dt_bias, err)
        && bind_vector(engine, op->more[1], 0, &args->ssm_scan.d, err);
}

static bool bind_gated_delta(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    args->gated_delta = (struct gated_delta_args){ .batch = &engine->batch,
                                                   .mixed = engine->buffers[op->in],
                                                   .time = engine->buffers[op->second],
                                                   .beta = engine->buffers[BUFFER_BETA],
                                                   .out = engine->buffers[op->out],
                                                   .groups = engine->model.config.recurrent.groups,
                                                   .in_turns = engine->model.config.recurrent.in_turns,
                                                   .state = state_of(engine, op->layer) };
    return bind_decay(engine, op, &args->gated_delta.a, err)
        && bind_vector(engine, op->more[0], 0, &args->gated_delta.dt_bias, err);
}

// ---- the rest ----

static bool bind_act_mul(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->act_mul = (struct act_mul_args){ .rows = rows_of(engine, op),
                                           .gate = engine->buffers[op->in],
                                           .up = engine->buffers[op->second],
                                           .out = engine->buffers[op->out],
                                           .width = op->width,
                                           .gate_per_row = engine->model.buffer_width[op->in] == 1,
                                           .act = op->activation };
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

// ---- several ranks ----

static bool bind_all_reduce(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->all_reduce = (struct all_reduce_args){ .rows = rows_of(engine, op),
                                                 .parts = engine->buffers[op->in],
                                                 .stride = exchange_stride(engine, op->in),
                                                 .ranks = group_size(engine->group),
                                                 .width = op->width,
                                                 .out = engine->buffers[op->out],
                                                 .adds = op->adds,
                                                 .f32_out = plan_value_bytes(&engine->plan, op->out) == sizeof(float) };
    return true;
}

static bool bind_all_gather(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->all_gather = (struct all_gather_args){ .rows = rows_of(engine, op),
                                                 .parts = engine->buffers[op->in],
                                                 .stride = exchange_stride(engine, op->in),
                                                 .ranks = group_size(engine->group),
                                                 .width = op->width,
                                                 .out = engine->buffers[op->out] };
    return true;
}

static bool (*const binders[OP_COUNT])(struct engine *, const struct op *, union op_args *, struct error *) = {
    [OP_EMBED] = bind_embed,
    [OP_NORM] = bind_norm,
    [OP_LINEAR] = bind_linear,
    [OP_ROPE] = bind_rope,
    [OP_KV_WRITE] = bind_kv_write,
    [OP_ATTENTION] = bind_attention,
    [OP_ACT_MUL] = bind_act_mul,
    [OP_ADD] = bind_add,
    [OP_PICK] = bind_pick,
    [OP_SOFTCAP] = bind_softcap,
    [OP_PER_HEAD_LINEAR] = bind_per_head_linear,
    [OP_COPY] = bind_copy,
    [OP_ROUTE] = bind_route,
    [OP_EXPERTS] = bind_experts,
    [OP_COMBINE] = bind_combine,
    [OP_TRANSFORM] = bind_transform,
    [OP_CONV] = bind_conv,
    [OP_SSM_SCAN] = bind_ssm_scan,
    [OP_GATED_DELTA] = bind_gated_delta,
    [OP_ALL_REDUCE] = bind_all_reduce,
    [OP_ALL_GATHER] = bind_all_gather,
};

static void add_call(const struct engine *engine, struct program *program, struct kernel_call call,
                     const struct program_moment *moment)
{
    if (exchange_precedes(&engine->model.ops[moment->op]))
        program->phases[program->count++] = (struct phase){ exchange_run, moment };
    if (call.prepare)
        program->phases[program->count++] = (struct phase){ call.prepare, call.args };
    program->phases[program->count++] = (struct phase){ call.run, call.args };
    if (watch_wants(engine, moment->op))
        program->phases[program->count++] = (struct phase){ watch_run, moment };
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
    struct program_moment *moments = ARENA_NEW(&engine->arena, struct program_moment, count);
    engine->decode.phases = ARENA_NEW(&engine->arena, struct phase, PHASES_PER_OP_MAX * count);
    engine->prefill.phases = ARENA_NEW(&engine->arena, struct phase, PHASES_PER_OP_MAX * count);
    for (int i = 0; i < count; i++) {
        const struct plan_op *bound = &engine->plan.ops[i];
        moments[i] = (struct program_moment){ engine, i };
        if (bound->left_out)
            continue;
        add_call(engine, &engine->decode, fault_bind(bound->rows[kernel_load_of(1)][0], &args[i], &engine->arena),
                 &moments[i]);
        add_call(engine, &engine->prefill,
                 fault_bind(bound->rows[kernel_load_of(INT32_MAX)][0], &args[i], &engine->arena), &moments[i]);
    }
    return true;
}
