// SPDX-License-Identifier: Apache-2.0
// The budget for requests in flight: what is taken and given back, by many threads, and what requests are charged with.
#include <assert.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "format/json.h"
#include "server/admission.h"
#include "server/parts.h"

#include <cmocka.h>

static void test_limit(void **state)
{
    struct budget budget;
    (void)state;
    budget_open(&budget, 100);
    assert_true(budget_take(&budget, 60));
    assert_false(budget_take(&budget, 41));
    assert_false(budget_take(&budget, SIZE_MAX));
    assert_int_equal(budget_used(&budget), 60);
    budget_force(&budget, 50);             // what is running already goes on,
    assert_false(budget_take(&budget, 1)); // and others wait
    budget_give_back(&budget, 110);
    assert_true(budget_take(&budget, 100));
}

enum { THREADS = 4, TURNS = 20000 };

static void *take_and_give(void *context)
{
    struct budget *budget = context;
    for (int i = 0; i < TURNS; i++) {
        size_t bytes = (size_t)(i % 7) + 1;
        if (!budget_take(budget, bytes))
            continue;
        assert(budget_used(budget) <= budget->limit_bytes);
        budget_give_back(budget, bytes);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct budget budget;
    pthread_t threads[THREADS];
    (void)state;
    budget_open(&budget, 12);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, take_and_give, &budget);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(budget_used(&budget), 0);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

static void repeat(struct strbuf *out, const char *open, const char *text, int count, const char *close)
{
    out->len = 0;
    strbuf_add_text(out, open);
    for (int i = 0; i < count; i++)
        strbuf_add_format(out, text, i);
    strbuf_add_text(out, close);
}

// Every value counts, and what is estimated is no less than what reading takes and not many times as much.
static void test_json_memory(void **state)
{
    static const struct {
        const char *open, *text, *close;
    } rows[] = {
        { "[", "%d,", "0]" },
        { "[", "null,", "0]" },
        { "[", "0.5,", "0]" },
        { "[", "\"\",", "0]" },
        { "[", "\"a text of some length, number %d\",", "0]" },
        { "{", "\"key %d\":1,", "\"x\":0}" },
        { "{", "\"key %d\":\"value\",", "\"x\":0}" },
        { "[", "[],", "0]" },
        { "[", "{},", "0]" },
        { "[", "[1],", "0]" },
        { "[", "{\"a\":1},", "0]" },
    };
    struct strbuf text = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err;
        json_t *value;
        repeat(&text, rows[i].open, rows[i].text, 20000, rows[i].close);
        struct mallinfo2 before = mallinfo2();
        assert_true(json_read_strict(strbuf_bytes(&text), 1 << 16, &value, &err));
        struct mallinfo2 after = mallinfo2();
        size_t took = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        size_t estimate = json_memory(strbuf_bytes(&text));
        if (took > estimate || (took > 1 << 20 && estimate > 4 * took)) // null takes next to nothing
            fail_msg("%s: reading takes %zu bytes, %zu were estimated", rows[i].text, took, estimate);
        json_decref(value);
    }
    strbuf_free(&text);
}

// ---- requests -----------------------------------------------------------------------------------------------------

static struct job *new_job(struct budget *budget, int n, int max_tokens, int top_logprobs)
{
    static const struct api api = { .max_model_len = 1 << 17 };
    struct job *job = job_new(&api, JOB_CHAT, "/v1/chat/completions");
    job->budget = budget;
    job->params.n = n;
    job->params.request.max_tokens = max_tokens;
    job->params.request.top_logprobs = top_logprobs;
    job->params.prompt_logprobs = -1;
    job->prompts = calloc(1, sizeof *job->prompts);
    job->prompts[0] = (struct prompt){ calloc(100, sizeof(int32_t)), 100 };
    job->prompt_count = 1;
    job_make_choices(job);
    return job;
}

static void test_answers(void **state)
{
    struct budget budget;
    (void)state;
    budget_open(&budget, 16 << 20);
    struct job *plain = new_job(&budget, 1, 8192, -1), *scored = new_job(&budget, 8, 1024, 20);
    assert_true(admission_answer(plain));
    assert_true(plain->charged_bytes < 512 << 10); // a default max_tokens must not keep others out
    assert_true(admission_answer(scored));
    assert_true(scored->charged_bytes > (size_t)8 * 1024 * 20 * sizeof(struct nibble_candidate));

    struct job *more = new_job(&budget, 64, 512, 20), *never = new_job(&budget, 64, 2048, 20);
    assert_false(admission_answer(more));
    assert_int_equal(more->error.status, 429);
    assert_false(admission_answer(never)); // not even alone
    assert_int_equal(never->error.status, 400);
    assert_non_null(strstr(never->error.text, "16777216"));
    job_free(scored);
    assert_true(admission_answer(more));
    job_free(more);
    job_free(never);

    struct job *entries = new_job(NULL, 128, 1 << 14, 20);
    assert_false(admission_answer(entries));
    assert_int_equal(entries->error.status, 400);
    assert_non_null(strstr(entries->error.text, "44040192 entries"));
    job_free(entries);

    struct bytes text = { (char[300000]){ "x" }, 300000 }; // longer than tokens usually are
    parts_add_content(&plain->choices[0], text);
    size_t before = plain->charged_bytes;
    admission_grow(plain);
    assert_true(plain->charged_bytes > before);
    job_empty(plain);
    assert_int_equal(budget_used(&budget), 0);
    job_free(plain);
}

static void test_bodies(void **state)
{
    struct budget budget;
    struct strbuf text = { 0 };
    (void)state;
    budget_open(&budget, 64 << 20);
    repeat(&text, "[", "%d,", 1 << 20, "0]"); // 7 MB, and 50 MB of values
    struct job *large = new_job(&budget, 1, 1, -1), *small = new_job(&budget, 1, 1, -1);
    large->body = text;
    assert_false(admission_read(large));
    assert_int_equal(large->error.status, 413);
    assert_int_equal(budget_used(&budget), 0);
    strbuf_add_text(&small->body, "{}");
    assert_true(admission_read(small));
    job_free(large);
    job_free(small);
    assert_int_equal(budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_threads), cmocka_unit_test(test_json_memory),
        cmocka_unit_test(test_answers), cmocka_unit_test(test_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
