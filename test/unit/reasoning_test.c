// SPDX-License-Identifier: Apache-2.0
// Reasoning taken apart from the answer: a table of forms and texts, each cut at every place; forms found in templates;
// prompts that open a thought; random texts cut at random.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/random.h"
#include "text/reasoning.h"

#include <cmocka.h> // last: it has a macro called fail

#include "tokenizer_open.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const struct reasoning_form *must_name(const char *name)
{
    struct error err;
    const struct reasoning_form *form = reasoning_named(name, &err);
    if (!form)
        fail_msg("%s", err.text);
    return form;
}

// ---- splitting ----------------------------------------------------------------------------------------------------

// A splitter's events as one text: thoughts in [], answers as they are.
struct record {
    struct strbuf parts, all; // all: with the markers
    bool inside;
};

static void change(struct record *record, bool inside)
{
    if (record->inside != inside)
        strbuf_add_byte(&record->parts, inside ? '[' : ']');
    record->inside = inside;
}

static void on_reasoning(void *context, struct bytes text)
{
    struct record *record = context;
    assert_true(text.len > 0);
    change(record, true);
    strbuf_add(&record->parts, text.data, text.len);
    strbuf_add(&record->all, text.data, text.len);
}

static void on_content(void *context, struct bytes text)
{
    struct record *record = context;
    assert_true(text.len > 0);
    change(record, false);
    strbuf_add(&record->parts, text.data, text.len);
    strbuf_add(&record->all, text.data, text.len);
}

static void on_marker(void *context, struct bytes text)
{
    struct record *record = context;
    change(record, false);
    strbuf_add(&record->all, text.data, text.len);
}

struct reading {
    const char *form, *prompt, *text, *told;
    bool calls;
};

static struct strbuf read_cut(const struct reading *reading, struct bytes text, const size_t *cuts, size_t count)
{
    struct record record = { 0 };
    struct reasoning_sink sink = { &record, on_reasoning, on_content, on_marker };
    struct reasoning_splitter *splitter = reasoning_open(must_name(reading->form), bytes_of(reading->prompt), &sink);
    if (reading->calls)
        reasoning_ends_with_call(splitter);
    for (size_t i = 0, at = 0; i <= count; i++) {
        size_t end = i < count ? cuts[i] : text.len;
        reasoning_add(splitter, (struct bytes){ text.data + at, end - at });
        at = end;
    }
    reasoning_finish(splitter);
    reasoning_close(splitter);
    change(&record, false);
    assert_true(bytes_equal(strbuf_bytes(&record.all), text)); // nothing is lost
    strbuf_free(&record.all);
    strbuf_add(&record.parts, "", 0);
    return record.parts;
}

static void check_cut(const struct reading *reading, const size_t *cuts, size_t count)
{
    struct strbuf told = read_cut(reading, bytes_of(reading->text), cuts, count);
    if (!bytes_equal(strbuf_bytes(&told), bytes_of(reading->told)))
        fail_msg("%s: \"%s\" cut at %zu: \"%s\", expected \"%s\"", reading->form, reading->text, count ? cuts[0] : 0,
                 strbuf_text(&told), reading->told);
    strbuf_free(&told);
}

#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
#define HARMONY_CALL "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}"

