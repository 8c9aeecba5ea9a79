// SPDX-License-Identifier: Apache-2.0
// The frequencies of RoPE under each scaling, and what becomes of checkpoints that lack something or make no sense.
#include <math.h>

#include "container.h"
#include "model/model.h"
#include "model/rope.h"
#include "tiny.h"

// ---- rope ----

static json_t *read_json(const char *text)
{
    struct error err;
    json_t *json;
    if (!json_read(bytes_of(text), &json, &err))
        fail_msg("%s", err.text);
    return json;
}

static void check_frequency(const struct rope *rope, const float *frequencies, int pair, double expected)
{
    if (fabs(frequencies[pair] - expected) > 3e-6 * expected)
        fail_msg("theta %g, factor %g: pair %d turns by %.9g, expected %.9g", rope->theta, rope->factor, pair,
                 frequencies[pair], expected);
}

// Numbers as modeling_rope_utils.py of transformers 5.22 computes them.
static const struct {
    const char *config;
    int context, rotated;
    double magnitude;
    struct {
        int pair;
        double frequency;
    } expected[7];
} published[] = {
    { "{\"rope_theta\":10000}", 2048, 64, 1, { { 0, 1 }, { 8, 0.1 }, { 16, 0.01 }, { 24, 0.001 } } },
    { "{\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}",
      8192,
      64,
      1,
      { { 0, 0.25 }, { 1, 0.18747355 }, { 8, 0.025 }, { 24, 0.00025 }, { 31, 3.33380376e-05 } } },
    { "{\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
      "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
      131072,
      128,
      1,
      { { 0, 1 },
        { 1, 0.814617217 },
        { 28, 0.00321145 },
        { 29, 0.00216657 },
        { 32, 0.000524846022 },
        { 34, 0.000178508 },
        { 63, 3.06892588e-07 } } },
    { "{\"rope_parameters\":{\"rope_theta\":500000,\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
      "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
      131072,
      64,
      1,
      { { 14, 0.00321145 }, { 15, 0.00129055 }, { 16, 0.000429556705 }, { 31, 9.41830649e-08 } } },
    { "{\"rope_theta\":1000000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
      "\"original_max_position_embeddings\":32768}}",
      131072,
      128,
      1.13862944,
      { { 0, 1 },
        { 23, 0.00697831 },
        { 24, 0.00537532 },
        { 32, 0.000602941145 },
        { 39, 6.49039e-05 },
        { 40, 4.4457e-05 },
        { 63, 3.10234441e-07 } } },
    { "{\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":16.0,\"beta_fast\":16.0,"
      "\"beta_slow\":2.0,\"original_max_position_embeddings\":4096,\"attention_factor\":1.25}}",
      65536,
      64,
      1.25,
      { { 12, 0.0316228 }, { 13, 0.0212436 }, { 16, 0.00583333336 }, { 20, 0.000527046 }, { 31, 8.3345094e-06 } } },
    { "{\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,"
      "\"beta_slow\":1.0,\"truncate\":false,\"original_max_position_embeddings\":4096}}",
      131072,
      64,
      1.34657359,
      { { 8, 0.0508132726 }, { 9, 0.0317057 }, { 16, 0.000456483918 }, { 17, 0.000129319 }, { 31, 3.0235114e-07 } } },
    { "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":0.8,"
      "\"original_max_position_embeddings\":4096}}",
      163840,
      64,
      1.05696626,
      { { 10, 0.0562341 }, { 11, 0.0390069 }, { 16, 0.0055 }, { 24, 2.5e-05 } } },
};

