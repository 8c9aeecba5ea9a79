// SPDX-License-Identifier: Apache-2.0
// Each cache format: the bytes of hand-made vectors, how far random ones may move, and what becomes of the extremes.
#include "device/device.h"
#include "kernel/kernel.h"
#include "kernel/ref/kv_codec.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM_MAX = 512, GUARD_BYTES = 16, GUARD = 0xA5, ROUNDS = 10 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int dims[] = { 64, 80, 96, 128, 192, 256, 512 };
static const float layer_scales[] = { 1.0f, 0.37f };

// One vector stored and loaded. Bytes lie at odd addresses, with guards around them.
struct trip {
    enum dtype dtype;
    int dim;
    uint8_t data_room[GUARD_BYTES * 2 + DIM_MAX * 4 + 1], scale_room[GUARD_BYTES * 2 + DIM_MAX / 4 + 1];
    float out_room[GUARD_BYTES * 2 + DIM_MAX];
    uint8_t *data, *scale;
    float *out;
};

static size_t data_bytes(enum dtype dtype, int dim) { return (size_t)(dim * dtype_table[dtype].bits / 8); }

static size_t scale_bytes(enum dtype dtype, int dim)
{
    switch (dtype_table[dtype].scale) {
    case DTYPE_SCALE_VECTOR: return sizeof(float);
    case DTYPE_SCALE_BLOCK: return (size_t)(dim / dtype_table[dtype].block);
    default: return 0;
    }
}

static void check_guards(const void *room, size_t room_bytes, const void *used, size_t used_bytes)
{
    const uint8_t *at = room, *end = at + room_bytes, *start = used;
    for (; at < end; at++)
        if ((at < start || at >= start + used_bytes) && *at != GUARD)
            fail_msg("a guard byte was overwritten");
}

static void make_trip(struct trip *trip, enum dtype dtype, const float *x, int dim, float layer_scale)
{
    memset(trip, GUARD, sizeof *trip);
    trip->dtype = dtype;
    trip->dim = dim;
    trip->data = trip->data_room + GUARD_BYTES + 1;
    trip->scale = trip->scale_room + GUARD_BYTES + 1;
    trip->out = trip->out_room + GUARD_BYTES;
    kv_codecs[dtype].store(x, dim, layer_scale, trip->data, trip->scale);
    kv_codecs[dtype].load(trip->data, trip->scale, dim, layer_scale, trip->out);
    check_guards(trip->data_room, sizeof trip->data_room, trip->data, data_bytes(dtype, dim));
    check_guards(trip->scale_room, sizeof trip->scale_room, trip->scale, scale_bytes(dtype, dim));
    check_guards(trip->out_room, sizeof trip->out_room, trip->out, (size_t)dim * sizeof(float));
}

static bool has_codec(int dtype, int dim)
{
    return dtype_table[dtype].use & DTYPE_USE_KV && (dtype != DTYPE_INT4_TOKEN || (dim & (dim - 1)) == 0);
}

static uint32_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static void fill_gaussian(uint64_t *seed, float *x, int dim, float deviation)
{
    for (int i = 0; i < dim; i++) {
        double radius = sqrt(-2 * log((random_next(seed) + 1.0) / 4294967297.0));
        x[i] = (float)(radius * cos(random_next(seed) * (6.283185307179586 / 4294967296.0))) * deviation;
    }
}

static double magnitude_max(const float *x, int count)
{
    double max = 0;
    for (int i = 0; i < count; i++)
        max = fmax(max, fabs((double)x[i]));
    return max;
}