static const struct reading readings[] = {
    // Opened by the model, by the prompt, or not at all.
    { "qwen3", "A\n", "<think>\nT\n</think>\n\nHi", "[T]Hi" },
    { "qwen3", "A\n", " \n<think>T</think>Hi", "[T]Hi" },
    { "qwen3", "<think>\n", "T\n</think>\n\nHi", "[T]Hi" },
    { "qwen3", "<think>", "\nT\n</think>\n\nHi", "[T]Hi" },
    { "qwen3", "<think>", "T</think>Hi", "[T]Hi" },
    { "qwen3", "<think>\n\n</think>\n\n", "Hi\n", "Hi\n" },
    { "qwen3", "A\n", "", "" },
    { "qwen3", "A\n", " \n Hi <think>no</think> ", " \n Hi <think>no</think> " },
    { "qwen3", "A\n", "<thin", "<thin" },
    { "qwen3", "A\n", "<thinking> is no <think>", "<thinking> is no <think>" },
    // Newlines belong to the markers, one on each side of the thought.
    { "qwen3", "A\n", "<think>\n\n  a\n\nb\n\n</think>\n\n\n  Hi\n", "[\n  a\n\nb\n]  Hi\n" },
    { "qwen3", "A\n", "<think>\n</think>\n\nHi", "Hi" },
    { "qwen3", "A\n", "<think></think>Hi", "Hi" },
    // Never closed, or only nearly.
    { "qwen3", "<think>\n", "T goes on\n", "[T goes on\n]" },
    { "qwen3", "<think>\n", "a </think b <</think>>", "[a </think b <]>" },
    { "qwen3", "<think>\n", "a </think", "[a </think]" },
    { "qwen3", "<think>\n", "a\n</thin", "[a\n</thin]" },
    { "qwen3", "<think>\n", "\n\n</", "[\n\n</]" },
    { "qwen3", "<think>\n", "T</think>a</think>b", "[T]a</think>b" },
    // Calls.
    { "qwen3", "<think>\n", "T\n</think>\n\n" CALL, "[T]" CALL },
    { "qwen3", "<think>\n", "T\n" CALL, "[T\n" CALL "]" },
    { "qwen3", "<think>\n", "T\n" CALL, "[T]" CALL, .calls = true },
    { "qwen3", "<think>\n", "T\n" CALL "\nU\n</think>\nHi", "[T\n" CALL "\nU]Hi", .calls = true },
    { "qwen3", "<think>\n", "<tool_<tool_call", "[<tool_<tool_call]", .calls = true },
    { "kimi_k2", "A", "<think>T<|tool_calls_section_begin|><|tool_call_begin|>f",
      "[T]<|tool_calls_section_begin|><|tool_call_begin|>f", .calls = true },
    { "kimi_k2", "A", "<think>T</think>Hi", "[T]Hi" },
    // The families' own markers.
    { "think", "<｜Assistant｜><think>", "Größe</think>Ja 😀", "[Größe]Ja 😀" },
    { "minimax_m2", "]~b]ai\n<think>\n", "T\n</think>\n\n<minimax:tool_call>", "[T]<minimax:tool_call>" },
    { "minimax_m3", "a<mm:think>", "T</mm:think>Hi", "[T]Hi" },
    { "minimax_m3", "a</mm:think>", "Hi", "Hi" },
    { "seed_oss", "<seed:bos>assistant\n",
      "<seed:think>T<seed:cot_budget_reflect>9</seed:cot_budget_reflect>U</seed:think>Hi",
      "[T<seed:cot_budget_reflect>9</seed:cot_budget_reflect>U]Hi" },
    { "hy_v3", "<think:opensource>", "T</think:opensource>Hi", "[T]Hi" },
    { "mistral", "[/INST]", "[THINK]T[/THINK]Hi[THINK]U[/THINK]!", "[T]Hi[U]!" },
    { "gemma4", "<|turn>model\n", "<|channel>thought\nT\n<channel|>Hi", "[T]Hi" },
    { "gemma4", "<|turn>model\n<|channel>thought\n<channel|>", "Hi", "Hi" },
    { "gemma4", "m\n", "A<|channel>thought\nT\n<channel|>B", "A[T]B" },
    { "apertus", "", "<|inner_prefix|>T<|inner_suffix|>Hi", "[T]Hi" },
    { "cohere_command3", "", "<|START_THINKING|>T<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "[T]Hi" },
    { "cohere_command3", "<|START_THINKING|><|END_THINKING|>", "<|START_RESPONSE|>Hi<|END_RESPONSE|>", "Hi" },
    { "cohere_command3", "", "<|START_THINKING|>T<|END_THINKING|><|START_ACTION|>[]<|END_ACTION|>",
      "[T]<|START_ACTION|>[]<|END_ACTION|>" },
    { "cohere_command4", "<|START_THINKING|>", "T<|END_THINKING|><|START_TEXT|>Hi<|END_TEXT|>", "[T]Hi" },
    { "granite", "a", "<think>T</think>\n<response>Hi</response>", "[T]Hi" },
    { "granite", "a", "Hi </response>", "Hi </response>" },
    { "hunyuan_a13b", "a", "<think>\nT\n</think>\n<answer>\nHi\n</answer>", "[T]Hi" },
    { "ernie45", "<think>\n", "T\n</think>\n\n<response>\nHi\n</response>\n" CALL, "[T]Hi\n" CALL },
    { "solar", "<|begin|>assistant", "<|think|>T<|end|><|begin|>assistant<|content|>Hi<|end|>", "[T]Hi" },
    { "solar", "<|begin|>assistant", "<|content|>Hi", "Hi" },
    { "solar", "<|begin|>assistant", "<|think|>T<|end|><|begin|>assistant<|tool_calls|>x",
      "[T]<|begin|>assistant<|tool_calls|>x" },
    { "kimi_k3", "<|open|>think<|sep|>",
      "T<|close|>think<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|><|close|>message<|sep|>",
      "[T<|close|>think]Hi" },
    { "kimi_k3", "<|open|>response<|sep|>", "Hi<|close|>response<|sep|><|open|>tools<|sep|>",
      "Hi<|open|>tools<|sep|>" },
    { "apriel", "<|begin_assistant|>\nHere are my reasoning steps:\n", "T\n[BEGIN FINAL RESPONSE]\nHi\n", "[T]Hi\n" },
    { "muse_glimmer", "<|start|>assistant", " to=self<|message|>T<|eom|><|start|>assistant to=user<|message|>Hi",
      "[T]Hi" },
    // gpt-oss.
    { "harmony", "<|start|>assistant",
      "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>", "[T]Hi" },
    { "harmony", "<|start|>assistant", "<|channel|>analysis<|message|>T<|end|><|start|>assistant" HARMONY_CALL,
      "[T]{\"a\": 1}" },
    { "harmony", "<|start|>assistant", " to=functions.f<|channel|>analysis<|message|>{}<|call|>", "{}" },
    { "harmony", "<|start|>assistant", "<|channel|>commentary<|message|>Wait.<|end|>", "Wait." },
    { "harmony", "<|start|>assistant", "<|channel|>fin", "" },
    { "harmony", "<|start|>assistant", "Hi", "Hi" },
    { "harmony", "<|start|>assistant<|channel|>final<|message|>", "Hi <|end", "Hi <|end" },
};

static void test_readings(void **state)
{
    enum { CUTS_MAX = 512 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(readings); i++) {
        size_t bytewise[CUTS_MAX], length = strlen(readings[i].text);
        assert_true(length < CUTS_MAX);
        for (size_t cut = 0; cut <= length; cut++) {
            check_cut(&readings[i], &cut, 1);
            bytewise[cut] = cut;
        }
        check_cut(&readings[i], bytewise, length);
    }
}

// Texts made of what means something to some form.
static void test_random(void **state)
{
    static const char *const words[] = { "<think>",     "</think>",
                                         "<think",      "</",
                                         "\n",          "\n\n",
                                         " ",           "a",
                                         "<tool_call>", "<|end|>",
                                         "<|channel|>", "analysis",
                                         "final",       "<|message|>",
                                         "<|start|>",   "[THINK]",
                                         "[/THINK]",    "<|channel>thought",
                                         "<channel|>",  "<response>",
                                         "</response>", "<|close|>think",
                                         "<|sep|>",     "<|open|>think<|sep|>" };
    static const char *const names[] = { "qwen3", "granite", "harmony", "gemma4", "mistral", "kimi_k3" };
    uint64_t seed = 7;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct strbuf text = { 0 };
        struct reading reading = { .form = names[round % COUNT_OF(names)], .prompt = "", .calls = round & 1 };
        size_t cuts[8];
        for (int i = 0; i < 12; i++)
            strbuf_add_text(&text, words[random_between(&seed, 0, COUNT_OF(words) - 1)]);
        for (size_t i = 0; i < COUNT_OF(cuts); i++)
            cuts[i] = text.len * (i + 1) / 10;
        struct strbuf whole = read_cut(&reading, strbuf_bytes(&text), NULL, 0);
        struct strbuf cut = read_cut(&reading, strbuf_bytes(&text), cuts, COUNT_OF(cuts));
        assert_true(bytes_equal(strbuf_bytes(&whole), strbuf_bytes(&cut)));
        strbuf_free(&whole);
        strbuf_free(&cut);
        strbuf_free(&text);
    }
}

