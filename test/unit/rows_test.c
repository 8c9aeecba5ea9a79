// SPDX-License-Identifier: Apache-2.0
// Plans over a table with more rows than this build has: kernel_next is this file's own, so the planner sees the
// reference and the rows below. They run the reference's code; what is tested is who is chosen, and why not.
#include "base/error.h"
#include "kernel/ref/table.h"
#include "model/tensor_source.h"
#include "plan/decide.h"
#include "plan/explain.h"
#include "plan/plan.h"

#include "engine/engine.h"
#include "engine/sequence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tiny.h"

static const int family_100[] = { 100, 103, 0 }, only_120[] = { 120, 0 }, all_gpus[] = { 90, 100, 120, 0 };
static bool rows_lie; // the fast rows give wrong results

static void attention_lying(const void *args, int chunk, int chunks)
{
    attention_ref(args, chunk, chunks);
    if (rows_lie && chunk == chunks - 1)
        ((const struct attention_args *)args)->out[0] += 1000;
}

enum { DECODE = 0, PREFILL = 5 }; // numbers of loads: one token, and more than 128

// Weights as they are, at another place.
static size_t copied_bytes(enum dtype dtype, int rows, int cols)
{
    return dtype_bytes(dtype, (size_t)rows * (size_t)cols);
}

static void copy_weights(const struct weight *weight, int chunk, int chunks, void *out)
{
    if (chunk == chunks - 1)
        memcpy(out, weight->data, copied_bytes(weight->dtype, weight->rows, weight->cols));
}

static const struct kernel_packing copied = { "copied", copied_bytes, copy_weights };

static const struct kernel extra[] = {
    { .name = "attention_best",
      .op = OP_ATTENTION,
      .priority = 20,
      .load = KERNEL_ANY,
      .needs = CPU_AVX2,
      .k = DTYPE_BIT(NVFP4) | DTYPE_BIT(BF16),
      .v = DTYPE_BIT(NVFP4) | DTYPE_BIT(BF16),
      .head_dim_multiple = 32,
      .sink = DTYPE_BIT(F32) | DTYPE_BIT(BF16) | DTYPE_BIT(F16),
      .run = attention_lying },
    { .name = "attention_good_decode",
      .op = OP_ATTENTION,
      .priority = 10,
      .load = KERNEL_DECODE,
      .needs = CPU_AVX2,
      .k = DTYPE_BIT(FP8_E4M3),
      .v = DTYPE_BIT(FP8_E4M3) | DTYPE_BIT(NVFP4),
      .run = attention_ref },
    { .name = "attention_sm100",
      .device = DEVICE_CUDA,
      .op = OP_ATTENTION,
      .priority = 10,
      .load = KERNEL_ANY,
      .architectures = family_100,
      .k = DTYPE_BIT(NVFP4),
      .v = DTYPE_BIT(NVFP4),
      .run = attention_ref },
    { .name = "attention_sm120",
      .device = DEVICE_CUDA,
      .op = OP_ATTENTION,
      .priority = 10,
      .load = KERNEL_ANY,
      .architectures = only_120,
      .k = DTYPE_BIT(BF16),
      .v = DTYPE_BIT(BF16),
      .run = attention_ref },
    { .name = "linear_rounding",
      .op = OP_LINEAR,
      .priority = 30,
      .load = KERNEL_ANY,
      .needs = CPU_AVX2,
      .weights = DTYPE_BIT(F32),
      .nvfp4 = DTYPE_BIT(F32),
      .rows_multiple = 32,
      .run = linear_ref },
    { .name = "linear_sm100",
      .device = DEVICE_CUDA,
      .op = OP_LINEAR,
      .priority = 30,
      .load = KERNEL_ANY,
      .architectures = all_gpus,
      .sm_min = 100,
      .weights = DTYPE_BIT(F32),
      .nvfp4 = DTYPE_BIT(F32),
      .run = linear_ref },
    { .name = "linear_copied_decode",
      .op = OP_LINEAR,
      .priority = 10,
      .load = KERNEL_DECODE,
      .needs = CPU_AVX2,
      .weights = DTYPE_BIT(F32),
      .packing = &copied,
      .run = linear_ref },
    { .name = "linear_copied_prefill",
      .op = OP_LINEAR,
      .priority = 10,
      .load = KERNEL_PREFILL,
      .needs = CPU_AVX512F,
      .weights = DTYPE_BIT(F32),
      .packing = &copied,
      .run = linear_ref },
};
enum { EXTRA = sizeof extra / sizeof *extra };

