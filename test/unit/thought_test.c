// SPDX-License-Identifier: Apache-2.0
// A thought while it is generated, with a sampler that forces tokens: the budget closes it, a grammar begins behind it,
// and its tokens are counted. The vocabulary is bytes and the markers.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "server/generation.h"
#include "server/kind.h"
#include "server/parts.h"

#include <cmocka.h>

#include "tokenizer_open.h"

enum { VOCABULARY = 264, MASK_WORDS = (VOCABULARY + 31) / 32 };

static const char markers[] = "'added_tokens':[{'id':256,'content':'<think>','special':false},"
                              "{'id':257,'content':'</think>','special':false},"
                              "{'id':258,'content':'<|channel|>','special':true},"
                              "{'id':259,'content':'<|message|>','special':true},"
                              "{'id':260,'content':'<|end|>','special':true},"
                              "{'id':261,'content':'<|start|>','special':true},"
                              "{'id':262,'content':'<|return|>','special':true},"
                              "{'id':263,'content':'<tool_call>','special':false}],";

static struct lazy_vocabulary lazy = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct api api = { .vocabulary = &lazy, .max_model_len = 4096, .logits = VOCABULARY };
static int32_t end_ids[] = { 262 };

static int open_api(void **state)
{
    (void)state;
    api.tokenizer = open_byte_level("", "", markers);
    api.end_ids = end_ids;
    api.end_count = 1;
    return 0;
}

static int close_api(void **state)
{
    (void)state;
    grammar_vocabulary_close(lazy.made);
    tokenizer_close((struct tokenizer *)api.tokenizer);
    return 0;
}

// ---- the scripted model -------------------------------------------------------------------------------------------

struct scene {
    const char *form, *prompt, *script; // what the model would write; behind that, more and more of "~"
    const char *pattern;                // of the answer's grammar; NULL: none
    int budget, max_tokens;
    bool close;                      // close_at_max_tokens
    const char *stop;                // NULL: none
    const char *reasoning, *content; // that it becomes
    int reasoning_tokens;            // -1: not looked at
    bool calls;                      // the grammar is that of a required call
};

static json_t *no_tools;

static struct job *new_job(const struct scene *scene)
{
    struct job *job = job_new(&api, JOB_CHAT, "/v1/chat/completions");
    struct error err = { "" };
    job->params = (struct request_params){ .request = { .max_tokens = scene->max_tokens, .top_logprobs = -1 },
                                           .n = 1,
                                           .skip_special = true,
                                           .close_at_max_tokens = scene->close };
    if (scene->stop)
        job->params.stops[job->params.stop_count++] = bytes_of(scene->stop);
    job->reasoning = reasoning_named(scene->form, &err);
    assert_non_null(job->reasoning);
    tokens_free(&api.reasoning_tokens);
    reasoning_tokens(job->reasoning, api.tokenizer, &api.reasoning_tokens);
    job->prompt_end = bytes_of(scene->prompt);
    job->may_think = true;
    job->max_reasoning_tokens = scene->budget;
    job->tools = scene->calls ? no_tools : NULL;
    if (scene->pattern) {
        job->grammar = grammar_from_pattern(bytes_of(scene->pattern), &err);
        assert_non_null(job->grammar);
        job->shortest_answer = grammar_shortest(job->grammar, api_vocabulary(&api));
    }
    job->prompts = calloc(1, sizeof *job->prompts);
    job->prompts[0] = (struct prompt){ calloc(1, sizeof(int32_t)), 1 };
    job->prompt_count = 1;
    job_make_choices(job);
    return job;
}

// The script's token, or where the mask forbids that the first one that it allows.
static int32_t draw(const struct tokens *script, size_t at, const uint32_t *mask)
{
    int32_t wanted = at < script->count ? script->ids[at] : '~';
    if (mask[wanted / 32] >> wanted % 32 & 1)
        return wanted;
    for (int32_t id = 0; id < VOCABULARY; id++)
        if (mask[id / 32] >> id % 32 & 1)
            return id;
    fail_msg("the mask allows no token");
    return -1;
}

// The engine's part: a listener's callbacks in their order.
static void generate(struct choice *choice, const struct nibble_listener *listener, const char *text, int max_tokens)
{
    struct tokens script = { 0 };
    struct error err;
    size_t at = 0;
    bool goes_on = true;
    assert_true(tokenizer_encode(api.tokenizer, bytes_of(text), TOKENIZE_PARSE_SPECIAL, &script, &err));
    for (int left = max_tokens; left && goes_on; left--) {
        uint32_t mask[MASK_WORDS];
        memset(mask, 0xff, sizeof mask);
        if (listener->restrict_tokens)
            listener->restrict_tokens(choice, left, mask);
        int32_t drawn = draw(&script, at, mask), id = drawn;
        if (listener->choose_token)
            id = listener->choose_token(choice, left, drawn);
        at += id == drawn;
        struct nibble_token token = { .id = id, .stop = id == 262 };
        goes_on = listener->token(choice, &token) && !token.stop;
    }
    struct nibble_usage usage = { 0 };
    listener->finished(choice, goes_on ? NIBBLE_FINISH_LENGTH : NIBBLE_FINISH_STOP, &usage, NULL);
    tokens_free(&script);
}