static double squared_error(const float *x, const float *y, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

static float f32_at(const uint8_t *bytes)
{
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void every_cache_format_has_a_codec(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        bool wanted = dtype_table[d].use & DTYPE_USE_CACHE;
        assert_int_equal(kv_codecs[d].store != NULL, wanted);
        assert_int_equal(kv_codecs[d].load != NULL, wanted);
    }
}

struct layout {
    enum dtype dtype;
    float layer_scale, x[16];
    uint8_t data[64], scale[4];
};

// Halves decide the rounding: E2M1 and E4M3 to the even code, int8 away from zero.
static const struct layout layouts[] = {
    { DTYPE_F32, 1, { 1, -2 }, { 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0 }, { 0 } },
    { DTYPE_F16, 1, { 1, -2, 65504, 65520 }, { 0, 0x3C, 0, 0xC0, 0xFF, 0x7B, 0, 0x7C }, { 0 } },
    { DTYPE_BF16, 1, { 1, -2, 1.00390625f, 1.01171875f }, { 0x80, 0x3F, 0, 0xC0, 0x80, 0x3F, 0x82, 0x3F }, { 0 } },
    { DTYPE_FP8_E4M3, 0.5f, { 1, -2, 1000, 0.53125f, 0.59375f }, { 0x40, 0xC8, 0x7E, 0x38, 0x3A }, { 0 } },
    { DTYPE_FP8_E5M2, 2, { 2, -4, 1e6f }, { 0x3C, 0xC0, 0x7B }, { 0 } },
    { DTYPE_FP8_TOKEN, 9, { 896, -2, 0 }, { 0x7E, 0xB8 }, { 0, 0, 0, 0x40 } },
    { DTYPE_INT8_TOKEN,
      9,
      { 127, -63.5f, 0.5f, -0.5f, 1.5f, 0.49999997f },
      { 127, 0xC0, 1, 0xFF, 2, 0 },
      { 0, 0, 0x80, 0x3F } },
    { DTYPE_NVFP4,
      1,
      { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 },
      { 0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE },
      { 0x38 } },
    { DTYPE_NVFP4,
      0.25f,
      { 3, .125f, .375f, .625f, .875f, 1.25f, 1.75f, 2.5f, -2.5f },
      { 0x07, 0x22, 0x44, 0x66, 0x0E, 0, 0, 0 },
      { 0x40 } },
    { DTYPE_NVFP4_4OVER6, 1, { 6, 4, 3 }, { 0x67, 0x05 }, { 0x38 } },
    { DTYPE_NVFP4_4OVER6, 1, { 4, 3, 2, -1 }, { 0x56, 0xA4 }, { 0x38 } },
};

static void hand_made_vectors_have_these_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const struct layout *layout = &layouts[i];
        struct trip trip;
        make_trip(&trip, layout->dtype, layout->x, 16, layout->layer_scale);
        assert_memory_equal(trip.data, layout->data, data_bytes(layout->dtype, 16));
        assert_memory_equal(trip.scale, layout->scale, scale_bytes(layout->dtype, 16));
    }
}

// splitmix64 as usually written, one channel a bit.
static void fill_signs(int *signs, int dim)
{
    uint64_t state = 0x9E3779B9, word = 0;
    for (int i = 0; i < dim; i++, word >>= 1) {
        if (i % 64 == 0) {
            word = (state += 0x9E3779B97F4A7C15u);
            word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
            word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
            word ^= word >> 31;
        }
        signs[i] = word & 1 ? -1 : 1;
    }
}

// From codes to the vector whose rotation they are, by the definition of the Hadamard matrix; then back through store.
static void int4_stores_the_rotated_vector(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int dim = 2; dim <= DIM_MAX; dim *= 2) {
        int signs[DIM_MAX], codes[DIM_MAX], zero = (int)(random_next(&seed) % 16);
        fill_signs(signs, dim);
        for (int i = 0; i < dim; i++)
            codes[i] = i < 2 ? i * 15 : (int)(random_next(&seed) % 16);
        float x[DIM_MAX];
        for (int i = 0; i < dim; i++) {
            double sum = 0;
            for (int j = 0; j < dim; j++)
                sum += (__builtin_parity((unsigned)(i & j)) ? -1 : 1) * (codes[j] - zero);
            x[i] = (float)(signs[i] * sum / dim);
        }
        struct trip trip;
        make_trip(&trip, DTYPE_INT4_TOKEN, x, dim, 1);
        for (int i = 0; i < dim; i++)
            assert_int_equal(trip.data[i / 2] >> i % 2 * 4 & 15, codes[i]);
        const uint8_t scale[] = { (uint8_t)zero, 0, 0x80, 0x3F };
        assert_memory_equal(trip.scale, scale, sizeof scale);
        assert_memory_equal(trip.out, x, (size_t)dim * sizeof *x);
    }
}