static void test_published_frequencies(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(published); i++) {
        struct source source = { .json = read_json(published[i].config) };
        struct arena arena = { 0 };
        struct rope rope = { 0 };
        struct error err;
        if (!rope_read(&rope, &source, "full_attention", published[i].context, published[i].rotated, &err))
            fail_msg("%s: %s", published[i].config, err.text);
        const float *frequencies = rope_frequencies(&rope, published[i].rotated, &arena);
        for (size_t j = 0; j < COUNT_OF(published[i].expected) && published[i].expected[j].frequency; j++)
            check_frequency(&rope, frequencies, published[i].expected[j].pair, published[i].expected[j].frequency);
        assert_true(fabs(rope.magnitude - published[i].magnitude) < 1e-7);
        arena_free(&arena);
        json_decref((json_t *)source.json);
    }
}

static void test_rope_per_kind_of_layer(void **state)
{
    (void)state;
    struct source source = { .json = read_json("{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\","
                                               "\"factor\":8,"
                                               "\"rope_theta\":1e6},\"sliding_attention\":{\"rope_type\":\"default\","
                                               "\"rope_theta\":1e4}}}") };
    struct rope full = { 0 }, sliding = { 0 };
    struct error err;
    assert_true(rope_read(&full, &source, "full_attention", 4096, 64, &err));
    assert_true(rope_read(&sliding, &source, "sliding_attention", 4096, 64, &err));
    assert_true(full.theta == 1e6 && full.scaling == ROPE_LINEAR && full.factor == 8);
    assert_true(sliding.theta == 1e4 && sliding.scaling == ROPE_PLAIN);
    json_decref((json_t *)source.json);
}

static void test_rope_that_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } cases[] = {
        { "{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "rope scaling \"dynamic\" is not supported" },
        { "{\"rope_scaling\":{\"rope_type\":\"mrope\"}}", "\"mrope\"" },
        { "{\"rope_scaling\":{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":0}}",
          "original context 0" },
        { "{\"rope_parameters\":{\"rope_type\":\"proportional\"}}", "\"proportional\"" },
        { "{\"rope_scaling\":{\"type\":4}}", "\"type\" is an integer" },
        { "{\"rope_theta\":0}", "theta 0" },
        { "{\"rope_theta\":-10000}", "theta -10000" },
        { "{\"rope_theta\":\"big\"}", "\"rope_theta\" is a string" },
        { "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "factor 0" },
        { "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}}", "factor -2" },
        { "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":0}}",
          "original context 0" },
        { "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":0}}", "make no sense" },
        { "{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_factor\":4}}",
          "make no sense" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct source source = { .json = read_json(cases[i].config) };
        struct rope rope = { 0 };
        struct error err;
        if (rope_read(&rope, &source, "full_attention", 4096, 64, &err))
            fail_msg("%s was accepted", cases[i].config);
        assert_says(err, cases[i].says);
        json_decref((json_t *)source.json);
    }
}

// ---- models that are understood ----

static const struct tiny_sizes sizes = { .layers = 7,
                                         .hidden = 24,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 8,
                                         .feed_forward = 20,
                                         .vocabulary = 11,
                                         .context = 512 };
static const char *const types[] = { "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text" };

static void need_model(struct tiny *tiny, struct model *model)
{
    struct error err;
    if (!model_describe(model, &tiny->checkpoint, &err))
        fail_msg("%s", err.text);
}

static void test_numbers_that_all_models_have(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct tiny tiny = { 0 };
        struct model model;
        tiny_model(&tiny, types[i], &sizes, "{\"rms_norm_eps\":1e-5,\"dtype\":\"float16\"}");
        need_model(&tiny, &model);
        const struct model_config *config = &model.config;
        assert_non_null(strstr(types[i], config->architecture));
        assert_int_equal(config->layers, sizes.layers);
        assert_int_equal(config->hidden, sizes.hidden);
        assert_int_equal(config->kv_heads, sizes.kv_heads);
        assert_int_equal(config->head_dim, sizes.head_dim);
        assert_int_equal(config->rotated, sizes.head_dim);
        assert_int_equal(config->vocabulary, sizes.vocabulary);
        assert_int_equal(config->kv_dtype, DTYPE_F16);
        assert_true(config->norm_epsilon == 1e-5);
        assert_int_equal(model.buffer_width[BUFFER_LOGITS], sizes.vocabulary);
        size_t used = 0; // every tensor of the file has its place
        for (int j = 0; j < model.op_count; j++) {
            used += model.ops[j].vector != NULL;
            for (int k = 0; k < model.ops[j].matrices; k++)
                used += 1 + (model.ops[j].matrix[k].bias != NULL);
        }
        assert_int_equal(used, tiny.checkpoint.tensor_count);
        model_free(&model);
        checkpoint_close(&tiny.checkpoint);
    }
}

