// SPDX-License-Identifier: Apache-2.0
// Key transforms: that attention's result does not change, that the best is found by measuring, and that what was
// measured is kept and believed no further than it should be.
#include <math.h>

#include "container.h"
#include "engine/calibration/measure.h"
#include "engine/calibration/file.h"
#include "engine/calibration/key_error.h"
#include "engine/reader.h"
#include "kernel/check.h"
#include "plan/calibration.h"
#include "tiny.h"

enum { VOCABULARY = 40, CONTEXT = 200, TEXT = 100 };

static const struct tiny_sizes sizes = { .layers = 2,
                                         .hidden = 32,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .feed_forward = 48,
                                         .vocabulary = VOCABULARY,
                                         .context = CONTEXT };

static void fill(uint64_t *seed, float *x, int count)
{
    for (int i = 0; i < count; i++)
        x[i] = 2 * random_real(seed);
}

static double product(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void transform(float *q, float *k, int dim, const float *centre)
{
    int rows = 1;
    struct transform_args args = {
        .rows = &rows, .q = q, .k = k, .heads = 1, .kv_heads = 1, .head_dim = dim, .centre = centre, .block = dim & -dim
    };
    kernel_reference(OP_TRANSFORM)->run(&args, 0, 1);
}

// Every score of a query changes by the same, which is what its product with the centre was; and twice is as it was.
static void test_scores_stay(void **state)
{
    (void)state;
    static const int dims[] = { 64, 80, 96, 128, 256, 20, 65 };
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int dim = dims[i];
        float q[HEAD_DIM_MAX], k[HEAD_DIM_MAX], centre[HEAD_DIM_MAX], q_then[HEAD_DIM_MAX], k_then[HEAD_DIM_MAX];
        fill(&seed, q, dim);
        fill(&seed, centre, dim);
        for (int key = 0; key < 5; key++) {
            fill(&seed, k, dim);
            memcpy(q_then, q, sizeof q);
            memcpy(k_then, k, sizeof k);
            transform(q_then, k_then, dim, centre);
            assert_float_equal(product(q_then, k_then, dim), product(q, k, dim) - product(q, centre, dim), 1e-4);
            assert_float_equal(product(q_then, q_then, dim), product(q, q, dim), 1e-4);
            transform(q_then, k_then, dim, NULL);
            for (int j = 0; j < dim; j++)
                assert_float_equal(k_then[j], k[j] - centre[j], 1e-5);
        }
    }
}

// Keys that are one vector rotated by RoPE: from few tokens, the mean of many.
static void test_a_centre_for_longer_texts(void **state)
{
    (void)state;
    enum { DIM = 8, ROTATED = 6, LENGTH = 1000 };
    static const float frequencies[ROTATED / 2] = { 1, 0.01f, 0.0005f }, plain[DIM] = { 3, -1, 4, 1, -5, 9, 2, -6 };
    float keys[TEXT][DIM], centre[DIM];
    double means[DIM] = { 0 };
    for (int token = 0; token < LENGTH; token++)
        for (int i = 0; i < DIM; i++) {
            int pair = i % (ROTATED / 2);
            double angle = (double)token * frequencies[pair], a = plain[pair], b = plain[pair + ROTATED / 2];
            double key = i >= ROTATED ? plain[i]
                : i < ROTATED / 2     ? a * cos(angle) - b * sin(angle)
                                      : b * cos(angle) + a * sin(angle);
            if (token < TEXT)
                keys[token][i] = (float)key;
            means[i] += key / LENGTH;
        }
    const struct key_sample sample = { .k = keys[0],
                                       .tokens = TEXT,
                                       .kv_heads = 1,
                                       .head_dim = DIM,
                                       .rotated = ROTATED,
                                       .rope_frequencies = frequencies,
                                       .frequencies = frequencies };
    key_centre(&sample, 0, LENGTH, centre);
    for (int i = 0; i < DIM; i++)
        assert_float_equal(centre[i], means[i], 1e-4);
}

