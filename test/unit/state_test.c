// SPDX-License-Identifier: Apache-2.0
// conv and scan: against their formulas in double precision, and in chunks across pages, which leave the same bits.
#include <math.h>

#include "base/random.h"
#include "container.h"
#include "kernel/ref/table.h"
#include "kernel/state.h"

enum { TOKENS = 70, PAGE_TOKENS = 32, TABLE = (TOKENS + PAGE_TOKENS - 1) / PAGE_TOKENS };
enum {
    INPUTS = 3,
    HEADS = 4,
    GROUPS = 2,
    KEYS = 9,
    VALUES = 7,
    INNER = HEADS * VALUES,
    CHANNELS = INNER + 2 * GROUPS * KEYS
};

static struct scene {
    float x[TOKENS][CHANNELS], mixed[TOKENS][CHANNELS], dt[TOKENS][HEADS], out[TOKENS][INNER];
    float kernel[INPUTS + 1][CHANNELS], bias[CHANNELS], a[HEADS], d[HEADS], dt_bias[HEADS];
    uint8_t *pool;
    struct state_place place;
} scene;

static void fill(float *values, size_t count, float low, float high, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = low + (high - low) * (float)random_between(seed, 0, 9999) / 9999;
}

static void open_scene(void)
{
    uint64_t seed = 21;
    fill(scene.x[0], TOKENS * CHANNELS, -1, 1, &seed);
    fill(scene.dt[0], TOKENS * HEADS, -3, 3, &seed);
    fill(scene.kernel[0], (INPUTS + 1) * CHANNELS, -1, 1, &seed);
    fill(scene.bias, CHANNELS, -1, 1, &seed);
    fill(scene.a, HEADS, -1, 0, &seed);
    fill(scene.d, HEADS, -1, 1, &seed);
    fill(scene.dt_bias, HEADS, -1, 1, &seed);
    struct kv_state layout = kv_state_make(INPUTS, CHANNELS, HEADS, KEYS, VALUES);
    scene.pool = memory_new(TABLE, layout.layer_bytes);
    memset(scene.pool, 0xFF, TABLE * layout.layer_bytes); // NaN: what nobody has written is read by nobody
    scene.place = (struct state_place){
        .pool = scene.pool, .page_bytes = layout.layer_bytes, .page_tokens = PAGE_TOKENS, .layout = layout
    };
}

// Both ops on rows [first, first + count).
static void run(int first, int count)
{
    static const int32_t table[TABLE] = { 2, 0, 1 };
    int32_t positions[TOKENS];
    for (int i = 0; i < count; i++)
        positions[i] = first + i;
    struct batch_sequence sequence = { .count = count, .pages = { table } };
    struct batch batch = { .tokens = count, .positions = positions, .sequences = 1, .sequence = &sequence };
    struct conv_args conv = { .batch = &batch,
                              .x = scene.x[first],
                              .out = scene.mixed[first],
                              .kernel = scene.kernel[0],
                              .bias = scene.bias,
                              .state = scene.place };
    struct ssm_scan_args scan = { .batch = &batch,
                                  .mixed = scene.mixed[first],
                                  .dt = scene.dt[first],
                                  .out = scene.out[first],
                                  .groups = GROUPS,
                                  .a = scene.a,
                                  .d = scene.d,
                                  .dt_bias = scene.dt_bias,
                                  .dt_min = 0.1f,
                                  .dt_max = 2,
                                  .state = scene.place };
    conv_ref(&conv, 0, 1);
    for (int part = 2; part >= 0; part--)
        ssm_scan_ref(&scan, part, 3);
}

// As long as the page allows.
static void run_all(int chunk)
{
    for (int first = 0, count; first < TOKENS; first += count) {
        int left = PAGE_TOKENS - first % PAGE_TOKENS;
        count = chunk < left ? chunk : left;
        count = count < TOKENS - first ? count : TOKENS - first;
        run(first, count);
    }
}

static double expected_mixed(int token, int channel)
{
    double sum = scene.bias[channel];
    for (int i = 0; i <= INPUTS; i++)
        if (token - INPUTS + i >= 0)
            sum += (double)scene.kernel[i][channel] * scene.x[token - INPUTS + i][channel];
    return sum / (1 + exp(-sum));
}

static void test_formulas(void **state)
{
    (void)state;
    static double matrix[HEADS][KEYS][VALUES];
    open_scene();
    run_all(TOKENS);
    for (int token = 0; token < TOKENS; token++) {
        double mixed[CHANNELS];
        for (int channel = 0; channel < CHANNELS; channel++) {
            mixed[channel] = expected_mixed(token, channel);
            assert_true(fabs(mixed[channel] - scene.mixed[token][channel]) < 1e-5);
        }
        for (int head = 0; head < HEADS; head++) {
            const double *b = mixed + INNER + head / (HEADS / GROUPS) * KEYS, *c = b + GROUPS * KEYS;
            double dt = log1p(exp((double)scene.dt[token][head] + scene.dt_bias[head]));
            dt = fmin(fmax(dt, 0.1), 2);
            for (int value = 0; value < VALUES; value++) {
                double x = mixed[head * VALUES + value], sum = scene.d[head] * x;
                for (int key = 0; key < KEYS; key++) {
                    double *s = &matrix[head][key][value];
                    *s = *s * exp(scene.a[head] * dt) + b[key] * dt * x;
                    sum += c[key] * *s;
                }
                assert_true(fabs(sum - scene.out[token][head * VALUES + value]) < 1e-4);
            }
        }
    }
    free(scene.pool);
}

static void test_chunks_leave_the_same_bits(void **state)
{
    (void)state;
    static float whole[TOKENS][INNER];
    static const int chunks[] = { 1, 2, 3, 5, 31 };
    size_t bytes = TABLE * kv_state_make(INPUTS, CHANNELS, HEADS, KEYS, VALUES).layer_bytes;
    open_scene();
    run_all(TOKENS);
    memcpy(whole, scene.out, sizeof whole);
    uint8_t *left = memcpy(memory_new(bytes, 1), scene.pool, bytes);
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        free(scene.pool);
        open_scene();
        run_all(chunks[i]);
        assert_memory_equal(whole, scene.out, sizeof whole);
        assert_memory_equal(left, scene.pool, bytes); // snapshots, too
    }
    free(left);
    free(scene.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_chunks_leave_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
