// SPDX-License-Identifier: Apache-2.0
#include "kernel/testcase.h"

#include <math.h>
#include <string.h>

#include "kernel/ref/experts.h"
#include "kernel/testcase_draw.h"

enum { PACKED_ALIGNMENT = 64, PACKING_PARTS = 2 };
enum { LARGE_BYTES = 64 << 20, LARGE_WIDTH = 4096, LARGE_ROWS = LARGE_BYTES / LARGE_WIDTH / 4, GPU_LARGE_OUT = 28672 };

static int least(int a, int b) { return a < b ? a : b; }

static int greater(int a, int b) { return a > b ? a : b; }

// Bytes of a value that is read or written, on average over an op's: activations are bfloat16 on a GPU, the residual
// stream is f32.
static double value_bytes(const struct draw *draw)
{
    static const double on_gpu[OP_COUNT] = {
        [OP_EMBED] = 4,      [OP_NORM] = 3,    [OP_LINEAR] = 2,     [OP_ROPE] = 2,        [OP_KV_WRITE] = 2,
        [OP_ATTENTION] = 2,  [OP_ACT_MUL] = 2, [OP_ADD] = 10 / 3.0, [OP_PICK] = 4,        [OP_SOFTCAP] = 4,
        [OP_ROUTE] = 4,      [OP_EXPERTS] = 2, [OP_COMBINE] = 2,    [OP_COPY] = 3,        [OP_PER_HEAD_LINEAR] = 2,
        [OP_TRANSFORM] = 2,  [OP_CONV] = 2,    [OP_SSM_SCAN] = 2,   [OP_GATED_DELTA] = 2, [OP_ALL_REDUCE] = 4,
        [OP_ALL_GATHER] = 4,
    };
    return draw->kernel->device == DEVICE_CPU ? sizeof(float) : on_gpu[draw->kernel->op];
}

void draw_count_bytes(struct draw *draw, double passes, int rows, int width)
{
    draw->sample->bytes_moved += (size_t)(passes * rows * width * value_bytes(draw));
}

// Drawn one statement after the other: the order of a list's members would be the compiler's choice.

static void draw_embed(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct embed_args *args = &sample->args.embed;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block, vocabulary = draw_size(draw, 1, 50, LARGE_WIDTH);
    int width = block * draw_size(draw, 1, block > 1 ? 4 : 100, LARGE_WIDTH / block);
    int rest = draw_size(draw, 0, 10, 0); // tokens after those of the table
    args->first = draw_size(draw, 0, 10, 0);
    draw_batch(draw, draw_tokens(draw, LARGE_ROWS), args->first + vocabulary + rest);
    args->batch = &sample->batch;
    args->table = draw_weight(draw, dtype, vocabulary, width);
    args->scale = draw_coin(draw) ? sqrtf((float)width) : 1;
    args->out = draw_output(draw, sample->batch.tokens, width);
    draw_count_bytes(draw, 1, sample->batch.tokens, width);
    sample->bytes_moved += dtype_bytes(dtype, (size_t)sample->batch.tokens * (size_t)width);
}

static void draw_norm(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct norm_args *args = &sample->args.norm;
    bool in_place = draw_coin(draw);
    args->rows = &sample->rows;
    args->groups = draw_size(draw, 1, 4, 1);
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->gap = in_place && draw_coin(draw) ? 8 * draw_size(draw, 1, 9, 0) : 0;
    int all = args->groups * args->width + args->gap;
    args->out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, all);
    args->x = in_place ? args->out : draw_values(draw, sample->rows, all);
    args->own_weights = args->groups > 1 && draw_coin(draw);
    args->weight = draw_values(draw, args->own_weights ? args->groups : 1, args->width);
    args->epsilon = draw_coin(draw) ? 1e-5f : 1e-6f;
    args->f32_x = !in_place; // as in models: what is normed in place are heads and results
    draw_count_bytes(draw, 2, sample->rows, all);
}

