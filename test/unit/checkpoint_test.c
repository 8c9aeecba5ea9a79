// SPDX-License-Identifier: Apache-2.0
// Each test has a folder of its own under /tmp, which is also its Hugging Face cache.
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container.h"
#include "format/checkpoint.h"

#define TENSOR(name) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

struct place {
    char root[64];
    struct arena arena;
};

static const char *path_of(struct place *place, const char *name)
{
    return arena_format(&place->arena, "%s/%s", place->root, name);
}

// Writes a file, and the folders on the way to it.
static void write_bytes(struct place *place, const char *name, struct bytes content)
{
    char *path = arena_format(&place->arena, "%s/%s", place->root, name);
    for (char *slash = path + strlen(place->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(content.data, 1, content.len, file);
    fclose(file);
}

static void write_text(struct place *place, const char *name, const char *text)
{
    write_bytes(place, name, bytes_of(text));
}

static void write_safetensors(struct place *place, const char *name, const char *header)
{
    struct strbuf file = safetensors_file(header, bytes_of("data"));
    write_bytes(place, name, strbuf_bytes(&file));
    strbuf_free(&file);
}

// One tensor of that name; `parts` > 0 makes it part `number` of so many.
static void write_gguf(struct place *place, const char *name, const char *tensor, uint32_t number, uint32_t parts)
{
    struct gguf_file file = { 0 };
    if (parts) {
        gguf_file_u32(&file, "split.no", number - 1);
        gguf_file_u32(&file, "split.count", parts);
    }
    gguf_file_tensor(&file, (struct gguf_entry){ tensor, 1, { 1 }, 0, 0 });
    strbuf_add_text(&file.data, "data");
    struct strbuf built = gguf_file_finish(&file, 32);
    write_bytes(place, name, strbuf_bytes(&built));
    strbuf_free(&built);
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    strcpy(place->root, "/tmp/nibble-checkpoint-XXXXXX");
    *state = place;
    if (!mkdtemp(place->root))
        return -1;
    setenv("HF_HUB_CACHE", place->root, 1);
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static int tear_down(void **state)
{
    struct place *place = *state;
    nftw(place->root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    arena_free(&place->arena);
    free(place);
    return 0;
}

static void check_opens(const char *model, enum checkpoint_need need, size_t tensors)
{
    struct checkpoint checkpoint;
    struct error err;
    if (!checkpoint_open(&checkpoint, model, need, &err))
        fail_msg("%s: %s", model, err.text);
    assert_int_equal(checkpoint.tensor_count, tensors);
    checkpoint_close(&checkpoint);
}

static void check_refuses(const char *model, enum checkpoint_need need, const char *error)
{
    struct checkpoint checkpoint;
    struct error err;
    if (checkpoint_open(&checkpoint, model, need, &err))
        fail_msg("%s was opened", model);
    assert_says(err, error);
}

// ---- GGUF ----

static void test_gguf_file(void **state)
{
    struct place *place = *state;
    struct checkpoint checkpoint;
    struct error err;
    write_gguf(place, "m.gguf", "w", 0, 0);
    assert_true(checkpoint_open(&checkpoint, path_of(place, "m.gguf"), CHECKPOINT_ALL, &err));
    assert_non_null(checkpoint.gguf);
    assert_null(checkpoint.config);
    assert_string_equal(checkpoint.path, path_of(place, "m.gguf"));
    const struct tensor *tensor = checkpoint_find(&checkpoint, "w");
    assert_non_null(tensor);
    assert_memory_equal(tensor->data, "data", 4);
    assert_null(checkpoint_find(&checkpoint, "v"));
    checkpoint_close(&checkpoint);

    write_text(place, "m.safetensors", "no gguf");
    check_refuses(path_of(place, "m.safetensors"), CHECKPOINT_ALL, "not a GGUF file; checkpoints of other kinds");
    write_text(place, "empty.gguf", "");
    check_refuses(path_of(place, "empty.gguf"), CHECKPOINT_ALL, "not a GGUF file");
    write_text(place, "short.gguf", "GGUF");
    check_refuses(path_of(place, "short.gguf"), CHECKPOINT_ALL, "short.gguf: the file ends after 4 bytes");
    assert_int_equal(mkfifo(path_of(place, "pipe"), 0666), 0);
    check_refuses(path_of(place, "pipe"), CHECKPOINT_ALL, "not a regular file");
}

static void test_gguf_in_a_folder(void **state)
{
    struct place *place = *state;
    write_gguf(place, "one/m.gguf", "w", 0, 0);
    write_text(place, "one/README.md", "x");
    write_text(place, "one/._m.gguf", "x");
    check_opens(path_of(place, "one"), CHECKPOINT_ALL, 1);
    write_gguf(place, "one/n.gguf", "w", 0, 0);
    check_refuses(path_of(place, "one"), CHECKPOINT_ALL, "holds 2 .gguf files; give the path of one of them");
}

static void test_gguf_parts(void **state)
{
    struct place *place = *state;
    write_gguf(place, "s/m-00001-of-00003.gguf", "a", 1, 3);
    write_gguf(place, "s/m-00002-of-00003.gguf", "b", 2, 3);
    const char *first = path_of(place, "s/m-00001-of-00003.gguf");
    check_refuses(first, CHECKPOINT_ALL, "m-00003-of-00003.gguf: cannot be opened");
    check_opens(first, CHECKPOINT_TEXT, 1);
    write_gguf(place, "s/m-00003-of-00003.gguf", "c", 2, 3);
    check_refuses(first, CHECKPOINT_ALL, "m-00003-of-00003.gguf: holds part 2 of the model, expected part 3");
    write_gguf(place, "s/m-00003-of-00003.gguf", "a", 3, 3);
    check_refuses(first, CHECKPOINT_ALL, "tensor 'a' is in another file of the checkpoint, too");
    write_gguf(place, "s/m-00003-of-00003.gguf", "c", 3, 3);
    check_opens(first, CHECKPOINT_ALL, 3);
    check_opens(path_of(place, "s"), CHECKPOINT_ALL, 3);
    check_refuses(path_of(place, "s/m-00002-of-00003.gguf"), CHECKPOINT_ALL, "give the first part");
    write_gguf(place, "renamed.gguf", "a", 1, 3);
    check_refuses(path_of(place, "renamed.gguf"), CHECKPOINT_ALL, "its name must end in -00001-of-00003.gguf");
}

// ---- folders ----

static void test_folder(void **state)
{
    struct place *place = *state;
    struct checkpoint checkpoint;
    struct error err;
    write_text(place, "m/config.json", "{\"limit\": [0.0, Infinity], \"nothing\": NaN}");
    write_text(place, "m/generation_config.json", "{\"eos_token_id\": 2}");
    write_text(place, "m/hf_quant_config.json", "{}");
    write_text(place, "m/tokenizer.json", "{}");
    write_text(place, "m/tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}");
    write_text(place, "m/chat_template.jinja", "{{ messages }}");
    write_safetensors(place, "m/model.safetensors", "{" TENSOR("w") "}");

    assert_true(checkpoint_open(&checkpoint, path_of(place, "m"), CHECKPOINT_ALL, &err));
    assert_null(checkpoint.gguf);
    assert_true(checkpoint.config && checkpoint.generation_config && checkpoint.hf_quant_config);
    assert_true(checkpoint.tokenizer && checkpoint.tokenizer_config);
    assert_true(bytes_equal(checkpoint.chat_template, bytes_of("{{ messages }}")));
    assert_memory_equal(checkpoint_find(&checkpoint, "w")->data, "data", 4);
    checkpoint_close(&checkpoint);

    assert_true(checkpoint_open(&checkpoint, path_of(place, "m"), CHECKPOINT_HEADERS, &err));
    assert_true(checkpoint.config && checkpoint.generation_config && checkpoint.hf_quant_config);
    assert_true(!checkpoint.tokenizer && !checkpoint.tokenizer_config && !checkpoint.chat_template.data);
    assert_int_equal(checkpoint.tensor_count, 1);
    checkpoint_close(&checkpoint);

    assert_true(checkpoint_open(&checkpoint, path_of(place, "m"), CHECKPOINT_TEXT, &err));
    assert_true(checkpoint.tokenizer && checkpoint.tokenizer_config && checkpoint.chat_template.data);
    assert_int_equal(checkpoint.tensor_count, 0);
    checkpoint_close(&checkpoint);
}

static void test_incomplete_folders(void **state)
{
    struct place *place = *state;
    const char *folder = path_of(place, "m");
    write_text(place, "m/README.md", "x");
    check_refuses(folder, CHECKPOINT_TEXT, "holds no tokenizer.json");
    check_refuses(folder, CHECKPOINT_HEADERS, "holds no config.json and no .gguf file");
    write_text(place, "m/chat_template.jinja", "x");
    check_opens(folder, CHECKPOINT_TEXT, 0);
    write_text(place, "m/config.json", "[1]");
    check_refuses(folder, CHECKPOINT_ALL, "m/config.json: holds JSON that is no object");
    write_text(place, "m/config.json", "{\n\"a\" 1}");
    check_refuses(folder, CHECKPOINT_ALL, "m/config.json: line 2, column");
    write_text(place, "m/config.json", "{}");
    check_refuses(folder, CHECKPOINT_ALL, "holds no weights: neither model.safetensors nor");
    check_opens(folder, CHECKPOINT_HEADERS, 0); // a plan can be made from the configuration alone
    write_text(place, "m/model.safetensors", "short");
    check_refuses(folder, CHECKPOINT_HEADERS, "m/model.safetensors: the file ends after 5 bytes");
}

static void write_index(struct place *place, const char *weight_map)
{
    const char *text = arena_format(&place->arena, "{\"metadata\":{},\"weight_map\":%s}", weight_map);
    write_text(place, "m/model.safetensors.index.json", text);
}

static void test_shards(void **state)
{
    struct place *place = *state;
    const char *folder = path_of(place, "m");
    write_text(place, "m/config.json", "{}");
    write_safetensors(place, "m/1.safetensors", "{" TENSOR("a") "}");
    write_index(place, "{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}");
    check_refuses(folder, CHECKPOINT_ALL, "index.json: names 2.safetensors, which is not in the folder");
    write_safetensors(place, "m/2.safetensors", "{" TENSOR("a") "}");
    check_refuses(folder, CHECKPOINT_ALL, "2.safetensors: tensor 'a' is in another file of the checkpoint, too");
    write_safetensors(place, "m/2.safetensors", "{" TENSOR("c") "}");
    check_refuses(folder, CHECKPOINT_ALL, "tensor 'b' should be in 2.safetensors and is not");
    write_safetensors(place, "m/2.safetensors", "{" TENSOR("b") "}");
    check_opens(folder, CHECKPOINT_ALL, 2);
    write_index(place, "{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}");
    check_refuses(folder, CHECKPOINT_ALL, "tensor 'a' should be in 2.safetensors and is not");
    write_index(place, "[]");
    check_refuses(folder, CHECKPOINT_ALL, "index.json: has no \"weight_map\"");
}

static void test_shards_outside_the_folder(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {
        "\"../1.safetensors\"", "\"/etc/passwd\"", "\"sub/1.safetensors\"", "\"..\"", "\"\"", "7", "\"1\\u0000\"",
    };
    write_text(place, "m/config.json", "{}");
    write_safetensors(place, "1.safetensors", "{" TENSOR("a") "}");
    write_safetensors(place, "m/sub/1.safetensors", "{" TENSOR("a") "}");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        write_index(place, arena_format(&place->arena, "{\"a\":%s}", names[i]));
        check_refuses(path_of(place, "m"), CHECKPOINT_ALL, "which cannot be a file of this folder");
    }
}

// ---- the Hugging Face cache ----

static void write_model(struct place *place, const char *folder)
{
    write_text(place, arena_format(&place->arena, "%s/config.json", folder), "{}");
    write_safetensors(place, arena_format(&place->arena, "%s/model.safetensors", folder), "{" TENSOR("w") "}");
}

static void test_hub(void **state)
{
    struct place *place = *state;
    check_refuses("org/name", CHECKPOINT_ALL, place->root); // it says where it looked
    write_model(place, "models--org--name/snapshots/aaa");
    check_opens("org/name", CHECKPOINT_ALL, 1); // the only snapshot
    write_model(place, "models--org--name/snapshots/bbb");
    check_refuses("org/name", CHECKPOINT_ALL, "not exactly one to take in its place");
    write_text(place, "models--org--name/refs/main", "bbb\n");
    struct checkpoint checkpoint;
    struct error err;
    assert_true(checkpoint_open(&checkpoint, "org/name", CHECKPOINT_ALL, &err));
    assert_string_equal(checkpoint.path, path_of(place, "models--org--name/snapshots/bbb"));
    checkpoint_close(&checkpoint);
    write_text(place, "models--org--name/refs/main", "../../../x");
    write_model(place, "x");
    check_refuses("org/name", CHECKPOINT_ALL, "refs/main names no snapshot that is there");
}

static void test_hub_places(void **state)
{
    struct place *place = *state;
    static const char *const variables[] = { "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME" };
    static const char *const folders[] = { "", "/hub", "/huggingface/hub", "/.cache/huggingface/hub" };
    char *saved[COUNT_OF(variables)];
    for (size_t i = 0; i < COUNT_OF(variables); i++) {
        saved[i] = getenv(variables[i]) ? strdup(getenv(variables[i])) : NULL;
        const char *home = path_of(place, variables[i]);
        setenv(variables[i], home, 1);
        write_model(place,
                    arena_format(&place->arena, "%s%s/models--o--n%zu/snapshots/s", variables[i], folders[i], i));
    }
    for (size_t i = 0; i < COUNT_OF(variables); i++) { // each is looked at when those before it are not set
        for (size_t k = 0; k < COUNT_OF(variables); k++) {
            const char *model = arena_format(&place->arena, "o/n%zu", k);
            if (k == i)
                check_opens(model, CHECKPOINT_ALL, 1);
            else
                check_refuses(model, CHECKPOINT_ALL, "nor a model of that name in");
        }
        setenv(variables[i], "", 1);
    }
    check_refuses("o/n0", CHECKPOINT_ALL, "without HOME there is no cache");
    for (size_t i = 0; i < COUNT_OF(variables); i++) {
        saved[i] ? setenv(variables[i], saved[i], 1) : unsetenv(variables[i]);
        free(saved[i]);
    }
}

static void test_names_that_are_nothing(void **state)
{
    struct place *place = *state;
    static const char *const names[] = { "",          "nosuch", "a/b/c",  "../nosuch", "./x",
                                         "/nosuch/x", "org/",   "org/..", "o g/n" };
    write_model(place, "models--..--x/snapshots/s");
    for (size_t i = 0; i < COUNT_OF(names); i++)
        check_refuses(names[i], CHECKPOINT_ALL, "MODEL is a .gguf file, a folder with config.json and safetensors, or");
    char long_name[8192];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    check_refuses(long_name, CHECKPOINT_ALL, "cannot be opened (File name too long)");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_gguf_file),
        TEST(test_gguf_in_a_folder),
        TEST(test_gguf_parts),
        TEST(test_folder),
        TEST(test_incomplete_folders),
        TEST(test_shards),
        TEST(test_shards_outside_the_folder),
        TEST(test_hub),
        TEST(test_hub_places),
        TEST(test_names_that_are_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
