// SPDX-License-Identifier: Apache-2.0
// Calls read out of an answer: a table of texts, each cut at every place; random texts cut at random; limits.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/random.h"
#include "text/tools.h"
#include "text/tools/scan.h"

#include <cmocka.h> // last: it has a macro called fail

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

// A reader's events as one text: content as it is, calls as [0 name|arguments].
struct record {
    struct strbuf text;
    bool in_call;
    int calls;
};

static void leave_call(struct record *record)
{
    if (record->in_call)
        strbuf_add_byte(&record->text, ']');
    record->in_call = false;
}

static void on_content(void *context, struct bytes text)
{
    struct record *record = context;
    assert_true(text.len > 0);
    leave_call(record);
    strbuf_add(&record->text, text.data, text.len);
}

static void on_call(void *context, int index, struct bytes name, struct bytes id)
{
    struct record *record = context;
    leave_call(record);
    assert_int_equal(index, record->calls++);
    strbuf_add_format(&record->text, "[%d %.*s", index, (int)name.len, name.data);
    if (id.len)
        strbuf_add_format(&record->text, "#%.*s", (int)id.len, id.data);
    strbuf_add_byte(&record->text, '|');
    record->in_call = true;
}

static void on_arguments(void *context, int index, struct bytes fragment)
{
    struct record *record = context;
    assert_true(record->in_call && fragment.len > 0);
    assert_int_equal(index, record->calls - 1);
    strbuf_add(&record->text, fragment.data, fragment.len);
}

static json_t *tools;

static const struct tool_form *form_of(const char *name)
{
    struct error err;
    const struct tool_form *form = tools_form_named(name, NULL, &err);
    assert_non_null(form);
    return form;
}

static int make_tools(void **state)
{
    (void)state;
    tools = json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}},"
                       " {\"type\": \"function\", \"function\": {\"name\": \"get_weather\"}},"
                       " {\"type\": \"function\", \"function\": {\"name\": \"caf\xC3\xA9 \\\"x\\\"\"}}]",
                       0, NULL);
    return tools ? 0 : -1;
}

static int free_tools(void **state)
{
    (void)state;
    json_decref(tools);
    return 0;
}

// Feeds the pieces that `cuts` (ascending, `count` of them) make of the text.
static struct strbuf read_cut(const struct tool_form *form, struct bytes text, const size_t *cuts, size_t count)
{
    struct record record = { 0 };
    struct tool_sink sink = { .context = &record, .content = on_content, .call = on_call, .arguments = on_arguments };
    struct tool_reader *reader = tool_reader_open(form, tools, &sink);
    for (size_t i = 0, at = 0; i <= count; i++) {
        size_t end = i < count ? cuts[i] : text.len;
        tool_reader_add(reader, (struct bytes){ text.data + at, end - at });
        at = end;
    }
    tool_reader_finish(reader);
    assert_int_equal(tool_reader_calls(reader), record.calls);
    tool_reader_close(reader);
    leave_call(&record);
    strbuf_add(&record.text, "", 0);
    return record.text;
}

static void check_cut(const struct tool_form *form, struct bytes text, struct bytes expected, const size_t *cuts,
                      size_t count)
{
    struct strbuf told = read_cut(form, text, cuts, count);
    if (!bytes_equal(strbuf_bytes(&told), expected))
        fail_msg("\"%.*s\" cut at %zu: \"%s\", expected \"%.*s\"", (int)text.len, text.data, count ? cuts[0] : 0,
                 told.data, (int)expected.len, expected.data);
    strbuf_free(&told);
}

static void check_cut_everywhere(const struct tool_form *form, struct bytes text, struct bytes expected)
{
    enum { CUTS_MAX = 2048 };
    size_t bytewise[CUTS_MAX];
    assert_true(text.len < CUTS_MAX);
    for (size_t cut = 0; cut <= text.len; cut++) {
        check_cut(form, text, expected, &cut, 1);
        bytewise[cut] = cut;
    }
    check_cut(form, text, expected, bytewise, text.len);
}

