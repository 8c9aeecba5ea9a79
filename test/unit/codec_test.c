// SPDX-License-Identifier: Apache-2.0
// The small floats against a second definition, in double precision and from the meaning of the bits alone;
// weights against their formulas (test/e2e/test_codec.py compares every GGUF format with the ecosystem's reader).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernel/minifloat.h"
#include "kernel/ref/weight.h"

enum { RANDOM_PATTERNS = 1000000, MAGNITUDES_MAX = 0x8000, GUARD = 0xA5 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct format {
    const char *name;
    int bits, mantissa, bias;
    unsigned special;  // the first magnitude that is not a finite number
    bool has_infinity; // and that it is infinity; the others are NaN
    unsigned top;      // the magnitude that stands for all larger ones when encoding
    unsigned (*encode)(float value);
    float (*decode)(unsigned code);
};

static unsigned encode_f16(float value) { return f32_to_f16(value); }
static unsigned encode_bf16(float value) { return f32_to_bf16(value); }
static unsigned encode_e4m3(float value) { return f32_to_e4m3(value); }
static unsigned encode_e5m2(float value) { return f32_to_e5m2(value); }
static unsigned encode_e2m1(float value) { return f32_to_e2m1(value); }
static float decode_f16(unsigned code) { return f16_to_f32((uint16_t)code); }
static float decode_bf16(unsigned code) { return bf16_to_f32((uint16_t)code); }
static float decode_e4m3(unsigned code) { return e4m3_to_f32((uint8_t)code); }
static float decode_e5m2(unsigned code) { return e5m2_to_f32((uint8_t)code); }
static float decode_e2m1(unsigned code) { return e2m1_to_f32((uint8_t)code); }

static const struct format formats[] = {
    { "f16", 16, 10, 15, 0x7C00, true, 0x7C00, encode_f16, decode_f16 },
    { "bf16", 16, 7, 127, 0x7F80, true, 0x7F80, encode_bf16, decode_bf16 },
    { "e4m3", 8, 3, 7, 0x7F, false, 0x7E, encode_e4m3, decode_e4m3 },
    { "e5m2", 8, 2, 15, 0x7C, true, 0x7B, encode_e5m2, decode_e5m2 },
    { "e2m1", 4, 1, 1, 8, false, 7, encode_e2m1, decode_e2m1 },
};

static double value_of(const struct format *format, unsigned magnitude)
{
    int exponent = (int)(magnitude >> format->mantissa), one = 1 << format->mantissa;
    int fraction = (int)(magnitude & (unsigned)(one - 1));
    return exponent ? ldexp(fraction + one, exponent - format->bias - format->mantissa)
                    : ldexp(fraction, 1 - format->bias - format->mantissa);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32;
}

static void every_code_decodes(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(formats); f++)
        for (unsigned code = 0; code < 1u << formats[f].bits; code++) {
            const struct format *format = &formats[f];
            unsigned sign_bit = 1u << (format->bits - 1), magnitude = code & (sign_bit - 1);
            float got = format->decode(code);
            double want = magnitude < format->special                  ? value_of(format, magnitude)
                : magnitude == format->special && format->has_infinity ? INFINITY
                                                                       : NAN;
            bool same = isnan(want) ? isnan(got) : fabs((double)got) == want;
            if (!same || !signbit(got) != !(code & sign_bit))
                fail_msg("%s code 0x%x: got %g, want %g", format->name, code, got, want);
        }
}

static void every_e8m0_code_decodes(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++)
        assert_true((double)e8m0_to_f32((uint8_t)code) == ldexp(1, code - 127));
    assert_true(isnan(e8m0_to_f32(255)));
}

// values[0 .. top] of one format, ascending.
static double values[MAGNITUDES_MAX + 1];

static unsigned nearest(const struct format *format, double magnitude)
{
    unsigned low = 0, high = format->top;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        *(values[middle] <= magnitude ? &low : &high) = middle;
    }
    double boundary = (values[low] + values[high]) / 2;
    return magnitude < boundary ? low : magnitude > boundary ? high : low + low % 2;
}

