// SPDX-License-Identifier: Apache-2.0
// The packing of quantised weights for GPUs, read back on the CPU as kernel/cuda/linear_packed.h defines it.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include "kernel/blocks.h"
#include "kernel/cuda/linear.h"
#include "kernel/minifloat.h"
#include "kernel/ref/weight.h"

#include <cmocka.h>

enum { ROWS = 37, COLS = 768, PARTS = 3, GUARD = 64 };

static const struct linear_layout layouts[] = {
#define X(kind, ...) { __VA_ARGS__ },
    LINEAR_KINDS(X)
#undef X
};

static const enum dtype formats[] = {
#define X(id, ...) DTYPE_##id,
    LINEAR_FORMATS(X, )
#undef X
};

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

// Any code but NaN, and any scale of an ordinary size.
static void draw_fp8(struct FP8_32 *block)
{
    block->scale[3] = (uint8_t)(0x38 | (block->scale[3] & 0x83));
    for (int i = 0; i < 32; i++)
        block->codes[i] &= (block->codes[i] & 0x7F) == 0x7F ? 0xF7 : 0xFF;
}

// Any bytes are blocks; f16 scales and minima are made finite ones, neither large nor tiny.
static void draw_blocks(enum dtype dtype, uint8_t *blocks, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)(next_random(&seed) >> 24);
    for (size_t at = 0; at < bytes; at += (size_t)dtype_table[dtype].block_bytes) {
        uint8_t *block = blocks + at, *scale = block, *min = block;
        switch (dtype) {
        case DTYPE_Q4_1:
        case DTYPE_Q5_1:
        case DTYPE_Q4_K:
        case DTYPE_Q5_K: min = block + 2; break;
        case DTYPE_Q2_K: scale = ((struct Q2_K *)block)->scale, min = ((struct Q2_K *)block)->min; break;
        case DTYPE_Q3_K: min = scale = ((struct Q3_K *)block)->scale; break;
        case DTYPE_Q6_K: min = scale = ((struct Q6_K *)block)->scale; break;
        case DTYPE_MXFP4_GGUF: *block = (uint8_t)(100 + next_random(&seed) % 50); continue;
        case DTYPE_NVFP4_GGUF: block[0] = 0; continue; // the rest are any E4M3, zero and subnormals among them
        case DTYPE_FP8_32: draw_fp8((struct FP8_32 *)block); continue;
        default: break;
        }
        scale[1] = (uint8_t)(0x1C + (scale[1] & 3));
        min[1] = (uint8_t)(0x1C + (min[1] & 0x83));
    }
}

