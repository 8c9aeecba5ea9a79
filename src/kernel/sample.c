// SPDX-License-Identifier: Apache-2.0
#include "kernel/sample.h"

#include <math.h>
#include <string.h>

#include "kernel/sample_draw.h"

enum { PACKED_ALIGNMENT = 64, PACKING_PARTS = 2 };
enum { LARGE_BYTES = 64 << 20, LARGE_WIDTH = 4096, LARGE_ROWS = LARGE_BYTES / LARGE_WIDTH / 4 };

static void count_bytes(struct draw *draw, double passes, int rows, int width)
{
    draw->sample->bytes_moved += (size_t)(passes * rows * width * (double)sizeof(float));
}

// Drawn one statement after the other: the order of a list's members would be the compiler's choice.

static void draw_embed(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct embed_args *args = &sample->args.embed;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block, vocabulary = draw_size(draw, 1, 50, LARGE_WIDTH);
    int width = block * draw_size(draw, 1, block > 1 ? 4 : 100, LARGE_WIDTH / block);
    draw_batch(draw, draw_tokens(draw, LARGE_ROWS), vocabulary);
    args->batch = &sample->batch;
    args->table = draw_weight(draw, dtype, vocabulary, width);
    args->scale = draw_coin(draw) ? sqrtf((float)width) : 1;
    args->out = draw_output(draw, sample->batch.tokens, width);
    count_bytes(draw, 1, sample->batch.tokens, width);
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
    int all = args->groups * args->width;
    args->out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, all);
    args->x = in_place ? args->out : draw_values(draw, sample->rows, all);
    args->weight = draw_values(draw, 1, args->width);
    args->epsilon = draw_coin(draw) ? 1e-5f : 1e-6f;
    count_bytes(draw, 2, sample->rows, all);
}

// The first matrix has the format asked for; the others any of the row's whose blocks fit `in`.
static enum dtype draw_matrix_dtype(struct draw *draw, int index, int in)
{
    int start = draw_size(draw, 0, DTYPE_COUNT - 1, 0);
    for (int i = 0; index && i < DTYPE_COUNT; i++) {
        enum dtype other = (enum dtype)((start + i) % DTYPE_COUNT);
        if (draw->kernel->weights >> other & 1 && in % dtype_table[other].block == 0)
            return other;
    }
    return draw->wanted->weight;
}

static void draw_linear_output(struct draw *draw, int index, int in, int large_rows)
{
    struct sample *sample = draw->sample;
    struct linear_output *output = &sample->args.linear.output[index];
    int rows = draw_size(draw, 1, 40, large_rows);
    output->weight = draw_weight(draw, draw_matrix_dtype(draw, index, in), rows, in);
    output->bias = draw_coin(draw) ? draw_values(draw, 1, rows) : NULL;
    output->y = draw_output(draw, sample->rows, rows);
    count_bytes(draw, 1, sample->rows, rows);
    sample->bytes_moved += dtype_bytes(output->weight.dtype, (size_t)rows * (size_t)in);
    sample->flops += 2.0 * sample->rows * rows * in;
}

static void draw_linear(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct linear_args *args = &sample->args.linear;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block;
    int large_rows = draw->wanted->load == KERNEL_FEW ? LARGE_BYTES / (int)dtype_bytes(dtype, LARGE_WIDTH) : 1024;
    sample->rows = draw_tokens(draw, 64);
    args->rows = &sample->rows;
    args->in = block * draw_size(draw, 1, block > 1 ? (512 + block) / block : 400, LARGE_WIDTH / block);
    args->x = draw_values(draw, sample->rows, args->in);
    args->outputs = draw_size(draw, 1, LINEAR_OUTPUTS_MAX, 1);
    count_bytes(draw, 1, sample->rows, args->in);
    for (int i = 0; i < args->outputs; i++)
        draw_linear_output(draw, i, args->in, large_rows);
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
    args->q = draw_output_in_place(draw, sample->batch.tokens, args->heads * args->head_dim);
    args->k = draw_output_in_place(draw, sample->batch.tokens, args->kv_heads * args->head_dim);
    args->interleaved = draw_coin(draw);
    args->frequencies = draw_frequencies(draw, args->rotated / 2);
    args->magnitude = draw_coin(draw) ? 1.2f : 1;
    count_bytes(draw, 2, sample->batch.tokens, (args->heads + args->kv_heads) * args->head_dim);
}

static void draw_act_mul(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct act_mul_args *args = &sample->args.act_mul;
    bool in_place = draw_coin(draw);
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, args->width);
    args->gate = in_place ? args->out : draw_values(draw, sample->rows, args->width);
    args->up = draw_values(draw, sample->rows, args->width);
    args->act = draw_coin(draw) ? ACT_GELU_TANH : ACT_SILU;
    count_bytes(draw, 3, sample->rows, args->width);
}