enum dtype draw_matrix_dtype(struct draw *draw, int index, int in)
{
    int start = draw_size(draw, 0, DTYPE_COUNT - 1, 0);
    for (int i = 0; index && i < DTYPE_COUNT; i++) {
        enum dtype other = (enum dtype)((start + i) % DTYPE_COUNT);
        if (draw->kernel->weights >> other & 1 && in % dtype_table[other].block == 0)
            return other;
    }
    return draw->wanted->weight;
}

static int draw_linear_rows(struct draw *draw, enum dtype dtype)
{
    bool few = draw_is_decode(draw);
    int multiple = greater(draw->kernel->rows_multiple, 1);
    if (draw->kernel->device == DEVICE_CUDA)
        return multiple * draw_size(draw, 1, (draw_is_short(draw) ? 160 : 300) / multiple, GPU_LARGE_OUT / multiple);
    return draw_size(draw, 1, 40, few ? LARGE_BYTES / (int)dtype_bytes(dtype, LARGE_WIDTH) : 1024);
}

// Between an op and the neighbour that is done in passing.
static float *new_values(struct draw *draw, int rows, int width)
{
    return ARENA_NEW(&draw->sample->arena, float, (size_t)rows *(size_t)width);
}

static void draw_linear_output(struct draw *draw, int index, int in, int rows)
{
    struct sample *sample = draw->sample;
    struct linear_output *output = &sample->args.linear.output[index];
    bool passes_on = draw->wanted->fuses & (KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD);
    output->weight = draw_weight(draw, draw_matrix_dtype(draw, index, in), rows, in);
    output->bias = draw_coin(draw) ? draw_values(draw, 1, rows) : NULL;
    output->y = (passes_on ? new_values : draw_row_output)(draw, sample->rows, rows);
    draw_count_bytes(draw, 1, sample->rows, rows);
    sample->bytes_moved += dtype_bytes(output->weight.dtype, (size_t)rows * (size_t)in);
    sample->flops += 2.0 * sample->rows * rows * in;
}

// The neighbours of a linear that are done in passing. Of two outputs the first is the gate.
static void draw_linear_neighbours(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct linear_args *args = &sample->args.linear;
    const struct linear_output *output = args->output;
    uint32_t fuses = draw->wanted->fuses;
    if (fuses & KERNEL_FUSES_NORM) {
        sample->before.norm = (struct norm_args){ .rows = &sample->rows,
                                                  .x = args->x,
                                                  .groups = 1,
                                                  .width = args->in,
                                                  .weight = draw_values(draw, 1, args->in),
                                                  .epsilon = 1e-5f,
                                                  .f32_x = true,
                                                  .out = new_values(draw, sample->rows, args->in) };
        args->norm = &sample->before.norm;
        args->x = args->norm->out;
    }
    if (fuses & KERNEL_FUSES_ACT_MUL) {
        sample->after.act_mul = (struct act_mul_args){ .rows = &sample->rows,
                                                       .gate = output[0].y,
                                                       .up = output[1].y,
                                                       .out = draw_output(draw, sample->rows, output[0].weight.rows),
                                                       .width = output[0].weight.rows,
                                                       .act = draw_coin(draw) ? ACT_GELU_TANH : ACT_SILU };
        args->act_mul = &sample->after.act_mul;
    } else if (fuses & KERNEL_FUSES_ADD) {
        sample->after.add = (struct add_args){ .rows = &sample->rows,
                                               .y = output[0].y,
                                               .width = output[0].weight.rows,
                                               .x = draw_output_in_place(draw, sample->rows, output[0].weight.rows) };
        args->add = &sample->after.add;
    }
}

