// SPDX-License-Identifier: Apache-2.0
// The grammar of --kv-cache-dtype, why kernels are passed over, and what a plan promises about pages and memory.
#include "container.h"
#include "kv/table.h"
#include "plan/explain.h"
#include "plan/fit.h"
#include "plan/kv_flag.h"
#include "plan/plan.h"
#include "tiny.h"

enum { LAYERS_MAX = 64 };

// ---- the flag ----

// Formats of all layers as text: "fp8_e4m3 bfloat16/nvfp4 ...".
static bool parse_flag(const char *flag, int layers, enum dtype automatic, struct kv_formats *out, struct error *err)
{
    enum dtype each[64];
    bool cached[COUNT_OF(each)];
    assert_in_range(layers, 1, COUNT_OF(each));
    for (int i = 0; i < layers; i++) {
        each[i] = automatic;
        cached[i] = true;
    }
    return kv_flag_parse(flag, layers, each, cached, out, err);
}

static void check_flag(const char *flag, int layers, const char *expected)
{
    struct kv_formats formats[LAYERS_MAX];
    struct error err;
    struct strbuf text = { 0 };
    if (!parse_flag(flag, layers, DTYPE_F16, formats, &err))
        fail_msg("\"%s\": %s", flag, err.text);
    for (int i = 0; i < layers; i++) {
        strbuf_add_format(&text, "%s%s", i ? " " : "", dtype_word(formats[i].k));
        if (formats[i].v != formats[i].k)
            strbuf_add_format(&text, "/%s", dtype_word(formats[i].v));
    }
    if (strcmp(text.data, expected))
        fail_msg("\"%s\" means %s, expected %s", flag, text.data, expected);
    strbuf_free(&text);
}

static void test_every_word_is_understood(void **state)
{
    (void)state;
    check_flag("auto", 2, "float16 float16");
    check_flag("fp8", 1, "fp8_e4m3");
    int words = 0;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (!(dtype_table[i].use & DTYPE_USE_KV))
            continue;
        check_flag(dtype_table[i].word, 1, dtype_table[i].word);
        words++;
    }
    assert_int_equal(words, 10);
}

static void test_sides_and_ranges(void **state)
{
    (void)state;
    check_flag("fp8/nvfp4", 2, "fp8_e4m3/nvfp4 fp8_e4m3/nvfp4");
    check_flag("auto/int4_per_token_head", 1, "float16/int4_per_token_head");
    check_flag("0-1:bfloat16,2-:nvfp4", 4, "bfloat16 bfloat16 nvfp4 nvfp4");
    check_flag("2-:nvfp4,0-1:bfloat16", 4, "bfloat16 bfloat16 nvfp4 nvfp4");
    check_flag("3:fp8,1:nvfp4/auto,0:auto,2:float32", 4, "float16 nvfp4/float16 float32 fp8_e4m3");
    check_flag("0-:fp8", 3, "fp8_e4m3 fp8_e4m3 fp8_e4m3");
    check_flag("0-2:fp8", 3, "fp8_e4m3 fp8_e4m3 fp8_e4m3");
    check_flag("1-1:fp8,0-0:nvfp4", 2, "nvfp4 fp8_e4m3");
    check_flag("0:fp8", 1, "fp8_e4m3");
    check_flag("007:fp8,0-6:auto", 8, "float16 float16 float16 float16 float16 float16 float16 fp8_e4m3");
}