// A rotation whose values all have one sign must still be representable.
static void int4_keeps_a_single_channel(void **state)
{
    (void)state;
    for (int channel = 0; channel < 64; channel++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float x[64] = { 0 };
            x[channel] = 3.0f * (float)sign;
            struct trip trip;
            make_trip(&trip, DTYPE_INT4_TOKEN, x, 64, 1);
            assert_true(squared_error(x, trip.out, 64) < 0.05);
        }
}

static double e4m3_value(int code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return (code & 0x7F) == 0x7F ? NAN : code & 0x80 ? -magnitude : magnitude;
}

static void every_nvfp4_code_loads_under_every_scale(void **state)
{
    (void)state;
    static const double codes[16] = { 0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6 };
    static const uint8_t data[] = { 0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE };
    for (size_t s = 0; s < COUNT(layer_scales); s++)
        for (int scale = 0; scale < 256; scale++) {
            float out[16];
            kv_codecs[DTYPE_NVFP4].load(data, &(uint8_t){ (uint8_t)scale }, 16, layer_scales[s], out);
            for (int i = 0; i < 16; i++) {
                float want = (float)(codes[i] * e4m3_value(scale) * (double)layer_scales[s]);
                assert_true(isnan(want) ? isnan(out[i]) : out[i] == want);
            }
        }
}

// The largest error value i may have; nvfp4's by the widest gap of its codes, and the scale may be 1/16 off.
static double error_bound(const struct trip *trip, const float *x, int i, double layer_scale)
{
    double size = fabs((double)x[i]), vector_max = magnitude_max(x, trip->dim);
    switch (trip->dtype) {
    case DTYPE_F32: return 0;
    case DTYPE_F16: return size * 0x1p-11 + 0x1p-25;
    case DTYPE_BF16: return size * 0x1p-8;
    case DTYPE_FP8_E4M3: return size * 0x1p-4 + layer_scale * 0x1p-10;
    case DTYPE_FP8_E5M2: return size * 0x1p-3 + layer_scale * 0x1p-17;
    case DTYPE_FP8_TOKEN: return size * 0x1p-4 + vector_max / 448 * 0x1p-10;
    case DTYPE_INT8_TOKEN: return vector_max / 254 * 1.00001;
    case DTYPE_INT4_TOKEN: return f32_at(trip->scale) / 2 * 1.001; // even were all of it in one channel
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return magnitude_max(x + i / 16 * 16, 16) / 6 * 1.0625;
    default: fail_msg("no bound for %s", dtype_word(trip->dtype)); return 0;
    }
}

static void random_vectors_stay_near(void **state)
{
    (void)state;
    static const float deviations[] = { 0.5f, 4.0f, 30.0f };
    uint64_t seed = 2;
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t k = 0; k < COUNT(dims) * COUNT(layer_scales) * COUNT(deviations); k++) {
            int dim = dims[k % COUNT(dims)];
            float layer_scale = layer_scales[k / COUNT(dims) % COUNT(layer_scales)];
            float deviation = deviations[k / COUNT(dims) / COUNT(layer_scales)], x[DIM_MAX];
            for (int round = 0; has_codec(d, dim) && round < ROUNDS; round++) {
                fill_gaussian(&seed, x, dim, deviation);
                struct trip trip;
                make_trip(&trip, (enum dtype)d, x, dim, layer_scale);
                for (int i = 0; i < dim; i++)
                    if (!(fabs((double)trip.out[i] - x[i]) <= error_bound(&trip, x, i, layer_scale)))
                        fail_msg("%s dim %d: %g became %g", dtype_word(trip.dtype), dim, (double)x[i],
                                 (double)trip.out[i]);
            }
        }
}