static void draw_linear(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct linear_args *args = &sample->args.linear;
    enum dtype dtype = draw->wanted->weight;
    uint32_t fuses = draw->wanted->fuses;
    int block = dtype_table[dtype].block;
    sample->rows = draw_tokens(draw, 64);
    args->rows = &sample->rows;
    args->in = block * draw_size(draw, 1, block > 1 ? (512 + block) / block : 400, LARGE_WIDTH / block);
    args->x = draw_row_values(draw, sample->rows, args->in);
    args->outputs = draw_size(draw, 1, LINEAR_OUTPUTS_MAX, 1);
    if (fuses & (KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD))
        args->outputs = fuses & KERNEL_FUSES_ACT_MUL ? 2 : 1;
    args->f32_y = args->outputs == 1 && sample->rows % 2;
    draw_count_bytes(draw, 1, sample->rows, args->in);
    int rows = 0;
    for (int i = 0; i < args->outputs; i++) {
        if (i == 0 || !(fuses & KERNEL_FUSES_ACT_MUL))
            rows = draw_linear_rows(draw, dtype);
        draw_linear_output(draw, i, args->in, rows);
    }
    draw_linear_neighbours(draw);
}

static void draw_per_head_linear(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct per_head_linear_args *args = &sample->args.per_head_linear;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block;
    bool wide = draw_coin(draw);
    sample->rows = draw_tokens(draw, 64);
    args->rows = &sample->rows;
    args->heads = draw_size(draw, 1, 5, 128);
    args->in = block * draw_size(draw, 1, wide ? HEAD_DIM_MAX / block : (140 + block) / block, 128 / block);
    args->out = draw_size(draw, 1, wide ? 70 : 300, HEAD_DIM_MAX);
    args->rest = draw_coin(draw) ? 0 : draw_size(draw, 1, 64, 64);
    args->x = draw_values(draw, sample->rows, args->heads * (args->in + args->rest));
    args->y = draw_output(draw, sample->rows, args->heads * (args->out + args->rest));
    args->weight = draw_weight(draw, dtype, args->heads * args->out, args->in);
    draw_count_bytes(draw, 1, sample->rows, args->heads * (args->in + args->out + 2 * args->rest));
    sample->bytes_moved += dtype_bytes(dtype, (size_t)args->heads * (size_t)args->out * (size_t)args->in);
    sample->flops += 2.0 * sample->rows * args->heads * args->out * args->in;
}

static void draw_rope(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct rope_args *args = &sample->args.rope;
    draw_batch(draw, draw_tokens(draw, LARGE_ROWS), 1);
    args->batch = &sample->batch;
    args->heads = draw_size(draw, 1, 6, 24);
    args->kv_heads = draw_size(draw, 1, 3, 8);
    args->head_dim = 2 * draw_size(draw, 1, 80, 64);
    args->rotated = 2 * draw_size(draw, 1, args->head_dim / 2, 64);
    args->first = draw_coin(draw) ? args->head_dim - args->rotated : 0;
    args->q = draw_output_in_place(draw, sample->batch.tokens, args->heads * args->head_dim);
    args->k = draw_output_in_place(draw, sample->batch.tokens, args->kv_heads * args->head_dim);
    args->interleaved = draw_coin(draw);
    args->frequencies = draw_frequencies(draw, args->rotated / 2);
    args->magnitude = draw_coin(draw) ? 1.2f : 1;
    draw_count_bytes(draw, 2, sample->batch.tokens, (args->heads + args->kv_heads) * args->head_dim);
}

static void draw_act_mul(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct act_mul_args *args = &sample->args.act_mul;
    static const enum activation acts[] = { ACT_SILU, ACT_GELU_TANH, ACT_CLAMPED, ACT_SIGMOID, ACT_RELU };
    bool in_place = draw_coin(draw);
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->act = acts[draw_size(draw, 0, 4, 0)];
    args->gate_per_row = args->act == ACT_SIGMOID && draw_coin(draw);
    args->out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, args->width);
    args->gate = draw_values(draw, sample->rows, args->gate_per_row ? 1 : args->width);
    args->up = draw_values(draw, sample->rows, args->width);
    if (in_place && args->act == ACT_SIGMOID) // as in models: what it gates is replaced
        args->up = args->out;
    else if (in_place)
        args->gate = args->out;
    draw_count_bytes(draw, 3, sample->rows, args->width);
}

