// SPDX-License-Identifier: Apache-2.0
#include "kernel/testcase_draw.h"

#include <math.h>
#include <string.h>

#include "kernel/ref/weight.h"

enum { GUARD_BYTES = 64, GUARD = 0xA5, MISALIGNED_MAX = 3 };
enum { PALETTE_BLOCKS = 32, PALETTE_VALUES = 128, BLOCK_VALUES_MAX = 256 };

// ---- sizes ----

int draw_size(struct draw *draw, int low, int high, int large)
{
    if (draw->wanted->size == TESTCASE_LARGE)
        return large;
    return random_between(&draw->seed, low, draw->wanted->size == TESTCASE_SMALL ? low + (high - low) / 2 : high);
}

bool draw_coin(struct draw *draw) { return draw->wanted->size != TESTCASE_LARGE && random_between(&draw->seed, 0, 1); }

// Where tiles are as small as a CPU's, or time is short.
bool draw_is_short(const struct draw *draw)
{
    return draw->kernel->device == DEVICE_CPU || draw->wanted->size == TESTCASE_SMALL;
}

bool draw_is_decode(const struct draw *draw) { return !(draw->wanted->load & KERNEL_PREFILL); }

// Draws a size for a row that serves some of the loads alone: its limits are drawn as often as sizes between them.
static int draw_between(struct draw *draw, int least, int most)
{
    if (draw_coin(draw))
        return draw_coin(draw) ? least : most;
    return draw_size(draw, least, most, most);
}

int draw_tokens(struct draw *draw, int large_prefill)
{
    const struct testcase_step *step = &draw->wanted->step;
    int least = kernel_loads_least(draw->wanted->load), most = kernel_loads_most(draw->wanted->load);
    int enough = draw_is_short(draw) ? 40 : 200;
    if (step->sequences)
        return step->sequences * step->rows_each;
    if (least == 1 && most == KERNEL_DECODE_ROWS_MAX)
        return draw_size(draw, 1, KERNEL_DECODE_ROWS_MAX, 1);
    if (most < INT32_MAX)
        return draw_between(draw, least, most);
    if (draw->is_long)
        return draw_size(draw, 300, 2100, 0);
    if (least > KERNEL_DECODE_ROWS_MAX + 1)
        return draw_between(draw, least, least + enough);
    return draw_size(draw, KERNEL_DECODE_ROWS_MAX + 2, enough, large_prefill);
}

// The head sizes of published models, and some that no model has; the same for latents, with the channels of V.
static const struct head_size {
    int k, v;
} head_sizes[] = {
    { 128, 128 }, { 64, 64 },   { 80, 80 },   { 96, 96 },   { 256, 256 }, { 32, 32 }, { 16, 16 }, { 112, 112 },
    { 160, 160 }, { 192, 192 }, { 512, 512 }, { 2, 2 },     { 10, 10 },   { 40, 40 }, { 65, 65 },
}, latent_sizes[] = { { 576, 512 }, { 288, 256 }, { 128, 96 }, { 48, 32 }, { 30, 20 } };

enum { HEAD_SIZES = sizeof head_sizes / sizeof *head_sizes, LATENT_SIZES = sizeof latent_sizes / sizeof *latent_sizes };

static const char *misfit(struct arena *arena, const struct testcase_options *wanted, struct head_size size)
{
    if (wanted->latent)
        return kv_latent_misfit(arena, wanted->k, size.k, size.v);
    const char *reason = kv_format_misfit(arena, wanted->k, size.k);
    return reason ? reason : kv_format_misfit(arena, wanted->v, size.v);
}

static bool size_fits(const struct kernel *kernel, const struct testcase_options *wanted, struct head_size size)
{
    struct arena arena = { 0 };
    int multiple = kernel->head_dim_multiple ? kernel->head_dim_multiple : 1;
    bool exact = !kernel->head_dim || (size.k == kernel->head_dim && size.v == kernel->head_dim);
    bool fits = exact && size.k % multiple == 0 && size.v % multiple == 0
        && (!kernel->head_dim_max || size.v <= kernel->head_dim_max)
        && !((kernel->k || kernel->latents) && misfit(&arena, wanted, size));
    arena_free(&arena);
    return fits;
}