static uint32_t word_at(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

// The two bytes at index i.
static float bf16_at(const uint8_t *at, int i) { return bf16_to_f32(read_u16(at + 2 * i)); }

// The code of a slot and half, eight bits wide: its own bits on top.
static int code_at(struct linear_layout f, const uint8_t *record, int lane, int slot, int half)
{
    int code = 0;
    for (int left = f.bits, plane, top = 8; left > 0; left -= plane, record += linear_plane_bytes(plane)) {
        plane = linear_plane(left);
        int slots = 16 / plane;
        uint32_t word = word_at(record + linear_word_at(plane, lane, slot / slots));
        top -= plane;
        code |= (int)(word >> (16 * half + slot % slots * plane) & ((1u << plane) - 1)) << top;
    }
    return code;
}

static float e2m1_at(const uint8_t *record, int lane, int slot, int half)
{
    static const int places[4] = { 6, 7, 8, 15 }; // of m, e, e and s in a bfloat16
    int in_eight = slot % 8;
    uint32_t words[2], code = 0;
    for (int i = 0; i < 2; i++)
        words[i] = word_at(record + linear_word_at(4, lane, slot / 8 * 2 + i));
    for (int bit = 0; bit < 4; bit++) {
        int place = (places[bit] + 16 * half + linear_e2m1_rotation(in_eight)) % 32;
        bool first = in_eight < 3 || (in_eight >= 6 && LINEAR_E2M1_FIRST >> place & 1);
        code |= (words[first ? 0 : 1] >> place & 1) << bit;
    }
    return e2m1_to_f32((uint8_t)code);
}

static float dequantised(struct linear_layout f, const uint8_t *group, int row, int col)
{
    const uint8_t *record = group + (size_t)(col / LINEAR_RECORD) * (size_t)linear_record_bytes(f);
    int in_lane = col % LINEAR_LANE_VALUES, lane = row % 8 * 4 + col % LINEAR_RECORD / LINEAR_LANE_VALUES;
    int slot = in_lane / 4 * 4 + in_lane % 4 / 2 * 2 + row / 8, half = in_lane % 2;
    int block = (lane * (LINEAR_LANE_VALUES / f.block) + in_lane / f.block) * 2 + row / 8;
    const uint8_t *scales = record + linear_scales_at(f), *mins = record + linear_mins_at(f);
    if (f.small) {
        int byte = scales[block];
        float scale = ldexpf(1 + (float)(byte % 8) / 8, byte / 8 - LINEAR_SMALL_EXPONENT);
        return scale * e2m1_at(record, lane, slot, half);
    }
    float scale = bf16_at(scales, block);
    if (f.floats && f.bits == 8)
        return ldexpf(scale * e4m3_to_f32((uint8_t)code_at(f, record, lane, slot, half)),
                      LINEAR_EXPONENT - LINEAR_E4M3_EXPONENT);
    if (f.floats)
        return ldexpf(scale * e2m1_at(record, lane, slot, half), LINEAR_EXPONENT - LINEAR_E2M1_EXPONENT);
    int code = code_at(f, record, lane, slot, half) - (f.min ? 0 : 128);
    float min = f.min ? ldexpf(bf16_at(mins, block), LINEAR_EXPONENT) : 0;
    return ldexpf(scale * (float)code, LINEAR_EXPONENT - LINEAR_INT_EXPONENT) + min;
}

// Packed by several callers, between guards, with rows that do not fill their last group.
static uint8_t *pack(const struct weight *weight, size_t bytes)
{
    uint8_t *memory = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    memset(memory, 0xA5, bytes + 2 * GUARD);
    for (int part = 0; part < PARTS; part++)
        linear_packing.pack(weight, part, PARTS, memory + GUARD);
    for (int i = 0; i < GUARD; i++)
        assert_true(memory[i] == 0xA5 && memory[GUARD + bytes + (size_t)i] == 0xA5);
    return memory;
}

// Scales and minima may be rounded to bfloat16: both, in the worst case about a sum of opposite signs.
static float tolerance(struct linear_layout f, const float *run)
{
    float largest = 0;
    for (int i = 0; i < LINEAR_LANE_VALUES; i++)
        largest = fmaxf(largest, fabsf(run[i]));
    return f.floats && f.bits == 4 ? 0 : largest / 64;
}

static void every_format_reads_back(void **state)
{
    (void)state;
    enum { GROUPS = (ROWS + LINEAR_ROWS - 1) / LINEAR_ROWS };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        enum dtype dtype = formats[i];
        struct linear_layout f = layouts[linear_kind_of(dtype)];
        size_t row_bytes = dtype_bytes(dtype, COLS), bytes = linear_packing.bytes(dtype, ROWS, COLS);
        uint8_t *blocks = malloc(ROWS * row_bytes);
        float *expected = calloc(GROUPS * LINEAR_ROWS * COLS, sizeof *expected);
        draw_blocks(dtype, blocks, ROWS * row_bytes, (uint32_t)i + 1);
        weight_decode(dtype, blocks, ROWS * COLS, expected);
        uint8_t *packed = pack(&(struct weight){ dtype, ROWS, COLS, blocks, 1 }, bytes);
        for (int at = 0; at < GROUPS * LINEAR_ROWS * COLS; at++) {
            int row = at / COLS, col = at % COLS;
            const uint8_t *group = packed + GUARD + (size_t)(row / LINEAR_ROWS) * (bytes / GROUPS);
            float found = dequantised(f, group, row % LINEAR_ROWS, col);
            if (!(fabsf(found - expected[at]) <= tolerance(f, expected + at / LINEAR_LANE_VALUES * LINEAR_LANE_VALUES)))
                fail_msg("%s row %d col %d: %g, expected %g", dtype_word(dtype), row, col, (double)found,
                         (double)expected[at]);
        }
        free(packed);
        free(expected);
        free(blocks);
    }
}

static void the_last_record_is_filled_up(void **state)
{
    (void)state;
    enum { COLUMNS = 160 };
    struct Q4_0 blocks[COLUMNS / 32];
    draw_blocks(DTYPE_Q4_0, (uint8_t *)blocks, sizeof blocks, 5);
    struct linear_layout f = layouts[LINEAR_int4_32];
    assert_int_equal(linear_group_bytes(LINEAR_int4_32, COLUMNS), 2 * linear_record_bytes(f));
    uint8_t *packed = pack(&(struct weight){ DTYPE_Q4_0, 1, COLUMNS, blocks, 1 },
                           linear_packing.bytes(DTYPE_Q4_0, 1, COLUMNS));
    for (int col = COLUMNS; col < 2 * LINEAR_RECORD; col++)
        assert_true(dequantised(f, packed + GUARD, 0, col) == 0);
    free(packed);
}

static void fp8_nan_spoils_its_block(void **state)
{
    (void)state;
    struct FP8_32 blocks[LINEAR_RECORD / 32] = { [2] = { .codes = { [5] = 0xFF } } };
    struct linear_layout f = layouts[LINEAR_e4m3_32];
    uint8_t *packed = pack(&(struct weight){ DTYPE_FP8_32, 1, LINEAR_RECORD, blocks, 1 },
                           linear_packing.bytes(DTYPE_FP8_32, 1, LINEAR_RECORD));
    for (int col = 0; col < LINEAR_RECORD; col++)
        assert_true(isnan(dequantised(f, packed + GUARD, 0, col)) == (col / 32 == 2));
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_reads_back),
        cmocka_unit_test(the_last_record_is_filled_up),
        cmocka_unit_test(fp8_nan_spoils_its_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