// Large constants in some channels, as many models have them: without them 4 bits go further. Nothing is lost in f32.
static void test_errors_are_measured(void **state)
{
    (void)state;
    enum { DIM = 32, HEADS = 4, KV_HEADS = 2 };
    static float q[TEXT * HEADS * DIM], k[TEXT * KV_HEADS * DIM], v[TEXT * KV_HEADS * DIM];
    uint64_t seed = 3;
    fill(&seed, q, TEXT * HEADS * DIM);
    fill(&seed, k, TEXT * KV_HEADS * DIM);
    fill(&seed, v, TEXT * KV_HEADS * DIM);
    for (int i = 0; i < TEXT * KV_HEADS * DIM; i += 8)
        k[i] += 30;
    for (int i = 0; i < 2; i++) {
        const struct key_sample sample = { .q = q,
                                           .k = k,
                                           .v = v,
                                           .tokens = TEXT,
                                           .heads = HEADS,
                                           .kv_heads = KV_HEADS,
                                           .head_dim = DIM,
                                           .window = i ? 30 : 0,
                                           .scale = 0.2f,
                                           .format = DTYPE_NVFP4,
                                           .layer_scale = 1 };
        struct key_sample exact = sample, kept = sample;
        exact.format = DTYPE_F32;
        kept.kept = TEXT;
        float centre[DIM];
        double error[KV_TRANSFORMS];
        key_centre(&sample, 1, TEXT, centre);
        for (int transform = 0; transform < KV_TRANSFORMS; transform++) {
            struct key_error found = key_error(&sample, 1, centre, transform);
            assert_true(found.all > 0);
            error[transform] = found.apart / found.all;
            assert_true(key_error(&exact, 1, centre, transform).apart < 1e-6 * found.all);
            assert_true(key_error(&kept, 1, centre, transform).apart < 1e-6 * found.all);
            assert_true(found.apart == stored_error(&sample, 1, centre, transform).out.apart);
        }
        struct key_sample both = sample;
        both.v_format = DTYPE_NVFP4;
        both.v_layer_scale = 1;
        struct stored_error stored = stored_error(&both, 1, centre, KV_CENTRE);
        assert_true(stored.v.apart > 0 && stored.k.apart > 0 && stored.out.apart > error[KV_CENTRE] * stored.out.all);
        assert_true(stored.k.apart < stored_error(&both, 1, centre, 0).k.apart);
        assert_true(stored_error(&exact, 1, centre, KV_CENTRE).v.apart == 0);
        assert_true(error[KV_CENTRE] < 0.2 * error[0]);
        assert_true(error[KV_CENTRE | KV_ROTATE] < 0.2 * error[KV_ROTATE]);
    }
}

// ---- plans ----

struct world {
    struct tiny tiny;
    struct model model;
    struct device device;
    struct plan plan;
};

static void open_world(struct world *world, const char *type, const char *more)
{
    struct error err;
    *world = (struct world){ .tiny.seed = 1 };
    tiny_model(&world->tiny, type, &sizes, more);
    if (!device_open_cpu(&world->device, &err) || !model_describe(&world->model, &world->tiny.checkpoint, &err))
        fail_msg("%s", err.text);
}

static void close_world(struct world *world)
{
    plan_free(&world->plan);
    model_free(&world->model);
    checkpoint_close(&world->tiny.checkpoint);
}

static void make_plan(struct world *world, const struct plan_options *options)
{
    struct error err;
    plan_free(&world->plan);
    if (!plan_make(&world->plan, &world->model, &world->device, options, &err))
        fail_msg("%s", err.text);
}

static void test_words(void **state)
{
    (void)state;
    struct world world;
    struct error err;
    open_world(&world, "llama", "{}");
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "nvfp4", .user.kv_transform = "rotate" });
    assert_int_equal(world.plan.layer[1].transform, KV_ROTATE);
    assert_false(world.plan.wants_calibration);
    make_plan(&world,
              &(struct plan_options){ .user.kv_cache_dtype = "bfloat16", .user.kv_transform = "centre+rotate" });
    assert_int_equal(world.plan.layer[0].transform, KV_CENTRE | KV_ROTATE);
    assert_true(world.plan.wants_calibration);
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "bfloat16/nvfp4" });
    assert_int_equal(world.plan.layer[0].transform, 0);
    assert_false(world.plan.wants_calibration || world.plan.layer[0].undecided);
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "0:bfloat16,1:fp8" });
    assert_true(world.plan.wants_calibration && world.plan.layer[1].undecided && !world.plan.layer[0].undecided);
    plan_free(&world.plan);
    assert_false(plan_make(&world.plan, &world.model, &world.device,
                           &(struct plan_options){ .user.kv_transform = "centred" }, &err));
    assert_true(err.usage && strstr(err.text, "did you mean centre?"));
    close_world(&world);
}

