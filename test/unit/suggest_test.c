// SPDX-License-Identifier: Apache-2.0
// Which mistyped words bring a suggestion, and which are other words.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/suggest.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const commands[] = { "serve", "run",      "plan",     "kernels", "bench", "eval",
                                        "tune",  "quantize", "tokenize", "render",  "env" };
static const char *const options[] = {
    "--max-tokens",    "--temperature",  "--top-p",   "--top-k",          "--min-p",
    "--seed",          "--system",       "--raw",     "--kv-cache-dtype", "--kv-cache-dtype-skip-layers",
    "--max-model-len", "--max-num-seqs", "--threads", "--device",         "--log-json"
};
static const char *const devices[] = { "cpu",   "cpu:ref", "cpu:avx2", "cpu:avx512", "sm_80",
                                       "sm_90", "sm_100",  "cuda",     "none" };
static const char *const formats[] = { "auto",     "fp8",         "float32",  "float16",
                                       "bfloat16", "fp8_e4m3",    "fp8_e5m2", "int8_per_token_head",
                                       "nvfp4",    "nvfp4_4over6" };

static const struct {
    const char *word;
    const char *const *words;
    size_t count;
    const char *meant; // NULL: nothing
} cases[] = {
#define AMONG(list) list, COUNT(list)
    { "serv", AMONG(commands), "serve" },
    { "rum", AMONG(commands), "run" },
    { "urn", AMONG(commands), "run" },
    { "kernel", AMONG(commands), "kernels" },
    { "quantise", AMONG(commands), "quantize" },
    { "quant", AMONG(commands), "quantize" },
    { "Plan", AMONG(commands), "plan" },
    { "chat", AMONG(commands), NULL },
    { "start", AMONG(commands), NULL },
    { "help", AMONG(commands), NULL },
    { "x", AMONG(commands), NULL },
    { "", AMONG(commands), NULL },
    { "--temprature", AMONG(options), "--temperature" },
    { "--kv-cache-dtyp", AMONG(options), "--kv-cache-dtype" },
    { "--max-model-length", AMONG(options), "--max-model-len" },
    { "--max_model_len", AMONG(options), "--max-model-len" },
    { "--model-len", AMONG(options), "--max-model-len" },
    { "--no-log-json", AMONG(options), "--log-json" },
    { "--temp", AMONG(options), "--temperature" },
    { "--kv-cache", AMONG(options), "--kv-cache-dtype" },
    { "-temperature", AMONG(options), "--temperature" },
    { "--stop", AMONG(options), NULL },
    { "--port", AMONG(options), NULL },
    { "--top", AMONG(options), "--top-p" },
    { "--n", AMONG(options), NULL },
    { "--ctx-size", AMONG(options), NULL },
    { "--war", AMONG(options), NULL },
    { "gpu", AMONG(devices), NULL },
    { "CPU", AMONG(devices), "cpu" },
    { "sm90", AMONG(devices), "sm_90" },
    { "cpu:avx3", AMONG(devices), "cpu:avx2" },
    { "cdua", AMONG(devices), "cuda" },
    { "rocm", AMONG(devices), NULL },
    { "foo", AMONG(formats), NULL },
    { "nvfp3", AMONG(formats), "nvfp4" },
    { "vnfp4", AMONG(formats), "nvfp4" },
    { "bfloat61", AMONG(formats), "bfloat16" },
    { "fp9", AMONG(formats), "fp8" },
    { "int8", AMONG(formats), "int8_per_token_head" },
    { "e5m2", AMONG(formats), "fp8_e5m2" },
    { "q4", AMONG(formats), NULL },
#undef AMONG
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *found = suggest(bytes_of(cases[i].word), cases[i].words, cases[i].count);
        const char *meant = cases[i].meant ? cases[i].meant : "nothing";
        if (strcmp(found ? found : "nothing", meant))
            fail_msg("\"%s\" was meant to be %s, not %s", cases[i].word, meant, found ? found : "nothing");
    }
}

// Words that are longer than any word of ours are compared with nothing.
static void test_long_words(void **state)
{
    char word[200];
    (void)state;
    for (size_t len = 0; len < sizeof word; len++) {
        memset(word, 'a', len);
        assert_null(suggest((struct bytes){ word, len }, commands, COUNT(commands)));
    }
    const char *const long_words[] = { "a-word-that-has-more-than-sixty-four-letters-and-is-never-compared-at-all" };
    assert_null(suggest(bytes_of(long_words[0]), long_words, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table), cmocka_unit_test(test_long_words) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
