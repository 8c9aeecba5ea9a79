// SPDX-License-Identifier: Apache-2.0
// The writer: text equal to what jansson prints of the same values, slices of bounded size that join to the same text,
// and a thread that waits for a slow client with one answer while it writes the others.
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"
#include "server/reader.h"
#include "server/writer.h"

#include <cmocka.h>

#include "tokenizer_open.h"

static struct strbuf dump(json_t *value)
{
    struct strbuf out = { 0 };
    assert_non_null(value);
    api_dump(value, &out);
    json_decref(value);
    return out;
}

static void assert_same(struct strbuf *got, struct strbuf *want)
{
    assert_int_equal(got->len, want->len);
    assert_memory_equal(got->data, want->data, want->len);
    strbuf_free(got);
    strbuf_free(want);
}

// ---- values -------------------------------------------------------------------------------------------------------

static void test_text(void **state)
{
    static const char *const texts[] = {
        "",     "plain",    "\"\\/\b\f\n\r\t", "\x01\x1f\x7f", "Gr\xc3\xbc\xc3\x9f", "\xe4\xb8\x96", "\xf0\x9f\x99\x82",
        "\xff", "\xe4\xb8", "a\xf0\x9f\x99z",  "\xed\xa0\x80", "\xc0\x80",
    };
    uint64_t seed = 1;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts + 500; i++) {
        char noise[24];
        struct bytes text = { noise, sizeof noise };
        for (size_t j = 0; j < sizeof noise; j++)
            noise[j] = (char)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 56);
        if (i < sizeof texts / sizeof *texts)
            text = bytes_of(texts[i]);
        struct strbuf got = { 0 }, want = dump(api_text(text)), cut = { 0 };
        json_write_text(&got, text);
        strbuf_add_byte(&cut, '"');
        for (size_t at = 0, length; at < text.len; at += length) {
            length = json_text_cut((struct bytes){ text.data + at, text.len - at }, 5);
            json_write_text_inside(&cut, (struct bytes){ text.data + at, length });
        }
        strbuf_add_byte(&cut, '"');
        if (i < 7) // of what is UTF-8, pieces make the whole
            assert_memory_equal(cut.data, want.data, want.len);
        strbuf_free(&cut);
        assert_same(&got, &want);
    }
}

// A logprob as JSON can have it, not below -9999.
static json_t *logprob_value(float logprob) { return json_real(logprob > -9999 ? (double)logprob : -9999); }

static void test_patterns(void **state)
{
    struct strbuf got = { 0 };
    (void)state;
    json_write(&got, "{%s:%q,\"b\":%b,\"n\":[%d,%z,%l]}", "\"a\"", "x\"", bytes_of("\n"), -1, (size_t)2, 1LL << 40);
    assert_string_equal(got.data, "{\"a\":\"x\\\"\",\"b\":\"\\n\",\"n\":[-1,2,1099511627776]}");
    strbuf_free(&got);
}

static void test_logprobs(void **state)
{
    static const float values[] = { 0,        -0.0f, -1,     -2.5f,     -0.1f,       -1e-7f,        -1.17549435e-38f,
                                    -9998.5f, -9999, -10000, -INFINITY, -123456.75f, -0.693147182f, 1e-20f };
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct strbuf got = { 0 }, want = dump(logprob_value(values[i]));
        json_write_logprob(&got, values[i]);
        assert_same(&got, &want);
    }
}

// ---- answers ------------------------------------------------------------------------------------------------------

static const char *const names[] = { "a \"model\"" };
static struct api api = {
    .names = names, .name_count = 1, .fingerprint = "fp-test", .max_model_len = 4096, .logits = 256
};

static int open_api(void **state)
{
    (void)state;
    api.tokenizer = open_byte_level("", "", "");
    return 0;
}

static int close_api(void **state)
{
    (void)state;
    tokenizer_close((struct tokenizer *)api.tokenizer);
    return 0;
}

