// SPDX-License-Identifier: Apache-2.0
// Latents: where their bytes lie, what a record of fp8_ds_mla looks like byte for byte, and the matrices that stand
// between them and heads.
#include "base/random.h"
#include "kernel/minifloat.h"
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/weight.h"
#include "model/tensor_source_heads.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LATENT = 512, TURNED = 64, DIM = LATENT + TURNED };

static void latents_are_stored_once(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        size_t token_bytes;
    } published[] = {
        { DTYPE_F32, 2304 },      { DTYPE_BF16, 1152 },      { DTYPE_F16, 1152 },       { DTYPE_FP8_E4M3, 576 },
        { DTYPE_FP8_TOKEN, 580 }, { DTYPE_NVFP4, 288 + 36 }, { DTYPE_FP8_DS_MLA, 656 },
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct kv_layout layout = kv_layout_make_latent(published[i].dtype, DIM, LATENT);
        assert_int_equal(kv_layout_token_bytes(&layout), published[i].token_bytes);
        assert_true(layout.latent);
        assert_int_equal(layout.v.dim, LATENT);
        for (int token = 0; token < KV_PAGE_TOKENS; token++) {
            assert_int_equal(kv_data_at(&layout.v, 0, token), kv_data_at(&layout.k, 0, token));
            assert_int_equal(kv_scale_at(&layout.v, 0, token), kv_scale_at(&layout.k, 0, token));
        }
    }
}

static void some_formats_hold_no_latents(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    assert_null(kv_latent_misfit(&arena, DTYPE_FP8_DS_MLA, 576, 512));
    assert_null(kv_latent_misfit(&arena, DTYPE_NVFP4, 128, 96));
    assert_string_equal(kv_latent_misfit(&arena, DTYPE_FP8_DS_MLA, 128, 96),
                        "fp8_ds_mla is a record of latents of 512 + 64 channels, not 96 + 32");
    assert_string_equal(kv_latent_misfit(&arena, DTYPE_NVFP4, 64, 40),
                        "nvfp4 needs a head size that is a multiple of 16, not 40");
    assert_non_null(strstr(kv_latent_misfit(&arena, DTYPE_INT4_TOKEN, 128, 64), "rotates whole vectors"));
    assert_string_equal(kv_format_misfit(&arena, DTYPE_FP8_DS_MLA, 576),
                        "fp8_ds_mla holds MLA latents, and there are none");
    arena_free(&arena);
}

// ---- the record ----

