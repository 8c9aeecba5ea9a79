// SPDX-License-Identifier: Apache-2.0
// Every form of tool calls: the template that asks for it, an answer as its family writes it, calls written and read
// back in every cut, broken ones, and forced ones: whatever the grammar allows is read as a call that meets its schema.
#include "tokenizer_open.h"

#include <dirent.h>

#include "base/file.h"
#include "base/random.h"
#include "text/grammar.h"
#include "text/grammar/validate.h"
#include "text/tools/form.h"

// ---- events -------------------------------------------------------------------------------------------------------

// A reader's events as one text: content as it is, reasoning as (text), calls as [0 name#id|arguments].
struct record {
    struct strbuf text;
    char open; // what closes the last event
    json_t *calls;
    struct strbuf arguments;
    int broken;
};

static void enter(struct record *record, char open)
{
    if (record->open && (record->open != open || open == ']'))
        strbuf_add_byte(&record->text, record->open);
    record->open = open;
}

static void on_content(void *context, struct bytes text)
{
    struct record *record = context;
    enter(record, '\0');
    strbuf_add(&record->text, text.data, text.len);
}

static void on_reasoning(void *context, struct bytes text)
{
    struct record *record = context;
    if (record->open != ')') {
        enter(record, ')');
        strbuf_add_byte(&record->text, '(');
    }
    strbuf_add(&record->text, text.data, text.len);
}