// Where softmax would see the constant, only the rotation is left.
static void test_soft_caps(void **state)
{
    (void)state;
    struct world world;
    struct error err;
    open_world(&world, "gemma2", "{\"attn_logit_softcapping\":50,\"sliding_window\":20}");
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "nvfp4", .user.kv_transform = "rotate" });
    plan_free(&world.plan);
    assert_false(plan_make(&world.plan, &world.model, &world.device,
                           &(struct plan_options){ .user.kv_transform = "centre+rotate" }, &err));
    assert_string_equal(world.plan.refusal.flag, "--kv-transform");
    assert_true(strstr(err.text, "not in layers 0-1") && strstr(err.text, "soft cap"));
    assert_true(strstr(err.text, "--kv-transform rotate"));
    static const float centre[32];
    struct kv_calibrated layers[2] = { { centre, DTYPE_NVFP4, { 4, 1, 3, 2 } },
                                       { centre, DTYPE_NVFP4, { 3, 1, 4, 2 } } };
    struct kv_calibration calibration = { .layers = 2, .layer = layers };
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "nvfp4", .calibration = &calibration });
    assert_int_equal(world.plan.layer[0].transform, KV_ROTATE);
    assert_int_equal(world.plan.layer[1].transform, 0);
    close_world(&world);
}

// ---- measuring a model ----

static void random_text(int32_t ids[TEXT])
{
    uint64_t seed = 7;
    for (int i = 0; i < TEXT; i++)
        ids[i] = random_between(&seed, 0, VOCABULARY - 1);
}

static void measure(struct world *world, const struct engine_options *options, struct kv_calibration *out)
{
    int32_t ids[TEXT];
    struct error err;
    random_text(ids);
    make_plan(world, &options->plan);
    if (!calibrate(out, &world->tiny.checkpoint, &world->plan, options, ids, TEXT, &err))
        fail_msg("%s", err.text);
}

// The logits after a text that is read in two chunks.
static void read_logits(struct world *world, const struct engine_options *options, int chunk, float logits[VOCABULARY])
{
    int32_t ids[TEXT];
    struct engine engine;
    struct reader reader;
    struct error err;
    const float *found = NULL;
    random_text(ids);
    if (!engine_open(&engine, &world->tiny.checkpoint, options, &err))
        fail_msg("%s", err.text);
    reader_open(&reader, &engine);
    if (!reader_assign(&reader, ids, (size_t)chunk, &err) || !reader_read(&reader, &found, &err)
        || !reader_assign(&reader, ids, TEXT, &err) || !reader_read(&reader, &found, &err))
        fail_msg("%s", err.text);
    memcpy(logits, found, VOCABULARY * sizeof *logits);
    reader_close(&reader);
    engine_close(&engine);
}

// With a cache that loses nothing no transform changes an answer; with one that does, chunks do not.
static void test_answers(void **state)
{
    (void)state;
    static const char *const types[] = { "llama", "mistral", "gemma3_text", "qwen3" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct world world;
        struct kv_calibration calibration = { 0 };
        float plain[VOCABULARY], other[VOCABULARY], again[VOCABULARY];
        open_world(&world, types[i], "{\"sliding_window\":20}");
        struct engine_options options = { .plan = { .user.kv_cache_dtype = "float32", .user.kv_transform = "none" },
                                          .plan.user.threads = 1 };
        read_logits(&world, &options, 50, plain);
        options.plan.user.kv_transform = "centre+rotate";
        measure(&world, &options, &calibration);
        options.plan.calibration = &calibration;
        read_logits(&world, &options, 50, other);
        for (int j = 0; j < VOCABULARY; j++)
            assert_float_equal(plain[j], other[j], 2e-3);
        options.plan.user.kv_cache_dtype = "nvfp4";
        read_logits(&world, &options, 50, other);
        read_logits(&world, &options, 3, again);
        assert_memory_equal(other, again, sizeof other);
        calibration_free(&calibration);
        close_world(&world);
    }
}

