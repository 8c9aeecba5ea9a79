// SPDX-License-Identifier: Apache-2.0
// The checker itself: it finds nothing wrong with the reference, and it finds each of the wrong kernels below, whose
// mistakes are of the kind one makes.
#include <math.h>

#include "container.h"
#include "engine/self_test.h"
#include "kernel/check.h"
#include "kernel/fault.h"
#include "kernel/ref/table.h"
#include "kernel/state.h"
#include "tiny.h"

enum { SEEDS = 8, SEEDS_MAX = 64 };

// ---- wrong values: one kernel per op, off by a little ----

#define WRONG(op, mistake)                                               \
    static void op##_wrong(const void *arguments, int chunk, int chunks) \
    {                                                                    \
        struct op##_args args = *(const struct op##_args *)arguments;    \
        mistake;                                                         \
        op##_ref(&args, chunk, chunks);                                  \
    }

WRONG(embed, args.table.scale *= 1.0001f)
WRONG(norm, args.epsilon += 1e-2f)
WRONG(linear, args.output[0].weight.scale *= 1.001f)
WRONG(rope, args.magnitude *= 1.0001f)
WRONG(kv_write, args.k = args.v ? args.v : args.k + 1) // of latents there are no values
WRONG(attention, args.scale *= 1.01f)
WRONG(act_mul, args.act = args.act == ACT_SILU ? ACT_GELU_TANH : ACT_SILU)
WRONG(softcap, args.cap *= 1.001f)
WRONG(per_head_linear, args.weight.scale *= 1.001f)
WRONG(experts, args.output[0].weight.scale *= 1.001f)

static void add_wrong(const void *arguments, int chunk, int chunks)
{
    add_ref(arguments, chunk, chunks);
    add_ref(arguments, chunk, chunks);
}

static void pick_wrong(const void *arguments, int chunk, int chunks)
{
    struct pick_args args = *(const struct pick_args *)arguments;
    int32_t rows[64] = { 0 };
    for (int i = 0; i < args.batch->outputs; i++)
        rows[i] = args.batch->output_rows[i] / 2;
    struct batch batch = *args.batch;
    batch.output_rows = rows;
    args.batch = &batch;
    pick_ref(&args, chunk, chunks);
}

static void copy_wrong(const void *arguments, int chunk, int chunks)
{
    const struct copy_args *args = arguments;
    copy_ref(arguments, chunk, chunks);
    if (chunk == 0)
        args->out[0] *= 1.001f;
}

static void route_wrong(const void *arguments, int chunk, int chunks)
{
    const struct route_args *args = arguments;
    route_ref(arguments, chunk, chunks);
    if (chunk == 0)
        args->routes.weight[0] *= 1.001f;
}

static void combine_wrong(const void *arguments, int chunk, int chunks)
{
    const struct combine_args *args = arguments;
    combine_ref(arguments, chunk, chunks);
    if (chunk == 0)
        args->out[0] += 0.01f;
}

static void transform_wrong(const void *arguments, int chunk, int chunks)
{
    const struct transform_args *args = arguments;
    transform_ref(arguments, chunk, chunks);
    if (chunk == 0)
        args->k[0] *= 1.001f;
}

// The delivered output is right, and the pending output is not.
static void conv_wrong(const void *arguments, int chunk, int chunks)
{
    const struct conv_args *args = arguments;
    conv_ref(arguments, chunk, chunks);
    if (chunk == 0)
        state_inputs(state_after(&args->state, args->batch, args->batch->sequence))[0] += 0.01f;
}

static void ssm_scan_wrong(const void *arguments, int chunk, int chunks)
{
    const struct ssm_scan_args *args = arguments;
    ssm_scan_ref(arguments, chunk, chunks);
    if (chunk == 0)
        state_matrix(&args->state, state_after(&args->state, args->batch, args->batch->sequence))[0] += 0.01f;
}

static void gated_delta_wrong(const void *arguments, int chunk, int chunks)
{
    const struct gated_delta_args *args = arguments;
    gated_delta_ref(arguments, chunk, chunks);
    if (chunk == 0)
        state_matrix(&args->state, state_after(&args->state, args->batch, args->batch->sequence))[0] += 0.01f;
}

static void all_reduce_wrong(const void *arguments, int chunk, int chunks)
{
    struct all_reduce_args args = *(const struct all_reduce_args *)arguments;
    args.ranks--; // one of them is forgotten
    all_reduce_ref(&args, chunk, chunks);
}