#define CALL_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static const struct reading {
    const char *text, *told;
} hermes[] = {
    { "", "" },
    { "Just text.\n", "Just text.\n" },
    { "  a  <b> <tool_cal </tool_call> <tool_call ", "  a  <b> <tool_cal </tool_call> <tool_call " },
    { CALL_F, "[0 f|{\"a\": 1}]" },
    { "\n\n" CALL_F "\n", "[0 f|{\"a\": 1}]" },
    { "Let me see. \n\n" CALL_F "\n" CALL_F, "Let me see.[0 f|{\"a\": 1}][1 f|{\"a\": 1}]" },
    { CALL_F "\nand <" CALL_F " then\n", "[0 f|{\"a\": 1}]\nand <[1 f|{\"a\": 1}] then\n" },
    { "<<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "<[0 f|{}]" },
    // any order, any white space, other keys
    { "<tool_call> {\t\"name\" :\r\"get_weather\" ,\n\"arguments\" : { \"x\" : [ 1 , { } ] } } </tool_call>",
      "[0 get_weather|{ \"x\" : [ 1 , { } ] }]" },
    { "<tool_call>{\"arguments\": {\"b\": \"}\\\"\"}, \"name\": \"f\"}</tool_call>", "[0 f|{\"b\": \"}\\\"\"}]" },
    { "<tool_call>{\"id\": 7, \"parameters\": {\"b\": 2}, \"z\": [null], \"name\": \"f\", \"q\": 1}</tool_call>",
      "[0 f|{\"b\": 2}]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"why\": \"because}\", \"n\": 5}</tool_call>!", "[0 f|{}]!" },
    { "<tool_call>{\"name\": \"caf\\u00e9 \\\"x\\\"\"}</tool_call>", "[0 caf\xC3\xA9 \"x\"|{}]" },
    // arguments that are no object
    { "<tool_call>{\"name\": \"f\"}</tool_call>", "[0 f|{}]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "[0 f|{}]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "[0 f|{}]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": -1.5e+3}</tool_call>", "[0 f|-1.5e+3]" },
    { "<tool_call>{\"arguments\": 12 , \"name\": \"f\"}</tool_call>", "[0 f|12]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": [1, true]}</tool_call>", "[0 f|[1, true]]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": \"Paris\"}</tool_call>", "[0 f|\"Paris\"]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\\n\\\"}\"}</tool_call>",
      "[0 f|{\"a\": \"\xC3\xA9\\n\"}]" },
    { "<tool_call>{\"arguments\": \"{\\\"a\\\": \\\"x\\ny\\\"}\", \"name\": \"f\"}</tool_call>",
      "[0 f|{\"a\": \"x\\u000ay\"}]" },
    // what JSON does not allow in a string
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"code\": \"a\n\tb\"}}</tool_call>",
      "[0 f|{\"code\": \"a\\u000a\\u0009b\"}]" },
    // no call after all
    { "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>" },
    { " <tool_call> garbage </tool_call> ", " <tool_call> garbage </tool_call> " },
    { "<tool_call>\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_call>[0 f|{}]" },
    { "<tool_call>{\"name\": \"f\" oops}</tool_call>\n" CALL_F,
      "<tool_call>{\"name\": \"f\" oops}</tool_call>[0 f|{\"a\": 1}]" },
    { "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>", "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>" },
    { "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>" },
    { "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>" },
    { "<tool_call><function=f></function></tool_call>", "<tool_call><function=f></function></tool_call>" },
    // a bracket too few or too many, a tag never closed, two objects in one
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>.", "[0 f|{\"a\": 1}]." },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}}\n]</tool_call>.", "[0 f|{\"a\": 1}]." },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {}}\nThen </tool", "[0 f|{}]\nThen </tool" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n" CALL_F, "[0 f|{}][1 f|{\"a\": 1}]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {}} oops}</tool_call>", "[0 f|{}] oops}</tool_call>" },
    { "<tool_call>{\"name\": \"f\"}\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}</tool_call>",
      "[0 f|{}][1 f|{\"a\": 2}]" },
    { "<tool_call>[{\"name\": \"f\"}, {\"name\": \"get_weather\"}]</tool_call>", "[0 f|{}][1 get_weather|{}]" },
    { "<tool_call>[1, {\"name\": \"f\"}]</tool_call>", "<tool_call>[1, {\"name\": \"f\"}]</tool_call>" },
    { "<tool_call>{\"name\": \"f\"}, or {}?", "[0 f|{}], or {}?" },
    { "<tool_call>{\"name\": \"f\"} {\"x\": 1}</tool_call>", "[0 f|{}] {\"x\": 1}</tool_call>" },
    // arguments that stop being JSON once they were told
    { "<tool_call>{\"name\": \"f\", \"arguments\": {'a': </tool>}}</tool_call> so", "[0 f|{'a': </tool>}}] so" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>", "[0 f|{\"a\": 1]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_c", "[0 f|{\"a\": 01}}</tool_c]" },
    // the end comes early
    { "Hm <tool_ca", "Hm <tool_ca" },
    { "Hm <tool_call> ", "Hm <tool_call> " },
    { "<tool_call>{\"name\": \"f", "<tool_call>{\"name\": \"f" },
    { "<tool_call>{\"name\": \"f\"", "[0 f|]" },
    { "<tool_call>{\"name\": \"f\", \"argu", "[0 f|]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "[0 f|{\"a\": \"b]" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a", "[0 f|\"{\\\"a]" },
    { "<tool_call>{\"arguments\": {\"a\": 1}, \"na", "<tool_call>{\"arguments\": {\"a\": 1}, \"na" },
    { "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_", "[0 f|{}]" },
};

#define BARE_F "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"

static const struct reading llama3[] = {
    { "", "" },
    { " \n", " \n" },
    { "Just text, {\"name\": \"f\", \"parameters\": {}}", "Just text, {\"name\": \"f\", \"parameters\": {}}" },
    { BARE_F, "[0 f|{\"a\": 1}]" },
    { "\n <|python_tag|> " BARE_F "\n", "[0 f|{\"a\": 1}]" },
    { BARE_F "; " BARE_F "\n" BARE_F, "[0 f|{\"a\": 1}][1 f|{\"a\": 1}][2 f|{\"a\": 1}]" },
    { "[" BARE_F ", " BARE_F "]", "[0 f|{\"a\": 1}][1 f|{\"a\": 1}]" },
    { "<|python_tag|>" BARE_F ";<|python_tag|>" BARE_F, "[0 f|{\"a\": 1}][1 f|{\"a\": 1}]" },
    { "{\"type\": \"function\", \"name\": \"f\", \"arguments\": {}}", "[0 f|{}]" },
    { "{\"parameters\": {\"a\": 1}, \"name\": \"get_weather\"}", "[0 get_weather|{\"a\": 1}]" },
    { "{\"name\": \"f\", \"parameters\": \"{\\\"a\\\": 1}\"}", "[0 f|{\"a\": 1}]" },
    { BARE_F "\n\nThat is it. " BARE_F, "[0 f|{\"a\": 1}]\n\nThat is it. " BARE_F },
    { BARE_F ", {\"x\": 1}", "[0 f|{\"a\": 1}], {\"x\": 1}" },
    { BARE_F "<|pyth", "[0 f|{\"a\": 1}]<|pyth" },
    // no call after all
    { "{\"name\": \"Anna\", \"age\": 3}", "{\"name\": \"Anna\", \"age\": 3}" },
    { "{\"name\": \"f\"}", "{\"name\": \"f\"}" },
    { "{\"name\": \"f\", \"age\": 3}", "{\"name\": \"f\", \"age\": 3}" },
    { "{}", "{}" },
    { " [1, 2]", " [1, 2]" },
    { "[]", "[]" },
    { "; " BARE_F, "; " BARE_F },
    { "<|python_tag|>print(1)", "<|python_tag|>print(1)" },
    { "<|pytho{", "<|pytho{" },
    { "<<|python_tag|>", "<<|python_tag|>" },
    { "{\"name\": \"f\", \"parameters\"", "{\"name\": \"f\", \"parameters\"" },
    { "{\"name\": \"f\", \"parameters\": {\"a\": ", "[0 f|{\"a\": ]" },
    { "{\"name\": \"f\", \"parameters\": {\"a\": b}} so", "[0 f|{\"a\": b}} so]" },
};

static void test_hermes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(hermes); i++)
        check_cut_everywhere(form_of("hermes"), bytes_of(hermes[i].text), bytes_of(hermes[i].told));
}

static void test_llama3(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(llama3); i++)
        check_cut_everywhere(form_of("llama3_json"), bytes_of(llama3[i].text), bytes_of(llama3[i].told));
}

// Texts put together from what calls are made of, whole and broken: any cuts give what no cut gives.
static void test_random_texts(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        CALL_F,
        BARE_F,
        "{\"name\": \"f\", ",
        "\"arguments\": ",
        "\"parameters\": \"{}\"",
        "\"g\": ",
        "null",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ", ",
        ";",
        "\n",
        "text",
        "<",
        "1",
        "\xC3\xA9",
    };
    uint64_t seed = 11;
    for (int round = 0; round < 4000; round++) {
        const struct tool_form *form = form_of(round & 1 ? "llama3_json" : "hermes");
        struct strbuf text = { 0 };
        strbuf_add(&text, "", 0);
        for (int part = random_between(&seed, 0, 12); part > 0; part--)
            strbuf_add_text(&text, parts[random_between(&seed, 0, COUNT_OF(parts) - 1)]);
        size_t cuts[5], count = 0;
        for (size_t at = 0; count < COUNT_OF(cuts); count++)
            cuts[count] = at = (size_t)random_between(&seed, (int)at, (int)text.len);
        struct strbuf whole = read_cut(form, strbuf_bytes(&text), NULL, 0);
        check_cut(form, strbuf_bytes(&text), strbuf_bytes(&whole), cuts, count);
        strbuf_free(&whole);
        strbuf_free(&text);
    }
}

