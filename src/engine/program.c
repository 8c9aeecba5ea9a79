// SPDX-License-Identifier: Apache-2.0
#include "engine/program.h"

#include <math.h>

#include "engine/ranks/collectives.h"
#include "engine/gpu/gpu.h"
#include "engine/weights.h"
#include "kernel/cuda/params.h"
#include "kernel/fault.h"
#include "model/flow.h"
#include "plan/op_args.h"

enum { PROGRAM_STEPS_PER_OP_MAX = 4 }; // exchanging, preparing, running, being looked at

// The number itself, or on a GPU its place there.
static const int *rows_of(const struct engine *engine, const struct op *op)
{
    if (engine->gpu)
        return engine->batch.on_device->counts + (op->on_outputs ? CUDA_OUTPUTS : CUDA_TOKENS);
    return op->on_outputs ? &engine->batch.outputs : &engine->batch.tokens;
}

// The scale that the checkpoint has for the cache, for formats that have one; else 1.
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

// A layer's place, and that of its sink pages, of which there may be none.
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

// ---- operands ----

static bool bind_scales(struct engine *engine, const struct op_matrix *matrix, const float **out, struct error *err)
{
    return weights_scales(&engine->arena, matrix, out, err)
        && gpu_or_here(engine, *out, *out ? (size_t)tensor_values(matrix->scale) : 0, out, err);
}

static bool bind_frequencies(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    const float *frequencies = layer_frequencies(&engine->model.layer[op->layer], engine->plan.max_model_len);
    return gpu_or_here(engine, frequencies, (size_t)engine->model.config.rotated / 2, out, err);
}

// A layer whose keys are left as they are has no centre.
static bool bind_centre(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    const struct layer *layer = &engine->model.layer[op->layer];
    const struct kv_calibration *known = engine->plan.calibration;
    size_t first = (size_t)engine->model.shard.first_kv_head * (size_t)layer->head_dim; // centres are the whole model's
    if (!(engine->plan.layer[op->layer].transform & KV_CENTRE))
        return true;
    if (!known || !known->layers)
        return fail(err, "keys cannot be centred before they are measured on a text");
    return gpu_or_here(engine, known->layer[op->layer].centre + first,
                       (size_t)layer->kv_heads * (size_t)layer->head_dim, out, err);
}

// The file has the kernel of each channel side by side.
static bool bind_conv_kernel(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    const struct kv_state *layout = &engine->model.layer[op->layer].state;
    int inputs = layout->inputs + 1;
    const float *stored;
    if (!weights_vector(&engine->arena, op->vector, 0, &stored, err))
        return false;
    float *transposed = ARENA_NEW(&engine->arena, float, (size_t)inputs *(size_t)layout->channels);
    for (int channel = 0; channel < layout->channels; channel++)
        for (int i = 0; i < inputs; i++)
            transposed[i * layout->channels + channel] = stored[channel * inputs + i];
    return gpu_or_here(engine, transposed, (size_t)inputs * (size_t)layout->channels, out, err);
}

// The decay of a state (A), which some files have as A_log.
static bool bind_decay(struct engine *engine, const struct op *op, const float **out, struct error *err)
{
    size_t count = (size_t)tensor_values(op->vector);
    const float *stored;
    if (!weights_vector(&engine->arena, op->vector, 0, &stored, err))
        return false;
    float *values = ARENA_NEW(&engine->arena, float, count);
    for (size_t i = 0; i < count; i++) {
        values[i] = op->a_log ? -expf(stored[i]) : stored[i];
        if (!isfinite(values[i]) || values[i] > 0)
            return fail(err, "tensor %s: value %zu is %g, with which a state would grow", op->vector->name, i,
                        stored[i]);
    }
    return gpu_or_here(engine, values, count, out, err);
}

// Tensors, by the slot of struct op that names them.
static bool bind_tensor(struct engine *engine, const struct op *op, const struct operand_use *use, struct error *err)
{
    const struct op_matrix *matrix = &op->matrix[use->matrix];
    const float **out = use->member;
    switch (use->operand->slot) {
    case SLOT_MATRIX: return bind_matrix(engine, op, use->matrix, use->member, err);
    case SLOT_BIAS: return bind_bias(engine, matrix, out, err);
    case SLOT_SCALES: return bind_scales(engine, matrix, out, err);
    case SLOT_VECTOR: return bind_vector(engine, op->vector, (float)op->offset, out, err);
    case SLOT_MORE_0: return bind_vector(engine, op->more[0], 0, out, err);
    case SLOT_MORE_1: return bind_vector(engine, op->more[1], 0, out, err);
    case SLOT_DECAY: return bind_decay(engine, op, out, err);
    case SLOT_CONV_KERNEL: return bind_conv_kernel(engine, op, out, err);
    case SLOT_FREQUENCIES: return bind_frequencies(engine, op, out, err);
    default: return bind_centre(engine, op, out, err);
    }
}

