// SPDX-License-Identifier: Apache-2.0
// A start describes the model once and makes its plan once, whatever the cache: the engine takes over the plan that was
// checked and, where keys are calibrated, decided again. Calls are counted on their way to the functions themselves.
#include "container.h"
#include "format/public.h"
#include "nibble.h"
#include "plan/plan.h"
#include "tiny.h"

static const struct tiny_sizes sizes = { .layers = 2,
                                         .hidden = 32,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .feed_forward = 48,
                                         .vocabulary = 40,
                                         .context = 200 };

static int described, planned;

// In the place of the functions of these names (test/meson.build).
bool __real_model_describe(struct model *model, const struct checkpoint *checkpoint, struct error *err);
bool __wrap_model_describe(struct model *model, const struct checkpoint *checkpoint, struct error *err);
bool __wrap_model_describe(struct model *model, const struct checkpoint *checkpoint, struct error *err)
{
    described++;
    return __real_model_describe(model, checkpoint, err);
}

bool __real_plan_make(struct plan *plan, const struct model *model, const struct device *device,
                      const struct plan_options *options, struct error *err);
bool __wrap_plan_make(struct plan *plan, const struct model *model, const struct device *device,
                      const struct plan_options *options, struct error *err);
bool __wrap_plan_make(struct plan *plan, const struct model *model, const struct device *device,
                      const struct plan_options *options, struct error *err)
{
    planned++;
    return __real_plan_make(plan, model, device, options, err);
}

// Opens an engine and returns whether it was accepted.
static bool start(const struct nibble_options *options)
{
    struct tiny tiny = { .seed = 1 };
    struct error err = { 0 };
    tiny_model(&tiny, "llama", &sizes, "{}");
    struct nibble_checkpoint checkpoint = { tiny.checkpoint };
    described = planned = 0;
    struct nibble_engine *engine = nibble_engine_open(&checkpoint, options, &err);
    assert_int_equal(described, 1);
    assert_int_equal(planned, 1);
    assert_true(engine || err.text[0]);
    bool accepted = engine;
    if (engine)
        assert_true(nibble_plan_accepted(nibble_engine_plan(engine)));
    nibble_engine_close(engine);
    checkpoint_close(&checkpoint.checkpoint);
    return accepted;
}

static void test_every_start(void **state)
{
    static const char *const formats[] = { "auto", "float32", "fp8", "nvfp4",
                                           "int4_per_token_head" }; // calibrated, too
    (void)state;
    setenv("NIBBLE_CACHE", "/dev/null", true); // no calibration is found or kept
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        assert_true(start(&(struct nibble_options){ .kv_cache_dtype = formats[i], .threads = 1, .device = "cpu" }));
}

static void test_refusals(void **state)
{
    (void)state;
    assert_false(start(&(struct nibble_options){ .kv_cache_dtype = "fp9", .threads = 1, .device = "cpu" }));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_start), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