static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more, *windowed; // per layer: w or f
    } cases[] = {
        { "llama", "{\"sliding_window\":64}", "fffffff" },
        { "mistral", "{\"sliding_window\":64}", "wwwwwww" },
        { "mistral", "{\"sliding_window\":null}", "fffffff" },
        { "qwen2", "{\"sliding_window\":64,\"max_window_layers\":5}", "fffffff" },
        { "qwen2", "{\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":5}", "fffffww" },
        { "gemma2", "{\"sliding_window\":64}", "wfwfwfw" },
        { "gemma3_text", "{\"sliding_window\":64}", "wwwwwfw" },
        { "gemma3_text", "{\"sliding_window\":64,\"sliding_window_pattern\":3}", "wwfwwfw" },
        { "gemma3_text",
          "{\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
          "\"sliding_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"]}",
          "fwfwffw" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tiny tiny = { 0 };
        struct model model;
        tiny_model(&tiny, cases[i].type, &sizes, cases[i].more);
        need_model(&tiny, &model);
        for (int layer = 0; layer < sizes.layers; layer++)
            assert_int_equal(model.layer[layer].window, cases[i].windowed[layer] == 'w' ? 64 : 0);
        model_free(&model);
        checkpoint_close(&tiny.checkpoint);
    }
}

// Gemma 3 stretches full layers alone: windowed ones keep their own base and magnitude.
static void test_gemma3_turns_two_ways(void **state)
{
    (void)state;
    struct tiny tiny = { 0 };
    struct model model;
    tiny_model(&tiny, "gemma3_text", &sizes,
               "{\"rope_theta\":1e6,\"rope_local_base_freq\":1e4,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8,"
               "\"original_max_position_embeddings\":64}}");
    need_model(&tiny, &model);
    assert_true(fabs(model.layer[5].rope_magnitude - (0.1 * log(8) + 1)) < 1e-6);
    assert_true(model.layer[0].rope_magnitude == 1);
    for (int pair = 0; pair < sizes.head_dim / 2; pair++)
        assert_true(fabs(model.layer[0].frequencies[pair] - pow(1e4, -2.0 * pair / sizes.head_dim)) < 1e-7);
    assert_true(model.layer[5].frequencies[3] < model.layer[0].frequencies[3]);
    model_free(&model);
    checkpoint_close(&tiny.checkpoint);
}

static void test_a_head_that_is_the_embedding(void **state)
{
    (void)state;
    struct tiny tiny = { .without = "lm_head.weight" };
    struct model model;
    tiny_model(&tiny, "llama", &sizes, "{}");
    need_model(&tiny, &model);
    assert_ptr_equal(model.ops[model.op_count - 1].matrix[0].tensor, model.ops[0].matrix[0].tensor);
    model_free(&model);
    checkpoint_close(&tiny.checkpoint);
}

// ---- models that are refused ----

// The checkpoint is closed in any case: what model_describe left behind is for the leak sanitizer to find.
static void check_refused(struct tiny *tiny, const char *says)
{
    struct model model;
    struct error err;
    if (model_describe(&model, &tiny->checkpoint, &err))
        fail_msg("accepted, expected \"%s\"", says);
    assert_says(err, says);
    assert_false(err.usage);
    checkpoint_close(&tiny->checkpoint);
}