static void test_wrong_flags_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *flag;
        bool usage;
        const char *says;
    } cases[] = {
        // words
        { "", true, "\"\" is not a cache format; there are auto" },
        { "nvfp5", true, "\"nvfp5\" is not a cache format, did you mean nvfp4?" },
        { "FP8", true, "did you mean fp8?" },
        { "bfloat61", true, "did you mean bfloat16?" },
        { "wonderful", true, "\"wonderful\" is not a cache format; there are auto fp8 float32" },
        { "Q4_0", true, "\"Q4_0\" is not a cache format" },
        { "int8", true, "\"int8\" is not a cache format" },
        { " fp8", true, "\" fp8\" is not a cache format" },
        { "fp8/", true, "\"\" is not a cache format" },
        { "/fp8", true, "\"\" is not a cache format" },
        { "fp8/nvfp4/fp8", true, "\"nvfp4/fp8\" is not a cache format" },
        { "0-4:fp8,5-:fp9", true, "\"fp9\" is not a cache format, did you mean fp8?" },
        { "0-9:fp8:nvfp4", true, "\"fp8:nvfp4\" is not a cache format" },
        // words that are known and refused
        { "fp8_inc", false, "fp8_inc: it is the cache format of Gaudi" },
        { "turboquant_k8v4", false, "turboquant_k8v4: nibble has no kernel" },
        { "turboquant_4bit_nc", false, "no kernel" },
        { "turboquant_k3v4_nc", false, "no kernel" },
        { "turboquant_3bit_nc", false, "no kernel" },
        { "fp8/fp8_inc", false, "Gaudi" },
        { "0-4:fp8,5-:fp8_inc", false, "Gaudi" },
        // items
        { "fp8,nvfp4", true, "\"fp8\" lacks its layers" },
        { "0-:fp8,", true, "\"\" lacks its layers" },
        { ",0-:fp8", true, "\"\" lacks its layers" },
        { "0-4:fp8,,5-:fp8", true, "\"\" lacks its layers" },
        { "0-4,5-:fp8", true, "\"0-4\" lacks its layers" },
        { ":fp8", true, "\"\" is not a range of layers; write 7, 4-9 or 4-" },
        { "x:fp8", true, "\"x\" is not a range" },
        { "-3:fp8", true, "\"-3\" is not a range" },
        { "1--2:fp8", true, "\"1--2\" is not a range" },
        { "1-2-3:fp8", true, "\"1-2-3\" is not a range" },
        { "0- :fp8", true, "\"0- \" is not a range" },
        { "0x1:fp8", true, "\"0x1\" is not a range" },
        { "1.5:fp8", true, "\"1.5\" is not a range" },
        { "0-9:", true, "\"\" is not a cache format" },
        // layers
        { "10:fp8", true, "\"10\" goes past the model's layers, which are 0 to 9" },
        { "0-10:fp8", true, "\"0-10\" goes past" },
        { "10-:fp8", true, "\"10-\" goes past" },
        { "0-99999999999999999999:fp8", true, "\"0-99999999999999999999\"" },
        { "7-4:fp8", true, "\"7-4\" is empty" },
        { "0-3:fp8,3-:nvfp4", true, "layer 3 is named twice" },
        { "0-:fp8,5:fp8", true, "layer 5 is named twice" },
        { "2-3:fp8,7:fp8", true, "no format is given for layers 0-1, 4-6, 8-9" },
        { "1-8:fp8", true, "no format is given for layers 0, 9" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct kv_formats formats[10];
        struct error err;
        if (parse_flag(cases[i].flag, 10, DTYPE_BF16, formats, &err))
            fail_msg("\"%s\" was accepted", cases[i].flag);
        assert_says(err, cases[i].says);
        assert_says(err, "--kv-cache-dtype");
        if (err.usage != cases[i].usage)
            fail_msg("\"%s\" is %sa usage error", cases[i].flag, err.usage ? "" : "not ");
    }
}

static void test_a_very_long_flag_is_refused(void **state)
{
    (void)state;
    struct kv_formats formats[4];
    struct error err;
    char flag[5000];
    memset(flag, 'x', sizeof flag);
    flag[sizeof flag - 1] = '\0';
    assert_false(parse_flag(flag, 4, DTYPE_BF16, formats, &err));
    flag[2500] = ':';
    assert_false(parse_flag(flag, 4, DTYPE_BF16, formats, &err));
    for (size_t i = 0; i + 1 < sizeof flag; i += 2)
        memcpy(flag + i, "0,", 2);
    flag[sizeof flag - 1] = '\0';
    assert_false(parse_flag(flag, 4, DTYPE_BF16, formats, &err));
    assert_true(err.usage);
}

// ---- fit ----

