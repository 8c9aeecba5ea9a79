// SPDX-License-Identifier: Apache-2.0
// Sampling parameters of models whose requests say nothing: by generation_config.json, GGUF keys, family, flags.
#include <stdio.h>
#include <unistd.h>

#include "container.h"
#include "engine/sampling/defaults.h"
#include "format/json.h"

static const struct nibble_defaults_options automatic = { 0 };

static json_t *json_of(const char *text)
{
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    assert_true(!text || json);
    return json;
}

static struct nibble_defaults read_json(const char *config, const char *generation, const char *path,
                                        const struct nibble_defaults_options *options)
{
    struct checkpoint checkpoint = { .path = path,
                                     .config = json_of(config),
                                     .generation_config = json_of(generation) };
    struct nibble_defaults out;
    struct error err = { 0 };
    if (!sampling_defaults(&checkpoint, options, &out, &err))
        fail_msg("%s", err.text);
    json_decref(checkpoint.config);
    json_decref(checkpoint.generation_config);
    return out;
}

static void put_text(struct gguf_file *file, const char *key, const char *value)
{
    gguf_file_key(file, key, GGUF_STRING);
    put_string(&file->keys, bytes_of(value));
}

static void put_real(struct gguf_file *file, const char *key, float value)
{
    gguf_file_key(file, key, GGUF_F32);
    put(&file->keys, &value, sizeof value);
}

static bool read_gguf(struct gguf_file *file, struct nibble_defaults *out, struct error *err)
{
    struct strbuf bytes = gguf_file_finish(file, 32);
    struct gguf gguf;
    if (!gguf_parse(strbuf_bytes(&bytes), &gguf, err))
        fail_msg("%s", err->text);
    struct checkpoint checkpoint = { .path = "/models/file.gguf", .gguf = &gguf };
    bool ok = sampling_defaults(&checkpoint, &automatic, out, err);
    gguf_free(&gguf);
    strbuf_free(&bytes);
    return ok;
}

// ---- families -----------------------------------------------------------------------------------------------------

static void families(void **state)
{
    static const struct {
        const char *name, *architecture; // as in GGUF files
        double temperature, top_p;
        int top_k;
    } cases[] = {
        { "SmolLM2 135M Instruct", "llama", 0.2, 0.9, 0 },
        { "SmolLM3 3B", "smollm3", 0.6, 0.95, 0 },
        { "Meta Llama 3.1 8B Instruct", "llama", 0.6, 0.9, 0 },
        { "Qwen3 0.6B", "qwen3", 0.6, 0.95, 20 },
        { "Qwen3 4B Instruct 2507", "qwen3", 0.7, 0.8, 20 },
        { "Qwen2.5 7B Instruct", "qwen2", 0.7, 0.8, 20 },
        { "DeepSeek R1 Distill Qwen 7B", "qwen2", 0.6, 0.95, 0 },
        { "DeepSeek V2 Lite Chat", "deepseek2", 0.3, 0.95, 0 },
        { "a model of somebody", "deepseek2", 0.6, 0.95, 0 },
        { "Gemma 3 270m", "gemma3", 1, 0.95, 64 },
        { "Mistral Small 3.2 24B", "llama", 0.15, 1, 0 },
        { "Mistral 7B Instruct v0.3", "llama", 0.7, 1, 0 },
        { "Gpt Oss 20B", "gpt-oss", 1, 1, 0 },
        { "Phi 4 Mini Reasoning", "phi3", 0.8, 0.95, 50 },
        { "Phi 3 Mini 4K Instruct", "phi3", 0, 1, 0 },
        { "Granite 3.3 8B Instruct", "granite", 0, 1, 0 },
        { "a model of somebody", "llama", 0.7, 0.9, 0 },
        { "a model of somebody", "qwen3moe", 0.6, 0.95, 20 },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf_file file = { 0 };
        struct nibble_defaults out;
        struct error err;
        put_text(&file, "general.name", cases[i].name);
        put_text(&file, "general.architecture", cases[i].architecture);
        assert_true(read_gguf(&file, &out, &err));
        if (out.sampling.temperature != cases[i].temperature || out.sampling.top_p != cases[i].top_p
            || out.sampling.top_k != cases[i].top_k)
            fail_msg("%s, %s: temperature %g, top_p %g, top_k %d (%s)", cases[i].name, cases[i].architecture,
                     out.sampling.temperature, out.sampling.top_p, out.sampling.top_k, out.origin);
    }
}

static void families_of_folders(void **state)
{
    (void)state;
    static const char cached[] = "/cache/models--HuggingFaceTB--SmolLM2-135M-Instruct/snapshots/0123";
    assert_string_equal(read_json("{}", NULL, "/models/SmolLM2-1.7B", &automatic).origin, "as advised for SmolLM2");
    assert_string_equal(read_json("{}", NULL, cached, &automatic).origin, "as advised for SmolLM2");
    assert_string_equal(read_json("{\"model_type\": \"qwen3_moe\"}", NULL, "/x", &automatic).origin,
                        "as advised for Qwen3");
    assert_string_equal(read_json("{}", NULL, "/qwen3/mine", &automatic).origin,
                        "nibble's own, as no file of the model says any");
}

// ---- files and flags ----------------------------------------------------------------------------------------------