// The mean squared error of unit Gaussian vectors of 128, relative to their power, is a property of the format.
static void mean_errors_are_what_the_format_allows(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        double least, most;
    } rows[] = {
        { DTYPE_F16, 3e-8, 6e-8 },          { DTYPE_BF16, 2e-6, 4e-6 },       { DTYPE_FP8_E4M3, 5e-4, 8e-4 },
        { DTYPE_FP8_E5M2, 2e-3, 3.5e-3 },   { DTYPE_INT8_TOKEN, 3e-5, 6e-5 }, { DTYPE_FP8_TOKEN, 5e-4, 8e-4 },
        { DTYPE_INT4_TOKEN, 8e-3, 1.2e-2 }, { DTYPE_NVFP4, 8e-3, 1e-2 },      { DTYPE_NVFP4_4OVER6, 7e-3, 8e-3 },
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        uint64_t seed = 3;
        double error = 0, power = 0;
        static const float zeros[128];
        for (int round = 0; round < 500; round++) {
            float x[128];
            fill_gaussian(&seed, x, 128, 1);
            struct trip trip;
            make_trip(&trip, rows[r].dtype, x, 128, 1);
            error += squared_error(x, trip.out, 128);
            power += squared_error(x, zeros, 128);
        }
        if (!(error / power >= rows[r].least && error / power <= rows[r].most))
            fail_msg("%s: relative squared error %g", dtype_word(rows[r].dtype), error / power);
    }
}

static void four_over_six_never_loses(void **state)
{
    (void)state;
    uint64_t seed = 4;
    int better = 0, blocks = 0;
    for (int round = 0; round < 1000; round++) {
        float x[64], deviation = ldexpf(1, (int)(random_next(&seed) % 24) - 12);
        fill_gaussian(&seed, x, 64, deviation);
        struct trip six, both;
        make_trip(&six, DTYPE_NVFP4, x, 64, 1);
        make_trip(&both, DTYPE_NVFP4_4OVER6, x, 64, 1);
        for (int i = 0; i < 64; i += 16, blocks++) {
            double error_six = squared_error(x + i, six.out + i, 16);
            double error_both = squared_error(x + i, both.out + i, 16);
            assert_true(error_both <= error_six * 1.000001);
            better += error_both < error_six;
        }
    }
    assert_in_range(better, blocks / 4, blocks);
}

// Loaded values store as the same codes again. (Vectors whose nvfp4 scales are subnormal are not among these.)
static void storing_again_changes_nothing(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t k = 0; k < COUNT(dims) * COUNT(layer_scales); k++) {
            int dim = dims[k % COUNT(dims)];
            float layer_scale = layer_scales[k / COUNT(dims)], x[DIM_MAX];
            for (int round = 0; has_codec(d, dim) && round < ROUNDS; round++) {
                fill_gaussian(&seed, x, dim, 4);
                struct trip once, twice;
                make_trip(&once, (enum dtype)d, x, dim, layer_scale);
                make_trip(&twice, (enum dtype)d, once.out, dim, layer_scale);
                assert_memory_equal(once.data, twice.data, data_bytes((enum dtype)d, dim));
                double norm = magnitude_max(once.out, dim);
                for (int i = 0; i < dim; i++)
                    assert_true(fabs((double)once.out[i] - twice.out[i]) <= norm * 4e-6);
            }
        }
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    static const float zeros[64];
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t s = 0; has_codec(d, 64) && s < COUNT(layer_scales); s++) {
            struct trip trip;
            make_trip(&trip, (enum dtype)d, zeros, 64, layer_scales[s]);
            assert_true(magnitude_max(trip.out, 64) == 0);
        }
}

// A vector of equal values, half of them negative: what magnitude it has afterwards.
static double magnitude_after(enum dtype dtype, float value, float layer_scale)
{
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = i % 2 ? -value : value;
    struct trip trip;
    make_trip(&trip, dtype, x, 64, layer_scale);
    for (int i = 0; i < 64; i++) {
        assert_true(!isnan(trip.out[i]));
        if (dtype != DTYPE_INT4_TOKEN && trip.out[i] != 0)
            assert_int_equal(!signbit(trip.out[i]), i % 2 == 0);
    }
    return magnitude_max(trip.out, 64);
}