static void draw_add(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct add_args *args = &sample->args.add;
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_output_in_place(draw, sample->rows, args->width);
    args->y = draw_values(draw, sample->rows, args->width);
    draw_count_bytes(draw, 3, sample->rows, args->width);
}

static void draw_pick(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct pick_args *args = &sample->args.pick;
    draw_batch(draw, draw_tokens(draw, LARGE_ROWS), 1);
    args->batch = &sample->batch;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_values(draw, sample->batch.tokens, args->width);
    args->out = draw_output(draw, sample->batch.outputs, args->width);
    draw_count_bytes(draw, 2, sample->batch.outputs, args->width);
}

static void draw_copy(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct copy_args *args = &sample->args.copy;
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_values(draw, sample->rows, args->width);
    args->out = draw_output(draw, sample->rows, args->width);
    draw_count_bytes(draw, 2, sample->rows, args->width);
}

static void draw_softcap(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct softcap_args *args = &sample->args.softcap;
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_output_in_place(draw, sample->rows, args->width);
    args->cap = draw_coin(draw) ? 30 : 2;
    draw_count_bytes(draw, 2, sample->rows, args->width);
}

static void draw_all_reduce(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct all_reduce_args *args = &sample->args.all_reduce;
    args->rows = &sample->rows;
    args->ranks = draw_size(draw, 2, 5, 2);
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->stride = (size_t)(sample->rows + 1) * (size_t)args->width;
    args->parts = draw_values(draw, args->ranks * (sample->rows + 1), args->width);
    args->adds = draw_coin(draw);
    args->out = args->adds ? draw_output_in_place(draw, sample->rows, args->width)
                           : draw_output(draw, sample->rows, args->width);
    args->f32_out = args->adds || draw_coin(draw);
    draw_count_bytes(draw, args->ranks + 1, sample->rows, args->width);
}

static void draw_all_gather(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct all_gather_args *args = &sample->args.all_gather;
    args->rows = &sample->rows;
    args->ranks = draw_size(draw, 2, 5, 2);
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH) + args->ranks * JOIN_UNIT;
    int units = (args->width + JOIN_UNIT - 1) / JOIN_UNIT;
    int widest = (units + args->ranks - 1) / args->ranks * JOIN_UNIT;
    args->stride = (size_t)(sample->rows + 1) * (size_t)widest;
    args->parts = draw_values(draw, args->ranks * (sample->rows + 1), widest);
    args->out = draw_output(draw, sample->rows, args->width);
    draw_count_bytes(draw, 2, sample->rows, args->width);
}

static void (*const drawers[OP_COUNT])(struct draw *) = {
    [OP_EMBED] = draw_embed,
    [OP_NORM] = draw_norm,
    [OP_LINEAR] = draw_linear,
    [OP_ROPE] = draw_rope,
    [OP_KV_WRITE] = draw_kv_write,
    [OP_ATTENTION] = draw_attention,
    [OP_ACT_MUL] = draw_act_mul,
    [OP_ADD] = draw_add,
    [OP_PICK] = draw_pick,
    [OP_SOFTCAP] = draw_softcap,
    [OP_ROUTE] = draw_route,
    [OP_EXPERTS] = draw_experts,
    [OP_COMBINE] = draw_combine,
    [OP_COPY] = draw_copy,
    [OP_PER_HEAD_LINEAR] = draw_per_head_linear,
    [OP_TRANSFORM] = draw_transform,
    [OP_CONV] = draw_conv,
    [OP_SSM_SCAN] = draw_ssm_scan,
    [OP_GATED_DELTA] = draw_gated_delta,
    [OP_ALL_REDUCE] = draw_all_reduce,
    [OP_ALL_GATHER] = draw_all_gather,
};