static void a_generation_config_comes_first(void **state)
{
    (void)state;
    struct nibble_defaults out = read_json("{}", "{\"temperature\": 0.4, \"top_k\": -1, \"max_new_tokens\": 64}",
                                           "/SmolLM2", &automatic);
    assert_true(out.sampling.temperature == 0.4 && out.sampling.top_p == 1 && out.sampling.top_k == 0);
    assert_int_equal(out.max_tokens, 64);
    assert_string_equal(out.origin, "from generation_config.json");
    out = read_json("{}", "{\"eos_token_id\": 2, \"temperature\": null}", "/SmolLM2", &automatic);
    assert_string_equal(out.origin, "as advised for SmolLM2");
}

static void keys_of_a_file(void **state)
{
    struct gguf_file file = { 0 }, wrong = { 0 };
    struct nibble_defaults out;
    struct error err = { 0 };
    (void)state;
    put_text(&file, "general.name", "SmolLM2");
    put_real(&file, "general.sampling.temp", 0.35f);
    put_real(&file, "general.sampling.min_p", 0.05f);
    assert_true(read_gguf(&file, &out, &err));
    assert_true(out.sampling.temperature == 0.35 && out.sampling.min_p == 0.05 && out.sampling.top_p == 1);
    assert_string_equal(out.origin, "from the file's general.sampling keys");
    put_real(&wrong, "general.sampling.top_p", 7);
    assert_false(read_gguf(&wrong, &out, &err));
    assert_says(err, "general.sampling: top-p 7: more than 0 and at most 1 is possible");
}

static void flags(void **state)
{
    (void)state;
    struct nibble_defaults_options options = { .generation_config = "vllm" };
    struct nibble_defaults out = read_json("{}", "{\"temperature\": 0.4}", "/SmolLM2", &options);
    assert_true(out.sampling.temperature == 1 && out.sampling.top_p == 1 && out.sampling.top_k == 0);
    options = (struct nibble_defaults_options){ .override_generation_config = "{\"top_p\": 0.5, \"top_k\": 7}" };
    out = read_json("{}", NULL, "/SmolLM2", &options);
    assert_true(out.sampling.temperature == 0.2 && out.sampling.top_p == 0.5 && out.sampling.top_k == 7);
    assert_string_equal(out.origin, "as advised for SmolLM2, and --override-generation-config");
}

static void a_folder(void **state)
{
    char folder[] = "/tmp/defaults_test_XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    FILE *file = fopen(path, "w");
    fputs("{\"temperature\": 0.9}", file);
    fclose(file);
    struct nibble_defaults_options options = { .generation_config = folder };
    struct nibble_defaults out = read_json("{}", "{\"temperature\": 0.4}", "/SmolLM2", &options);
    assert_true(out.sampling.temperature == 0.9);
    assert_non_null(strstr(out.origin, path));
    remove(path);
    rmdir(folder);
}

static void what_is_refused(void **state)
{
    static const struct {
        struct nibble_defaults_options options;
        const char *generation, *sentence;
    } cases[] = {
        { { .override_generation_config = "{\"temprature\": 1}" },
          NULL,
          "--override-generation-config: there is no parameter \"temprature\", did you mean temperature?; known are "
          "temperature, top_p" },
        { { .override_generation_config = "{\"zzz\": 1}" }, NULL, "there is no parameter \"zzz\"; known are" },
        { { .override_generation_config = "{\"temperature\": \"hot\"}" }, NULL, "--override-generation-config" },
        { { .override_generation_config = "{\"temperature\": -1}" }, NULL, "temperature -1: 0 to 100 is possible" },
        { { .override_generation_config = "{\"top_k\": 1.5}" }, NULL, "top_k" },
        { { .override_generation_config = "[1]" }, NULL, "a JSON object is expected" },
        { { .override_generation_config = "{" }, NULL, "--override-generation-config" },
        { { .generation_config = "/there/is/none" },
          NULL,
          "--generation-config takes auto, vllm or a folder with generation_config.json" },
        { { 0 },
          "{\"top_p\": 100}",
          "generation_config.json: top-p 100: more than 0 and at most 1 is possible; --generation-config vllm leaves" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct checkpoint checkpoint = { .path = "/x", .generation_config = json_of(cases[i].generation) };
        struct nibble_defaults out;
        struct error err = { 0 };
        assert_false(sampling_defaults(&checkpoint, &cases[i].options, &out, &err));
        assert_says(err, cases[i].sentence);
        assert_true(err.usage || cases[i].generation);
        json_decref(checkpoint.generation_config);
    }
}

static void in_words(void **state)
{
    (void)state;
    struct nibble_defaults_options options = { .override_generation_config = "{\"top_k\": 20, \"min_p\": 0.05}" };
    struct nibble_defaults out = read_json("{}", NULL, "/SmolLM2", &options);
    struct nibble_text line = { 0 };
    nibble_sampling_print(&out.sampling, &line);
    assert_string_equal(line.data, "temperature 0.2, top_p 0.9, top_k 20, min_p 0.05");
    free(line.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),        cmocka_unit_test(families_of_folders),
        cmocka_unit_test(keys_of_a_file),  cmocka_unit_test(a_generation_config_comes_first),
        cmocka_unit_test(flags),           cmocka_unit_test(a_folder),
        cmocka_unit_test(what_is_refused), cmocka_unit_test(in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