const struct kernel *kernel_next(const struct kernel *kernel)
{
    if (!kernel)
        return extra;
    if (kernel >= extra && kernel < extra + EXTRA)
        return kernel + 1 < extra + EXTRA ? kernel + 1 : ref_kernels;
    return kernel + 1 < ref_kernels + ref_kernel_count ? kernel + 1 : NULL;
}

static const struct tiny_sizes sizes = { .layers = 4,
                                         .hidden = 64,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 32,
                                         .feed_forward = 48,
                                         .vocabulary = 50,
                                         .context = 256 };

struct scene {
    struct tiny tiny;
    struct model model;
    struct plan plan;
    struct error err;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    rows_lie = false;
    tiny_model(&scene->tiny, "llama", &sizes, "{}");
    return model_describe(&scene->model, &scene->tiny.checkpoint, &scene->err) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    plan_free(&scene->plan);
    model_free(&scene->model);
    checkpoint_close(&scene->tiny.checkpoint);
    free(scene);
    return 0;
}

static bool make(struct scene *scene, const char *device, struct plan_options options)
{
    struct device parsed;
    plan_free(&scene->plan);
    assert_true(device_parse(&parsed, device, &scene->err));
    return plan_make(&scene->plan, &scene->model, &parsed, &options, &scene->err);
}

static const struct plan_op *first_of(const struct scene *scene, enum op_kind kind, int layer)
{
    for (int i = 0; i < scene->model.op_count; i++)
        if (scene->model.ops[i].kind == kind && scene->model.ops[i].layer == layer)
            return &scene->plan.ops[i];
    return NULL;
}

static const struct plan_op *attention_of(const struct scene *scene, int layer)
{
    return first_of(scene, OP_ATTENTION, layer);
}

static void check_bound(struct scene *scene, const char *device, const char *formats, const char *decode,
                        const char *prefill)
{
    assert_true(make(scene, device, (struct plan_options){ .user.kv_cache_dtype = formats }));
    assert_string_equal(attention_of(scene, 0)->rows[DECODE][0]->name, decode);
    assert_string_equal(attention_of(scene, 0)->rows[PREFILL][0]->name, prefill);
}

static void test_a_word_goes_to_the_first_row_that_lists_it(void **state)
{
    check_bound(*state, "cpu:avx2", "nvfp4", "attention_best", "attention_best");
    check_bound(*state, "cpu:avx2", "bfloat16/nvfp4", "attention_best", "attention_best");
    check_bound(*state, "cpu:avx2", "fp8", "attention_good_decode", "attention_ref");
    check_bound(*state, "cpu:avx2", "fp8/nvfp4", "attention_good_decode", "attention_ref");
    check_bound(*state, "cpu:avx2", "nvfp4/fp8", "attention_ref", "attention_ref"); // sides are listed apart
    check_bound(*state, "cpu:ref", "nvfp4", "attention_ref", "attention_ref");
}

static void test_siblings_are_not_let_in_by_likeness(void **state)
{
    static const char *const siblings[] = {
        "nvfp4_4over6", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head",
        "float16",      "float32"
    };
    for (size_t i = 0; i < sizeof siblings / sizeof *siblings; i++)
        check_bound(*state, "cpu:amx", siblings[i], "attention_ref", "attention_ref");
}

static void test_each_layer_is_decided_by_its_own_formats(void **state)
{
    struct scene *scene = *state;
    struct plan_options options = { .user.kv_cache_dtype = "nvfp4", .user.kv_cache_dtype_skip_layers = "1" };
    scene->model.config.kv_dtype = DTYPE_F16; // what a skipped layer has
    assert_true(make(scene, "cpu:avx2", options));
    assert_string_equal(attention_of(scene, 0)->rows[DECODE][0]->name, "attention_best");
    assert_string_equal(attention_of(scene, 1)->rows[DECODE][0]->name, "attention_ref");
    assert_string_equal(attention_of(scene, 2)->rows[DECODE][0]->name, "attention_best");
}

