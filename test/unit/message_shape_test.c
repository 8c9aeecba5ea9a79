// SPDX-License-Identifier: Apache-2.0
// Conversations in the shapes that templates want, shapes found by probing, and prompts that end in the last message.
// test/e2e/test_history.py holds all published templates to them.
#include "tokenizer_open.h"

#include "text/chat_continue.h"
#include "text/chat_probe.h"
#include "text/messages.h"

static void assert_same(json_t *value, const char *expected)
{
    json_t *want = read_quoted(expected);
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    if (!json_equal(value, want))
        fail_msg("expected %s\n     got %s", expected, text ? text : "nothing");
    free(text);
    json_decref(want);
    json_decref(value);
}

static json_t *normalise(const char *sent)
{
    json_t *messages = read_quoted(sent);
    struct error err = { "" };
    json_t *normal = messages_normalise(messages, false, &err);
    if (!normal)
        fail_msg("%s", err.text);
    json_decref(messages);
    return normal;
}

static const struct message_shape usual = { .takes_system = true,
                                            .takes_tools = true,
                                            .writes_calls = true,
                                            .writes_results = true,
                                            .thought_key = MESSAGE_THOUGHT };

static void check_shaped(struct message_shape shape, const char *sent, const char *expected)
{
    json_t *messages = normalise(sent);
    assert_same(message_shape_apply(&shape, tools_form_default(), messages), expected);
    json_decref(messages);
}

#define CALL(id, name, arguments) "{'id': '" id "', 'function': {'name': '" name "', 'arguments': " arguments "}}"
#define CALLS(content, calls) "{'role': 'assistant', 'content': " content ", 'tool_calls': [" calls "]}"
#define RESULT(id, name, content) \
    "{'role': 'tool', 'tool_call_id': '" id "', 'name': '" name "', 'content': '" content "'}"
#define SENT(id, content) "{'role': 'tool', 'tool_call_id': '" id "', 'content': '" content "'}"

// ---- thoughts -----------------------------------------------------------------------------------------------------

static void test_thoughts(void **state)
{
    (void)state;
    static const char *const sent[] = {
        "{'role': 'assistant', 'content': 'c', 'reasoning_content': 't'}",
        "{'role': 'assistant', 'content': 'c', 'reasoning': 't', 'reasoning_content': null}",
        "{'role': 'assistant', 'content': 'c', 'thinking': 't', 'reasoning': ''}",
        "{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 't'}, {'type': 'text', 'text': 'c'}]}",
        "{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': [{'type': 'text', 'text': 't'}]}, 'c']}",
    };
    struct message_shape key = usual, blocks = usual, none = usual;
    key.thought_key = "thinking";
    blocks.thought_key = none.thought_key = NULL;
    blocks.thought_blocks = true;
    for (size_t i = 0; i < COUNT_OF(sent); i++) {
        struct strbuf list = { 0 };
        strbuf_add_format(&list, "[%s]", sent[i]);
        check_shaped(usual, list.data, "[{'role': 'assistant', 'content': 'c', 'reasoning_content': 't'}]");
        check_shaped(key, list.data, "[{'role': 'assistant', 'content': 'c', 'thinking': 't'}]");
        check_shaped(blocks, list.data,
                     "[{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 't'},"
                     " {'type': 'text', 'text': 'c'}]}]");
        strbuf_free(&list);
    }
    check_shaped(usual, "[{'role': 'user', 'content': 'c', 'thinking': 't'}]",
                 "[{'role': 'user', 'content': 'c', 'thinking': 't'}]");
    struct message_shape either = key;
    either.thought_or_content = true;
    check_shaped(
        either, "[{'role': 'assistant', 'content': 'c', 'reasoning': 't', 'tool_calls': [" CALL("i", "f", "'{}'") "]}]",
        "[{'role': 'assistant', 'content': '', 'thinking': 't\\n\\nc', 'tool_calls': [" CALL("i", "f", "{}") "]}]");
    check_shaped(either, "[{'role': 'assistant', 'content': 'c', 'reasoning': 't'}]",
                 "[{'role': 'assistant', 'content': 'c', 'thinking': 't'}]");
}

// ---- calls --------------------------------------------------------------------------------------------------------