static void small_values_flush_and_large_ones_saturate(void **state)
{
    (void)state;
    assert_true(magnitude_after(DTYPE_F16, 0x1p-26f, 1) == 0);
    assert_true(magnitude_after(DTYPE_FP8_E4M3, 0x1p-10f, 1) == 0);
    assert_true(magnitude_after(DTYPE_FP8_E4M3, 0x1.1p-10f, 1) == 0x1p-9);
    assert_true(magnitude_after(DTYPE_FP8_E5M2, 0x1p-17f, 1) == 0);
    assert_true(magnitude_after(DTYPE_INT8_TOKEN, 4e-7f, 1) == 0);
    assert_true(magnitude_after(DTYPE_FP8_TOKEN, 1e-10f, 1) == 0);
    assert_true(magnitude_after(DTYPE_INT4_TOKEN, 1e-9f, 1) == 0);
    assert_true(magnitude_after(DTYPE_NVFP4, 0.0058f, 1) == 0);
    assert_true(magnitude_after(DTYPE_NVFP4, 0.0118f, 1) == 6 * 0x1p-9);

    static const float huge[] = { 1e30f, FLT_MAX, INFINITY };
    for (size_t i = 0; i < COUNT(huge); i++) {
        assert_true(magnitude_after(DTYPE_F32, huge[i], 1) == (double)huge[i]);
        assert_true(isinf(magnitude_after(DTYPE_F16, huge[i], 1)));
        assert_true(magnitude_after(DTYPE_FP8_E4M3, huge[i], 1) == 448);
        assert_true(magnitude_after(DTYPE_FP8_E4M3, huge[i], 0.5f) == 224);
        assert_true(magnitude_after(DTYPE_FP8_E5M2, huge[i], 1) == 57344);
        assert_true(magnitude_after(DTYPE_NVFP4, huge[i], 1) == 2688);
        assert_true(magnitude_after(DTYPE_NVFP4_4OVER6, huge[i], 0.5f) == 1344);
        double saturated = fmin((double)huge[i], 0x1p100);
        assert_true(fabs(magnitude_after(DTYPE_INT8_TOKEN, huge[i], 1) - saturated) <= saturated * 1e-6);
        assert_true(fabs(magnitude_after(DTYPE_FP8_TOKEN, huge[i], 1) - saturated) <= saturated * 1e-6);
        double int4 = magnitude_after(DTYPE_INT4_TOKEN, huge[i], 1);
        assert_true(int4 > saturated * 0.5 && int4 < saturated * 1.5);
    }
}

// NaN stays NaN or becomes 0, infinities become the largest value, and neither touches what is not in their block.
static void not_numbers_have_a_meaning(void **state)
{
    (void)state;
    enum { NAN_AT = 3, PLUS_AT = 5, MINUS_AT = 6, DIM = 64 };
    for (int d = 0; d < DTYPE_COUNT; d++) {
        if (!has_codec(d, DIM))
            continue;
        float x[DIM], nan_only[DIM];
        for (int i = 0; i < DIM; i++)
            x[i] = nan_only[i] = (float)(i % 7) - 3;
        x[NAN_AT] = nan_only[NAN_AT] = NAN;
        x[PLUS_AT] = INFINITY;
        x[MINUS_AT] = -INFINITY;
        bool wide = d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16;
        bool has_nan = wide || d == DTYPE_FP8_E4M3 || d == DTYPE_FP8_E5M2 || d == DTYPE_FP8_TOKEN;
        bool rotated = d == DTYPE_INT4_TOKEN;

        struct trip trip;
        make_trip(&trip, (enum dtype)d, nan_only, DIM, 1);
        for (int i = 0; i < DIM; i++) {
            double want = i == NAN_AT ? 0 : nan_only[i];
            double bound = rotated ? 0.8 : 0.2;
            assert_true(i == NAN_AT && has_nan ? isnan(trip.out[i]) : fabs(trip.out[i] - want) <= bound);
        }
        make_trip(&trip, (enum dtype)d, x, DIM, 1);
        for (int i = 0; i < DIM; i++)
            assert_int_equal(!isfinite(trip.out[i]), i == NAN_AT ? has_nan : wide && (i == PLUS_AT || i == MINUS_AT));
        assert_true(trip.out[PLUS_AT] > 400 && trip.out[MINUS_AT] < -400);
        if (dtype_table[d].scale == DTYPE_SCALE_BLOCK)
            for (int i = 16; i < DIM; i++)
                assert_true(fabsf(trip.out[i] - x[i]) <= 0.2f);
    }
}