static void check_encode(const struct format *format, float value)
{
    unsigned sign = signbit(value) ? 1u << (format->bits - 1) : 0, got = format->encode(value);
    if (isnan(value)) {
        bool has_nan = format->special < 1u << (format->bits - 1);
        if (has_nan ? !isnan(format->decode(got)) || (got & 1u << (format->bits - 1)) != sign : got != 0)
            fail_msg("%s of NaN: 0x%x", format->name, got);
        return;
    }
    unsigned want = nearest(format, fabs((double)value)) | sign;
    if (got != want)
        fail_msg("%s of %a: got 0x%x, want 0x%x", format->name, (double)value, got, want);
}

static void check_encode_around(const struct format *format, float value)
{
    float around[] = { nextafterf(value, 0), value, nextafterf(value, INFINITY) };
    for (size_t i = 0; i < COUNT(around); i++) {
        check_encode(format, around[i]);
        check_encode(format, -around[i]);
    }
}

static void encoding_is_nearest(void **state)
{
    (void)state;
    static const float extremes[] = { 0, 0x1p-149f, 0x1p-126f, 1e30f, 0x1.fffffep127f, INFINITY, NAN };
    for (size_t f = 0; f < COUNT(formats); f++) {
        const struct format *format = &formats[f];
        for (unsigned code = 0; code <= format->top; code++)
            values[code] = value_of(format, code);
        for (unsigned code = 0; code < format->top; code++) {
            check_encode_around(format, (float)values[code]);
            check_encode_around(format, (float)((values[code] + values[code + 1]) / 2));
        }
        for (size_t i = 0; i < COUNT(extremes); i++) {
            check_encode(format, extremes[i]);
            check_encode(format, -extremes[i]);
        }
        uint64_t seed = 1;
        for (int i = 0; i < RANDOM_PATTERNS; i++)
            check_encode(format, f32_from_bits((int32_t)(uint32_t)random_next(&seed)));
    }
}

static double half_at(const uint8_t *bytes) { return f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8)); }

static int nibble_at(const uint8_t codes[16], int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }

static int bit_at(const uint8_t bytes[4], int i) { return bytes[i / 8] >> i % 8 & 1; }

// The expected value i of a block, for formats with a closed formula.
static double weight_of(enum dtype dtype, const uint8_t *block, int i)
{
    switch (dtype) {
    case DTYPE_Q4_0: return (nibble_at(block + 2, i) - 8) * half_at(block);
    case DTYPE_Q4_1: return nibble_at(block + 4, i) * half_at(block) + half_at(block + 2);
    case DTYPE_Q5_0: return (nibble_at(block + 6, i) + 16 * bit_at(block + 2, i) - 16) * half_at(block);
    case DTYPE_Q5_1: return (nibble_at(block + 8, i) + 16 * bit_at(block + 4, i)) * half_at(block) + half_at(block + 2);
    case DTYPE_Q8_0: return (int8_t)block[2 + i] * half_at(block);
    case DTYPE_MXFP4_GGUF: return ldexp(e2m1_to_f32((uint8_t)nibble_at(block + 1, i)), block[0] - 127);
    default: fail_msg("no formula for %s", dtype_word(dtype)); return 0;
    }
}

static void simple_weights_follow_their_formula(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = { DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_MXFP4_GGUF };
    uint64_t seed = 2;
    for (size_t d = 0; d < COUNT(dtypes); d++)
        for (int round = 0; round < 100; round++) {
            uint8_t block[64];
            for (size_t i = 0; i < sizeof block; i++)
                block[i] = (uint8_t)random_next(&seed);
            block[1] = (block[1] & 0x83) | 0x30; // scales and minima of an ordinary size
            block[3] = (block[3] & 0x83) | 0x30;
            if (dtypes[d] == DTYPE_MXFP4_GGUF)
                block[0] = (uint8_t)(100 + block[0] % 60);
            float out[32];
            weight_decode(dtypes[d], block, COUNT(out), out);
            for (int i = 0; i < (int)COUNT(out); i++)
                if (!(fabs(out[i] - weight_of(dtypes[d], block, i)) <= fabs((double)out[i]) * 0x1p-23 + 0x1p-30))
                    fail_msg("%s value %d: %g, want %g", dtype_word(dtypes[d]), i, (double)out[i],
                             weight_of(dtypes[d], block, i));
        }
}