static void test_calls(void **state)
{
    (void)state;
    struct message_shape shape = usual;
    shape.arguments_as_text = shape.no_content_is_null = true;
    check_shaped(shape, "[" CALLS("''", CALL("i", "f", "{'a': 1}")) "]",
                 "[" CALLS("null", CALL("i", "f", "'{\\u0022a\\u0022: 1}'")) "]");
    shape = usual;
    shape.calls_or_content = true;
    check_shaped(shape, "[" CALLS("'c'", CALL("i", "f", "{}")) "]",
                 "[{'role': 'assistant', 'content': 'c'}, " CALLS("''", CALL("i", "f", "{}")) "]");
    shape = usual;
    shape.results_as_json = true;
    check_shaped(
        shape,
        "[" CALLS("''", CALL("i", "f", "{}") ", " CALL("j", "f", "{}")) ", " SENT("i", "sun") ", " SENT("j", "[1]") "]",
        "[" CALLS("''", CALL("i", "f", "{}") ", " CALL("j", "f", "{}")) ", " RESULT(
            "i", "f", "\\u0022sun\\u0022") ", " RESULT("j", "f", "[1]") "]");
}

// Results have the name of their call and its place; those that answer no call keep theirs, behind the others.
static void test_results(void **state)
{
    (void)state;
    static const char sent[] = "[" CALLS("'c'", CALL("i", "f", "{}") ", " CALL("j", "g", "{}")) ", " SENT(
        "k", "3") ", " SENT("j", "2") ", " SENT("i", "1") ", {'role': 'user', 'content': 'u'}]";
    check_shaped(usual, sent,
                 "[" CALLS("'c'", CALL("i", "f", "{}") ", " CALL("j", "g", "{}")) ", " RESULT(
                     "i", "f", "1") ", " RESULT("j", "g", "2") ", " SENT("k", "3") ", {'role': 'user', 'content': "
                                                                                   "'u'}]");
    struct message_shape one = usual;
    one.one_call = true;
    check_shaped(one, sent,
                 "[" CALLS("'c'", CALL("i", "f", "{}")) ", " RESULT("i", "f", "1") ", " CALLS(
                     "''", CALL("j", "g", "{}")) ", " RESULT("j", "g", "2") ", " SENT("k", "3") ", {'role': 'user', "
                                                                                                "'content': 'u'}]");
}

static void test_ids(void **state)
{
    (void)state;
    struct message_shape shape = usual;
    shape.ids = IDS_NAMED;
    check_shaped(
        shape,
        "[" CALLS("''", CALL("x", "f", "{}") ", " CALL("y", "g", "{}")) ", " SENT("y", "2") ", " SENT(
            "x", "1") ", " CALLS("''", CALL("x", "f", "{}")) ", " SENT("x", "3") "]",
        "[" CALLS("''", CALL("functions.f:0", "f", "{}") ", " CALL("functions.g:1", "g", "{}")) ", " RESULT(
            "functions.f:0", "f",
            "1") ", " RESULT("functions.g:1", "g",
                             "2") ", " CALLS("''", CALL("functions.f:2", "f", "{}")) ", " RESULT("functions.f:2", "f",
                                                                                                 "3") "]");
    shape.ids = IDS_NINE;
    check_shaped(shape, "[" CALLS("''", CALL("abcDEF123", "f", "{}")) ", " SENT("abcDEF123", "1") "]",
                 "[" CALLS("''", CALL("abcDEF123", "f", "{}")) ", " RESULT("abcDEF123", "f", "1") "]");
    json_t *messages = normalise(
        "[" CALLS("''", CALL("call_12", "f", "{}")) ", " SENT("call_12", "1") ", " SENT("other", "2") "]");
    json_t *shaped = message_shape_apply(&shape, tools_form_default(), messages);
    const char *call = json_string_value(
        json_object_get(json_array_get(json_object_get(json_array_get(shaped, 0), "tool_calls"), 0), "id"));
    const char *result = json_string_value(json_object_get(json_array_get(shaped, 1), "tool_call_id"));
    const char *other = json_string_value(json_object_get(json_array_get(shaped, 2), "tool_call_id"));
    assert_int_equal(strlen(call), 9);
    assert_int_equal(strlen(other), 9);
    assert_string_equal(call, result);
    assert_string_not_equal(call, other);
    json_decref(shaped);
    json_decref(messages);
    // without ids: in order
    check_shaped(usual,
                 "[{'role': 'assistant', 'tool_calls': [{'function': {'name': 'f', 'arguments': ''}},"
                 " {'function': {'name': 'g'}}]}, {'role': 'tool', 'content': '1'}, {'role': 'tool', "
                 "'content': '2'}]",
                 "[" CALLS("''", CALL("call_0", "f", "{}") ", " CALL("call_1", "g", "{}")) ", " RESULT(
                     "call_0", "f", "1") ", " RESULT("call_1", "g", "2") "]");
}