// ---- scales that are searched for ----

// The sum of squared errors of a block, in the order that the codec's header says.
static float block_error(const float *x, const float *y)
{
    float squares[16];
    for (int i = 0; i < 16; i++)
        squares[i] = (x[i] - y[i]) * (x[i] - y[i]);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            squares[i] += squares[i + half];
    return squares[0];
}

// The same block under a scale that somebody else chose.
static float error_under(const float *x, int scale, float layer_scale, uint8_t data[8])
{
    float step = e4m3_to_f32((uint8_t)scale) * layer_scale, inverse = step > 0 ? 1 / step : 0, y[16];
    for (int i = 0; i < 8; i++)
        data[i] = (uint8_t)(f32_to_e2m1(x[2 * i] * inverse) | f32_to_e2m1(x[2 * i + 1] * inverse) << 4);
    kv_codecs[DTYPE_NVFP4].load(data, &(uint8_t){ (uint8_t)scale }, 16, layer_scale, y);
    return block_error(x, y);
}

// Each block as the definition has it: the first of the five scales that no other one is better than.
static void searched_scales_are_the_best_of_five(void **state)
{
    (void)state;
    static const int steps[] = { 0, 5, -1, 4, 1 };
    uint64_t seed = 11;
    int changed = 0;
    double plain = 0, searched = 0, all = 0;
    for (int round = 0; round < 4000; round++) {
        float x[16], layer_scale = layer_scales[round % 2], deviation = ldexpf(1, (int)(random_next(&seed) % 24) - 14);
        uint8_t data[8], scale, amax_data[8], amax_scale, best_data[8], tried[8];
        fill_gaussian(&seed, x, 16, deviation);
        kv_codecs[DTYPE_NVFP4].store(x, 16, layer_scale, amax_data, &amax_scale);
        kv_codecs[DTYPE_NVFP4].store_searched(x, 16, layer_scale, data, &scale);
        int best = amax_scale;
        float least = error_under(x, amax_scale, layer_scale, best_data), amax_error = least, least_of_all = least;
        for (size_t i = 1; i < COUNT(steps); i++) {
            int code = amax_scale + steps[i];
            code = code < 1 ? 1 : code > 0x7E ? 0x7E : code;
            float error = error_under(x, code, layer_scale, tried);
            if (error < least) {
                best = code;
                least = error;
                memcpy(best_data, tried, sizeof tried);
            }
        }
        assert_int_equal(scale, best);
        assert_memory_equal(data, best_data, sizeof data);
        changed += scale != amax_scale;
        if (amax_scale < 8)
            continue; // among subnormal scales steps are worth more
        for (int code = 1; code < 0x7F; code++) {
            float error = error_under(x, code, layer_scale, tried);
            least_of_all = error < least_of_all ? error : least_of_all;
        }
        plain += amax_error / (deviation * deviation);
        searched += least / (deviation * deviation);
        all += least_of_all / (deviation * deviation);
    }
    assert_true(changed > 2000);
    assert_true(plain - searched > 0.93 * (plain - all)); // nearly what all scales together would gain
}

// Nothing, what is not finite, and what is beyond the range: as if nobody had searched.
static void searching_keeps_the_extremes(void **state)
{
    (void)state;
    static const float blocks[][16] = { { 0 }, { 1e30f, 1 }, { INFINITY, 3 }, { NAN, 2, -3 }, { 1e-30f } };
    for (size_t i = 0; i < COUNT(blocks); i++) {
        uint8_t data[2][8], scale[2];
        kv_codecs[DTYPE_NVFP4].store(blocks[i], 16, 1, data[0], &scale[0]);
        kv_codecs[DTYPE_NVFP4].store_searched(blocks[i], 16, 1, data[1], &scale[1]);
        assert_int_equal(scale[0], scale[1]);
        assert_memory_equal(data[0], data[1], sizeof data[0]);
    }
}