// A call inside a thought is held, but only so much of it.
static void test_limits(void **state)
{
    struct strbuf text = { 0 };
    struct reading reading = { .form = "qwen3", .prompt = "<think>", .calls = true };
    (void)state;
    strbuf_add_text(&text, "<tool_call>");
    while (text.len < 3 * REASONING_HELD_BYTES_MAX)
        strbuf_add_text(&text, "<");
    struct strbuf told = read_cut(&reading, strbuf_bytes(&text), NULL, 0);
    assert_true(bytes_equal(strbuf_bytes(&told), strbuf_bytes(&text)));
    strbuf_free(&told);
    text.len = 0;
    reading.prompt = "";
    while (text.len < 100000)
        strbuf_add_byte(&text, '\n');
    told = read_cut(&reading, strbuf_bytes(&text), NULL, 0);
    assert_int_equal(told.len, text.len);
    strbuf_free(&told);
    strbuf_free(&text);
}

// ---- which form ---------------------------------------------------------------------------------------------------

static void test_find(void **state)
{
    static const struct {
        const char *source, *form;
    } cases[] = {
        { "{{ messages[0].content }}", NULL },
        { "{# <think></think> #}{{ x }}", NULL },
        { "{{ '<think>' + x + '</think>' }}", "think" },
        { "{% if '</think>' in content %}{% endif %}", "think" },
        { "<tool_call>{{ '</think>' }}", "qwen3" },
        { "</think><response>", "granite" },
        { "</think><response><minimax:tool_call>", "minimax_m2" },
        { "</think><|tool_calls_section_begin|>", "kimi_k2" },
        { "</think><answer>", "hunyuan_a13b" },
        { "{{ '<|channel|>analysis<|message|>' }}", "harmony" },
        { "{{ '<|channel>thought' }}{{ '<channel|>' }}<|think|>", "gemma4" },
        { "{{ '<|START_THINKING|>' }}<|START_TEXT|>", "cohere_command4" },
        { "{{ '<|START_THINKING|>' }}<|START_RESPONSE|>", "cohere_command3" },
        { "{{ '<think{}>'.format(x) }}", "hy_v3" },
        { "{% broken", NULL },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct reasoning_form *form = reasoning_find(bytes_of(cases[i].source));
        if (!form != !cases[i].form || (form && strcmp(form->name, cases[i].form) != 0))
            fail_msg("%s: %s, expected %s", cases[i].source, form ? form->name : "none",
                     cases[i].form ? cases[i].form : "none");
    }
}