struct shape {
    enum job_kind kind;
    int choices, tokens, tops;
    bool stream, ids;
};

static void add_tokens(struct choice *choice, int from, int to, int tops, bool last)
{
    for (int i = from; i < to; i++) {
        struct nibble_candidate top[API_LOGPROBS_MAX];
        for (int j = 0; j < tops; j++)
            top[j] = (struct nibble_candidate){ (i + 37 * j) % 256, -0.25f * (float)(j + i) };
        struct nibble_token token = { .id = (i * 7 + choice->index) % 128,
                                      .scored = true,
                                      .logprob = -0.1f * (float)i,
                                      .top = top,
                                      .top_count = tops > 0 ? tops : 0 };
        output_add(&choice->step_output, &token, i);
        strbuf_add_byte(&choice->step_output.text, (char)token.id);
    }
    choice->step_output.finished = last;
    choice->step_output.reason = NIBBLE_FINISH_LENGTH;
    choice->step_output.stop_string = choice->step_output.stop_id = -1;
}

static struct job *new_job(struct shape shape)
{
    struct job *job = job_new(&api, shape.kind, "/v1/completions");
    job->params = (struct request_params){ .request = { .max_tokens = shape.tokens, .top_logprobs = shape.tops },
                                           .prompt_logprobs = -1,
                                           .n = shape.choices,
                                           .stream = shape.stream,
                                           .return_token_ids = shape.ids };
    job->prompts = calloc(1, sizeof *job->prompts);
    job->prompts[0] = (struct prompt){ calloc(3, sizeof(int32_t)), 3 };
    job->prompt_count = 1;
    job_make_choices(job);
    return job;
}

static void fill(struct job *job, struct shape shape)
{
    for (int i = 0; i < job->choice_count; i++)
        add_tokens(&job->choices[i], 0, shape.tokens, shape.tops, true);
}

// The mailbox's part.
static void hand_over(struct job *job)
{
    for (int i = 0; i < job->choice_count; i++)
        output_move(&job->choices[i].step_output, &job->choices[i].delivered);
    job->released = true;
    answer_take(job);
}

static json_t *logprob_json(int32_t id, float logprob)
{
    char byte = (char)id;
    return json_pack("{s:o, s:o, s:[i]}", "token", api_text((struct bytes){ &byte, 1 }), "logprob",
                     logprob_value(logprob), "bytes", (int)id);
}