static void all_gather_wrong(const void *arguments, int chunk, int chunks)
{
    const struct all_gather_args *args = arguments;
    all_gather_ref(arguments, chunk, chunks);
    if (chunk == 0)
        args->out[args->width - 1] = args->parts[0];
}

static void (*const wrong[OP_COUNT])(const void *, int, int) = {
    [OP_EMBED] = embed_wrong,
    [OP_NORM] = norm_wrong,
    [OP_LINEAR] = linear_wrong,
    [OP_ROPE] = rope_wrong,
    [OP_KV_WRITE] = kv_write_wrong,
    [OP_ATTENTION] = attention_wrong,
    [OP_ACT_MUL] = act_mul_wrong,
    [OP_ADD] = add_wrong,
    [OP_PICK] = pick_wrong,
    [OP_SOFTCAP] = softcap_wrong,
    [OP_PER_HEAD_LINEAR] = per_head_linear_wrong,
    [OP_COPY] = copy_wrong,
    [OP_ROUTE] = route_wrong,
    [OP_EXPERTS] = experts_wrong,
    [OP_COMBINE] = combine_wrong,
    [OP_TRANSFORM] = transform_wrong,
    [OP_CONV] = conv_wrong,
    [OP_SSM_SCAN] = ssm_scan_wrong,
    [OP_GATED_DELTA] = gated_delta_wrong,
    [OP_ALL_REDUCE] = all_reduce_wrong,
    [OP_ALL_GATHER] = all_gather_wrong,
};

// A row like the reference's, but for what it runs.
static struct kernel like_reference(enum op_kind op, void (*run)(const void *, int, int))
{
    struct kernel kernel = *kernel_reference(op);
    kernel.name = "under_test";
    kernel.run = run;
    return kernel;
}

// In how many of a case's seeds something is found, and what was found last.
static int count_found(const struct kernel *kernel, struct testcase_options wanted, struct check_result *last)
{
    int found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct check_result result;
        wanted.seed = seed;
        check_run(kernel, &wanted, NULL, &result);
        assert_true(result.ok == (!result.flaw && result.error <= result.tolerance));
        found += !result.ok;
        if (!result.ok)
            *last = result;
    }
    return found;
}

static void test_the_reference_is_right(void **state)
{
    (void)state;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        struct testcase_options cases[CHECK_CASES_MAX];
        int count = kernel->priority ? 0 : check_cases(kernel, cases);
        for (int i = 0; i < count; i++) {
            struct check_result result = { 0 };
            if (count_found(kernel, cases[i], &result))
                fail_msg("%s: error %g, %s", kernel->name, result.error, result.flaw ? result.flaw : "no flaw");
        }
    }
}

static void test_wrong_values_are_found(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        struct kernel kernel = like_reference((enum op_kind)op, wrong[op]);
        struct testcase_options cases[CHECK_CASES_MAX];
        int count = check_cases(&kernel, cases);
        assert_true(count > 0);
        for (int i = 0; i < count; i++) {
            struct check_result result;
            if (count_found(&kernel, cases[i], &result) < SEEDS / 3)
                fail_msg("a wrong %s is not found in case %d", op_word((enum op_kind)op), i);
            assert_null(result.flaw);
        }
    }
}

static void test_a_row_may_have_its_own_tolerance(void **state)
{
    (void)state;
    struct kernel kernel = like_reference(OP_EMBED, embed_wrong);
    struct testcase_options wanted = { .load = KERNEL_PREFILL, .weight = DTYPE_Q4_K };
    struct check_result result;
    assert_int_equal(count_found(&kernel, wanted, &result), SEEDS);
    kernel.tolerance = 1e-3f;
    assert_int_equal(count_found(&kernel, wanted, &result), 0);
}

// ---- what no kernel may do ----

static void norm_past_the_end(const void *arguments, int chunk, int chunks)
{
    const struct norm_args *args = arguments;
    norm_ref(args, chunk, chunks);
    args->out[*args->rows * args->groups * args->width] = 0;
}

static void add_before_the_start(const void *arguments, int chunk, int chunks)
{
    const struct add_args *args = arguments;
    add_ref(args, chunk, chunks);
    args->x[-1] = 0;
}

// The slot behind the last token of the first sequence.
static void kv_write_next_slot(const void *arguments, int chunk, int chunks)
{
    const struct kv_write_args *args = arguments;
    const struct kv_place *cache = &args->cache;
    kv_write_ref(args, chunk, chunks);
    const struct batch_sequence *sequence = &args->batch->sequence[0];
    int position = args->batch->positions[sequence->first + sequence->count - 1];
    uint8_t *layer = cache->pool + cache->layer_offset
        + (size_t)sequence->pages[cache->class_index][position / KV_PAGE_TOKENS] * cache->page_bytes;
    if (position % KV_PAGE_TOKENS < KV_PAGE_TOKENS - 1)
        layer[kv_data_at(&cache->layout.v, 0, position % KV_PAGE_TOKENS + 1)] = 0;
}