static void bind_state(const struct engine *engine, int layer, struct state_place *out)
{
    const struct plan_layer *placed = &engine->plan.layer[layer];
    const struct plan_class *class = &engine->plan.classes[placed->class_index];
    *out = (struct state_place){ .pool = engine->pools[placed->class_index].bytes,
                                 .page_bytes = class->page_bytes,
                                 .layer_offset = placed->offset,
                                 .class_index = placed->class_index,
                                 .page_tokens = class->kind.page_tokens,
                                 .layout = engine->model.layer[layer].state };
}

// Results of one of several ranks have a place among those of all.
static void bind_activation(const struct engine *engine, const struct op *op, const struct operand_use *use)
{
    enum buffer buffer;
    if (flow_buffer(op, use->operand, use->matrix, &buffer))
        *operand_pointer(use) = role_writes(use->operand->role) ? exchange_place(engine, buffer)
                                                                : engine->buffers[buffer];
}

static bool bind_operand(struct engine *engine, const struct op *op, const struct operand_use *use, struct error *err)
{
    switch (use->operand->role) {
    case ROLE_ROWS: *operand_pointer(use) = (void *)rows_of(engine, op); return true;
    case ROLE_BATCH: *operand_pointer(use) = &engine->batch; return true;
    case ROLE_WEIGHT:
    case ROLE_VECTOR:
    case ROLE_OPTIONAL: return bind_tensor(engine, op, use, err);
    case ROLE_STATE: bind_state(engine, op->layer, use->member); return true;
    case ROLE_SCRATCH: *operand_pointer(use) = engine->scratch; return true;
    case ROLE_CACHE: // both places at once, below
    case ROLE_CACHE_OUT:
    case ROLE_FUSED_BEFORE: // by the device (engine/gpu/step.c)
    case ROLE_FUSED_AFTER: return true;
    default: bind_activation(engine, op, use); return true;
    }
}

static bool bind_cache(const struct engine *engine, const struct op *op, union op_args *args, struct error *err)
{
    struct kv_write_args *write = &args->kv_write;
    struct attention_args *attention = &args->attention;
    if (op->kind == OP_KV_WRITE)
        return place_of(engine, op->layer, &write->cache, &write->sink, &write->sink_pages, err);
    return op->kind != OP_ATTENTION
        || place_of(engine, op->layer, &attention->cache, &attention->sink, &attention->sink_pages, err);
}

static bool bind(struct engine *engine, int index, union op_args *args, struct error *err)
{
    const struct op *op = &engine->model.ops[index];
    struct operand_use uses[OP_OPERANDS_MAX];
    plan_op_args(&engine->plan, index, args);
    int count = op_operands(op->kind, args, uses);
    for (int i = 0; i < count; i++)
        if (!bind_operand(engine, op, &uses[i], err))
            return false;
    return bind_cache(engine, op, args, err);
}

static void add_call(const struct engine *engine, struct program *program, struct kernel_call call,
                     const struct program_op *program_op)
{
    if (exchange_precedes(&engine->model.ops[program_op->op]))
        program->steps[program->count++] = (struct program_step){ exchange_run, program_op };
    if (call.prepare)
        program->steps[program->count++] = (struct program_step){ call.prepare, call.args };
    program->steps[program->count++] = (struct program_step){ call.run, call.args };
    if (watch_wants(engine, program_op->op))
        program->steps[program->count++] = (struct program_step){ watch_run, program_op };
}

bool program_bind(struct engine *engine, struct error *err)
{
    int count = engine->model.op_count;
    union op_args *args = ARENA_NEW(&engine->arena, union op_args, count);
    for (int i = 0; i < count; i++)
        if (!bind(engine, i, &args[i], err))
            return false;
    if (engine->gpu)
        return gpu_bind(engine->gpu, engine, args), true;
    struct program_op *program_ops = ARENA_NEW(&engine->arena, struct program_op, count);
    engine->decode.steps = ARENA_NEW(&engine->arena, struct program_step, PROGRAM_STEPS_PER_OP_MAX * count);
    engine->prefill.steps = ARENA_NEW(&engine->arena, struct program_step, PROGRAM_STEPS_PER_OP_MAX * count);
    for (int i = 0; i < count; i++) {
        const struct plan_op *bound = &engine->plan.ops[i];
        program_ops[i] = (struct program_op){ engine, i };
        if (bound->left_out)
            continue;
        add_call(engine, &engine->decode, fault_bind(bound->rows[kernel_load_of(1)][0], &args[i], &engine->arena),
                 &program_ops[i]);
        add_call(engine, &engine->prefill,
                 fault_bind(bound->rows[kernel_load_of(INT32_MAX)][0], &args[i], &engine->arena), &program_ops[i]);
    }
    return true;
}