static void end_arguments(struct record *record)
{
    size_t count = json_array_size(record->calls);
    if (!count)
        return;
    json_t *arguments = json_loadb(strbuf_text(&record->arguments), record->arguments.len,
                                   JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_object_set_new(json_array_get(record->calls, count - 1), "arguments", arguments ? arguments : json_null());
}

static void on_call(void *context, int index, struct bytes name, struct bytes id)
{
    struct record *record = context;
    enter(record, ']');
    strbuf_add_format(&record->text, "[%d %.*s%s%.*s|", index, (int)name.len, name.data, id.len ? "#" : "", (int)id.len,
                      id.data);
    end_arguments(record);
    record->arguments.len = 0;
    json_array_append_new(record->calls, json_pack("{s:s%}", "name", name.data, name.len));
}

static void on_arguments(void *context, int index, struct bytes fragment)
{
    struct record *record = context;
    assert_true(record->open == ']' && fragment.len > 0);
    assert_int_equal(index, (int)json_array_size(record->calls) - 1);
    strbuf_add(&record->text, fragment.data, fragment.len);
    strbuf_add(&record->arguments, fragment.data, fragment.len);
}

// Feeds the text in two pieces, or byte by byte.
static struct record read_cut(const struct tool_form *form, const json_t *tools, struct bytes text, size_t cut,
                              bool bytewise)
{
    struct record record = { .calls = json_array() };
    struct tool_sink sink = { &record, on_content, on_reasoning, on_call, on_arguments };
    struct tool_reader *reader = tool_reader_open(form, tools, &sink);
    tool_reader_add(reader, (struct bytes){ text.data, bytewise ? 0 : cut });
    for (size_t i = 0; bytewise && i < cut; i++)
        tool_reader_add(reader, (struct bytes){ text.data + i, 1 });
    tool_reader_add(reader, bytes_from(text, cut));
    tool_reader_finish(reader);
    record.broken = tool_reader_broken(reader);
    enter(&record, '\0');
    end_arguments(&record);
    strbuf_add(&record.text, "", 0);
    tool_reader_close(reader);
    return record;
}

static void free_record(struct record *record)
{
    strbuf_free(&record->text);
    strbuf_free(&record->arguments);
    json_decref(record->calls);
}

// Reads the text whole, in every split of its bytes and byte by byte; all must give the same events.
static struct record read_everywhere(const struct tool_form *form, const json_t *tools, struct bytes text)
{
    struct record whole = read_cut(form, tools, text, 0, false);
    for (size_t cut = 1; cut <= text.len; cut++) {
        struct record other = read_cut(form, tools, text, cut, cut == text.len);
        if (!bytes_equal(strbuf_bytes(&whole.text), strbuf_bytes(&other.text)) || whole.broken != other.broken)
            fail_msg("%s: \"%.*s\" cut at %zu: \"%s\", whole: \"%s\"", form->name, (int)text.len, text.data, cut,
                     strbuf_text(&other.text), strbuf_text(&whole.text));
        free_record(&other);
    }
    return whole;
}

static const struct tool_form *form_of(const char *name)
{
    struct error err;
    const struct tool_form *form = tools_form_named(name, NULL, &err);
    if (!form)
        fail_msg("%s", err.text);
    return form;
}

// ---- answers as the families write them ---------------------------------------------------------------------------

static const char weather[] = "[{'type': 'function', 'function': {'name': 'get_weather', 'parameters': {'type': "
                              "'object', 'properties': {"
                              "'city': {'type': 'string'}, 'days': {'type': 'integer'}, 'deep': {}, 'on': {'type': "
                              "'boolean'},"
                              "'note': {'anyOf': [{'type': 'string'}, {'type': 'null'}]}, 'list': {'type': 'array'}, "
                              "'map': {'type': 'object'}}}}},"
                              "{'type': 'function', 'function': {'name': 'get_time', 'parameters': {'type': 'object', "
                              "'properties': {}}}}]";

#define WEATHER "get_weather|{\"city\": \"Oslo\", \"days\": 2}]"
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"
#define D "<" BAR "DSML" BAR
#define D_ "</" BAR "DSML" BAR
#define DSML_WEATHER                                                                                                   \
    D "invoke name=\"get_weather\">\n" D "parameter name=\"city\" string=\"true\">Oslo" D_ "parameter>\n" D "paramete" \
      "r "                                                                                                             \
      "name="                                                                                                          \
      "\"days\""                                                                                                       \
      " string="                                                                                                       \
      "\"false"                                                                                                        \
      "\">2" D_ "parameter>\n" D_ "invoke>"
#define XML_WEATHER                                                                                     \
    "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n" \
    "</function>"
#define P "]<]minimax[>["
#define JSON_WEATHER "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}"
#define JSON_TIME "{\"name\": \"get_time\", \"arguments\": {}}"
#define ARGUMENTS "{\"city\": \"Oslo\", \"days\": 2}"

static const struct {
    const char *form, *text, *told;
} answers[] = {
    { "hermes", "Hm.\n<tool_call>\n" JSON_WEATHER "\n</tool_call>\n<tool_call>\n" JSON_TIME "\n</tool_call>",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "qwen3_coder",
      "Hm.\n\n<tool_call>\n" XML_WEATHER "\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n"
      "</tool_call>",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "qwen3_coder", XML_WEATHER "\n</tool_call>", "[0 " WEATHER }, // without its first marker
    { "qwen3_coder",
      "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n a\n</parameter> <b>\n\n</parameter>\n"
      "</function>\n</tool_call>",
      "[0 get_weather|{\"city\": \"\\n a\"}] <b>\n\n</parameter>\n</function>\n</tool_call>" },
    { "qwen3_coder",
      "<tool_call><function=get_weather><parameter=on>True</parameter><parameter=note>None</parameter>"
      "<parameter=map>{'a': [1, None]}</parameter><parameter=days>two</parameter></function></tool_call>",
      "[0 get_weather|{\"on\": true, \"note\": null, \"map\": {\"a\": [1, null]}, \"days\": \"two\"}]" },
    { "qwen3_coder",
      "<tool_call><function=get_weather><parameter=note>12</parameter><parameter=deep>12</parameter>"
      "<parameter=list>[\"</parameter>\"]</parameter></function></tool_call>",
      "[0 get_weather|{\"note\": \"12\", \"deep\": 12, \"list\": [\"</parameter>\"]}]" },
    { "seed_oss",
      "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>2</parameter>\n"
      "</function>\n</seed:tool_call>",
      "[0 " WEATHER },
    { "glm45",
      "Hm.<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
      "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_time\n</tool_call>",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "glm45",
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key>"
      "<arg_value>2</arg_value></tool_call>",
      "[0 " WEATHER },
    { "glm47",
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key>"
      "<arg_value>2</arg_value></tool_call><tool_call>get_time</tool_call>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "hy_v3",
      "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city"
      "</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n<arg_key:opensource>days"
      "</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
      "</tool_calls:opensource>",
      "[0 " WEATHER },
    { "deepseek_v3",
      "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR "tool" LOW
      "sep" BAR ">get_weather\n```json\n" ARGUMENTS "\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW
      "calls" LOW "end" BAR ">",
      "[0 " WEATHER },
    { "deepseek_v31",
      "Hm.<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">get_weather<" BAR
      "tool" LOW "sep" BAR ">" ARGUMENTS "<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "call" LOW "begi"
      "n" BAR ">get_time<" BAR "tool" LOW "sep" BAR ">{}<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW
      "calls" LOW "end" BAR ">",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "deepseek_v32",
      "\n\n" D "function_calls>\n" DSML_WEATHER "\n" D "invoke name=\"get_time\">\n" D_ "invoke>\n" D_ "function_"
      "calls>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "deepseek_v4", "Hm.\n\n" D "tool_calls>\n" DSML_WEATHER "\n" D_ "tool_calls>", "Hm.[0 " WEATHER },
    { "harmony",
      "<|channel|>analysis<|message|>So: <a>.<|end|><|start|>assistant<|channel|>commentary<|message|>Look.<|end|>"
      "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>" ARGUMENTS,
      "(So: <a>.)Look.[0 " WEATHER },
    { "harmony", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" ARGUMENTS "<|call|>",
      "[0 " WEATHER },
    { "harmony", " to=functions.get_time<|channel|>analysis<|message|>{}", "[0 get_time|{}]" },
    { "harmony",
      "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>Text < \n<|return|>",
      "(T)Text < \n" },
    { "harmony", "<|channel|>commentary to=functions.none<|message|>{}",
      "<|channel|>commentary to=functions.none<|message|>{}" },
    { "harmony", "Plain <b> text.", "Plain <b> text." },
    { "kimi_k2",
      "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" ARGUMENTS
      "<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>",
      "Hm.[0 get_weather#functions.get_weather:0|" ARGUMENTS "][1 get_time#functions.get_time:1|{}]" },
    { "kimi_k3",
      "<|open|>response<|sep|>Hm.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"get_weather\" "
      "index=\"1\"<|sep|><|open|>argument key=\"city\" "
      "type=\"string\"<|sep|>Oslo<|close|>argument<|sep|><|open|>argument "
      "key=\"days\" type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
      "<|close|>message<|sep|>",
      "Hm.[0 " WEATHER },
    { "mistral",
      "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " ARGUMENTS ", \"id\": \"abcdefghi\"}, " JSON_TIME "]",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "mistral_call_id", "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" ARGUMENTS,
      "[0 get_weather#abcdefghi|" ARGUMENTS "]" },
    { "mistral_args", "Hm.[TOOL_CALLS]get_weather[ARGS]" ARGUMENTS "[TOOL_CALLS]get_time[ARGS]{}",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "minimax_m2",
      "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n"
      "<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "minimax_m3",
      P "<tool_call>\n" P "<invoke name=\"get_weather\">" P "<city>Oslo" P "</city>" P "<days>2" P "</days>" P "</"
        "invoke>"
        "\n" P "</tool_call>",
      "[0 " WEATHER },
    { "minimax_m3",
      P "<tool_call>\n" P "<invoke name=\"get_weather\">" P "<map>" P "<a>x" P "</a>" P "<b>" P "<item>1" P "</item>" P
        "<item>2" P "</item>" P "</b>" P "</map>" P "</invoke>\n" P "</tool_call>",
      "[0 get_weather|{\"map\": {\"a\": \"x\", \"b\": [1, 2]}}]" },
    { "minimax", "<tool_calls>\n" JSON_WEATHER "\n" JSON_TIME "\n</tool_calls>", "[0 " WEATHER "[1 get_time|{}]" },
    { "llama3_json", "{\"name\": \"get_weather\", \"parameters\": " ARGUMENTS "}", "[0 " WEATHER },
    { "llama4_json",
      "{\"name\": \"get_weather\", \"parameters\": " ARGUMENTS "}; {\"name\": \"get_time\", "
      "\"parameters\": {}}",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "pythonic", "[get_weather(city=\"Oslo\", days=2), get_time()]", "[0 " WEATHER "[1 get_time|{}]" },
    { "pythonic", "<|python_start|>[get_weather(city='Oslo', days=2)]<|python_end|>", "[0 " WEATHER },
    { "pythonic", "[1, 2] or get_weather(a)", "[1, 2] or get_weather(a)" },
    { "lfm2", "Hm.<|tool_call_start|>[get_weather(city='Oslo', days=2)]<|tool_call_end|>Next.",
      "Hm.[0 " WEATHER "Next." },
    { "lfm2",
      "<|tool_call_start|>[get_weather(city='It\\'s \"so\"\\n\\u00e9', on=False, deep={'a': (1, None)},)]"
      "<|tool_call_end|>",
      "[0 get_weather|{\"city\": \"It's \\\"so\\\"\\n\\u00e9\", \"on\": false, \"deep\": {\"a\": [1, null]}}]" },
    { "gemma4",
      "Hm.<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|><|tool_call>call:get_time{}"
      "<tool_call|>",
      "Hm.[0 " WEATHER "[1 get_time|{}]" },
    { "gemma4",
      "<|tool_call>call:get_weather{city:<|\"|>a\"<|b{\n<|\"|>,map:{x:[true,null],y:<|\"|>z<|\"|>}}<tool_call|>",
      "[0 get_weather|{\"city\": \"a\\\"<|b{\\u000a\", \"map\": {\"x\": [true, null], \"y\": \"z\"}}]" },
    { "functiongemma",
      "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:<escape>2<escape>}"
      "<end_function_call>",
      "[0 " WEATHER },
    { "cohere_command3",
      "<|START_RESPONSE|>Hm.<|END_RESPONSE|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
      "\"get_weather\", \"parameters\": " ARGUMENTS "}\n]<|END_ACTION|>",
      "Hm.[0 get_weather#0|" ARGUMENTS "]" },
    { "command_r_plus",
      "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": " ARGUMENTS "\n    "
      "}\n]\n`"
      "``",
      "[0 " WEATHER },
    { "granite", "<|tool_call|>[" JSON_WEATHER "]", "[0 " WEATHER },
    { "granite-20b-fc", "<function_call> " JSON_WEATHER, "[0 " WEATHER },
    { "phi4_mini_json", "functools[" JSON_WEATHER ", " JSON_TIME "]", "[0 " WEATHER "[1 get_time|{}]" },
    { "nemotron_json", "<TOOLCALL>[" JSON_WEATHER "]</TOOLCALL>", "[0 " WEATHER },
    { "apertus", "<|tools_prefix|>[{\"get_weather\": " ARGUMENTS "}, {\"get_time\": {}}]<|tools_suffix|>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "hunyuan_a13b", "<tool_calls>[" JSON_WEATHER ", " JSON_TIME "]</tool_calls>", "[0 " WEATHER "[1 get_time|{}]" },
    { "solar",
      "<|tool_calls|><|tool_call:begin|>ab12<|tool_call:name|>get_weather<|tool_call:args|>" ARGUMENTS "<|tool_call:"
      "end|><|calls|>",
      "[0 get_weather#ab12|" ARGUMENTS "]<|calls|>" },
    { "minicpm5",
      "<function name=\"get_weather\"><param name=\"city\">Oslo</param><param name=\"days\">2</param></function>",
      "[0 " WEATHER },
    { "minicpm5", "<function name=\"get_weather\"><param name=\"city\"><![CDATA[a</param>\nb]]></param></function>",
      "[0 get_weather|{\"city\": \"a</param>\\nb\"}]" },
    { "gigachat3", "function call<|role_sep|>\n" JSON_WEATHER, "[0 " WEATHER },
    { "gigachat31", "<|function_call|>" JSON_WEATHER, "[0 " WEATHER },
    { "functionary_v31", "<function=get_weather>" ARGUMENTS "</function><function=get_time></function>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "olmo3", "<function_calls>get_weather(city=\"Oslo\", days=2)\nget_time()</function_calls>",
      "[0 " WEATHER "[1 get_time|{}]" },
    { "muse_glimmer",
      "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Oslo</atem:parameter>\n"
      "<atem:parameter name=\"days\">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
      "[0 " WEATHER },
    { "longcat", "<longcat_tool_call>" JSON_WEATHER "</longcat_tool_call>", "[0 " WEATHER },
    { "internlm",
      "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": " ARGUMENTS "}<|action_end|>",
      "[0 " WEATHER },
    { "dots",
      "<dots_function_call><invoke name=get_weather><parameter name=city>Oslo</parameter><parameter name=days>2"
      "</parameter></invoke></dots_function_call>",
      "[0 " WEATHER },
    { "step3",
      "<" BAR "tool_calls_begin" BAR "><" BAR "tool_call_begin" BAR ">function<" BAR "tool_sep" BAR "><steptml:invoke "
      "name=\"get_"
      "weather\"><"
      "steptml:parameter "
      "name=\"city\">"
      "Oslo</"
      "steptml:parameter>"
      "<steptml:"
      "parameter "
      "name=\"days\">2</steptml:parameter></steptml:invoke><" BAR "tool_call_end" BAR "><" BAR "tool_calls_end" BAR ">",
      "[0 " WEATHER },
};

static void test_answers(void **state)
{
    (void)state;
    json_t *tools = read_quoted(weather);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        struct record record = read_everywhere(form_of(answers[i].form), tools, bytes_of(answers[i].text));
        if (strcmp(strbuf_text(&record.text), answers[i].told) != 0)
            fail_msg("%s: \"%s\" is read as \"%s\", expected \"%s\"", answers[i].form, answers[i].text,
                     strbuf_text(&record.text), answers[i].told);
        free_record(&record);
    }
    for (size_t i = 0; i < tool_form_count; i++) { // each form has an answer
        bool found = false;
        for (size_t j = 0; j < COUNT_OF(answers); j++)
            found |= form_of(answers[j].form) == &tool_forms[i];
        if (!found && strcmp(tool_forms[i].name, "lfm2_instruct") != 0)
            fail_msg("no answer is in the form %s", tool_forms[i].name);
    }
    json_decref(tools);
}

// ---- written and read back ----------------------------------------------------------------------------------------

static const char *const arguments[] = {
    "{}",
    "{'city': '', 'days': -3}",
    "{'city': 'Troms\xC3\xB8 \xF0\x9F\x8C\xA7', 'note': null}",
    "{'city': 'tab\\u0009 line\\u000aline\\u000a \\u0022quoted\\u0022 back\\\\slash \\\\n / end', 'on': true}",
    "{'map': {'a': {'b': [1, 2.5, [true, false, null], {}]}, 'c': 'x, y) }'}, 'list': [], 'days': 0}",
    "{'city': '<b>bold</b> </tool> <param> ]] }} [1] {\\u0022a\\u0022: 1} <| |> ```', 'list': ['<a>', '{', 'x]']}",
    "{'deep': {'k': 'v'}, 'note': 'null and void', 'on': false}",
};

static void check_written(const struct tool_form *form, const json_t *tools, const json_t *calls, const char *before)
{
    struct strbuf text = { 0 };
    strbuf_add_text(&text, before);
    tool_form_write(form, calls, &text);
    struct record record = read_everywhere(form, tools, strbuf_bytes(&text));
    struct strbuf start = { 0 };
    strbuf_add_format(&start, "%.*s[0 ", (int)strcspn(before, " \n"), before);
    if (!json_equal(record.calls, calls) || record.broken || strncmp(record.text.data, start.data, start.len) != 0)
        fail_msg("%s: \"%s\" is read as \"%s\"", form->name, text.data, record.text.data);
    free_record(&record);
    strbuf_free(&start);
    strbuf_free(&text);
}

static void test_written(void **state)
{
    (void)state;
    json_t *tools = read_quoted(weather);
    for (size_t i = 0; i < tool_form_count; i++) {
        const struct tool_form *form = &tool_forms[i];
        for (size_t j = 0; j < COUNT_OF(arguments); j++) {
            json_t *one = read_quoted(arguments[j]), *other = read_quoted(arguments[COUNT_OF(arguments) - 1 - j]);
            json_t *calls = json_pack("[{s:s, s:o}]", "name", "get_weather", "arguments", one);
            check_written(form, tools, calls, "");
            if (!form->single) {
                json_array_append_new(calls, json_pack("{s:s, s:o}", "name", "get_weather", "arguments", other));
                json_array_append_new(calls, json_pack("{s:s, s:{}}", "name", "get_time", "arguments"));
                check_written(form, tools, calls, form->bare || form->channels ? "" : "Well:\n\n");
            } else {
                json_decref(other);
            }
            json_decref(calls);
        }
    }
    json_decref(tools);
}

// ---- broken -------------------------------------------------------------------------------------------------------

// Reads the text whole and byte by byte. Without a call in it, it must come out as it went in.
static void check_lost(const struct tool_form *form, const json_t *tools, struct bytes text, bool broken)
{
    struct record record = read_cut(form, tools, text, 0, false),
                  bytewise = read_cut(form, tools, text, text.len, true);
    bool same = bytes_equal(strbuf_bytes(&record.text), text);
    if (!json_array_size(record.calls) && (!same || (broken && !record.broken)))
        fail_msg("%s: \"%.*s\" comes out as \"%s\"", form->name, (int)text.len, text.data, record.text.data);
    if (!bytes_equal(strbuf_bytes(&record.text), strbuf_bytes(&bytewise.text)))
        fail_msg("%s: \"%.*s\" byte by byte is \"%s\"", form->name, (int)text.len, text.data, bytewise.text.data);
    free_record(&record);
    free_record(&bytewise);
}

// Calls of tools that are not there, calls that end too early, and calls with a byte too many are content, all of them.
static void test_broken(void **state)
{
    (void)state;
    json_t *tools = read_quoted(weather), *none = json_array();
    for (size_t i = 0; i < tool_form_count; i++) {
        const struct tool_form *form = &tool_forms[i];
        struct strbuf text = { 0 };
        json_t *calls = json_pack("[{s:s, s:{s:s, s:i}}]", "name", "get_weather", "arguments", "city", "Oslo", "days",
                                  2);
        tool_form_write(form, calls, &text);
        check_lost(form, none, strbuf_bytes(&text), !form->bare);
        check_lost(form, NULL, strbuf_bytes(&text), !form->bare);
        for (size_t len = 1; len < text.len && !form->channels; len++) {
            check_lost(form, tools, (struct bytes){ text.data, len }, false);
            char kept = text.data[len];
            text.data[len] = '\x01';
            check_lost(form, tools, strbuf_bytes(&text), false);
            text.data[len] = kept;
        }
        json_decref(calls);
        strbuf_free(&text);
    }
    json_decref(none);
    json_decref(tools);
}

// ---- forced -------------------------------------------------------------------------------------------------------

static const char *const schemas[] = {
    "{'type': 'object', 'properties': {}}",
    "{'type': 'object', 'properties': {'a': {'type': 'string'}}, 'required': ['a']}",
    "{'type': 'object', 'properties': {'a': {'type': 'string', 'minLength': 2, 'maxLength': 5}, 'b': {'type': "
    "'integer',"
    " 'minimum': 3, 'maximum': 40}, 'c': {'enum': ['x', 'y<z', 5]}}, 'required': ['b']}",
    "{'type': 'object', 'properties': {'a': {'type': ['string', 'null']}, 'b': {'anyOf': [{'type': 'string', 'pattern':"
    " '^[a-c1]{1,3}$'}, {'type': 'integer', 'maximum': 3}]}}, 'required': ['a', 'b']}",
    "{'type': 'object', 'properties': {'a': {'type': 'array', 'items': {'type': 'boolean'}, 'maxItems': 3}, 'b': "
    "{'type':"
    " 'object', 'properties': {'s': {'type': 'string', 'maxLength': 4}, 'n': {'type': 'null'}}, 'required': ['n'],"
    " 'additionalProperties': false}}, 'required': ['a']}",
    "{'type': 'object', 'properties': {'p': {'$ref': '#/$defs/p'}, 'q': {'allOf': [{'type': 'string'}, {'enum': ['u',"
    " 'v']}]}, 'f': {'type': 'boolean'}}, 'required': ['p', 'q'], '$defs': {'p': {'type': 'string', 'format': "
    "'date'}}}",
    "{'type': 'object', 'properties': {'any': {}}, 'required': ['any']}",
};

enum { WALK_BYTES_MAX = 160 };

// A random answer of the grammar, over a vocabulary of bytes: any byte that may come, until it is closed.
static void walk(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary, uint64_t *seed,
                 struct strbuf *out)
{
    enum { WORDS = (256 + 1 + 31) / 32 };
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    int left = WALK_BYTES_MAX + grammar_shortest(grammar, vocabulary);
    for (; left > 0 && !matcher_done(matcher); left--) {
        uint32_t mask[WORDS];
        memset(mask, 0xFF, sizeof mask);
        matcher_restrict(matcher, mask);
        int allowed[257], count = 0;
        for (int id = 0; id <= 256; id++)
            if (mask[id / 32] >> id % 32 & 1)
                allowed[count++] = id;
        assert_true(count > 0);
        int id = matcher_choose(matcher, left, allowed[random_between(seed, 0, count - 1)]);
        if (id == 256)
            break;
        strbuf_add_byte(out, (char)id);
        matcher_accept(matcher, id);
    }
    matcher_close(matcher);
}

static void check_forced(const struct tool_form *form, const json_t *tools, const char *name, struct bytes text)
{
    struct record record = read_cut(form, tools, text, 0, false);
    struct error err = { "" };
    bool strict, ok = json_array_size(record.calls) && !record.broken;
    json_t *call;
    size_t i;
    json_array_foreach (record.calls, i, call) {
        json_t *schema = tools_schema(tools, json_bytes(json_object_get(call, "name")), &strict);
        const json_t *given = json_object_get(call, "arguments");
        ok = ok && schema && validate(schema, schema, given, &err) == VALID;
        json_decref(schema);
    }
    if (!ok || record.text.data[0] != '[')
        fail_msg("%s, %s: the grammar allows \"%.*s\", which is read as \"%s\" (%s)", form->name, name, (int)text.len,
                 text.data, strbuf_text(&record.text), err.text);
    free_record(&record);
}

static void test_forced(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_byte_level("", "",
                                                  "'added_tokens':[{'id':256,'content':'<|im_end|>','special':true}],");
    struct grammar_vocabulary *vocabulary = grammar_vocabulary_open(tokenizer);
    uint64_t seed = 23;
    json_t *tools = json_array();
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        char name[8] = { 'f', (char)('0' + i) };
        json_array_append_new(tools,
                              json_pack("{s:s, s:{s:s, s:o}}", "type", "function", "function", "name", name,
                                        "parameters", read_quoted(schemas[i])));
    }
    for (size_t i = 0; i < tool_form_count; i++) {
        for (size_t j = 0; j <= COUNT_OF(schemas); j++) {
            char name[8] = { 'f', (char)('0' + j) };
            struct tools_choice choice = { .name = j < COUNT_OF(schemas) ? name : NULL, .parallel = seed & 1 };
            struct error err = { "" };
            struct grammar *grammar = tools_grammar(&tool_forms[i], tools, &choice, &err);
            if (!grammar)
                fail_msg("%s: %s", tool_forms[i].name, err.text);
            bool checked = grammar_unenforced(grammar) != NULL;
            for (int round = 0; round < 12 && !checked; round++) {
                struct strbuf text = { 0 };
                walk(grammar, vocabulary, &seed, &text);
                check_forced(&tool_forms[i], tools, choice.name ? name : "any", strbuf_bytes(&text));
                strbuf_free(&text);
            }
            if (checked)
                fail_msg("%s, %s: not enforced: %s", tool_forms[i].name, name, grammar_unenforced(grammar));
            grammar_free(grammar);
        }
    }
    json_decref(tools);
    grammar_vocabulary_close(vocabulary);
    tokenizer_close(tokenizer);
}

// ---- templates ----------------------------------------------------------------------------------------------------

// The form of each published template that llama.cpp has.
static const struct {
    const char *template, *form;
} published[] = {
    { "Apertus-8B-Instruct", "apertus" },
    { "Apriel-1.6-15b-Thinker-fixed", "tool_calls_list" },
    { "Bielik-11B-v3.0-Instruct", "hermes" },
    { "ByteDance-Seed-OSS", "seed_oss" },
    { "Cohere2MoE", "cohere" },
    { "CohereForAI-c4ai-command-r-plus-tool_use", "command_r_plus" },
    { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere" },
    { "GLM-4.6", "glm45" },
    { "GLM-4.7-Flash", "glm47" },
    { "GigaChat3-10B-A1.8B", "gigachat3" },
    { "GigaChat3.1-10B-A1.8B", "gigachat31" },
    { "HuggingFaceTB-SmolLM3-3B", "hermes" },
    { "Kimi-K2-Instruct", "kimi_k2" },
    { "Kimi-K2-Thinking", "kimi_k2" },
    { "Kimi-K3", "kimi_k3" },
    { "LFM2-8B-A1B", "lfm2" },
    { "LFM2.5-8B-A1B", "lfm2" },
    { "LFM2.5-Instruct", "lfm2_instruct" },
    { "MiMo-VL", "hermes" },
    { "MiniMax-M1", "minimax" },
    { "MiniMax-M2", "minimax_m2" },
    { "MiniMax-M3", "minimax_m3" },
    { "Mistral-Small-3.2-24B-Instruct-2506", "mistral_call_id" },
    { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_xml" },
    { "NVIDIA-Nemotron-Nano-v2", "nemotron_json" },
    { "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes" },
    { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes" },
    { "Qwen-QwQ-32B", "hermes" },
    { "Qwen-Qwen2.5-7B-Instruct", "hermes" },
    { "Qwen-Qwen3-0.6B", "hermes" },
    { "Qwen3-Coder", "qwen3_xml" },
    { "Qwen3.5-4B", "qwen3_xml" },
    { "Reka-Edge", "hermes" },
    { "Spark2.5", "glm47" },
    { "StepFun3.5-Flash", "qwen3_xml" },
    { "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3" },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3" },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek_v31" },
    { "deepseek-ai-DeepSeek-V3.2", "deepseek_v32" },
    { "deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_v4" },
    { "deepseek-ai-DeepSeek-V4", "deepseek_v4" },
    { "fireworks-ai-llama-3-firefunction-v2", "phi4_mini_json" },
    { "google-gemma-2-2b-it", "hermes" },
    { "google-gemma-4-31B-it-interleaved", "gemma4" },
    { "google-gemma-4-31B-it", "gemma4" },
    { "ibm-granite-granite-3.3-2B-Instruct", "granite" },
    { "ibm-granite-granite-4.0", "hermes" },
    { "ibm-granite-granite-4.1", "hermes" },
    { "inclusionai-ling-3.0-flash", "glm45" },
    { "llama-cpp-deepseek-r1", "deepseek_v3" },
    { "llama-cpp-rwkv-world", "hermes" },
    { "meetkai-functionary-medium-v3.1", "functionary_v31" },
    { "meetkai-functionary-medium-v3.2", "hermes" },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama3_json" },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama3_json" },
    { "meta-llama-Llama-3.3-70B-Instruct", "llama3_json" },
    { "microsoft-Phi-3.5-mini-instruct", "hermes" },
    { "mistralai-Ministral-3-14B-Reasoning-2512", "mistral_args" },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral" },
    { "moonshotai-Kimi-K2", "kimi_k2" },
    { "muse-glimmer", "muse_glimmer" },
    { "openai-gpt-oss-120b", "harmony" },
    { "openbmb-MiniCPM5-1B", "minicpm5" },
    { "poolside-Laguna-S-2.1", "glm47" },
    { "poolside-Laguna-XS-2.1", "glm45" },
    { "poolside-Laguna-XS.2", "glm45" },
    { "tencent-Hy3", "hy_v3" },
    { "unsloth-Apriel-1.5", "tool_calls_list" },
    { "unsloth-mistral-Devstral-Small-2507", "mistral_args" },
    { "upstage-Solar-Open-100B", "solar" },
};

static void test_templates(void **state)
{
    (void)state;
    char path[4096];
    const char *source = getenv("NIBBLE_TEST_LLAMA_SOURCE"), *cache = getenv("NIBBLE_CACHE"), *home = getenv("HOME");
    int missing = 0;
    for (size_t i = 0; i < COUNT_OF(published); i++) {
        struct file file;
        struct error err;
        bool supports_tools;
        if (source)
            snprintf(path, sizeof path, "%s/models/templates/%s.jinja", source, published[i].template);
        else
            snprintf(path, sizeof path, "%s%s/llama-cpp-python-0.3.36/models/templates/%s.jinja",
                     cache      ? cache
                         : home ? home
                                : "",
                     cache ? "" : "/.cache/nibble", published[i].template);
        if (!file_open(&file, path, &err)) {
            missing++;
            continue;
        }
        assert_string_equal(tools_form_name(tools_form(file.content, &supports_tools)), published[i].form);
        file_close(&file);
    }
    if (missing == (int)COUNT_OF(published))
        skip(); // llama.cpp's templates are not on this machine
    assert_int_equal(missing, 0);
}

static void test_names(void **state)
{
    (void)state;
    struct error err;
    const struct tool_form *args = form_of("mistral_args");
    assert_ptr_equal(tools_form_named("mistral", args, &err), args);
    assert_string_equal(tools_form_name(tools_form_named("mistral", NULL, &err)), "mistral");
    assert_string_equal(tools_form_name(tools_form_named("openai", args, &err)), "harmony");
    assert_null(tools_form_named("qwen3_codr", NULL, &err));
    assert_non_null(strstr(err.text, "there is no form of tool calls named qwen3_codr (did you mean qwen3_coder?)"));
    assert_non_null(strstr(err.text, "kimi_k2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_written),   cmocka_unit_test(test_broken),
        cmocka_unit_test(test_forced),  cmocka_unit_test(test_templates), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