static void linear_by_chunks(const void *arguments, int chunk, int chunks)
{
    const struct linear_args *args = arguments;
    linear_ref(args, chunk, chunks);
    if (chunks > 1 && chunk == chunks - 1)
        args->output[0].y[args->output[0].weight.rows - 1] *= 1 + 0x1p-23f;
}

static void softcap_by_rows(const void *arguments, int chunk, int chunks)
{
    const struct softcap_args *args = arguments;
    softcap_ref(args, chunk, chunks);
    if (chunk == 0)
        args->x[0] *= 1 + 0x1p-23f * (float)*args->rows;
}

static void act_mul_unfinished(const void *arguments, int chunk, int chunks)
{
    struct act_mul_args args = *(const struct act_mul_args *)arguments;
    int rows = *args.rows - 1;
    args.rows = &rows;
    act_mul_ref(&args, chunk, chunks);
}

static void attention_without_window(const void *arguments, int chunk, int chunks)
{
    struct attention_args args = *(const struct attention_args *)arguments;
    args.window = 0;
    attention_ref(&args, chunk, chunks);
}

static void attention_of_another_class(const void *arguments, int chunk, int chunks)
{
    struct attention_args args = *(const struct attention_args *)arguments;
    args.cache.class_index++;
    attention_ref(&args, chunk, chunks);
}

// Tokens see the one behind them, where their page has it.
static void attention_into_the_future(const void *arguments, int chunk, int chunks)
{
    struct attention_args args = *(const struct attention_args *)arguments;
    struct batch batch = *args.batch;
    int32_t positions[64];
    assert_in_range(batch.tokens, 1, COUNT_OF(positions));
    for (int i = 0; i < batch.tokens; i++)
        positions[i] = batch.positions[i] + ((batch.positions[i] + 1) % KV_PAGE_TOKENS != 0);
    batch.positions = positions;
    args.batch = &batch;
    attention_ref(&args, chunk, chunks);
}

static const struct {
    enum op_kind op;
    void (*run)(const void *, int, int);
    const char *flaw;
} flawed[] = {
    { OP_NORM, norm_past_the_end, "writes beside" },      { OP_ADD, add_before_the_start, "writes beside" },
    { OP_KV_WRITE, kv_write_next_slot, "writes beside" }, { OP_LINEAR, linear_by_chunks, "number of threads" },
    { OP_SOFTCAP, softcap_by_rows, "tokens beside it" },  { OP_ACT_MUL, act_mul_unfinished, "NaN" },
    { OP_ATTENTION, attention_without_window, "NaN" },    { OP_ATTENTION, attention_of_another_class, "NaN" },
    { OP_ATTENTION, attention_into_the_future, "NaN" },
};

// Some show up in certain shapes only.
static bool finds_flaw(const struct kernel *kernel, struct testcase_options wanted, const char *flaw)
{
    for (wanted.seed = 0; wanted.seed < SEEDS_MAX; wanted.seed++) {
        struct check_result result;
        check_run(kernel, &wanted, NULL, &result);
        if (!result.ok && result.flaw && strstr(result.flaw, flaw))
            return true;
    }
    return false;
}

static void test_flaws_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(flawed); i++) {
        struct kernel kernel = like_reference(flawed[i].op, flawed[i].run);
        struct testcase_options cases[CHECK_CASES_MAX];
        int count = check_cases(&kernel, cases);
        for (int j = 0; j < count; j++)
            if (!finds_flaw(&kernel, cases[j], flawed[i].flaw))
                fail_msg("flawed kernel %zu passes in case %d", i, j);
    }
}

// ---- cases and test cases ----

static void test_every_listed_format_has_its_cases(void **state)
{
    (void)state;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        struct testcase_options cases[CHECK_CASES_MAX];
        int count = check_cases(kernel, cases);
        uint64_t weights = 0, k = 0, v = 0, latents = 0;
        unsigned loads = 0;
        assert_in_range(count, 1, CHECK_CASES_MAX);
        for (int i = 0; i < count; i++) {
            weights |= (uint64_t)1 << cases[i].weight;
            *(cases[i].latent ? &latents : &k) |= (uint64_t)1 << cases[i].k;
            v |= (uint64_t)!cases[i].latent << cases[i].v;
            loads |= cases[i].load;
        }
        assert_true(!kernel->weights || weights == kernel->weights);
        assert_true(!kernel->k || (k == kernel->k && v == kernel->v));
        assert_true(latents == kernel->latents);
        assert_int_equal(loads, kernel->load);
    }
}