static void test_a_kernel_says_why_it_does_not_fit(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    const struct device device = { .features = CPU_SSE41 | CPU_AVX2 };
    const struct kernel attention = { .op = OP_ATTENTION,
                                      .load = KERNEL_ANY,
                                      .needs = CPU_AVX2,
                                      .k = DTYPE_BIT(NVFP4) | DTYPE_BIT(F16),
                                      .v = DTYPE_BIT(NVFP4),
                                      .head_dim_multiple = 32,
                                      .head_dim_max = 128 };
    const struct kernel linear = { .op = OP_LINEAR, .load = KERNEL_ANY, .weights = DTYPE_BIT(Q4_0) | DTYPE_BIT(Q8_0) };
    const struct fit_request keys = {
        .op = OP_ATTENTION, .has_cache = true, .k = DTYPE_F16, .v = DTYPE_NVFP4, .k_dim = 64, .v_dim = 64
    };
    const struct fit_request weights = { .op = OP_LINEAR, .weights = DTYPE_BIT(Q8_0) };
    struct kernel kernel = attention;
    struct fit_request request = keys;
#define REASON fit_reasons(&kernel, &request, &device, &arena)
    assert_null(REASON);
    request.v = DTYPE_F16; // listed for keys, not for values
    assert_string_equal(REASON, "does not read values in float16");
    request = keys, request.k = DTYPE_NVFP4_4OVER6; // same bytes as nvfp4, but another word
    assert_string_equal(REASON, "does not read keys in nvfp4_4over6");
    request = keys, request.k_dim = request.v_dim = 48;
    assert_string_equal(REASON, "needs a head size that is a multiple of 32, not 48");
    request.k_dim = request.v_dim = 160;
    assert_string_equal(REASON, "has head sizes up to 128, not 160");
    request.k_dim = request.v_dim = 128;
    assert_null(REASON);
    request.latent = true;
    assert_string_equal(REASON, "does not read latents");
    kernel.latents = DTYPE_BIT(NVFP4);
    assert_string_equal(REASON, "does not read latents in float16");
    kernel.latents = DTYPE_BIT(F16);
    request.k_dim = 576; // keys of latents may be larger than values
    assert_null(REASON);
    request.v_dim = 500;
    assert_string_equal(REASON, "needs a head size that is a multiple of 32, not 500");
    request = keys;
    kernel.k = 0;
    assert_string_equal(REASON, "reads latents alone");
    kernel = attention;
    kernel.needs = CPU_AVX2 | CPU_FMA | CPU_AVX512F;
    assert_string_equal(REASON, "needs fma avx512f");
    kernel = linear, request = weights;
    assert_null(REASON);
    request.weights |= DTYPE_BIT(Q4_0); // matrices of several formats: each must be listed
    assert_null(REASON);
    request.weights |= DTYPE_BIT(Q4_1);
    assert_string_equal(REASON, "does not read weights in Q4_1");
#undef REASON
    arena_free(&arena);
}

// ---- plans ----

struct planned {
    struct tiny tiny;
    struct model model;
    struct device device;
};

static const struct tiny_sizes sizes = { .layers = 6,
                                         .hidden = 64,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 32,
                                         .feed_forward = 48,
                                         .vocabulary = 50,
                                         .context = 2000 };