static void test_configs_that_make_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        { "{\"model_type\":\"mamba\"}", "\"mamba\", which nibble does not run; it runs llama, mistral" },
        { "{\"model_type\":null}", "lacks model_type" },
        { "{\"model_type\":7}", "\"model_type\" is an integer" },
        { "{\"text_config\":{\"model_type\":\"mamba\"}}", "\"mamba\"" },
        { "{\"num_hidden_layers\":null}", "lacks num_hidden_layers" },
        { "{\"num_hidden_layers\":0}", "\"num_hidden_layers\" is 0" },
        { "{\"num_hidden_layers\":-1}", "\"num_hidden_layers\" is -1" },
        { "{\"num_hidden_layers\":2147483648}", "\"num_hidden_layers\" is 2147483648" },
        { "{\"num_hidden_layers\":1e30}", "\"num_hidden_layers\"" },
        { "{\"num_hidden_layers\":1.5}", "\"num_hidden_layers\" is 1.5" },
        { "{\"num_hidden_layers\":\"2\"}", "\"num_hidden_layers\" is a string" },
        { "{\"num_hidden_layers\":true}", "\"num_hidden_layers\" is a boolean" },
        { "{\"num_hidden_layers\":8}", "model.layers.7." },
        { "{\"hidden_size\":null}", "lacks hidden_size" },
        { "{\"hidden_size\":0}", "\"hidden_size\" is 0" },
        { "{\"hidden_size\":65537}", "\"hidden_size\" is 65537" },
        { "{\"hidden_size\":32}", "model.embed_tokens.weight has shape (11, 24)" },
        { "{\"num_attention_heads\":null}", "lacks num_attention_heads" },
        { "{\"num_attention_heads\":0}", "\"num_attention_heads\" is 0" },
        { "{\"num_attention_heads\":-4}", "\"num_attention_heads\" is -4" },
        { "{\"num_attention_heads\":2147483648}", "\"num_attention_heads\" is 2147483648" },
        { "{\"num_attention_heads\":6}", "model.layers.0.self_attn.q_proj.weight has shape (32, 24)" },
        { "{\"num_key_value_heads\":0}", "\"num_key_value_heads\" is 0" },
        { "{\"num_key_value_heads\":3}", "4 attention heads cannot share 3" },
        { "{\"num_key_value_heads\":8}", "4 attention heads cannot share 8" },
        { "{\"head_dim\":0}", "\"head_dim\" is 0" },
        { "{\"head_dim\":1}", "\"head_dim\" is 1" },
        { "{\"head_dim\":7}", "heads of 7 channels" },
        { "{\"head_dim\":513}", "\"head_dim\" is 513" },
        { "{\"head_dim\":-8}", "\"head_dim\" is -8" },
        { "{\"head_dim\":null,\"num_attention_heads\":48}", "heads of 0 channels" }, // hidden_size / heads
        { "{\"head_dim\":null,\"hidden_size\":8192,\"num_attention_heads\":8}", "heads of 1024 channels" },
        { "{\"head_dim\":512,\"num_attention_heads\":1024}", "1024 heads of 512 channels" },
        { "{\"intermediate_size\":null}", "lacks intermediate_size" },
        { "{\"intermediate_size\":70000}", "\"intermediate_size\" is 70000" },
        { "{\"max_position_embeddings\":null}", "lacks max_position_embeddings" },
        { "{\"max_position_embeddings\":0}", "\"max_position_embeddings\" is 0" },
        { "{\"max_position_embeddings\":1099511627776}", "\"max_position_embeddings\" is 1099511627776" },
        { "{\"rms_norm_eps\":0}", "norm epsilon 0" },
        { "{\"rms_norm_eps\":-1e-6}", "norm epsilon -1e-06" },
        { "{\"rms_norm_eps\":[]}", "\"rms_norm_eps\" is an array" },
        { "{\"hidden_act\":\"relu\"}", "hidden_act is \"relu\"" },
        { "{\"rope_scaling\":{\"rope_type\":\"ntk\",\"factor\":2}}", "\"ntk\"" },
        { "{\"layer_types\":[\"full_attention\"]}", "layer_types says \"nothing\" for layer 1" },
        { "{\"layer_types\":[\"linear_attention\"]}", "layer_types says \"linear_attention\" for layer 0" },
        { "{\"layer_types\":[\"sliding_attention\"]}", "sliding_window gives no size" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tiny tiny = { 0 };
        tiny_model(&tiny, "llama", &sizes, cases[i].more);
        check_refused(&tiny, cases[i].says);
    }
}