// The code whose value is nearest, of two the even one: by looking at all.
static uint8_t nearest_e4m3(double x)
{
    int best = 0;
    for (int code = 0; code < 0x7F; code++) {
        double apart = fabs(fabs(x) - e4m3_to_f32((uint8_t)code));
        double least = fabs(fabs(x) - e4m3_to_f32((uint8_t)best));
        if (apart < least || (apart == least && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static uint16_t nearest_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rest = bits & 0xFFFF, code = bits >> 16;
    return (uint16_t)(code + (rest > 0x8000 || (rest == 0x8000 && code % 2)));
}

static void make_record(const float *x, uint8_t *record)
{
    for (int group = 0; group < 4; group++) {
        float most = 0, scale;
        for (int i = 0; i < 128; i++)
            most = fmaxf(most, fabsf(x[group * 128 + i]));
        scale = fmaxf(most / 448, 0x1p-126f);
        memcpy(record + 512 + 4 * group, &scale, sizeof scale);
        for (int i = 0; i < 128; i++)
            record[group * 128 + i] = nearest_e4m3(x[group * 128 + i] / scale);
    }
    for (int i = 0; i < 64; i++) {
        uint16_t code = nearest_bf16(x[512 + i]);
        memcpy(record + 528 + 2 * i, &code, sizeof code);
    }
}

static void a_record_has_these_bytes(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 50; round++) {
        float x[DIM], back[DIM];
        uint8_t expected[656], stored[656 + 16];
        memset(stored, 0xA5, sizeof stored);
        for (int i = 0; i < DIM; i++) { // groups of very different sizes, one of zeros
            const int group = i / 128;
            x[i] = group == round % 6 ? 0 : random_real(&seed) * powf(10, (float)(group * 3 - 5));
        }
        make_record(x, expected);
        kv_codecs[DTYPE_FP8_DS_MLA].store(x, DIM, 7, stored, NULL); // a layer's scale has no part in it
        assert_memory_equal(stored, expected, sizeof expected);
        assert_int_equal(stored[656], 0xA5);
        kv_codecs[DTYPE_FP8_DS_MLA].load(stored, NULL, DIM, 7, back);
        for (int i = 0; i < DIM; i++) {
            float scale;
            memcpy(&scale, expected + 512 + i / 128 % 4 * 4, sizeof scale);
            uint16_t half;
            memcpy(&half, expected + 528 + (i >= LATENT ? 2 * (i - LATENT) : 0), sizeof half);
            assert_true(back[i] == (i < LATENT ? e4m3_to_f32(expected[i]) * scale : bf16_to_f32(half)));
        }
        float values[LATENT + 1] = { [LATENT] = 123 };
        kv_codecs[DTYPE_FP8_DS_MLA].load(stored, NULL, LATENT, 7, values); // of V, nothing behind it is written
        assert_memory_equal(values, back, LATENT * sizeof *values);
        assert_true(values[LATENT] == 123);
    }
}

static void what_is_no_number_stays_in_its_place(void **state)
{
    (void)state;
    float x[DIM] = { [0] = 1, [1] = NAN, [128] = INFINITY, [129] = 1, [256] = 448, [LATENT] = NAN }, back[DIM];
    uint8_t record[656];
    kv_codecs[DTYPE_FP8_DS_MLA].store(x, DIM, 1, record, NULL);
    kv_codecs[DTYPE_FP8_DS_MLA].load(record, NULL, DIM, 1, back);
    assert_true(back[0] == 1 && isnan(back[1]) && back[2] == 0);
    assert_true(isfinite(back[128]) && back[128] > 1e29f && back[129] == 0);
    assert_true(back[256] == 448 && isnan(back[LATENT]) && back[LATENT + 1] == 0);
}

// ---- between heads and latents ----

enum { HEADS = 3, KEYS = 32, VALUES = 64, COLS = 96, EACH = KEYS + VALUES };

static void heads_have_their_own_rows(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0 };
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        struct arena arena = { 0 };
        uint64_t seed = d;
        size_t bytes = dtype_bytes(dtypes[d], HEADS * EACH * COLS);
        char *data = arena_new(&arena, bytes, 1);
        for (size_t i = 0; i < bytes; i++) // of all floats an exponent that is far from the ends
            data[i] = (char)(random_next(&seed) & (dtypes[d] == DTYPE_Q8_0 ? 0x2F : 0x3F));
        struct tensor tensor = {
            .name = "kv_b", .dtype = dtypes[d], .rank = 2, .shape = { HEADS * EACH, COLS }, .data = data, .bytes = bytes
        };
        float *values = ARENA_NEW(&arena, float, HEADS * EACH * COLS);
        weight_decode(dtypes[d], data, HEADS * EACH * COLS, values);
        const struct tensor *rows = tensor_source_head_rows(&arena, &tensor, EACH, KEYS, VALUES);
        const struct tensor *transposed = tensor_source_head_transpose(&arena, &tensor, EACH, 0, KEYS);
        enum dtype made = dtypes[d] == DTYPE_Q8_0 ? DTYPE_F16 : dtypes[d];
        assert_true(rows->dtype == made && transposed->dtype == made);
        assert_true(rows->shape[0] == HEADS * VALUES && rows->shape[1] == COLS);
        assert_true(transposed->shape[0] == HEADS * COLS && transposed->shape[1] == KEYS);
        for (int64_t first = 0, count; first < HEADS * COLS; first += count) { // in uneven pieces, across heads
            uint8_t stored[40 * KEYS * 4];
            float found[40 * KEYS];
            count = random_between(&seed, 1, 40);
            count = first + count > HEADS * COLS ? HEADS * COLS - first : count;
            tensor_source_read(transposed, first, count, stored);
            weight_decode(made, stored, (size_t)count * KEYS, found);
            for (int64_t i = 0; i < count * KEYS; i++) {
                int64_t row = first + i / KEYS, head = row / COLS;
                float expected = values[(head * EACH + i % KEYS) * COLS + row % COLS];
                assert_true(found[i] == (made == DTYPE_F16 ? f16_to_f32(f32_to_f16(expected)) : expected));
            }
        }
        for (int64_t row = 0; row < HEADS * VALUES; row++) {
            uint8_t stored[COLS * 4];
            float found[COLS];
            tensor_source_read(rows, row, 1, stored);
            weight_decode(made, stored, COLS, found);
            for (int i = 0; i < COLS; i++) {
                float expected = values[(row / VALUES * EACH + KEYS + row % VALUES) * COLS + i];
                assert_true(found[i] == (made == DTYPE_F16 ? f16_to_f32(f32_to_f16(expected)) : expected));
            }
        }
        arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_are_stored_once),   cmocka_unit_test(some_formats_hold_no_latents),
        cmocka_unit_test(a_record_has_these_bytes),  cmocka_unit_test(what_is_no_number_stays_in_its_place),
        cmocka_unit_test(heads_have_their_own_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