// The one that is wanted, or the first from `start` on that fits; false: there is none.
static bool find_size(const struct kernel *kernel, const struct testcase_options *wanted, int start,
                      struct head_size *out)
{
    const struct head_size *sizes = wanted->latent ? latent_sizes : head_sizes;
    int count = wanted->latent ? LATENT_SIZES : HEAD_SIZES;
    *out = (struct head_size){ wanted->head_dim, wanted->latent ? wanted->value_dim : wanted->head_dim };
    if (wanted->head_dim)
        return size_fits(kernel, wanted, *out);
    for (int i = 0; i < count; i++)
        if (size_fits(kernel, wanted, *out = sizes[(start + i) % count]))
            return true;
    return false;
}

bool testcase_is_possible(const struct kernel *kernel, const struct testcase_options *wanted)
{
    struct head_size size;
    return find_size(kernel, wanted, 0, &size);
}

struct kv_layout draw_layout(struct draw *draw, int kv_heads)
{
    const struct testcase_options *wanted = draw->wanted;
    struct head_size size;
    int start = wanted->head_dim ? 0 : draw_size(draw, 0, (wanted->latent ? LATENT_SIZES : HEAD_SIZES) - 1, 0);
    find_size(draw->kernel, wanted, start, &size);
    return wanted->latent ? kv_layout_make_latent(wanted->k, size.k, size.v)
                          : kv_layout_make(wanted->k, wanted->v, kv_heads, size.k, size.v);
}

// ---- input ----

// The first `filled` bytes again and again, up to `bytes`.
static void repeat(uint8_t *data, size_t filled, size_t bytes)
{
    for (size_t at = filled; at < bytes; at += filled)
        memcpy(data + at, data, bytes - at < filled ? bytes - at : filled);
}

static void fill_values(struct draw *draw, float *x, size_t count)
{
    size_t distinct = count < TESTCASE_DISTINCT ? count : TESTCASE_DISTINCT;
    for (size_t i = 0; i < distinct; i++) {
        x[i] = random_real(&draw->seed);
        x[i] += random_real(&draw->seed);
        x[i] += random_real(&draw->seed);
        x[i] *= random_between(&draw->seed, 0, 127) ? 1 : 6;
    }
    if (count)
        repeat((uint8_t *)x, distinct * sizeof *x, count * sizeof *x);
}

static size_t draw_offset(struct draw *draw) { return (size_t)draw_size(draw, 0, MISALIGNED_MAX, 0); }

float *draw_values(struct draw *draw, int rows, int width)
{
    size_t count = (size_t)rows * (size_t)width;
    float *x = ARENA_NEW(&draw->testcase->arena, float, count + MISALIGNED_MAX) + draw_offset(draw);
    fill_values(draw, x, count);
    return x;
}

static bool is_repeated(const struct draw *draw, int rows, int width)
{
    return draw->testcase->repeats && (size_t)rows * (size_t)width > TESTCASE_DISTINCT;
}

float *draw_row_values(struct draw *draw, int rows, int width)
{
    return is_repeated(draw, rows, width) ? draw_values(draw, 1, TESTCASE_DISTINCT) : draw_values(draw, rows, width);
}

float *draw_row_output(struct draw *draw, int rows, int width)
{
    return is_repeated(draw, rows, width) ? draw_output(draw, 1, TESTCASE_DISTINCT) : draw_output(draw, rows, width);
}

float *draw_frequencies(struct draw *draw, int count)
{
    float *x = ARENA_NEW(&draw->testcase->arena, float, count);
    for (int i = 0; i < count; i++)
        x[i] = powf(1e4f, -(float)i / (float)count);
    return x;
}

// A block of random bytes whose values are of ordinary size.
static void draw_block(struct draw *draw, enum dtype dtype, uint8_t *block)
{
    const struct dtype_info *info = &dtype_table[dtype];
    float values[BLOCK_VALUES_MAX], largest;
    do {
        for (int i = 0; i < info->block_bytes; i++)
            block[i] = (uint8_t)random_next(&draw->seed);
        weight_decode(dtype, block, (size_t)info->block, values);
        largest = 0;
        for (int i = 0; i < info->block; i++) // NaN stays
            largest = isnan(largest) || fabsf(values[i]) <= largest ? largest : fabsf(values[i]);
    } while (!(largest >= 1.0f / 64 && largest <= 4));
}