static int set_up(void **state)
{
    struct planned *planned = calloc(1, sizeof *planned);
    struct error err;
    tiny_model(&planned->tiny, "llama", &sizes, "{}");
    planned->device = (struct device){ .word = "cpu", .cores = 1, .memory_free_bytes = (size_t)1 << 40 };
    *state = planned;
    return model_describe(&planned->model, &planned->tiny.checkpoint, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct planned *planned = *state;
    model_free(&planned->model);
    checkpoint_close(&planned->tiny.checkpoint);
    free(planned);
    return 0;
}

static bool make_plan(struct planned *planned, struct plan_options options, struct plan *plan, struct error *err)
{
    if (plan_make(plan, &planned->model, &planned->device, &options, err))
        return true;
    plan_free(plan);
    return false;
}

static void need_plan(struct planned *planned, struct plan_options options, struct plan *plan)
{
    struct error err;
    if (!make_plan(planned, options, plan, &err))
        fail_msg("%s", err.text);
}

// Layers share a class if and only if nothing tells them apart, and their places fill its page without a gap.
static void check_classes(const struct plan *plan, const struct kv_formats *formats)
{
    const struct model *model = plan->model;
    size_t filled[KV_CLASSES_MAX] = { 0 };
    int layers[KV_CLASSES_MAX] = { 0 };
    bool sinks[KV_CLASSES_MAX] = { 0 }; // classes of first pages
    for (int a = 0; a < model->config.layers; a++) {
        const struct plan_class *class = &plan->classes[plan->layer[a].class_index];
        assert_int_equal(class->layout.k.dtype, formats[a].k);
        assert_int_equal(class->layout.v.dtype, formats[a].v);
        assert_int_equal(class->layout.k.heads, model->layer[a].kv_heads);
        assert_int_equal(class->layout.v.dim, model->layer[a].head_dim);
        assert_int_equal(class->kind.window, model->layer[a].window);
        assert_int_equal(plan->layer[a].offset, filled[plan->layer[a].class_index]);
        filled[plan->layer[a].class_index] += class->layout.layer_bytes;
        layers[plan->layer[a].class_index]++;
        int sink = plan->layer[a].sink_class;
        assert_int_equal(sink != PLAN_NO_CLASS, formats[a].k == DTYPE_NVFP4);
        assert_int_equal(class->kind.begin, sink != PLAN_NO_CLASS);
        if (sink != PLAN_NO_CLASS) {
            assert_int_equal(plan->layer[a].sink_offset, filled[sink]);
            assert_int_equal(plan->classes[sink].layout.k.dtype, DTYPE_BF16);
            assert_int_equal(plan->classes[sink].layout.v.dtype, DTYPE_BF16);
            assert_int_equal(plan->classes[sink].kind.window, class->kind.window);
            assert_int_equal(plan->classes[sink].kind.end, 1);
            filled[sink] += plan->classes[sink].layout.layer_bytes;
            layers[sink]++;
            sinks[sink] = true;
        }
        assert_int_equal(plan_layer_token_bytes(plan, a) * KV_PAGE_TOKENS, class->layout.layer_bytes);
        for (int b = 0; b < a; b++) {
            bool same = formats[a].k == formats[b].k && formats[a].v == formats[b].v
                && model->layer[a].window == model->layer[b].window
                && model->layer[a].kv_heads == model->layer[b].kv_heads;
            assert_int_equal(plan->layer[a].class_index == plan->layer[b].class_index, same);
        }
    }
    for (int i = 0; i < plan->class_count; i++) {
        assert_int_equal(plan->classes[i].page_bytes, filled[i]);
        assert_int_equal(plan->classes[i].layers, layers[i]);
        assert_int_equal(plan->classes[i].kind.end > 0, sinks[i]);
    }
}

static void test_layers_fall_into_classes(void **state)
{
    struct planned *planned = *state;
    static const char *const words[] = { "nvfp4", "fp8", "bfloat16" };
    uint64_t seed = 1;
    for (int round = 0; round < 200; round++) {
        struct kv_formats formats[8];
        struct plan plan;
        struct error err;
        struct strbuf flag = { 0 };
        for (int i = 0; i < sizes.layers; i++) {
            planned->model.layer[i].window = random_between(&seed, 0, 1) ? 100 : 0;
            planned->model.layer[i].kv_heads = random_between(&seed, 0, 3) ? 2 : 4;
            strbuf_add_format(&flag, "%s%d:%s/%s", i ? "," : "", i, words[random_between(&seed, 0, 2)],
                              words[random_between(&seed, 0, 1)]);
        }
        assert_true(parse_flag(flag.data, sizes.layers, DTYPE_BF16, formats, &err));
        need_plan(planned, (struct plan_options){ .user.kv_cache_dtype = flag.data }, &plan);
        check_classes(&plan, formats);
        plan_free(&plan);
        strbuf_free(&flag);
    }
}

static void test_every_op_has_kernels_that_list_its_formats(void **state)
{
    struct planned *planned = *state;
    struct plan plan;
    need_plan(planned, (struct plan_options){ .user.kv_cache_dtype = "0-2:nvfp4/fp8,3-:int4_per_token_head" }, &plan);
    for (int i = 0; i < planned->model.op_count; i++) {
        const struct op *op = &planned->model.ops[i];
        for (int j = 0; j < KERNEL_LOADS; j++) {
            const struct kernel *bound = plan_row(&plan, i, j);
            assert_int_equal(bound != NULL, kernel_loads_of(op->kind) >> j & 1);
            if (!bound)
                continue;
            assert_int_equal(bound->op, op->kind);
            assert_true(bound->load >> j & 1);
            assert_int_equal(bound->needs & ~planned->device.features, 0);
            for (int k = 0; k < op->matrices; k++)
                assert_true(bound->weights >> op->matrix[k].tensor->dtype & 1);
            if (op->kind != OP_KV_WRITE && op->kind != OP_ATTENTION)
                continue;
            assert_true(bound->k & (op->layer < 3 ? DTYPE_BIT(NVFP4) : DTYPE_BIT(INT4_TOKEN)));
            assert_true(bound->v & (op->layer < 3 ? DTYPE_BIT(FP8_E4M3) : DTYPE_BIT(INT4_TOKEN)));
        }
    }
    plan_free(&plan);
}

static void test_weights_are_counted_once(void **state)
{
    struct planned *planned = *state;
    size_t by_format[DTYPE_COUNT], expected = 0;
    for (size_t i = 0; i < planned->tiny.checkpoint.tensor_count; i++)
        expected += planned->tiny.checkpoint.tensors[i].bytes;
    plan_weights_by_format(&planned->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        assert_int_equal(by_format[i], i == DTYPE_F32 ? expected : 0);

    struct tiny tied = { .without = "lm_head.weight" }; // the embedding is the head, too
    struct model model;
    struct error err;
    tiny_model(&tied, "llama", &sizes, "{}");
    assert_true(model_describe(&model, &tied.checkpoint, &err));
    plan_weights_by_format(&model, by_format);
    assert_int_equal(by_format[DTYPE_F32], expected - tiny_find(&planned->tiny, "lm_head.weight")->bytes);
    model_free(&model);
    checkpoint_close(&tied.checkpoint);
}

static void test_impossible_wishes_are_refused(void **state)
{
    struct planned *planned = *state;
    static const struct {
        struct plan_options options;
        bool usage;
        const char *says;
    } cases[] = {
        { { .user.max_model_len = -1 }, true, "--max-model-len -1: 1 to 2000" },
        { { .user.max_model_len = 2001 }, false, "2001 tokens was asked for; the model has 2000" },
        { { .user.max_num_seqs = -5 }, true, "--max-num-seqs -5: 1 to 4096" },
        { { .user.max_num_seqs = 4097 }, true, "--max-num-seqs 4097" },
        { { .user.batch_tokens = 4097 }, true, "--max-num-batched-tokens 4097" },
        { { .user.batch_tokens = INT32_MIN }, true, "--max-num-batched-tokens" },
        { { .user.kv_cache_dtype = "nvfp5" }, true, "did you mean nvfp4?" },
        { { .user.kv_cache_dtype = "0-6:nvfp4" }, true, "0 to 5" },
        { { .user.kv_cache_dtype = "fp8_inc" }, false, "Gaudi" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct plan plan;
        struct error err;
        assert_false(make_plan(planned, cases[i].options, &plan, &err));
        assert_says(err, cases[i].says);
        assert_int_equal(err.usage, cases[i].usage);
    }
    struct plan plan;
    struct error err;
    for (int i = 0; i < sizes.layers; i++)
        planned->model.layer[i].head_dim = i == 4 ? 24 : 32;
    assert_false(make_plan(planned, (struct plan_options){ .user.kv_cache_dtype = "nvfp4" }, &plan, &err));
    assert_says(err, "layers 4: nvfp4 needs a head size that is a multiple of 16, not 24");
}

static void test_too_many_classes(void **state)
{
    (void)state;
    struct tiny tiny = { 0 };
    struct tiny_sizes many = sizes;
    struct planned planned = { .device.memory_free_bytes = (size_t)1 << 40 };
    struct plan plan;
    struct error err;
    many.layers = KV_CLASSES_MAX + 1;
    tiny_model(&tiny, "llama", &many, "{}");
    assert_true(model_describe(&planned.model, &tiny.checkpoint, &err));
    for (int i = 0; i < many.layers; i++)
        planned.model.layer[i].window = i;
    assert_false(make_plan(&planned, (struct plan_options){ 0 }, &plan, &err));
    assert_says(err, "more than 16 kinds");
    planned.model.layer[1].window = 2;
    need_plan(&planned, (struct plan_options){ 0 }, &plan);
    assert_int_equal(plan.class_count, KV_CLASSES_MAX);
    plan_free(&plan);
    model_free(&planned.model);
    checkpoint_close(&tiny.checkpoint);
}

// ---- memory ----

static size_t total_bytes(const struct plan *plan)
{
    size_t pools = 0;
    for (int i = 0; i < plan->class_count; i++)
        pools += plan->classes[i].page_bytes * (size_t)plan->classes[i].pages;
    assert_int_equal(pools, plan->pool_bytes);
    return plan->weight_bytes + plan->workspace_bytes + plan->pool_bytes;
}

static bool length_fits(struct planned *planned, struct plan_options options, int length)
{
    struct plan plan;
    struct error err;
    options.user.max_model_len = length;
    if (!make_plan(planned, options, &plan, &err))
        return false;
    assert_int_equal(plan.max_model_len, length);
    assert_true(total_bytes(&plan) <= planned->device.memory_free_bytes);
    plan_free(&plan);
    return true;
}

// The length that a refusal offers is accepted, and no whole page more is.
static void check_offer(struct planned *planned, struct plan_options options, const struct error *err)
{
    const char *offer = strstr(err->text, "\n  --max-model-len ");
    int context = planned->model.config.context;
    assert_false(err->usage);
    if (!offer) {
        assert_false(length_fits(planned, options, 1));
        return;
    }
    int length = atoi(offer + strlen("\n  --max-model-len "));
    assert_in_range(length, 1, context);
    assert_true(length_fits(planned, options, length));
    int longer = length + KV_PAGE_TOKENS < context ? length + KV_PAGE_TOKENS : context;
    assert_true(length == context || !length_fits(planned, options, longer));
}

static void test_refusals_name_the_length_that_fits(void **state)
{
    struct planned *planned = *state;
    uint64_t seed = 2;
    int refused = 0, shortened = 0, whole = 0, hopeless = 0;
    for (int round = 0; round < 400; round++) {
        struct plan_options options = { .user.max_num_seqs = random_between(&seed, 1, 4),
                                        .user.batch_tokens = random_between(&seed, 1, 200) };
        struct plan plan;
        struct error err;
        planned->model.config.context = random_between(&seed, 1, 3000);
        for (int i = 0; i < sizes.layers; i++)
            planned->model.layer[i].window = random_between(&seed, 0, 1) ? random_between(&seed, 1, 300) : 0;
        planned->device.memory_free_bytes = (size_t)1 << 40;
        need_plan(planned, options, &plan);
        size_t fixed = plan.weight_bytes + plan.workspace_bytes, pools = plan.pool_bytes;
        plan_free(&plan);
        planned->device.memory_free_bytes = fixed + random_next(&seed) % (pools + pools / 8);
        if (round % 8 == 0)
            planned->device.memory_free_bytes = fixed * 7 / 8 + random_next(&seed) % (fixed / 4);

        // Requested options are honoured or refused; others are made to fit.
        options.user.max_model_len = random_between(&seed, 1, planned->model.config.context);
        if (!make_plan(planned, options, &plan, &err)) {
            check_offer(planned, options, &err);
            refused++;
        } else {
            assert_int_equal(plan.max_model_len, options.user.max_model_len);
            assert_true(total_bytes(&plan) <= planned->device.memory_free_bytes);
            plan_free(&plan);
        }
        options.user.max_model_len = 0;
        if (!make_plan(planned, options, &plan, &err)) {
            assert_false(length_fits(planned, options, 1));
            hopeless++;
            continue;
        }
        int length = plan.max_model_len, context = planned->model.config.context;
        assert_true(total_bytes(&plan) <= planned->device.memory_free_bytes);
        assert_int_equal(plan.length_note != NULL, length < context);
        assert_true(length == context || !length_fits(planned, options, context));
        *(length < context ? &shortened : &whole) += 1;
        plan_free(&plan);
    }
    assert_true(refused > 20 && shortened > 20 && whole > 20 && hopeless > 20); // every kind was met
}

// Pages of one sequence of the greatest length in a class.
static int longest_needs(const struct plan *plan, int class)
{
    return kv_table_pages_needed(&plan->classes[class].kind, plan->max_model_len, plan->batch_tokens);
}

// Pools fill what they may take, hold one sequence of the greatest length, and no more than can run.
static void check_pools(const struct plan *plan, size_t room)
{
    bool full = true;
    size_t one = 0, next = 0;
    double fewest = plan->max_num_seqs;
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        int longest = longest_needs(plan, i);
        assert_in_range(class->pages, longest, longest * plan->max_num_seqs);
        full &= class->pages == longest * plan->max_num_seqs;
        one += (size_t)longest * class->page_bytes;
        next += class->page_bytes;
        fewest = (double)class->pages / longest < fewest ? (double)class->pages / longest : fewest;
    }
    total_bytes(plan);
    assert_true(plan->concurrency == fewest);
    assert_true(plan->pool_bytes <= (one > room ? one : room));
    assert_true(full || plan->pool_bytes + next > room); // not a page more in every class
}

static void test_pools_fill_what_they_may_take(void **state)
{
    struct planned *planned = *state;
    uint64_t seed = 3;
    int refused = 0, accepted = 0;
    for (int round = 0; round < 400; round++) {
        struct plan_options options = { .user.max_num_seqs = random_between(&seed, 1, 60),
                                        .user.batch_tokens = random_between(&seed, 1, 200) };
        struct plan plan;
        struct error err;
        planned->model.config.context = random_between(&seed, 1, 8000);
        for (int i = 0; i < sizes.layers; i++)
            planned->model.layer[i].window = random_between(&seed, 0, 1) ? random_between(&seed, 1, 300) : 0;
        planned->device.memory_free_bytes = (size_t)1 << 40;
        need_plan(planned, options, &plan); // a quarter of what is free is plenty
        assert_true(plan.concurrency == options.user.max_num_seqs);
        size_t fixed = plan.weight_bytes + plan.workspace_bytes, most = plan.pool_bytes;
        plan_free(&plan);

        size_t room = most / (size_t)options.user.max_num_seqs + 1 + random_next(&seed) % (4 * most);
        planned->device.memory_free_bytes = fixed + room;
        options.user.max_model_len = planned->model.config.context;
        if (make_plan(planned, options, &plan, &err)) {
            check_pools(&plan, room / PLAN_CACHE_SHARE);
            plan_free(&plan);
        }
        options.user.kv_cache_bytes = 1 + random_next(&seed) % (most + most / 2);
        options.user.max_model_len = round % 2 ? 0
                                               : options.user.max_model_len; // the model's own is meant all the same
        if (make_plan(planned, options, &plan, &err)) {
            assert_int_equal(plan.max_model_len, planned->model.config.context);
            check_pools(&plan, options.user.kv_cache_bytes);
            plan_free(&plan);
            accepted++;
        } else {
            assert_says(err, "--kv-cache-memory-bytes");
            if (options.user.kv_cache_bytes <= room)
                check_offer(planned, options, &err);
            refused++;
        }
    }
    assert_true(accepted > 20 && refused > 20);
}

static void test_rows_of_logits(void **state)
{
    struct planned *planned = *state;
    static const struct {
        int sequences, batch, rows;
    } cases[] = {
        { 1, 0, 128 }, { 200, 0, 200 }, { 4096, 0, 512 }, { 4096, 4096, 512 }, { 1, 16, 16 }, { 300, 100, 100 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct plan plan;
        need_plan(planned,
                  (struct plan_options){ .user.max_num_seqs = cases[i].sequences, .user.batch_tokens = cases[i].batch },
                  &plan);
        assert_int_equal(plan.outputs, cases[i].rows);
        plan_free(&plan);
    }
}

static void test_absurd_sizes_do_not_overflow(void **state)
{
    struct planned *planned = *state;
    struct plan plan;
    struct error err;
    planned->model.config.context = 1 << 28;
    planned->device.memory_free_bytes = (size_t)1 << 35;
    struct plan_options options = { .user.max_num_seqs = PLAN_SEQUENCES_MAX, .user.max_model_len = 1 << 28 };
    assert_false(make_plan(planned, options, &plan, &err));
    check_offer(planned, options, &err);
    for (int i = 0; i < sizes.layers; i++)
        planned->model.layer[i].window = INT32_MAX;
    assert_false(make_plan(planned, options, &plan, &err));
    check_offer(planned, options, &err);
    planned->device.memory_free_bytes = SIZE_MAX / 2;
    options.user.max_model_len = 0;
    need_plan(planned, options, &plan);
    assert_true(total_bytes(&plan) <= planned->device.memory_free_bytes && plan.max_model_len <= 1 << 28);
    plan_free(&plan);
}

// ---- words ----

static void test_a_plan_is_reported(void **state)
{
    struct planned *planned = *state;
    struct plan plan;
    struct strbuf text = { 0 };
    planned->model.layer[5].window = 100;
    need_plan(planned, (struct plan_options){ .user.kv_cache_dtype = "0-1:bfloat16,2-:fp8/nvfp4" }, &plan);
    explain_short(&plan, &text);
    assert_non_null(strstr(text.data,
                           "KV cache 0-1:bfloat16, 2-5:fp8_e4m3/nvfp4, 912 bytes per token (all layers), "
                           "context length 2000 tokens, cache capacity 2000 tokens;"));
    text.len = 0;
    explain_full(&plan, (struct explain_style){ 0 }, &text);
    assert_non_null(strstr(text.data, "\n2-4      full          fp8_e4m3            nvfp4"));
    assert_non_null(strstr(text.data, "\n5        window 100    fp8_e4m3            nvfp4"));

    struct error err;
    json_t *json, *layer;
    size_t index;
    text.len = 0;
    explain_json(&plan, &text);
    assert_true(json_read(strbuf_bytes(&text), &json, &err));
    assert_true(json_is_true(json_object_get(json, "accepted")));
    assert_int_equal(json_array_size(json_object_get(json, "layers")), sizes.layers);
    json_array_foreach (json_object_get(json, "layers"), index, layer) {
        assert_int_equal(json_integer_value(json_object_get(layer, "index")), index);
        assert_int_equal(json_integer_value(json_object_get(layer, "bytes_per_token")), index < 2 ? 256 : 64 + 36);
        assert_string_equal(json_string_value(json_object_get(layer, "v")), index < 2 ? "bfloat16" : "nvfp4");
        assert_int_equal(json_integer_value(json_object_get(layer, "window")), index == 5 ? 100 : 0);
    }
    json_decref(json);
    strbuf_free(&text);
    plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_word_is_understood),
        cmocka_unit_test(test_sides_and_ranges),
        cmocka_unit_test(test_wrong_flags_are_explained),
        cmocka_unit_test(test_a_very_long_flag_is_refused),
        cmocka_unit_test(test_a_kernel_says_why_it_does_not_fit),
        cmocka_unit_test_setup_teardown(test_layers_fall_into_classes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_op_has_kernels_that_list_its_formats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weights_are_counted_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_impossible_wishes_are_refused, set_up, tear_down),
        cmocka_unit_test(test_too_many_classes),
        cmocka_unit_test_setup_teardown(test_refusals_name_the_length_that_fits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pools_fill_what_they_may_take, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows_of_logits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_absurd_sizes_do_not_overflow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_plan_is_reported, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