// A step with just the sample in it.
static struct sample_room room_of(const struct sample *sample)
{
    const struct batch *batch = &sample->batch;
    struct sample_room room = { .rows = sample_rows(sample), .tokens = batch->tokens, .sequences = batch->sequences };
    for (int i = 0; i < batch->sequences; i++)
        room.rows_each = greater(room.rows_each, batch->sequence[i].count);
    for (int i = 0; i < batch->tokens; i++)
        room.context = greater(room.context, batch->positions[i] + 1);
    if (!batch->tokens)
        room.tokens = sample->rows;
    return room;
}

// Whether no more of it is made than has to be: a step may have gigabytes of rows.
static bool is_repeated(const struct kernel *kernel, const struct sample_case *wanted)
{
    return wanted->step.sequences && (kernel->op == OP_ATTENTION || kernel->op == OP_LINEAR);
}

void sample_open(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted)
{
    struct draw draw = { sample, kernel, wanted, wanted->seed };
    *sample = (struct sample){ .op = kernel->op, .repeats = is_repeated(kernel, wanted) };
    draw.is_long = kernel->device != DEVICE_CPU && wanted->size == SAMPLE_VARIED && draw_coin(&draw)
        && draw_coin(&draw);
    sample->rows = draw_tokens(&draw, LARGE_ROWS);
    drawers[kernel->op](&draw);
    sample->room = room_of(sample);
}

void sample_close(struct sample *sample) { arena_free(&sample->arena); }