static void test_files(void **state)
{
    (void)state;
    struct world world;
    struct kv_calibration calibration = { 0 }, found;
    struct strbuf content = { 0 };
    struct error err;
    struct engine_options options = { .plan = { .user.kv_cache_dtype = "nvfp4" }, .plan.user.threads = 1 };
    open_world(&world, "llama", "{}");
    measure(&world, &options, &calibration);
    struct calibration_key key = calibration_key_of(&world.tiny.checkpoint, &world.plan, bytes_of("a text"));
    struct calibration_key another = calibration_key_of(&world.tiny.checkpoint, &world.plan, bytes_of("another"));
    assert_memory_not_equal(&key, &another, sizeof key);
    calibration_print(&calibration, &key, &world.plan, &content);
    if (!calibration_parse(&found, strbuf_bytes(&content), &key, &world.plan, &err))
        fail_msg("%s", err.text);
    calibration_apply(&found, &world.plan);
    for (int i = 0; i < calibration.layers; i++) {
        assert_memory_equal(found.layer[i].error, calibration.layer[i].error, sizeof found.layer[i].error);
        assert_memory_equal(found.layer[i].centre, calibration.layer[i].centre, 32 * sizeof(float));
        assert_int_equal(found.layer[i].k, DTYPE_NVFP4);
    }
    options.plan.calibration = &found;
    make_plan(&world, &options.plan);
    assert_true(world.plan.layer[0].calibrated && !world.plan.wants_calibration);
    assert_false(calibration_parse(&found, strbuf_bytes(&content), &another, &world.plan, &err));
    assert_string_equal(err.text, "belongs to another checkpoint");
    for (size_t len = 0; len < content.len; len += 7)
        assert_false(calibration_parse(&found, (struct bytes){ content.data, len }, &key, &world.plan, &err));
    for (size_t at = 0; at < content.len; at++) {
        content.data[at] ^= 16;
        assert_false(calibration_parse(&found, strbuf_bytes(&content), &key, &world.plan, &err));
        content.data[at] ^= 16;
    }
    calibration_free(&found);
    calibration_free(&calibration);
    strbuf_free(&content);
    close_world(&world);
}

// Measurements of one plan serve other plans with the same formats; a new format is added beside them.
static void test_formats_are_added(void **state)
{
    (void)state;
    struct world world;
    struct kv_calibration calibration = { 0 };
    struct engine_options options = { .plan = { .user.kv_cache_dtype = "0:nvfp4,1:bfloat16" }, .plan.user.threads = 1 };
    open_world(&world, "llama", "{}");
    measure(&world, &options, &calibration);
    struct calibration_key key = calibration_key_of(&world.tiny.checkpoint, &world.plan, bytes_of("a text"));
    float centre[32];
    memcpy(centre, calibration.layer[1].centre, sizeof centre);
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "0:bfloat16,1:nvfp4" });
    struct calibration_key mixed = calibration_key_of(&world.tiny.checkpoint, &world.plan, bytes_of("a text"));
    assert_memory_equal(&key, &mixed, sizeof key);
    assert_true(calibration_suffices(&calibration, &world.plan));
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "nvfp4", .user.kv_sink_pages = "0" });
    assert_false(calibration_suffices(&calibration, &world.plan));
    options.plan.user.kv_cache_dtype = "0:fp8,1:nvfp4";
    measure(&world, &options, &calibration);
    assert_int_equal(calibration.way_count, 2);
    assert_int_equal(calibration.layer[0].k, DTYPE_FP8_E4M3);
    assert_int_equal(calibration.layer[1].k, DTYPE_NVFP4);
    assert_memory_equal(calibration.layer[1].centre, centre, sizeof centre);
    assert_true(calibration.ways[0].errors[1][0] > calibration.ways[1].errors[1][0]);
    make_plan(&world, &(struct plan_options){ .user.kv_cache_dtype = "0:nvfp4,1:fp8" });
    assert_true(calibration_suffices(&calibration, &world.plan));
    calibration_free(&calibration);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_stay),
        cmocka_unit_test(test_a_centre_for_longer_texts),
        cmocka_unit_test(test_errors_are_measured),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_formats_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