static void check_refused(struct scene *scene, const char *device, const char *formats, const char *says)
{
    assert_false(make(scene, device, (struct plan_options){ .user.kv_cache_dtype = formats }));
    assert_non_null(scene->plan.refusal.flag);
    if (!strstr(scene->err.text, says))
        fail_msg("\"%s\" is not in: %s", says, scene->err.text);
}

// Only attention has rows for GPUs here, so every plan is refused; the question is which reasons attention gives.
static void test_a_neighbour_is_not_the_family(void **state)
{
    struct scene *scene = *state;
    check_refused(scene, "sm_120", "nvfp4", "attention_sm100 is written for sm_100 sm_103, not sm_120");
    check_refused(scene, "sm_120", "nvfp4", "attention_sm120 does not read keys in nvfp4; does not read values in");
    check_refused(scene, "sm_100", "bfloat16", "attention_sm100 does not read keys in bfloat16");
    check_refused(scene, "sm_101", "nvfp4", "attention_sm100 is written for sm_100 sm_103, not sm_101");
    check_refused(scene, "sm_90", "nvfp4", "attention_sm100 is written for sm_100 sm_103, not sm_90");
    assert_null(strstr(scene->err.text, "attention_best")); // rows of CPUs are no candidates on a GPU
}

static void test_a_pinned_row_is_used_or_refused(void **state)
{
    struct scene *scene = *state;
    struct plan_options options = { .user.kv_cache_dtype = "nvfp4", .user.attention_kernel = "attention_ref" };
    assert_true(make(scene, "cpu:avx2", options));
    assert_string_equal(attention_of(scene, 0)->rows[DECODE][0]->name, "attention_ref");
    options = (struct plan_options){ .user.kv_cache_dtype = "fp8", .user.attention_kernel = "attention_good_decode" };
    assert_true(make(scene, "cpu:avx2", options)); // it is for decode; the row for prefill is selected as usual
    assert_string_equal(attention_of(scene, 0)->rows[DECODE][0]->name, "attention_good_decode");
    assert_string_equal(attention_of(scene, 0)->rows[PREFILL][0]->name, "attention_ref");
    options = (struct plan_options){ .user.kv_cache_dtype = "fp8", .user.attention_kernel = "attention_bets" };
    assert_false(make(scene, "cpu:avx2", options));
    assert_true(scene->err.usage);
    assert_non_null(strstr(scene->err.text, "did you mean attention_best?"));
    assert_non_null(strstr(scene->err.text, "those that fit are attention_good_decode attention_ref"));
    options = (struct plan_options){ .user.kv_cache_dtype = "fp8", .user.attention_kernel = "attention_best" };
    assert_false(make(scene, "cpu:avx2", options));
    assert_string_equal(scene->plan.refusal.flag, "--attention-kernel");
    assert_non_null(strstr(scene->err.text, "does not read keys in fp8_e4m3"));
    assert_non_null(strstr(scene->err.text, "--attention-kernel attention_ref"));
}

// 4-bit activations are used only on request, and only for matrices that the row supports.
static void test_a_row_that_rounds_to_4_bits_is_asked_for(void **state)
{
    struct scene *scene = *state;
    struct plan_options options = { .user.linear_kernel = "linear_rounding" };
    assert_true(make(scene, "cpu:avx2", (struct plan_options){ 0 }));
    assert_string_equal(first_of(scene, OP_LINEAR, 0)->rows[DECODE][0]->name, "linear_ref");
    const char *reason = NULL;
    for (int i = 0; i < scene->plan.reason_count && !reason; i++)
        if (!strcmp(scene->plan.reasons[i].kernel->name, "linear_rounding"))
            reason = scene->plan.reasons[i].text;
    assert_string_equal(reason, "rounds activations to 4 bits, which --linear-kernel linear_rounding asks for");
    assert_true(make(scene, "cpu:avx2", options));
    int pinned = 0, others = 0;
    for (int i = 0; i < scene->model.op_count; i++)
        if (scene->model.ops[i].kind == OP_LINEAR) {
            bool fits = tensor_rows(scene->model.ops[i].matrix[0].tensor) % 32 == 0;
            assert_string_equal(scene->plan.ops[i].rows[DECODE][0]->name, fits ? "linear_rounding" : "linear_ref");
            assert_ptr_equal(scene->plan.ops[i].rows[PREFILL][0], scene->plan.ops[i].rows[DECODE][0]);
            *(fits ? &pinned : &others) += 1;
        }
    assert_true(pinned > 0 && others > 0);
    struct strbuf text = { 0 };
    explain_full(&scene->plan, (struct explain_style){ 0 }, &text);
    assert_non_null(strstr(text.data, " linear_rounding\n"));
    assert_non_null(strstr(text.data, "\nnumbers   activations rounded to 4 bits for weights in float32"));
    strbuf_free(&text);
}