static void *new_aligned(struct arena *arena, size_t bytes)
{
    uintptr_t memory = (uintptr_t)arena_new(arena, bytes + PACKED_ALIGNMENT, 1);
    return (void *)((memory + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT);
}

struct packing_work {
    const struct kernel_packing *packing;
    struct weight weight;
    uint8_t *out;
};

static void pack_part(void *context, int phase, int part, int parts)
{
    const struct packing_work *work = context;
    (void)phase;
    work->packing->pack(&work->weight, part, parts, work->out);
}

// Packs `count` matrices that are not to be read as the file has them, one after the other.
static void bind_weight(struct sample *sample, const struct kernel *kernel, struct weight *weight, int count)
{
    if (!kernel->packing)
        return;
    size_t bytes = kernel->packing->bytes(weight->dtype, weight->rows, weight->cols);
    uint8_t *packed = new_aligned(&sample->arena, bytes * (size_t)count);
    struct packing_work work = { kernel->packing, *weight, packed };
    for (int i = 0; i < count; i++, work.out += bytes) {
        if (sample->team)
            thread_pool_run(sample->team, &(struct thread_pool_work){ pack_part, &work, .phases = 1 });
        for (int part = 0; part < PACKING_PARTS && !sample->team; part++)
            pack_part(&work, 0, part, PACKING_PARTS);
        work.weight.data = (const char *)work.weight.data
            + dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
    }
    weight->data = packed;
}

size_t draw_scratch_bytes(const struct sample *sample, const struct kernel *kernel)
{
    const struct sample_room *room = &sample->room;
    struct kernel_extent extent = { .rows = room->rows, .sequences = room->sequences, .context = room->context };
    if (!kernel->scratch_bytes)
        return 0;
    if (sample->op == OP_EXPERTS) {
        const struct experts_args *args = &sample->args.experts;
        extent.rows *= args->routes.chosen;
        extent.width = args->in;
        for (int i = 0; i < args->outputs; i++)
            extent.weights |= (uint64_t)1 << args->output[i].weight.dtype;
    } else if (sample->op == OP_LINEAR) {
        const struct linear_args *args = &sample->args.linear;
        extent.width = args->in;
        for (int i = 0; i < args->outputs; i++)
            extent.weights |= (uint64_t)1 << args->output[i].weight.dtype;
    } else {
        const struct attention_args *args = &sample->args.attention;
        extent.heads = args->heads;
        extent.width = args->heads * args->cache.layout.v.dim;
    }
    return kernel->scratch_bytes(&extent);
}

static void *copy(struct sample *sample, const void *args, size_t bytes)
{
    return args ? memcpy(arena_new(&sample->arena, bytes, 1), args, bytes) : NULL;
}

union op_args *sample_copy_args(struct sample *sample, const union op_args *args)
{
    union op_args *copied = copy(sample, args, sizeof *args);
    if (sample->op == OP_LINEAR) {
        struct linear_args *linear = &copied->linear;
        linear->norm = copy(sample, linear->norm, sizeof *linear->norm);
        linear->act_mul = copy(sample, linear->act_mul, sizeof *linear->act_mul);
        linear->add = copy(sample, linear->add, sizeof *linear->add);
    } else if (sample->op == OP_KV_WRITE) {
        struct kv_write_args *write = &copied->kv_write;
        write->rope = copy(sample, write->rope, sizeof *write->rope);
        write->transform = copy(sample, write->transform, sizeof *write->transform);
    }
    return copied;
}

union op_args *sample_args_for(struct sample *sample, const struct kernel *kernel)
{
    union op_args *args = sample_copy_args(sample, &sample->args);
    size_t bytes = draw_scratch_bytes(sample, kernel);
    size_t here = kernel->device == DEVICE_CPU || !bytes ? bytes : 1; // an address, where nobody here uses it
    void *scratch = bytes ? memset(new_aligned(&sample->arena, here), NOTHING, here) : NULL;
    if (sample->op == OP_ATTENTION)
        args->attention.scratch = scratch;
    if (sample->op == OP_LINEAR) {
        args->linear.scratch = scratch;
        for (int i = 0; i < args->linear.outputs; i++)
            bind_weight(sample, kernel, &args->linear.output[i].weight, 1);
    }
    if (sample->op == OP_EXPERTS) {
        args->experts.scratch = scratch;
        for (int i = 0; i < args->experts.outputs; i++)
            bind_weight(sample, kernel, &args->experts.output[i].weight, args->experts.routes.experts);
    }
    return args;
}

int sample_rows(const struct sample *sample)
{
    if (sample->op == OP_PICK)
        return sample->batch.outputs;
    return sample->batch.tokens ? sample->batch.tokens : sample->rows;
}

void sample_cut(struct sample *sample, int tokens)
{
    struct batch *batch = &sample->batch;
    if (moves_state(sample)) // what a sequence leaves depends on all its rows
        tokens = sample->sequence[0].count;
    sample->rows = least(sample->rows, tokens);
    batch->tokens = least(batch->tokens, tokens);
    batch->outputs = least(batch->outputs, tokens);
    while (batch->sequences && sample->sequence[batch->sequences - 1].first >= tokens)
        batch->sequences--;
    for (int i = 0; i < batch->sequences; i++)
        sample->sequence[i].count = least(sample->sequence[i].count, tokens - sample->sequence[i].first);
    if (sample->op == OP_EXPERTS)
        experts_order(&sample->args.experts.routes, sample->rows);
}

static size_t result_bytes(const struct sample *sample, int output)
{
    return (size_t)sample_rows(sample) * (size_t)sample->output[output].row_values * sizeof(float);
}

static bool is_pages(const struct sample *sample, int output) { return sample->op == OP_KV_WRITE && output == 0; }

void sample_read(const struct sample *sample, int output, float *values)
{
    if (is_pages(sample, output))
        read_kv_write(sample, values);
    else if (is_order(sample, output))
        read_order(sample, output, values);
    else if (is_state(sample, output))
        read_state(sample, values);
    else
        memcpy(values, sample->output[output].data, result_bytes(sample, output));
}

void sample_undo(struct sample *sample, int output, const uint8_t *before)
{
    if (is_pages(sample, output))
        undo_kv_write(sample, before);
    else if (is_order(sample, output))
        memcpy(sample->output[output].data, before, sample->output[output].bytes);
    else if (is_state(sample, output))
        undo_state(sample, before);
    else
        memcpy(sample->output[output].data, before, result_bytes(sample, output));
}