// Arguments and text are told as they come, not when they are complete.
static void test_streams(void **state)
{
    (void)state;
    static const struct {
        const char *piece, *told;
    } steps[] = {
        { "Well, ", "Well," },
        { "see\n<tool", "Well, see" },
        { "_call>{\"name\": \"f\", \"arguments\": ", "Well, see" },
        { "{\"a", "Well, see[0 f|{\"a" },
        { "\": 1", "Well, see[0 f|{\"a\": 1" },
        { "}}</tool_call>", "Well, see[0 f|{\"a\": 1}" },
        { "\nDone", "Well, see[0 f|{\"a\": 1}]\nDone" },
    };
    struct record record = { 0 };
    struct tool_sink sink = { .context = &record, .content = on_content, .call = on_call, .arguments = on_arguments };
    struct tool_reader *reader = tool_reader_open(form_of("hermes"), tools, &sink);
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        tool_reader_add(reader, bytes_of(steps[i].piece));
        assert_string_equal(strbuf_text(&record.text), steps[i].told);
    }
    tool_reader_close(reader); // without an end
    strbuf_free(&record.text);

    record = (struct record){ 0 };
    reader = tool_reader_open(form_of("llama3_json"), tools, &sink);
    tool_reader_add(reader, bytes_of("{\"answer"));
    assert_int_equal(record.text.len, 0);
    tool_reader_add(reader, bytes_of("\": [1"));
    assert_string_equal(strbuf_text(&record.text), "{\"answer\": [1");
    tool_reader_close(reader);
    strbuf_free(&record.text);
}