static void test_a_pinned_linear_fits_somewhere_or_is_refused(void **state)
{
    struct scene *scene = *state;
    struct plan_options options = { .user.linear_kernel = "linear_rounding" };
    assert_false(make(scene, "cpu:ref", options));
    assert_string_equal(scene->plan.refusal.flag, "--linear-kernel");
    assert_non_null(strstr(scene->err.text, "it fits no linear layer on cpu:ref: it needs avx2"));
    assert_non_null(strstr(scene->err.text, "--linear-kernel linear_ref"));
    options.user.linear_kernel = "linear_sm100";
    assert_false(make(scene, "sm_90", options));
    assert_non_null(strstr(scene->err.text, "it needs products that sm_100 is the first to have, not sm_90"));
    assert_false(make(scene, "sm_100", options)); // other ops have no row for GPUs here
    assert_null(strstr(scene->err.text, "linear_sm100"));
    options.user.linear_kernel = "linear_roundign";
    assert_false(make(scene, "cpu:avx2", options));
    assert_true(scene->err.usage);
    assert_non_null(strstr(scene->err.text,
                           "--linear-kernel: there is no \"linear_roundign\", did you mean "
                           "linear_rounding?"));
}

// It says that it rounds, and does not.
static void test_a_pinned_linear_that_lies_is_refused(void **state)
{
    struct scene *scene = *state;
    struct engine engine;
    struct engine_options options = { .plan.user.linear_kernel = "linear_rounding", .plan.user.threads = 1 };
    struct device device;
    assert_true(device_open_cpu(&device, &scene->err));
    if (!(device.features & CPU_AVX2))
        skip();
    assert_false(engine_open(&engine, &scene->tiny.checkpoint, &options, &scene->err));
    assert_non_null(strstr(scene->err.text, "linear_rounding fails its self-test"));
}

// On AVX2 there is no partner for the row of decode: both read the file's weights.
static void test_both_rows_of_an_op_read_the_same_weights(void **state)
{
    struct scene *scene = *state;
    assert_true(make(scene, "cpu:avx512", (struct plan_options){ 0 }));
    const struct plan_op *linear = first_of(scene, OP_LINEAR, 1);
    assert_string_equal(linear->rows[DECODE][0]->name, "linear_copied_decode");
    assert_string_equal(linear->rows[PREFILL][0]->name, "linear_copied_prefill");
    assert_true(scene->plan.placed_bytes > 0 && scene->plan.weight_bytes > scene->plan.placed_bytes);
    size_t weight_bytes = scene->plan.weight_bytes;
    assert_true(make(scene, "cpu:avx2", (struct plan_options){ 0 }));
    linear = first_of(scene, OP_LINEAR, 1);
    assert_string_equal(linear->rows[DECODE][0]->name, "linear_ref");
    assert_string_equal(linear->rows[PREFILL][0]->name, "linear_ref");
    assert_true(scene->plan.placed_bytes == 0 && scene->plan.weight_bytes <= weight_bytes);
}