static void draw_add(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct add_args *args = &sample->args.add;
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_output_in_place(draw, sample->rows, args->width);
    args->y = draw_values(draw, sample->rows, args->width);
    count_bytes(draw, 3, sample->rows, args->width);
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
    count_bytes(draw, 2, sample->batch.outputs, args->width);
}

static void draw_softcap(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct softcap_args *args = &sample->args.softcap;
    args->rows = &sample->rows;
    args->width = draw_size(draw, 1, 300, LARGE_WIDTH);
    args->x = draw_output_in_place(draw, sample->rows, args->width);
    args->cap = draw_coin(draw) ? 30 : 2;
    count_bytes(draw, 2, sample->rows, args->width);
}

static void (*const drawers[OP_COUNT])(struct draw *) = {
    [OP_EMBED] = draw_embed,       [OP_NORM] = draw_norm,           [OP_LINEAR] = draw_linear,   [OP_ROPE] = draw_rope,
    [OP_KV_WRITE] = draw_kv_write, [OP_ATTENTION] = draw_attention, [OP_ACT_MUL] = draw_act_mul, [OP_ADD] = draw_add,
    [OP_PICK] = draw_pick,         [OP_SOFTCAP] = draw_softcap,
};

void sample_open(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted)
{
    struct draw draw = { sample, kernel, wanted, wanted->seed };
    *sample = (struct sample){ .op = kernel->op };
    sample->rows = draw_tokens(&draw, LARGE_ROWS);
    drawers[kernel->op](&draw);
}

void sample_close(struct sample *sample)
{
    arena_free(&sample->arena);
}

static void *new_aligned(struct arena *arena, size_t bytes)
{
    uintptr_t memory = (uintptr_t)arena_new(arena, bytes + PACKED_ALIGNMENT, 1);
    return (void *)((memory + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT);
}

static void bind_linear(struct sample *sample, const struct kernel *kernel, struct linear_args *args)
{
    uint64_t formats = 0;
    for (int i = 0; i < args->outputs; i++) {
        struct weight *weight = &args->output[i].weight;
        formats |= (uint64_t)1 << weight->dtype;
        if (!kernel->packing)
            continue;
        void *packed = new_aligned(&sample->arena, kernel->packing->bytes(weight->dtype, weight->rows, weight->cols));
        for (int part = 0; part < PACKING_PARTS; part++)
            kernel->packing->pack(weight, part, PACKING_PARTS, packed);
        weight->data = packed;
    }
    if (kernel->scratch_bytes) {
        size_t bytes = kernel->scratch_bytes(formats, sample->rows, args->in);
        args->scratch = memset(new_aligned(&sample->arena, bytes), NOTHING, bytes);
    }
}

static void bind_attention(struct sample *sample, const struct kernel *kernel, struct attention_args *args)
{
    if (kernel->scratch_bytes) {
        size_t bytes = kernel->scratch_bytes(0, sample->batch.tokens, args->heads * args->cache.layout.v.dim);
        args->scratch = memset(new_aligned(&sample->arena, bytes), NOTHING, bytes);
    }
}

const union op_args *sample_args_for(struct sample *sample, const struct kernel *kernel)
{
    union op_args *args = ARENA_NEW(&sample->arena, union op_args, 1);
    *args = sample->args;
    if (sample->op == OP_LINEAR)
        bind_linear(sample, kernel, &args->linear);
    if (sample->op == OP_ATTENTION)
        bind_attention(sample, kernel, &args->attention);
    return args;
}

int sample_rows(const struct sample *sample)
{
    if (sample->op == OP_PICK)
        return sample->batch.outputs;
    return sample->batch.tokens ? sample->batch.tokens : sample->rows;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

void sample_cut(struct sample *sample, int tokens)
{
    struct batch *batch = &sample->batch;
    sample->rows = least(sample->rows, tokens);
    batch->tokens = least(batch->tokens, tokens);
    batch->outputs = least(batch->outputs, tokens);
    while (batch->sequences && sample->sequence[batch->sequences - 1].first >= tokens)
        batch->sequences--;
    for (int i = 0; i < batch->sequences; i++)
        sample->sequence[i].count = least(sample->sequence[i].count, tokens - sample->sequence[i].first);
}

static size_t result_bytes(const struct sample *sample, int output)
{
    return (size_t)sample_rows(sample) * (size_t)sample->output[output].row_values * sizeof(float);
}

void sample_read(const struct sample *sample, int output, float *values)
{
    if (sample->op == OP_KV_WRITE)
        read_kv_write(sample, values);
    else
        memcpy(values, sample->output[output].data, result_bytes(sample, output));
}

void sample_undo(struct sample *sample, int output, const uint8_t *before)
{
    if (sample->op == OP_KV_WRITE)
        undo_kv_write(sample, before);
    else
        memcpy(sample->output[output].data, before, result_bytes(sample, output));
}