static void test_every_tensor_is_missed(void **state)
{
    (void)state;
    struct tiny_sizes two = sizes;
    two.layers = 2;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct tiny whole = { 0 };
        tiny_model(&whole, types[i], &two, "{}");
        for (size_t j = 0; j < whole.checkpoint.tensor_count; j++) {
            struct tiny tiny = { .without = whole.checkpoint.tensors[j].name };
            if (strstr(tiny.without, "lm_head") || strstr(tiny.without, "bias"))
                continue; // models without them exist
            tiny_model(&tiny, types[i], &two, "{}");
            check_refused(&tiny, tiny.without);
        }
        checkpoint_close(&whole.checkpoint);
    }
}

static void more_rows(struct tensor *tensor) { tensor->shape[0]++; }
static void more_columns(struct tensor *tensor) { tensor->shape[tensor->rank - 1]++; }
static void another_rank(struct tensor *tensor) { tensor->shape[tensor->rank++] = 1; }
static void no_rank(struct tensor *tensor) { tensor->rank = 0; }
static void integers(struct tensor *tensor) { tensor->dtype = DTYPE_I32; }
static void cache_format(struct tensor *tensor) { tensor->dtype = DTYPE_FP8_E4M3; }

static void test_every_tensor_is_looked_at(void **state)
{
    (void)state;
    static void (*const flaws[])(struct tensor *) = { more_rows, more_columns, another_rank,
                                                      no_rank,   integers,     cache_format };
    struct tiny_sizes one = sizes;
    one.layers = 1;
    struct tiny whole = { 0 };
    tiny_model(&whole, "qwen2", &one, "{}");
    for (size_t i = 0; i < whole.checkpoint.tensor_count; i++)
        for (size_t j = 0; j < COUNT_OF(flaws); j++) {
            const char *name = whole.checkpoint.tensors[i].name, *culprit = name;
            struct tiny tiny = { 0 };
            tiny_model(&tiny, "qwen2", &one, "{}");
            flaws[j](tiny_find(&tiny, name));
            if (strstr(name, "embed_tokens") && flaws[j] == more_rows)
                culprit = "lm_head.weight"; // which the embedding's rows are the measure of
            check_refused(&tiny, culprit);
        }
    checkpoint_close(&whole.checkpoint);
}

static void test_norms_and_biases_are_plain_floats(void **state)
{
    (void)state;
    static const char *const vectors[] = { "model.norm.weight", "model.layers.0.input_layernorm.weight",
                                           "model.layers.0.self_attn.q_proj.bias" };
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        struct tiny tiny = { 0 };
        tiny_model(&tiny, "qwen2", &sizes, "{}");
        tiny_find(&tiny, vectors[i])->dtype = DTYPE_Q8_0;
        check_refused(&tiny, vectors[i]);
    }
}

static void test_vocabularies_that_make_no_sense(void **state)
{
    (void)state;
    static const int64_t counts[] = {
        0, (int64_t)1 << 24, (int64_t)1 << 31, (int64_t)1 << 32, ((int64_t)1 << 32) + 11, INT64_MAX / 64
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct tiny tiny = { .without = i % 2 ? "lm_head.weight" : NULL };
        tiny_model(&tiny, "llama", &sizes, "{}");
        tiny_find(&tiny, "model.embed_tokens.weight")->shape[0] = counts[i];
        check_refused(&tiny, "model.embed_tokens.weight");
    }
}

// ---- GGUF ----