static void test_names(void **state)
{
    struct error err;
    (void)state;
    assert_string_equal(must_name("deepseek_r1")->name, "think");
    assert_string_equal(must_name("glm45")->name, "qwen3");
    assert_string_equal(must_name("openai_gptoss")->name, "harmony");
    assert_null(reasoning_named("qwen33", &err));
    assert_string_equal(err.text, "there is no reasoning parser \"qwen33\"; did you mean \"qwen3\"?");
    assert_null(reasoning_named("", &err));
    assert_null(reasoning_named("glm45 nemotron_v3", &err));
    assert_non_null(strstr(err.text, "and vLLM's names for them"));
}

static void test_is_open(void **state)
{
    static const struct {
        const char *form, *prompt;
        bool open;
    } cases[] = {
        { "qwen3", "user <think>\nassistant\n", false },
        { "qwen3", "assistant\n<think>\n", true },
        { "qwen3", "assistant\n<think>\n\n</think>\n\n", false },
        { "qwen3", "<think> \n\t", true },
        { "qwen3", "", false },
        { "apriel", "Here are my reasoning steps:\n", true },
        { "harmony", "<|start|>assistant", true },
        { "harmony", "<|start|>assistant<|channel|>final<|message|>", false },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(reasoning_is_open(must_name(cases[i].form), bytes_of(cases[i].prompt)), cases[i].open);
}

// ---- questions about a text under way -----------------------------------------------------------------------------

static void test_states(void **state)
{
    struct reasoning_sink sink = { 0 };
    struct reasoning_splitter *splitter = reasoning_open(must_name("qwen3"), bytes_of(""), &sink);
    size_t behind = 99;
    (void)state;
    assert_true(reasoning_may_open(splitter) && !reasoning_is_thinking(splitter));
    assert_false(reasoning_would_end(splitter, bytes_of("</think>"), &behind));
    reasoning_add(splitter, bytes_of("<think>"));
    assert_true(!reasoning_may_open(splitter) && reasoning_is_thinking(splitter) && !reasoning_held(splitter));
    assert_true(reasoning_would_end(splitter, bytes_of("</think>"), &behind) && behind == 8);
    reasoning_add(splitter, bytes_of("T</thi"));
    assert_int_equal(reasoning_held(splitter), 5);
    assert_false(reasoning_would_end(splitter, bytes_of("n>"), &behind));
    assert_true(reasoning_would_end(splitter, bytes_of("nk>\n\n{\"a"), &behind) && behind == 5);
    reasoning_add(splitter, bytes_of("nk>"));
    assert_true(!reasoning_is_thinking(splitter) && !reasoning_may_open(splitter));
    reasoning_close(splitter);
}

static void test_tokens(void **state)
{
    struct tokenizer *tokenizer = open_byte_level("", "",
                                                  "'added_tokens':[{'id':256,'content':'[THINK]','special':true},{'id':"
                                                  "257,'content':'[/THINK]','special':true}],");
    struct tokens tokens = { 0 };
    (void)state;
    reasoning_tokens(must_name("mistral"), tokenizer, &tokens);
    assert_int_equal(tokens.count, 3); // and the close marker once more: it finishes a thought
    assert_int_equal(tokens.ids[0], 256);
    assert_int_equal(tokens.ids[1], 257);
    tokens.count = 0;
    reasoning_tokens(must_name("qwen3"), tokenizer, &tokens);
    assert_int_equal(tokens.count, 0);
    tokens_free(&tokens);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readings), cmocka_unit_test(test_random), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_find),     cmocka_unit_test(test_names),  cmocka_unit_test(test_is_open),
        cmocka_unit_test(test_states),   cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