static json_t *chat_logprobs(const struct output *output)
{
    json_t *content = json_array();
    for (int i = 0; i < output->token_count; i++) {
        json_t *entry = logprob_json(output->tokens[i].id, output->tokens[i].logprob), *top = json_array();
        for (int j = 0; j < output->tokens[i].top_count; j++) {
            const struct nibble_candidate *likely = &output->tops[output->tokens[i].top_first + j];
            json_array_append_new(top, logprob_json(likely->id, likely->logprob));
        }
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

// In an object a key has one value; bytes from 128 on are no text by themselves and read alike.
static void set_logprob(json_t *table, int32_t id, float logprob)
{
    char byte = (char)id;
    json_t *key = api_text((struct bytes){ &byte, 1 });
    json_object_setn_new_nocheck(table, json_string_value(key), json_string_length(key), logprob_value(logprob));
    json_decref(key);
}

static json_t *completion_logprobs(const struct output *output)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (int i = 0; i < output->token_count; i++) {
        char byte = (char)output->tokens[i].id;
        const struct nibble_candidate *tops_of = output->tops + output->tokens[i].top_first;
        json_t *table = json_object();
        json_array_append_new(tokens, api_text((struct bytes){ &byte, 1 }));
        json_array_append_new(logprobs, logprob_value(output->tokens[i].logprob));
        json_array_append_new(offsets, json_integer(i));
        for (int j = 0; j < output->tokens[i].top_count; j++)
            set_logprob(table, tops_of[j].id, tops_of[j].logprob);
        set_logprob(table, output->tokens[i].id, output->tokens[i].logprob);
        json_array_append_new(tops, table);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

// The same answer as a document of jansson's.
static json_t *whole_json(struct job *job)
{
    json_t *choices = json_array();
    bool chat = job->kind == JOB_CHAT;
    int total = 0;
    for (int i = 0; i < job->choice_count; i++) {
        struct choice *choice = &job->choices[i];
        json_t *text = api_text(parts_join(choice, PART_CONTENT));
        json_t *content = chat ? json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal") : text;
        json_t *logprobs = job->params.request.top_logprobs < 0 ? json_null()
            : chat                                              ? chat_logprobs(&choice->answer)
                                                                : completion_logprobs(&choice->answer);
        json_t *entry = json_pack("{s:i, s:o, s:o, s:s, s:n}", "index", i, chat ? "message" : "text", content,
                                  "logprobs", logprobs, "finish_reason", "length", "stop_reason");
        if (job->params.return_token_ids) {
            json_t *ids = json_array();
            for (int j = 0; j < choice->answer.token_count; j++)
                json_array_append_new(ids, json_integer(choice->answer.tokens[j].id));
            json_object_set_new(entry, "token_ids", ids);
            json_object_set_new(entry, "prompt_token_ids", json_pack("[i, i, i]", 0, 0, 0));
        }
        json_array_append_new(choices, entry);
        total += choice->generated;
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:{s:i, s:i, s:i, s:{s:i}}}", "id", job->id, "object",
                     chat ? "chat.completion" : "text_completion", "created", (json_int_t)job->created, "model",
                     names[0], "system_fingerprint", api.fingerprint, "choices", choices, "usage", "prompt_tokens", 3,
                     "completion_tokens", total, "total_tokens", 3 + total, "prompt_tokens_details", "cached_tokens",
                     0);
}

static const struct shape shapes[] = {
    { JOB_CHAT, 1, 5, -1 },
    { JOB_CHAT, 3, 40, 5, .ids = true },
    { JOB_COMPLETION, 2, 40, 5, .ids = true },
    { JOB_COMPLETION, 1, 0, 0 },
    { JOB_CHAT, 8, 300, 20 },
    { JOB_COMPLETION, 8, 300, 20 },
    { JOB_COMPLETION, 1, 200000, -1 },
    { JOB_COMPLETION, 1, 50000, -1, .ids = true },
};

// A value more than the slice at most: 21 logprobs, or a text as long as a slice with its escapes.
enum { SLICE_MOST = ANSWER_SLICE_BYTES + 6 * ANSWER_SLICE_BYTES };

static void test_whole_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct job *job = new_job(shapes[i]);
        struct strbuf got = { 0 }, slice = { 0 };
        fill(job, shapes[i]);
        hand_over(job);
        struct strbuf want = dump(whole_json(job));
        int slices = 0;
        for (bool all = false; !all; slices++) {
            slice.len = 0;
            all = answer_whole(job, &slice);
            assert_true(slice.len <= SLICE_MOST);
            assert_true(all || slice.len >= ANSWER_SLICE_BYTES);
            strbuf_add(&got, slice.data, slice.len);
        }
        assert_true(slices >= (int)(want.len / SLICE_MOST));
        assert_same(&got, &want);
        strbuf_free(&slice);
        job_free(job);
    }
}

// A client that reads late gets the same text in fewer chunks, none of them without a bound.
static void test_stream(void **state)
{
    const struct shape shape = { JOB_CHAT, 2, 1000, 20, .stream = true };
    (void)state;
    struct job *job = new_job(shape);
    struct strbuf slice = { 0 };
    int tokens = 0, events = 0;
    fill(job, shape);
    hand_over(job);
    for (bool all = false; !all;) {
        slice.len = 0;
        all = answer_stream(job, &slice);
        for (const char *at = slice.data; (at = strstr(at, "\"top_logprobs\"")); at++)
            tokens++;
        for (const char *at = slice.data; (at = strstr(at, "data: {")); at++)
            events++;
        assert_true(slice.len < 4 * ANSWER_SLICE_BYTES);
    }
    assert_int_equal(tokens, 2000);
    assert_int_equal(events, 2 * (1 + 16 + 1));
    assert_non_null(strstr(slice.data, "data: [DONE]\n\n"));
    strbuf_free(&slice);
    job_free(job);
}