// The smallest llama, with one key left out and another added or replaced; the added one is the caller's to put.
static void make_gguf(struct tiny *tiny, const char *without, struct gguf_file *added)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = { { "llama.block_count", 1 },          { "llama.embedding_length", 24 },
                 { "llama.feed_forward_length", 20 }, { "llama.attention.head_count", 4 },
                 { "llama.context_length", 512 },     { "llama.attention.head_count_kv", 2 },
                 { "llama.attention.key_length", 8 }, { "llama.attention.value_length", 8 } };
    struct gguf_file *file = added;
    struct checkpoint *checkpoint = &tiny->checkpoint;
    struct error err;
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strcmp(keys[i].key, without))
            gguf_file_u32(file, keys[i].key, keys[i].value);
    if (strcmp(without, "general.architecture")) {
        gguf_file_key(file, "general.architecture", GGUF_STRING);
        put_string(&file->keys, bytes_of("llama"));
    }
    struct strbuf built = gguf_file_finish(file, 32);
    struct bytes content = { arena_text(&checkpoint->arena, built.data, built.len), built.len };
    strbuf_free(&built);
    checkpoint->gguf = ARENA_NEW(&checkpoint->arena, struct gguf, 1);
    if (!gguf_parse(content, checkpoint->gguf, &err))
        fail_msg("%s", err.text);

    tiny_tensor(tiny, "token_embd.weight", DTYPE_F32, 11, 24);
    tiny_tensor(tiny, "output_norm.weight", DTYPE_F32, 24, 0);
    tiny_tensor(tiny, "blk.0.attn_norm.weight", DTYPE_F32, 24, 0);
    tiny_tensor(tiny, "blk.0.ffn_norm.weight", DTYPE_F32, 24, 0);
    tiny_tensor(tiny, "blk.0.attn_q.weight", DTYPE_F32, 32, 24);
    tiny_tensor(tiny, "blk.0.attn_k.weight", DTYPE_F32, 16, 24);
    tiny_tensor(tiny, "blk.0.attn_v.weight", DTYPE_F32, 16, 24);
    tiny_tensor(tiny, "blk.0.attn_output.weight", DTYPE_F32, 24, 32);
    tiny_tensor(tiny, "blk.0.ffn_gate.weight", DTYPE_F32, 20, 24);
    tiny_tensor(tiny, "blk.0.ffn_up.weight", DTYPE_F32, 20, 24);
    tiny_tensor(tiny, "blk.0.ffn_down.weight", DTYPE_F32, 24, 20);
}

static void test_gguf(void **state)
{
    (void)state;
    struct tiny tiny = { 0 };
    struct gguf_file file = { 0 };
    struct model model;
    gguf_file_key(&file, "llama.rope.scaling.type", GGUF_STRING);
    put_string(&file.keys, bytes_of("linear"));
    gguf_file_key(&file, "llama.rope.scaling.factor", GGUF_F32);
    put(&file.keys, &(float){ 4 }, 4);
    make_gguf(&tiny, "", &file);
    tiny_tensor(&tiny, "rope_freqs.weight", DTYPE_F32, 4, 0);
    float *divisors = (float *)tiny_find(&tiny, "rope_freqs.weight")->data;
    memcpy(divisors, (const float[]){ 1, 2, 4, 8 }, 4 * sizeof *divisors);
    need_model(&tiny, &model);
    assert_true(model.config.rope_interleaved);
    assert_int_equal(model.config.vocabulary, 11);
    for (int pair = 0; pair < 4; pair++)
        assert_true(fabs(model.layer[0].frequencies[pair] * (4 << pair) * pow(10, pair) - 1) < 1e-6);
    model_free(&model);
    checkpoint_close(&tiny.checkpoint);
}

static void test_gguf_keys_are_missed(void **state)
{
    (void)state;
    static const char *const keys[] = { "general.architecture",       "llama.block_count",
                                        "llama.embedding_length",     "llama.feed_forward_length",
                                        "llama.attention.head_count", "llama.context_length" };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        struct tiny tiny = { 0 };
        struct gguf_file file = { 0 };
        make_gguf(&tiny, keys[i], &file);
        check_refused(&tiny, keys[i]);
    }
}