// Where one call is all that there may be, the answer is over with it, whatever comes behind.
static void test_one_call(void **state)
{
    (void)state;
    static const struct {
        const char *form;
        const char *text, *told;
        bool over;
    } cases[] = {
        { "hermes", "So: <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>{\"name\": \"f\"}",
          "So:[0 f|{}]", true },
        { "hermes", "<tool_call>[{\"name\": \"f\"}, {\"name\": \"f\"}]</tool_call> Done.", "[0 f|{}]", true },
        { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {a}</tool_call> Done.", "[0 f|{a}]", true },
        { "llama3_json", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}", "[0 f|{}]",
          true },
        { "hermes", "No <tool_call> {\"name\": \"none\"}", "No <tool_call> {\"name\": \"none\"}", false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct record record = { 0 };
        struct tool_sink sink = {
            .context = &record, .content = on_content, .call = on_call, .arguments = on_arguments
        };
        struct tool_reader *reader = tool_reader_open(form_of(cases[i].form), tools, &sink);
        tool_reader_end_with_call(reader);
        for (const char *at = cases[i].text; *at; at++)
            tool_reader_add(reader, (struct bytes){ at, 1 });
        assert_int_equal(tool_reader_is_over(reader), cases[i].over);
        tool_reader_finish(reader);
        leave_call(&record);
        assert_string_equal(strbuf_text(&record.text), cases[i].told);
        tool_reader_close(reader);
        strbuf_free(&record.text);
    }
    struct tool_reader *silent = tool_reader_open(form_of("hermes"), tools, &(struct tool_sink){ 0 });
    tool_reader_add(silent, bytes_of(cases[0].text));
    assert_int_equal(tool_reader_calls(silent), 2);
    tool_reader_close(silent);
}

// Held text has a limit, streamed text has none; both are exact.
static void test_long(void **state)
{
    (void)state;
    static const struct {
        const char *form;
        const char *before, *after;
        bool call;
    } cases[] = {
        { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "\"}}</tool_call>", true },
        { "hermes", "<tool_call>{\"arguments\": {\"a\": \"", "\"}, \"name\": \"f\"}</tool_call>", false },
        { "hermes", "<tool_call>{\"name\": \"", "\"}</tool_call>", false },
        { "llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"", "\"}}", true },
        { "llama3_json", "{\"id\": \"", "\", \"name\": \"f\", \"parameters\": {}}", false },
        { "llama3_json", "", "{\"name\": \"f\", \"parameters\": {}}", false },
        { "hermes", "", "text", false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct strbuf text = { 0 };
        strbuf_add_text(&text, cases[i].before);
        for (size_t j = 0; j < 2 * TOOL_HELD_BYTES_MAX; j++)
            strbuf_add_byte(&text, ' ');
        strbuf_add_text(&text, cases[i].after);
        struct strbuf told = read_cut(form_of(cases[i].form), strbuf_bytes(&text), NULL, 0);
        assert_int_equal(bytes_start_with(strbuf_bytes(&told), bytes_of("[0 f|{\"a\": \" ")), cases[i].call);
        if (!cases[i].call)
            assert_true(bytes_equal(strbuf_bytes(&told), strbuf_bytes(&text)));
        size_t cuts[] = { TOOL_HELD_BYTES_MAX - 1, TOOL_HELD_BYTES_MAX + 1 };
        check_cut(form_of(cases[i].form), strbuf_bytes(&text), strbuf_bytes(&told), cuts, 2);
        strbuf_free(&told);
        strbuf_free(&text);
    }
}

// The scanner takes a value if and only if jansson does.
static void test_scan(void **state)
{
    (void)state;
    static const char *const values[] = {
        "{}",
        "[]",
        "[[],{}]",
        "{\"a\":1,\"b\":[true,false,null]}",
        "\"\\u00e9\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "-0.0e-1 ",
        "10",
        "{\"a\" : {\"b\" : [ 1 , 2.5E+7 ] } }",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{1:2}",
        "[01]",
        "[-]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[1e+]",
        "[+1]",
        "[tru]",
        "[nulll]",
        "[\"\\x\"]",
        "[\"\\u12g4\"]",
        "[}",
        "{]",
        "['a']",
        "[True]",
        "}",
        "]",
        ",",
        ":",
        "[\"a\":1]",
        "{\"a\",1}",
        "[-01]",
        "[1.5.5]",
        "[1e5e5]",
        "[0x1]",
        "[\"\\u\"]",
    };
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        struct scan scan = { 0 };
        enum scan_answer answer = SCAN_MORE;
        const char *at = values[i];
        while (*at && answer == SCAN_MORE)
            answer = scan_add(&scan, *at++);
        while (*at && answer == SCAN_WHOLE && bytes_is_space(*at))
            at++;
        bool whole = (answer == SCAN_WHOLE && !*at) || (answer == SCAN_BEFORE && bytes_is_space(at[-1]))
            || (answer == SCAN_MORE && scan_add(&scan, ' ') == SCAN_BEFORE); // a number ends where something else is
        json_t *value = json_loads(values[i], JSON_DECODE_ANY, NULL);
        if (whole != (value != NULL))
            fail_msg("%s: the scanner says %s", values[i], whole ? "yes" : "no");
        json_decref(value);
    }
    struct scan scan = { 0 };
    for (int depth = 0; depth < SCAN_DEPTH_MAX; depth++)
        assert_int_equal(scan_add(&scan, '['), SCAN_MORE);
    assert_int_equal(scan_add(&scan, '['), SCAN_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),  cmocka_unit_test(test_llama3),   cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_one_call), cmocka_unit_test(test_long),
        cmocka_unit_test(test_scan),
    };
    return cmocka_run_group_tests(tests, make_tools, free_tools);
}