// ---- the thread ---------------------------------------------------------------------------------------------------

struct scene {
    struct mailbox mailbox;
    struct outbox outbox;
    struct metrics metrics;
    struct writer writer;
};

static void open_scene(struct scene *scene)
{
    struct error err;
    mailbox_open(&scene->mailbox);
    assert_true(outbox_open(&scene->outbox, &err));
    metrics_open(&scene->metrics, "m", 4096, NULL);
    assert_true(writer_open(&scene->writer, &scene->mailbox, &scene->outbox, &scene->metrics, &err));
}

static void close_scene(struct scene *scene)
{
    writer_close(&scene->writer);
    metrics_close(&scene->metrics);
    outbox_close(&scene->outbox);
    mailbox_close(&scene->mailbox);
}

static struct job *take(struct scene *scene, struct strbuf *text)
{
    struct job *job;
    while (!(job = outbox_take(&scene->outbox, text))) {
        struct pollfd wake = { .fd = scene->outbox.wake_fd, .events = POLLIN };
        assert_true(poll(&wake, 1, -1) > 0);
        outbox_clear_wake(&scene->outbox);
    }
    return job;
}

static void send(struct scene *scene, struct job *job)
{
    mailbox_send(&scene->mailbox, job, true);
    mailbox_wake(&scene->mailbox);
}

// The first client takes nothing at first: its answer waits with one slice made, and the next one's is written.
static void test_backpressure(void **state)
{
    const struct shape large = { JOB_CHAT, 16, 300, 20 }, small = { JOB_CHAT, 1, 5, -1 };
    struct scene scene;
    struct strbuf text, got = { 0 };
    (void)state;
    open_scene(&scene);
    struct job *slow = new_job(large), *quick = new_job(small), *reference = new_job(large);
    fill(slow, large);
    fill(quick, small);
    send(&scene, slow);
    assert_ptr_equal(take(&scene, &text), slow);
    assert_false(slow->over);
    assert_true(text.len <= SLICE_MOST);
    send(&scene, quick);
    struct strbuf other;
    assert_ptr_equal(take(&scene, &other), quick);
    assert_true(quick->over);
    strbuf_free(&other);
    for (;;) {
        strbuf_add(&got, text.data, text.len);
        if (slow->over)
            break;
        assert_true(atomic_load(&slow->unsent_bytes) <= SLICE_MOST);
        writer_sent(&scene.writer, slow, text.len); // now it has
        strbuf_free(&text);
        assert_ptr_equal(take(&scene, &text), slow);
    }
    strbuf_free(&text);
    fill(reference, large);
    hand_over(reference);
    memcpy(reference->id, slow->id, sizeof slow->id);
    reference->created = slow->created;
    struct strbuf want = dump(whole_json(reference));
    assert_same(&got, &want);
    job_free(slow);
    job_free(quick);
    job_free(reference);
    close_scene(&scene);
}