static void test_gguf_keys_that_make_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t number; // or, when there is one, the string
        const char *string, *says;
    } cases[] = {
        { "general.architecture", 0, "mamba", "\"mamba\"" },
        { "general.architecture", 7, NULL, "general.architecture" },
        { "llama.block_count", 0, NULL, "llama.block_count" },
        { "llama.block_count", -1, NULL, "llama.block_count" },
        { "llama.block_count", (int64_t)1 << 31, NULL, "llama.block_count" },
        { "llama.block_count", 0, "one", "llama.block_count" },
        { "llama.block_count", 2, NULL, "blk.1." },
        { "llama.attention.head_count", 0, NULL, "llama.attention.head_count" },
        { "llama.attention.head_count_kv", 3, NULL, "4 attention heads cannot share 3" },
        { "llama.attention.key_length", 7, NULL, "heads of 7 channels" },
        { "llama.attention.key_length", 514, NULL, "llama.attention.key_length" },
        { "llama.attention.value_length", 6, NULL, "values of 6" },
        { "llama.rope.dimension_count", 5, NULL, "5 of them rotary" },
        { "llama.rope.dimension_count", 10, NULL, "10 of them rotary" },
        { "llama.rope.scaling.type", 0, "mrope", "\"mrope\"" },
        { "llama.rope.scaling.type", 0, "longrope", "lacks long_factor" },
        { "llama.rope.freq_base", 0, NULL, "theta 0" },
        { "llama.attention.layer_norm_rms_epsilon", 0, NULL, "norm epsilon 0" },
        { "llama.attention.sliding_window", 513, NULL, "llama.attention.sliding_window" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tiny tiny = { 0 };
        struct gguf_file file = { 0 };
        gguf_file_key(&file, cases[i].key, cases[i].string ? GGUF_STRING : GGUF_I64);
        if (cases[i].string)
            put_string(&file.keys, bytes_of(cases[i].string));
        else
            put_u64(&file.keys, (uint64_t)cases[i].number);
        make_gguf(&tiny, cases[i].key, &file);
        check_refused(&tiny, cases[i].says);
    }
}

static void test_gguf_divisors_that_make_no_sense(void **state)
{
    (void)state;
    for (int flaw = 0; flaw < 4; flaw++) {
        struct tiny tiny = { 0 };
        struct gguf_file file = { 0 };
        make_gguf(&tiny, "", &file);
        tiny_tensor(&tiny, "rope_freqs.weight", flaw == 1 ? DTYPE_F16 : DTYPE_F32, flaw == 0 ? 5 : 4, 0);
        float *divisors = (float *)tiny_find(&tiny, "rope_freqs.weight")->data;
        for (int i = 0; i < 4 && flaw > 1; i++)
            divisors[i] = i < 3 ? 1 : flaw == 2 ? 0 : NAN;
        check_refused(&tiny, "rope_freqs.weight");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_frequencies),
        cmocka_unit_test(test_rope_per_kind_of_layer),
        cmocka_unit_test(test_rope_that_makes_no_sense),
        cmocka_unit_test(test_numbers_that_all_models_have),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_gemma3_turns_two_ways),
        cmocka_unit_test(test_a_head_that_is_the_embedding),
        cmocka_unit_test(test_configs_that_make_no_sense),
        cmocka_unit_test(test_every_tensor_is_missed),
        cmocka_unit_test(test_every_tensor_is_looked_at),
        cmocka_unit_test(test_norms_and_biases_are_plain_floats),
        cmocka_unit_test(test_vocabularies_that_make_no_sense),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_gguf_keys_are_missed),
        cmocka_unit_test(test_gguf_keys_that_make_no_sense),
        cmocka_unit_test(test_gguf_divisors_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
