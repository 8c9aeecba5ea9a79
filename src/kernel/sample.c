// SPDX-License-Identifier: Apache-2.0
#include "kernel/sample.h"

#include <math.h>
#include <string.h>

#include "kernel/sample_draw.h"

enum { LARGE_BYTES = 64 << 20, LARGE_WIDTH = 4096, LARGE_ROWS = LARGE_BYTES / LARGE_WIDTH / 4 };

static void count_bytes(struct draw *draw, double passes, int rows, int width)
{
    draw->sample->bytes_moved += (size_t)(passes * rows * width * (double)sizeof(float));
}

static void draw_embed(struct draw *draw)
{
    struct sample *sample = draw->sample;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block, vocabulary = draw_size(draw, 1, 50, LARGE_WIDTH);
    int width = block * draw_size(draw, 1, block > 1 ? 4 : 100, LARGE_WIDTH / block);
    sample->batch.tokens = draw_tokens(draw, LARGE_ROWS);
    draw_batch(draw, vocabulary);
    sample->args.embed = (struct embed_args){
        .batch = &sample->batch, .table = draw_weight(draw, dtype, vocabulary, width),
        .scale = draw_coin(draw) ? sqrtf((float)width) : 1, .out = draw_output(draw, sample->batch.tokens, width),
    };
    count_bytes(draw, 1, sample->batch.tokens, width);
    sample->bytes_moved += dtype_bytes(dtype, (size_t)sample->batch.tokens * (size_t)width);
}

static void draw_norm(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int groups = draw_size(draw, 1, 4, 1), width = draw_size(draw, 1, 300, LARGE_WIDTH), all = groups * width;
    bool in_place = draw_coin(draw);
    float *out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, all);
    sample->args.norm = (struct norm_args){
        .rows = &sample->rows, .x = in_place ? out : draw_values(draw, (size_t)sample->rows * (size_t)all),
        .weight = draw_values(draw, (size_t)width), .out = out, .groups = groups, .width = width,
        .epsilon = draw_coin(draw) ? 1e-5f : 1e-6f,
    };
    count_bytes(draw, 2, sample->rows, all);
}

// Some matrix of the row's formats whose blocks fit `in`; the first has the format asked for.
static enum dtype draw_matrix_dtype(struct draw *draw, int index, int in)
{
    enum dtype dtype = draw->wanted->weight;
    for (int i = random_between(&draw->seed, 0, DTYPE_COUNT - 1), tries = 0; index && tries < DTYPE_COUNT; tries++) {
        enum dtype other = (enum dtype)((i + tries) % DTYPE_COUNT);
        if (draw->kernel->weights >> other & 1 && in % dtype_table[other].block == 0)
            return other;
    }
    return dtype;
}

static void draw_linear(struct draw *draw)
{
    struct sample *sample = draw->sample;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block, outputs = draw_size(draw, 1, LINEAR_OUTPUTS_MAX, 1);
    int in = block * draw_size(draw, 1, block > 1 ? (512 + block) / block : 400, LARGE_WIDTH / block);
    int large_rows = draw->wanted->load == KERNEL_FEW ? LARGE_BYTES / (int)dtype_bytes(dtype, LARGE_WIDTH) : 1024;
    sample->rows = draw_tokens(draw, 64);
    struct linear_args *args = &sample->args.linear;
    *args = (struct linear_args){ .rows = &sample->rows, .x = draw_values(draw, (size_t)sample->rows * (size_t)in),
                                  .in = in, .outputs = outputs };
    count_bytes(draw, 1, sample->rows, in);
    for (int i = 0; i < outputs; i++) {
        int rows = draw_size(draw, 1, 40, large_rows);
        struct linear_output *output = &args->output[i];
        *output = (struct linear_output){
            .weight = draw_weight(draw, draw_matrix_dtype(draw, i, in), rows, in),
            .bias = draw_coin(draw) ? draw_values(draw, (size_t)rows) : NULL,
            .y = draw_output(draw, sample->rows, rows),
        };
        count_bytes(draw, 1, sample->rows, rows);
        sample->bytes_moved += dtype_bytes(output->weight.dtype, (size_t)rows * (size_t)in);
        sample->flops += 2.0 * sample->rows * rows * in;
    }
}

static void draw_rope(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int heads = draw_size(draw, 1, 6, 24), kv_heads = draw_size(draw, 1, 3, 8);
    int dim = 2 * draw_size(draw, 1, 80, 64), rotated = 2 * draw_size(draw, 1, dim / 2, 64);
    sample->batch.tokens = draw_tokens(draw, LARGE_ROWS);
    draw_batch(draw, 1);
    sample->args.rope = (struct rope_args){
        .batch = &sample->batch, .heads = heads, .kv_heads = kv_heads, .head_dim = dim, .rotated = rotated,
        .q = draw_output_in_place(draw, sample->batch.tokens, heads * dim),
        .k = draw_output_in_place(draw, sample->batch.tokens, kv_heads * dim),
        .interleaved = draw_coin(draw), .frequencies = draw_frequencies(draw, rotated / 2),
        .magnitude = draw_coin(draw) ? 1.2f : 1,
    };
    count_bytes(draw, 2, sample->batch.tokens, (heads + kv_heads) * dim);
}

static void draw_act_mul(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int width = draw_size(draw, 1, 300, LARGE_WIDTH);
    bool in_place = draw_coin(draw);
    size_t count = (size_t)sample->rows * (size_t)width;
    float *out = (in_place ? draw_output_in_place : draw_output)(draw, sample->rows, width);
    sample->args.act_mul = (struct act_mul_args){
        .rows = &sample->rows, .gate = in_place ? out : draw_values(draw, count), .up = draw_values(draw, count),
        .out = out, .width = width, .act = draw_coin(draw) ? ACT_GELU_TANH : ACT_SILU,
    };
    count_bytes(draw, 3, sample->rows, width);
}

static void draw_add(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int width = draw_size(draw, 1, 300, LARGE_WIDTH);
    sample->args.add = (struct add_args){
        .rows = &sample->rows, .x = draw_output_in_place(draw, sample->rows, width),
        .y = draw_values(draw, (size_t)sample->rows * (size_t)width), .width = width,
    };
    count_bytes(draw, 3, sample->rows, width);
}

static void draw_pick(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int width = draw_size(draw, 1, 300, LARGE_WIDTH);
    sample->batch.tokens = draw_tokens(draw, LARGE_ROWS);
    draw_batch(draw, 1);
    sample->args.pick = (struct pick_args){
        .batch = &sample->batch, .x = draw_values(draw, (size_t)sample->batch.tokens * (size_t)width),
        .out = draw_output(draw, sample->batch.outputs, width), .width = width,
    };
    count_bytes(draw, 2, sample->batch.outputs, width);
}

static void draw_softcap(struct draw *draw)
{
    struct sample *sample = draw->sample;
    int width = draw_size(draw, 1, 300, LARGE_WIDTH);
    sample->args.softcap = (struct softcap_args){
        .rows = &sample->rows, .x = draw_output_in_place(draw, sample->rows, width), .width = width,
        .cap = draw_coin(draw) ? 30 : 2,
    };
    count_bytes(draw, 2, sample->rows, width);
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