// A client that leaves in the middle: the job comes back once, and holds nothing.
static void test_gone(void **state)
{
    const struct shape large = { JOB_CHAT, 16, 300, 20 };
    struct scene scene;
    struct budget budget;
    struct strbuf text;
    (void)state;
    open_scene(&scene);
    budget_open(&budget, SIZE_MAX / 2);
    struct job *job = new_job(large);
    job->budget = &budget;
    assert_true(job_charge(job, 1 << 20));
    fill(job, large);
    send(&scene, job);
    assert_ptr_equal(take(&scene, &text), job);
    strbuf_free(&text);
    atomic_store(&job->cancelled, true);
    mailbox_resume(&scene.mailbox, job);
    while (!job->over) {
        take(&scene, &text);
        strbuf_free(&text);
    }
    assert_int_equal(budget_used(&budget), 0);
    assert_null(job->choices[0].answer.tokens);
    assert_int_equal(job->choices[0].answer.reason, NIBBLE_FINISH_LENGTH); // for the log
    mailbox_resume(&scene.mailbox, job);                                   // too late, and harmless
    assert_false(mailbox_is_waiting(&scene.mailbox));
    job_free(job);
    close_scene(&scene);
}

// ---- the readers --------------------------------------------------------------------------------------------------

static struct job *detokenize_job(int ids)
{
    struct job *job = job_new(&api, JOB_DETOKENIZE, "/detokenize");
    strbuf_add_text(&job->body, "{\"tokens\":[65");
    for (int i = 1; i < ids; i++)
        strbuf_add_text(&job->body, ",65");
    strbuf_add_text(&job->body, "]}");
    job->body_bytes = job->body.len;
    return job;
}

// A text without end in one piece, and a client that is gone.
static void test_cancelled_reading(void **state)
{
    enum { BYTES = 1 << 20 };
    struct tokenizer *merging = open_byte_level(",'aa':256,'aaaa':257", "'a a','aa aa'", "");
    struct strbuf text = { 0 };
    struct tokens tokens = { 0 };
    struct error err;
    atomic_bool cancelled = false;
    (void)state;
    for (int i = 0; i < BYTES; i++)
        strbuf_add_byte(&text, 'a');
    assert_true(tokenizer_encode_while(merging, strbuf_bytes(&text), 0, &cancelled, &tokens, &err));
    assert_int_equal(tokens.count, BYTES / 4);
    tokens_free(&tokens);
    cancelled = true;
    assert_false(tokenizer_encode_while(merging, strbuf_bytes(&text), 0, &cancelled, &tokens, &err));
    assert_true(tokens.count > BYTES / 4); // it was left half merged
    tokens_free(&tokens);
    strbuf_free(&text);
    tokenizer_close(merging);
}

// Each lane keeps its order; every job comes back once.
static void test_lanes(void **state)
{
    enum { JOBS = 24 };
    struct scene scene;
    struct readers readers;
    struct queue to_run;
    struct error err;
    struct job *jobs[JOBS];
    struct strbuf text;
    int next_large = 1, small = 0;
    (void)state;
    open_scene(&scene);
    queue_open(&to_run, JOBS);
    assert_true(readers_open(&readers, &scene.mailbox, &to_run, JOBS, &err));
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = detokenize_job(i % 2 ? 20000 : 10);
        assert_int_equal(readers_lane(jobs[i]), i % 2 ? LANE_LARGE : LANE_SMALL);
    }
    for (int i = 0; i < JOBS; i++)
        readers_add(&readers, jobs[i]);
    for (int i = 0; i < JOBS; i++) {
        struct job *job = take(&scene, &text);
        assert_true(job->over && !job->error.status && text.len > 10);
        strbuf_free(&text);
        if (readers_lane(job) == LANE_SMALL) {
            small++;
            continue;
        }
        assert_ptr_equal(job, jobs[next_large]);
        next_large += 2;
    }
    assert_int_equal(small, JOBS / 2);
    assert_int_equal(atomic_load(&readers.lanes[LANE_LARGE].read_count), JOBS / 2);
    readers_close(&readers);
    queue_free(&to_run);
    for (int i = 0; i < JOBS; i++)
        job_free(jobs[i]);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),     cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_logprobs), cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_stream),   cmocka_unit_test(test_backpressure),
        cmocka_unit_test(test_gone),     cmocka_unit_test(test_cancelled_reading),
        cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, open_api, close_api);
}