// The fp4 scales of GGUF have no sign and no NaN.
static void nvfp4_weights_decode(void **state)
{
    (void)state;
    for (int scale = 0; scale < 256; scale++) {
        uint8_t block[36] = { [2] = (uint8_t)scale };
        for (int i = 0; i < 8; i++)
            block[4 + 2 * 8 + i] = (uint8_t)(i | (i + 8) << 4);
        float out[64];
        weight_decode(DTYPE_NVFP4_GGUF, block, 64, out);
        double want_scale = scale == 0x7F ? 0 : value_of(&formats[2], scale & 0x7F);
        for (int i = 0; i < 64; i++)
            assert_true(out[i] == (i / 16 == 2 ? e2m1_to_f32((uint8_t)(i % 16)) * want_scale : 0));
    }
}

// Every code, NaN too, under a scale of any sign.
static void fp8_weights_decode(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        float scale = code % 2 ? 0.0390625f : -3e4f, out[32];
        uint8_t block[36] = { 0 };
        memcpy(block, &scale, sizeof scale);
        block[4 + code % 32] = (uint8_t)code;
        weight_decode(DTYPE_FP8_32, block, COUNT(out), out);
        float want = scale * e4m3_to_f32((uint8_t)code);
        for (int i = 0; i < (int)COUNT(out); i++)
            assert_true(i != code % 32 ? out[i] == 0 : isnan(want) ? isnan(out[i]) : out[i] == want);
    }
}

// Whatever the bytes: exactly the input is read (the sanitizer watches, at an odd address), exactly the output written.
static void every_weight_format_keeps_its_bounds(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        if (!(dtype_table[d].use & DTYPE_USE_W))
            continue;
        size_t count = (size_t)dtype_table[d].block * 3, bytes = dtype_bytes((enum dtype)d, count);
        uint8_t *memory = malloc(bytes + 1);
        for (size_t i = 0; i <= bytes; i++)
            memory[i] = (uint8_t)random_next(&seed);
        size_t out_bytes = count * sizeof(float);
        uint8_t *out = malloc(out_bytes + sizeof(float));
        memset(out, GUARD, out_bytes + sizeof(float));
        weight_decode((enum dtype)d, memory + 1, count, (float *)out);
        for (size_t i = 0; i < sizeof(float); i++)
            assert_int_equal(out[out_bytes + i], GUARD);
        free(out);
        free(memory);
    }
}

static void plain_weights_decode(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 0x10000; code += 7) {
        uint8_t bytes[3] = { 0, (uint8_t)code, (uint8_t)(code >> 8) };
        float f16, bf16;
        weight_decode(DTYPE_F16, bytes + 1, 1, &f16);
        weight_decode(DTYPE_BF16, bytes + 1, 1, &bf16);
        assert_int_equal(f32_bits(f16), f32_bits(f16_to_f32((uint16_t)code)));
        assert_int_equal(f32_bits(bf16), f32_bits(bf16_to_f32((uint16_t)code)));
    }
    static const uint8_t pi[] = { 0xDB, 0x0F, 0x49, 0x40 };
    float f32;
    weight_decode(DTYPE_F32, pi, 1, &f32);
    assert_true(f32 == 0x1.921FB6p+1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_decodes),
        cmocka_unit_test(every_e8m0_code_decodes),
        cmocka_unit_test(encoding_is_nearest),
        cmocka_unit_test(plain_weights_decode),
        cmocka_unit_test(simple_weights_follow_their_formula),
        cmocka_unit_test(nvfp4_weights_decode),
        cmocka_unit_test(fp8_weights_decode),
        cmocka_unit_test(every_weight_format_keeps_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