// ---- kernels ----

// Numbers of every size and kind, ties between codes among them.
static void fill_anything(uint64_t *seed, float *x, int count)
{
    static const uint32_t special[] = { 0x7FC00000, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1,
                                        0x80000000, 0x807FFFFF, 0x43E00000, 0x43F00000, 0x3F000000, 0xBE800000 };
    for (int i = 0; i < count; i++) {
        uint32_t bits = random_next(seed), choice = random_next(seed) % 16;
        if (choice == 0)
            bits = special[random_next(seed) % COUNT(special)];
        if (choice < 2) {
            memcpy(&x[i], &bits, sizeof bits);
            continue;
        }
        x[i] = (float)((int32_t)bits >> (choice < 8 ? 16 : 24)) * (choice < 4 ? 0x1p-12f : 0.25f);
    }
}

// One text of TOKENS tokens, written by a kernel and by the reference: the same bytes in the pool.
static void check_stores(const struct kernel *kernel, enum dtype dtype, int dim, bool search, uint64_t *seed)
{
    enum { TOKENS = 21, HEADS = 2, PAGES = 2 };
    static const int32_t table[PAGES] = { 1, 0 };
    int32_t positions[TOKENS];
    float *x = malloc(sizeof *x * (size_t)(TOKENS * HEADS * dim));
    struct kv_layout layout = kv_layout_make(dtype, dtype, HEADS, dim, dim);
    uint8_t *found = calloc(PAGES, layout.layer_bytes), *expected = calloc(PAGES, layout.layer_bytes);
    fill_anything(seed, x, TOKENS * HEADS * dim);
    for (int i = 0; i < TOKENS; i++)
        positions[i] = i;
    struct batch_sequence sequence = { .count = TOKENS, .pages = { table } };
    struct batch batch = { .tokens = TOKENS, .positions = positions, .sequences = 1, .sequence = &sequence };
    struct kv_write_args args = { .batch = &batch,
                                  .k = x,
                                  .v = x,
                                  .scale_search = search,
                                  .cache = { .pool = expected,
                                             .page_bytes = layout.layer_bytes,
                                             .layout = layout,
                                             .k_scale = 1,
                                             .v_scale = 0.37f } };
    kernel_reference(OP_KV_WRITE)->run(&args, 0, 1);
    args.cache.pool = found;
    kernel->run(&args, 0, 1);
    if (memcmp(found, expected, PAGES * layout.layer_bytes))
        fail_msg("%s stores other bytes than the reference in %s", kernel->name, dtype_word(dtype));
    free(x), free(found), free(expected);
}

static void kernels_store_the_same_bytes(void **state)
{
    (void)state;
    struct device device;
    struct error err;
    uint64_t seed = 5;
    assert_true(device_open_cpu(&device, &err));
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (kernel->op != OP_KV_WRITE || kernel->device != device.kind || kernel->needs & ~device.features)
            continue;
        for (int d = 0; d < DTYPE_COUNT; d++)
            for (size_t i = 0; i < COUNT(dims) && kernel->k >> d & 1; i++)
                for (int round = 0; round < 20 && has_codec(d, dims[i]); round++)
                    check_stores(kernel, (enum dtype)d, dims[i], round % 2, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cache_format_has_a_codec),
        cmocka_unit_test(hand_made_vectors_have_these_bytes),
        cmocka_unit_test(int4_stores_the_rotated_vector),
        cmocka_unit_test(int4_keeps_a_single_channel),
        cmocka_unit_test(every_nvfp4_code_loads_under_every_scale),
        cmocka_unit_test(searched_scales_are_the_best_of_five),
        cmocka_unit_test(searching_keeps_the_extremes),
        cmocka_unit_test(random_vectors_stay_near),
        cmocka_unit_test(mean_errors_are_what_the_format_allows),
        cmocka_unit_test(four_over_six_never_loses),
        cmocka_unit_test(storing_again_changes_nothing),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(small_values_flush_and_large_ones_saturate),
        cmocka_unit_test(not_numbers_have_a_meaning),
        cmocka_unit_test(kernels_store_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