static void check_scene(const struct scene *scene)
{
    struct job *job = new_job(scene);
    struct choice *choice = &job->choices[0];
    struct nibble_listener listener;
    job->running = 1;
    generation_listen(choice, &listener);
    generate(choice, &listener, scene->script, scene->max_tokens);
    output_move(&choice->step_output, &choice->delivered);
    int counted = choice->delivered.reasoning_tokens;
    parts_take(choice);
    struct bytes reasoning = parts_join(choice, PART_REASONING), content = parts_join(choice, PART_CONTENT);
    if (!bytes_equal(reasoning, bytes_of(scene->reasoning)) || !bytes_equal(content, bytes_of(scene->content))
        || (scene->reasoning_tokens >= 0 && counted != scene->reasoning_tokens))
        fail_msg("%s, \"%s\": thought \"%.*s\" (%d tokens), answer \"%.*s\"", scene->form, scene->script,
                 (int)reasoning.len, reasoning.data, counted, (int)content.len, content.data);
    job_free(job);
}

#define HARMONY "<|start|>assistant"

static const struct scene scenes[] = {
    // Nothing but the split, and the count: markers and their newlines are none of the thought.
    { "think", "", "<think>\nabc\n</think>\n\nHi<|return|>", NULL, -1, 99, .reasoning = "abc", .content = "Hi",
      .reasoning_tokens = 4 },
    { "think", "<think>", "abc", NULL, -1, 3, .reasoning = "abc", .content = "", .reasoning_tokens = 3 },
    { "think", "<think>", "a<b</think>Hi<|return|>", NULL, -1, 99, .reasoning = "a<b", .content = "Hi",
      .reasoning_tokens = 3 },
    // A budget.
    { "think", "<think>", "abcdef", NULL, 2, 20, .reasoning = "ab", .content = "cdef~~~~~~~~~~",
      .reasoning_tokens = 2 },
    { "think", "<think>", "abcdef", NULL, 0, 8, .reasoning = "", .content = "abcd", .reasoning_tokens = 0 },
    { "think", "", "<think>abcdef", NULL, 2, 10, .reasoning = "ab", .content = "cde", .reasoning_tokens = -1 },
    { "think", "", "Hi<|return|>", NULL, 0, 9, .reasoning = "", .content = "Hi", .reasoning_tokens = 0 },
    { "harmony", HARMONY, "<|channel|>analysis<|message|>abcdef", NULL, 2, 34, .reasoning = "ab", .content = "cdef",
      .reasoning_tokens = 2 },
    // A grammar begins behind the thought, and no answer ends inside one.
    { "think", "<think>", "ab</think>x", "red|blue", -1, 99, .reasoning = "ab", .content = "blue",
      .reasoning_tokens = 2 },
    { "think", "<think>", "ab</think>red", "red|blue", -1, 99, .reasoning = "ab", .content = "red",
      .reasoning_tokens = 2 },
    { "think", "", "<think>ab</think>red", "red|blue", -1, 99, .reasoning = "ab", .content = "red",
      .reasoning_tokens = 2 },
    { "think", "", "red", "red|blue", -1, 99, .reasoning = "", .content = "red", .reasoning_tokens = 0 },
    { "think", "<think>", "abcd", "red|blue", 2, 99, .reasoning = "ab", .content = "blue", .reasoning_tokens = 2 },
    { "granite", "<think>", "ab</think>blue", "red|blue", -1, 99, .reasoning = "ab", .content = "blue",
      .reasoning_tokens = 2 },
    { "granite", "<think>", "abcd", "red|blue", 2, 99, .reasoning = "ab", .content = "blue", .reasoning_tokens = 2 },
    { "harmony", HARMONY, "<|channel|>analysis<|message|>ab<|end|><|start|>assistant<|channel|>final<|message|>red",
      "red|blue", -1, 99, .reasoning = "ab", .content = "red", .reasoning_tokens = 2 },
    { "harmony", HARMONY, "<|channel|>final<|message|>x", "red|blue", -1, 99, .reasoning = "", .content = "blue",
      .reasoning_tokens = 0 },
    // A call that is required is written behind the thought, where the model begins it inside as well.
    { "qwen3", "<think>", "ab<tool_call>x", "red|blue", -1, 99, .reasoning = "ab", .content = "blue",
      .reasoning_tokens = 2, .calls = true },
    { "qwen3", "<think>", "ab<tool_call>", "red|blue", -1, 5, .reasoning = "ab<tool_call>~~", .content = "",
      .reasoning_tokens = 5 },
    // Room is left for the answer.
    { "think", "<think>", "abcdefghijklmnopqrstuvwxyz", "red", -1, 16, true, .reasoning = "abcdefgh", .content = "red",
      .reasoning_tokens = 8 },
    // Stop strings are for the answer.
    { "think", "<think>", "a stop</think>b stop c", NULL, -1, 99, .stop = "stop", .reasoning = "a stop",
      .content = "b ", .reasoning_tokens = 6 },
};

static void test_scenes(void **state)
{
    (void)state;
    no_tools = json_array();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_scene(&scenes[i]);
    json_decref(no_tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_scenes) };
    return cmocka_run_group_tests(tests, open_api, close_api);
}