struct weight draw_weight(struct draw *draw, enum dtype dtype, int rows, int cols)
{
    size_t block_bytes = (size_t)dtype_table[dtype].block_bytes;
    size_t bytes = dtype_bytes(dtype, (size_t)rows * (size_t)cols), blocks = bytes / block_bytes;
    int palette_blocks = PALETTE_VALUES / dtype_table[dtype].block;
    if (palette_blocks < PALETTE_BLOCKS)
        palette_blocks = PALETTE_BLOCKS;
    uint8_t *palette = arena_new(&draw->testcase->arena, (size_t)palette_blocks, block_bytes);
    for (int i = 0; i < palette_blocks; i++)
        draw_block(draw, dtype, palette + (size_t)i * block_bytes);

    uint8_t *data = (uint8_t *)arena_new(&draw->testcase->arena, bytes + MISALIGNED_MAX, 1) + draw_offset(draw);
    size_t distinct = blocks < TESTCASE_DISTINCT ? blocks : TESTCASE_DISTINCT;
    for (size_t i = 0; i < distinct; i++)
        memcpy(data + i * block_bytes,
               palette + (size_t)random_between(&draw->seed, 0, palette_blocks - 1) * block_bytes, block_bytes);
    repeat(data, distinct * block_bytes, bytes);
    return (struct weight){
        .dtype = dtype, .rows = rows, .cols = cols, .data = data, .scale = draw_coin(draw) ? 0.75f : 1
    };
}

void draw_batch(struct draw *draw, int tokens, int vocabulary)
{
    int32_t *ids = ARENA_NEW(&draw->testcase->arena, int32_t, tokens);
    int32_t *positions = ARENA_NEW(&draw->testcase->arena, int32_t, tokens);
    int32_t *output_rows = ARENA_NEW(&draw->testcase->arena, int32_t, tokens);
    int first = draw_size(draw, 0, 5000, 0);
    for (int i = 0; i < tokens; i++) {
        ids[i] = random_between(&draw->seed, 0, vocabulary - 1);
        positions[i] = first + i;
        output_rows[i] = random_between(&draw->seed, 0, tokens - 1);
    }
    draw->testcase->sequence[0] = (struct batch_sequence){ .count = tokens };
    draw->testcase->batch = (struct batch){ .tokens = tokens,
                                            .ids = ids,
                                            .positions = positions,
                                            .sequences = 1,
                                            .sequence = draw->testcase->sequence,
                                            .outputs = draw_size(draw, 1, tokens, tokens),
                                            .output_rows = output_rows };
}

// ---- output ----

uint8_t *draw_output_bytes(struct draw *draw, size_t bytes, int row_values)
{
    struct testcase *testcase = draw->testcase;
    size_t guards = 2 * GUARD_BYTES, offset = draw_offset(draw) * sizeof(float);
    uint8_t *room = arena_new(&testcase->arena, bytes + guards + MISALIGNED_MAX * sizeof(float), 1);
    uint8_t *data = room + GUARD_BYTES + offset;
    memset(room + offset, GUARD, bytes + guards);
    memset(data, NOTHING, bytes);
    testcase->output[testcase->outputs++] = (struct testcase_output){ data, bytes, row_values };
    return data;
}

float *draw_output(struct draw *draw, int rows, int row_values)
{
    return (float *)(void *)draw_output_bytes(draw, (size_t)rows * (size_t)row_values * sizeof(float), row_values);
}

float *draw_output_in_place(struct draw *draw, int rows, int row_values)
{
    float *values = draw_output(draw, rows, row_values);
    fill_values(draw, values, (size_t)rows * (size_t)row_values);
    return values;
}

bool testcase_guards_intact(const struct testcase *testcase)
{
    for (int i = 0; i < testcase->outputs; i++) {
        const struct testcase_output *output = &testcase->output[i];
        for (size_t j = 0; j < GUARD_BYTES; j++)
            if (output->data[output->bytes + j] != GUARD || output->data[-(ptrdiff_t)j - 1] != GUARD)
                return false;
    }
    return true;
}
