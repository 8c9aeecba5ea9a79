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

static struct kv_place place_of(const struct engine *engine, int layer)
{
    const struct plan_layer *placed = &engine->plan.layer[layer];
    return (struct kv_place){
        .pool = engine->pools[placed->class_index].bytes,
        .page_bytes = engine->plan.classes[placed->class_index].page_bytes,
        .layer_offset = placed->offset,
        .class_index = placed->class_index,
        .layout = engine->plan.classes[placed->class_index].layout,
        .k_scale = 1, .v_scale = 1,
    };
}

static bool bind_matrix(struct engine *engine, const struct op *op, int number, struct weight *out, struct error *err)
{
    size_t at = engine->plan.ops[op - engine->model.ops].placed_at[number];
    if (!weights_matrix(&op->matrix[number], out, err))
        return false;
    if (at != PLAN_IN_FILE)
        out->data = engine->placed + at;
    return true;
}

static bool bind_vector(struct engine *engine, const struct tensor *tensor, float offset, const float **out,
                        struct error *err)
{
    return weights_vector(&engine->arena, tensor, offset, out, err)
        && (!engine->gpu || gpu_constant(engine->gpu, *out, tensor ? (size_t)tensor_values(tensor) : 0, out, err));
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
            || !bind_vector(engine, op->matrix[i].bias, 0, &output->bias, err))
            return false;
    }
    return true;
}

static bool bind_rope(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct layer *layer = &engine->model.layer[op->layer];
    size_t pairs = (size_t)engine->model.config.rotated / 2;
    args->rope = (struct rope_args){
        .batch = &engine->batch,
        .q = engine->buffers[op->in],
        .k = engine->buffers[op->second],
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .head_dim = layer->head_dim,
        .rotated = engine->model.config.rotated,
        .interleaved = engine->model.config.rope_interleaved,
        .frequencies = layer->frequencies,
        .magnitude = layer->rope_magnitude,
    };
    return !engine->gpu
        || gpu_constant(engine->gpu, layer->frequencies, pairs, &args->rope.frequencies, err);
}

static bool bind_kv_write(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    (void)err;
    args->kv_write = (struct kv_write_args){ .batch = &engine->batch,
                                             .k = engine->buffers[op->in],
                                             .v = engine->buffers[op->second],
                                             .cache = place_of(engine, op->layer) };
    return true;
}

static bool bind_attention(struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    const struct model_config *config = &engine->model.config;
    const struct layer *layer = &engine->model.layer[op->layer];
    (void)err;
    args->attention = (struct attention_args){
        .batch = &engine->batch, .q = engine->buffers[op->in], .out = engine->buffers[op->out], .heads = layer->heads,
        .scale = (float)config->attention_scale, .window = layer->window, .softcap = (float)config->attention_softcap,
        .cache = place_of(engine, op->layer), .scratch = engine->scratch,
    };
    return true;
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
    [OP_PICK] = bind_pick,         [OP_SOFTCAP] = bind_softcap,
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