static void test_words(void **state)
{
    (void)state;
    struct message_shape shape = usual;
    shape.writes_calls = false;
    static const char sent[] = "[" CALLS("''", CALL("i", "f", "{'a': 1}")) ", " SENT("i", "1") "]";
#define SPOKEN                                                                       \
    "'<tool_call>\\n{\\u0022name\\u0022: \\u0022f\\u0022, \\u0022arguments\\u0022: " \
    "{\\u0022a\\u0022: 1}}\\n</tool_call>'"
    check_shaped(shape, sent, "[{'role': 'assistant', 'content': " SPOKEN "}, " RESULT("i", "f", "1") "]");
    shape.writes_results = false;
    check_shaped(shape, sent,
                 "[{'role': 'assistant', 'content': " SPOKEN "}, {'role': 'user', 'content': "
                 "'<tool_response>\\n1\\n</tool_response>'}]");
}

// ---- system messages ----------------------------------------------------------------------------------------------

static void test_system(void **state)
{
    (void)state;
#define SAY(role, content) "{'role': '" role "', 'content': '" content "'}"
    struct message_shape shape = usual;
    shape.one_system = true;
    check_shaped(
        shape,
        "[" SAY("system", "a") ", " SAY("developer", "b") ", " SAY("user", "c") ", " SAY("assistant", "d") ", " SAY(
            "system", "e") ", " SAY("user", "f") ", " SAY("user", "g") ", " SAY("assistant",
                                                                                "h") ", " SAY("user",
                                                                                              "i") ", " SAY("user",
                                                                                                            "j") "]",
        "[" SAY("system", "a\\n\\nb") ", " SAY("user", "c") ", " SAY("assistant", "d") ", " SAY(
            "user", "e\\n\\nf\\n\\ng") ", " SAY("assistant", "h") ", " SAY("user", "i") ", " SAY("user", "j") "]");
    check_shaped(shape, "[" SAY("user", "a") ", " SAY("system", "b") "]", "[" SAY("user", "a\\n\\nb") "]");
    check_shaped(usual, "[" SAY("user", "a") ", " SAY("developer", "b") "]",
                 "[" SAY("user", "a") ", " SAY("system", "b") "]");
}

// ---- probes -------------------------------------------------------------------------------------------------------

static struct message_shape probe(const char *template)
{
    struct error err = { "" };
    struct chat *chat = chat_open_source(NULL, bytes_of(template), &err);
    if (!chat)
        fail_msg("%s", err.text);
    struct message_shape shape = chat_probe(chat);
    chat_close(chat);
    return shape;
}

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define CONTENT "{{ m.role }}{{ m.content }}"
#define WITH_CALLS "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}"

static void test_probes(void **state)
{
    (void)state;
    struct message_shape shape = probe(EACH(CONTENT WITH_CALLS));
    assert_true(shape.writes_calls && shape.writes_results && shape.takes_system && shape.takes_tools);
    assert_false(shape.one_call || shape.arguments_as_text || shape.no_content_is_null || shape.one_system);
    assert_null(shape.thought_key);
    assert_false(shape.thought_blocks || shape.iterates_tools || shape.calls_or_content || shape.results_as_json);
    assert_int_equal(shape.ids, IDS_ANY);

    assert_false(probe(EACH(CONTENT)).writes_calls);
    assert_true(probe(EACH(CONTENT)).writes_results);
    assert_false(probe(EACH("{% if m.role == 'tool' %}{{ raise_exception('r') }}{% endif %}" CONTENT)).writes_results);
    assert_true(probe(EACH(CONTENT "{% for c in m.tool_calls %}{{ c.function.arguments + '' }}{% endfor "
                                   "%}"))
                    .arguments_as_text);
    assert_true(probe(EACH("{% if m.tool_calls and m.content is none %}" WITH_CALLS "{% else %}" CONTENT "{% endif %}"))
                    .no_content_is_null);
    assert_true(probe(EACH("{% if m.content %}" CONTENT "{% else %}" WITH_CALLS "{% endif %}")).calls_or_content);
    assert_true(probe(EACH(CONTENT "{% if m.tool_calls %}{{ m.tool_calls[0] | tojson }}{% endif %}")).one_call);
    assert_int_equal(probe(EACH(CONTENT "{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ "
                                        "raise_exception('i') }}"
                                        "{% endif %}{{ c.function | tojson }}{% endfor %}"))
                         .ids,
                     IDS_NINE);
    assert_int_equal(probe(EACH(CONTENT "{% for c in m.tool_calls %}{{ c.id }}{{ c.function.arguments | tojson }}"
                                        "{% endfor %}"))
                         .ids,
                     IDS_NAMED);
    assert_string_equal(probe(EACH(CONTENT "{{ m.reasoning }}{{ m.thinking }}")).thought_key, "reasoning");
    assert_true(probe(EACH("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
                           "{{ p.thinking }}{% endfor %}{% endif %}"))
                    .thought_blocks);
    assert_true(probe(EACH("{% if m.role == 'system' and not loop.first %}{{ raise_exception('s') }}{% endif "
                           "%}" CONTENT))
                    .one_system);
    assert_true(probe("{% for t in tools %}{{ t }}{% endfor %}" EACH(CONTENT)).iterates_tools); // over none
    assert_true(probe("{{ tools + [] }}" EACH(CONTENT)).iterates_tools);
    assert_false(probe("{% if tools %}{{ raise_exception('t') }}{% endif %}" EACH(CONTENT)).takes_tools);
    assert_true(
        probe(EACH(CONTENT WITH_CALLS "{% if m.role == 'tool' %}{\"r\": {{ m.content }}}{% endif %}")).results_as_json);
}