static void test_rows_get_what_they_list(void **state)
{
    (void)state;
    struct kernel kernel = like_reference(OP_ATTENTION, attention_ref);
    kernel.head_dim_multiple = 40;
    kernel.head_dim_max = 160;
    kernel.load = KERNEL_DECODE;
    struct testcase_options cases[CHECK_CASES_MAX];
    int count = check_cases(&kernel, cases);
    for (int i = 0; i < count; i++)
        for (cases[i].seed = 0; cases[i].seed < SEEDS; cases[i].seed++) {
            struct testcase testcase;
            testcase_open(&testcase, &kernel, &cases[i]);
            const struct kv_layout *layout = &testcase.args.attention.cache.layout;
            assert_true(layout->k.dim % 40 == 0 && layout->k.dim <= 160 && layout->v.dim == layout->k.dim);
            assert_true(layout->k.dtype != DTYPE_INT4_TOKEN && layout->v.dtype != DTYPE_INT4_TOKEN);
            assert_in_range(testcase.batch.tokens, 1, KERNEL_DECODE_ROWS_MAX);
            testcase_close(&testcase);
        }
    kernel.k = DTYPE_BIT(NVFP4) | DTYPE_BIT(BF16);
    kernel.v = DTYPE_BIT(FP8_E4M3);
    assert_int_equal(check_cases(&kernel, cases), 2);
    assert_true(cases[0].v == DTYPE_FP8_E4M3 && cases[1].v == DTYPE_FP8_E4M3 && cases[0].k != cases[1].k);
}

// ---- lies ----

static void test_a_lie_is_found(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const struct kernel *kernel = kernel_reference((enum op_kind)op);
        const struct kernel *other = kernel_reference((enum op_kind)((op + 1) % OP_COUNT));
        struct testcase_options cases[CHECK_CASES_MAX];
        struct check_result result;
        int count = check_cases(kernel, cases);
        setenv("NIBBLE_FAULT", kernel->name, 1);
        for (int i = 0; i < count; i++)
            if (count_found(kernel, cases[i], &result) < SEEDS)
                fail_msg("a lie of %s is believed in case %d", kernel->name, i);
        setenv("NIBBLE_FAULT", other->name, 1);
        assert_int_equal(count_found(kernel, cases[0], &result), 0);
        unsetenv("NIBBLE_FAULT");
    }
}

static void test_self_test(void **state)
{
    (void)state;
    static const struct tiny_sizes sizes = { .layers = 2,
                                             .hidden = 32,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 16,
                                             .feed_forward = 48,
                                             .vocabulary = 40,
                                             .context = 200 };
    struct tiny tiny = { .seed = 1 };
    struct model model;
    struct plan plan;
    struct device device;
    struct error err = { 0 };
    tiny_model(&tiny, "gemma3_text", &sizes, "{\"sliding_window\":20,\"sliding_window_pattern\":2}");
    struct plan_options options = { .user.kv_cache_dtype = "0:nvfp4/fp8,1:int8_per_token_head",
                                    .user.kv_transform = "rotate" };
    if (!device_open_cpu(&device, &err) || !model_describe(&model, &tiny.checkpoint, &err)
        || !plan_make(&plan, &model, &device, &options, &err))
        fail_msg("%s", err.text);
    assert_null(self_test_failure(&plan, NULL, &err));
    for (int i = 0; i < model.op_count; i++) {
        const struct kernel *kernel = plan_row(&plan, i, kernel_load_of(KERNEL_DECODE_ROWS_MAX + 1));
        setenv("NIBBLE_FAULT", kernel->name, 1);
        assert_ptr_equal(self_test_failure(&plan, NULL, &err), kernel);
        assert_says(err, kernel->name);
        unsetenv("NIBBLE_FAULT");
    }
    plan_free(&plan);
    model_free(&model);
    checkpoint_close(&tiny.checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reference_is_right),
        cmocka_unit_test(test_wrong_values_are_found),
        cmocka_unit_test(test_a_row_may_have_its_own_tolerance),
        cmocka_unit_test(test_flaws_are_found),
        cmocka_unit_test(test_every_listed_format_has_its_cases),
        cmocka_unit_test(test_rows_get_what_they_list),
        cmocka_unit_test(test_a_lie_is_found),
        cmocka_unit_test(test_self_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