static void test_a_row_that_lies_is_left_out_and_named(void **state)
{
    struct scene *scene = *state;
    struct engine engine;
    struct engine_options options = { .plan.user.kv_cache_dtype = "nvfp4", .plan.user.threads = 1 };
    struct device device;
    assert_true(device_open_cpu(&device, &scene->err));
    if (!(device.features & CPU_AVX2))
        skip();
    assert_true(engine_open(&engine, &scene->tiny.checkpoint, &options, &scene->err));
    assert_null(engine.plan.failed_note);
    engine_close(&engine);
    rows_lie = true;
    assert_true(engine_open(&engine, &scene->tiny.checkpoint, &options, &scene->err));
    assert_string_equal(engine.plan.failed_note, "attention_best");
    for (int i = 0; i < engine.model.op_count; i++)
        assert_ptr_not_equal(engine.plan.ops[i].rows[DECODE][0], &extra[0]);
    engine_close(&engine);
    options.plan.user.attention_kernel = "attention_best"; // asked for by name: refused, not replaced
    assert_false(engine_open(&engine, &scene->tiny.checkpoint, &options, &scene->err));
    assert_non_null(strstr(scene->err.text, "attention_best fails its self-test"));
}

// Kernels that do whatever they can of their neighbours' work, in decode; in prefill none does.
static const struct kernel greedy_linear = { .name = "greedy_linear",
                                             .op = OP_LINEAR,
                                             .run = linear_ref,
                                             .fuses = KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD };
static const struct kernel greedy_write = {
    .name = "greedy_write", .op = OP_KV_WRITE, .run = kv_write_ref, .fuses = KERNEL_FUSES_ROPE
};

static void have_few(struct plan_op *bound, const struct kernel *row)
{
    for (int load = 0; load < KERNEL_LOADS; load++)
        for (int i = 0; KERNEL_DECODE >> load & 1 && i < LINEAR_OUTPUTS_MAX && bound->rows[load][i]; i++)
            bound->rows[load][i] = row;
}

static void fuse_all(struct scene *scene)
{
    assert_true(make(scene, "cpu:ref", (struct plan_options){ 0 }));
    for (int i = 0; i < scene->model.op_count; i++) {
        if (scene->model.ops[i].kind == OP_LINEAR)
            have_few(&scene->plan.ops[i], &greedy_linear);
        if (scene->model.ops[i].kind == OP_KV_WRITE)
            have_few(&scene->plan.ops[i], &greedy_write);
    }
    decide_fusion(&scene->plan);
}

static int left_of(const struct scene *scene, enum op_kind kind, int load)
{
    int left = 0;
    for (int i = 0; i < scene->model.op_count; i++)
        left += scene->model.ops[i].kind == kind && !scene->plan.ops[i].fused[load];
    return left;
}

static void test_neighbours_are_done_in_passing(void **state)
{
    struct scene *scene = *state;
    fuse_all(scene);
    static const enum op_kind kinds[] = { OP_NORM, OP_ADD, OP_ACT_MUL, OP_ROPE };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(left_of(scene, kinds[i], DECODE), 0);
        assert_true(left_of(scene, kinds[i], PREFILL) >= sizes.layers); // the rows for prefill are the reference's
    }
    assert_int_equal(left_of(scene, OP_LINEAR, DECODE), 4 * sizes.layers + 1);
}

// With a norm between the linear and the sum, as in Gemma, neither is fused, nor are norms of single heads.
static void test_what_lies_between_is_not_passed_over(void **state)
{
    struct scene *scene = *state;
    plan_free(&scene->plan);
    model_free(&scene->model);
    checkpoint_close(&scene->tiny.checkpoint);
    tiny_model(&scene->tiny, "gemma3_text", &sizes, "{}");
    assert_true(model_describe(&scene->model, &scene->tiny.checkpoint, &scene->err));
    fuse_all(scene);
    assert_int_equal(left_of(scene, OP_ADD, DECODE), 2 * sizes.layers);
    assert_int_equal(left_of(scene, OP_NORM, DECODE), 4 * sizes.layers); // of q, of k, and the two behind linears
    assert_int_equal(left_of(scene, OP_ACT_MUL, DECODE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_word_goes_to_the_first_row_that_lists_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_siblings_are_not_let_in_by_likeness, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_layer_is_decided_by_its_own_formats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_neighbour_is_not_the_family, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pinned_row_is_used_or_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_row_that_rounds_to_4_bits_is_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pinned_linear_fits_somewhere_or_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pinned_linear_that_lies_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_both_rows_of_an_op_read_the_same_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_row_that_lies_is_left_out_and_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_neighbours_are_done_in_passing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_lies_between_is_not_passed_over, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