// A template that never ends costs each probe no more than its steps, and then its requests are refused.
static void test_probes_are_bounded(void **state)
{
    (void)state;
    static const char slow[] = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    struct error err = { "" };
    struct chat *chat = chat_open_source(NULL, bytes_of(slow), &err);
    json_t *messages = read_quoted("[]");
    struct strbuf out = { 0 };
    assert_non_null(chat);
    assert_false(chat_render_within(chat, messages, PROBE_STEPS_MAX, &out, &err));
    assert_says(err, "still running after 300000 steps");
    json_decref(messages);
    chat_close(chat);
}

// ---- continued messages -------------------------------------------------------------------------------------------

static void check_continued(const char *template, const char *messages, const char *prompt, const char *sentence)
{
    struct error err = { "" };
    struct strbuf out = { 0 };
    struct chat *chat = chat_open_source(NULL, bytes_of(template), &err);
    json_t *request = json_pack("{s:o, s:b}", "messages", read_quoted(messages), "continue_final_message", 1);
    strbuf_add_text(&out, "before ");
    bool ok = chat_render(chat, request, &out, &err);
    assert_says(err, sentence);
    assert_int_equal(ok, prompt != NULL);
    if (prompt)
        assert_string_equal(out.data, prompt);
    strbuf_free(&out);
    json_decref(request);
    chat_close(chat);
}

static void test_continue(void **state)
{
    (void)state;
    static const char plain[] = EACH("<{{ m.content }}>") "{{ add_generation_prompt }}";
    static const char trims[] = EACH("<{{ m.content | trim }} >");
    static const char lists[] = EACH("<{% for p in m.content %}{{ p.text }}{% endfor %}>");
#define OPEN(content) "[{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': " content "}]"
    check_continued(plain, OPEN("'a '"), "before <q><a ", "");
    check_continued(plain, OPEN("''"), "before <q><", "");
    check_continued(trims, OPEN("' a \\n'"), "before <q ><a", "");
    check_continued(lists, OPEN("[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b '}]"), "before <><ab ",
                    "");
    check_continued(plain, OPEN("'nibble-continues-here\\t \\t'"), "before <q><nibble-continues-here\t \t", "");
    check_continued(plain, OPEN("null"), NULL, "no text to continue");
    check_continued(plain, OPEN("[]"), NULL, "no text to continue");
    check_continued("{{ messages | length }}", OPEN("'a'"), NULL, "does not write the last message's content");
    check_continued(plain, "[{'role': 'user', 'content': 'q'}]", NULL, "not the assistant's");
    check_continued(plain, "[]", NULL, "not the assistant's");
    check_continued(plain, "[{'role': 'assistant', 'content': 'a', 'tool_calls': [{}]}]", NULL, "has tool_calls");
}

// ---- limits -------------------------------------------------------------------------------------------------------

static void test_arguments_have_a_limit(void **state)
{
    (void)state;
    struct strbuf arguments = { 0 };
    strbuf_add_text(&arguments, "{\"a\": [");
    for (int i = 0; i < 1 << 19; i++)
        strbuf_add_text(&arguments, "[],");
    strbuf_add_text(&arguments, "0]}");
    json_t *call = json_pack("{s:{s:s, s:s}}", "function", "name", "f", "arguments", arguments.data);
    json_t *calls = json_array(), *messages = json_array();
    for (int i = 0; i < 8; i++)
        json_array_append(calls, call);
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "assistant", "tool_calls", calls));
    struct error err;
    assert_null(messages_normalise(messages, false, &err));
    assert_says(err, "arguments of more than 64 MB");
    json_decref(messages);
    json_decref(call);
    strbuf_free(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts), cmocka_unit_test(test_calls),
        cmocka_unit_test(test_results),  cmocka_unit_test(test_ids),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_system),
        cmocka_unit_test(test_probes),   cmocka_unit_test(test_probes_are_bounded),
        cmocka_unit_test(test_continue), cmocka_unit_test(test_arguments_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
