// SPDX-License-Identifier: Apache-2.0
// Tools on their way into a prompt: which form a template asks for, what clients may send, conversations brought into
// shape, tools in words, and what a required call must look like. tool_reader_test.c has the way back.
#include "tokenizer_open.h"

#include "text/chat.h"
#include "text/messages.h"
#include "text/tools.h"

static const struct tool_form *form_of(const char *name)
{
    struct error err;
    return tools_form_named(name, NULL, &err);
}

static void assert_json(json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    assert_string_equal(text ? text : "nothing", expected);
    free(text);
    json_decref(value);
}

// ---- forms --------------------------------------------------------------------------------------------------------

static void test_form(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        const char *form;
        bool supports_tools;
    } cases[] = {
        { "{% for m in messages %}{{ m.content }}{% endfor %}", "hermes", false },
        { "{% if tools %}{{ 'write <tool_call>' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}",
          "hermes", true },
        { "<tool_call> as text{% if tools is not none %}{% endif %}", "hermes", true },
        { "{{ '<|python_tag|>' }}{{ tools }}", "llama3_json", true },
        { "{{ 'ipython' }}{{ '\"parameters\": ' }}{% if not tools is none %}{% endif %}", "llama3_json", true },
        { "{{ 'ipython' }}{{ tools }}", "hermes", true },
        { "{{ '\"parameters\"' }}{{ tools }}", "hermes", true },
        { "{{ '<|python_tag|>' }}{{ '<tool_call>' }}", "hermes", false },
        // the word alone is not the variable
        { "{# tools, <|python_tag|> #}tools{{ 'tools' }}{{ m.tools }}{% set tools = 1 %}{{ dict(tools=2) }}", "hermes",
          false },
        { "{{ builtin_tools }}{{ tools_in_user_message }}", "hermes", false },
        { "{{ 'tools' in x and tools }}", "hermes", true },
        { "{{ tools }}{{ 'open", "hermes", false },
        { "", "hermes", false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool supports_tools;
        if (tools_form(bytes_of(cases[i].source), &supports_tools) != form_of(cases[i].form)
            || supports_tools != cases[i].supports_tools)
            fail_msg("%s", cases[i].source);
    }
}

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *tools, *sentence;
    } cases[] = {
        { "[]", NULL },
        { "[{'type': 'function', 'function': {'name': 'f'}}]", NULL },
        { "[{'type': 'function', 'function': {'name': 'f', 'description': null, 'parameters': null, 'strict': true}}]",
          NULL },
        { "[{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {}}}]", NULL },
        { "{}", "tools is not a list" },
        { "[7]", "tools[0].type" },
        { "[{'type': 'web_search'}]", "tools[0].type" },
        { "[{'type': 'function', 'function': 'f'}]", "tools[0].function is not an object" },
        { "[{'type': 'function', 'function': {}}]", "tools[0].function.name" },
        { "[{'type': 'function', 'function': {'name': ''}}]", "tools[0].function.name" },
        { "[{'type': 'function', 'function': {'name': 'a\\u0000b'}}]", "tools[0].function.name" },
        { "[{'type': 'function', 'function': {'name': 'f', 'description': 5}}]", "tools[0].function.description" },
        { "[{'type': 'function', 'function': {'name': 'f', 'parameters': []}}]", "tools[0].function.parameters" },
        { "[{'type': 'function', 'function': {'name': 'f'}}, {'type': 'function', 'function': {'name': 'f'}}]",
          "tools[0] and tools[1] are both named f" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *tools = read_quoted(cases[i].tools);
        struct error err = { "" };
        assert_int_equal(tools_check(tools, &err), !cases[i].sentence);
        assert_says(err, cases[i].sentence ? cases[i].sentence : "");
        json_decref(tools);
    }
    json_t *many = json_array();
    for (int i = 0; i <= TOOLS_MAX; i++)
        json_array_append_new(many, json_null());
    struct error err;
    assert_false(tools_check(many, &err));
    assert_says(err, "at most 128");
    json_decref(many);
}

// ---- messages -----------------------------------------------------------------------------------------------------

static void test_normalise(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *normal;
    } cases[] = {
        { "[]", "[]" },
        { "[{'role': 'user', 'content': 'x', 'name': 'n'}]",
          "[{\"role\": \"user\", \"content\": \"x\", \"name\": \"n\"}]" },
        { "[{'role': 'assistant', 'content': null, 'tool_calls': null}, {'role': 'assistant', 'tool_calls': []}]",
          "[{\"role\": \"assistant\", \"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"\"}]" },
        { "[{'role': 'developer', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'input_text', 'text': 'b'},"
          " 'c']}]",
          "[{\"role\": \"system\", \"content\": \"a\\nb\\nc\"}]" },
        { "[{'role': 'assistant', 'content': [{'type': 'refusal', 'refusal': 'no'}]}, {'role': 'user', 'content': []}]",
          "[{\"role\": \"assistant\", \"content\": \"no\"}, {\"role\": \"user\", \"content\": \"\"}]" },
        { "[{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'c', 'type': 'function', 'function':"
          " {'name': 'f', 'arguments': '{\\u0022b\\u0022: 1, \\u0022a\\u0022: [2]}'}}]}]",
          "[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", "
          "\"function\": {\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2]}}}]}]" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *messages = read_quoted(cases[i].messages), *copy = json_deep_copy(messages);
        struct error err = { "" };
        assert_json(messages_normalise(messages, false, &err), cases[i].normal);
        assert_true(json_equal(messages, copy)); // what the client sent is not touched
        json_decref(messages);
        json_decref(copy);
    }
}

static void test_normalise_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *normal;
    } cases[] = {
        { "'{}'", "{}" },       { "''", "{}" },
        { "null", "{}" },       { "{'a': 1}", "{\"a\": 1}" },
        { "'[1]'", "\"[1]\"" }, { "'{oops'", "\"{oops\"" },
        { "5", "5" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct strbuf text = { 0 };
        strbuf_add_format(&text,
                          "[{'role': 'assistant', 'tool_calls': [{'function': {'name': 'f',"
                          " 'arguments': %s}}]}]",
                          cases[i].arguments);
        json_t *messages = read_quoted(text.data);
        struct error err;
        json_t *normal = messages_normalise(messages, false, &err);
        json_t *call = json_array_get(json_object_get(json_array_get(normal, 0), "tool_calls"), 0);
        assert_json(json_incref(json_object_get(json_object_get(call, "function"), "arguments")), cases[i].normal);
        json_decref(normal);
        json_decref(messages);
        strbuf_free(&text);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *sentence;
    } cases[] = {
        { "{}", "messages is not a list" },
        { "[{'role': 'user', 'content': 'x'}, 5]", "messages[1] has no role" },
        { "[{'content': 'x'}]", "messages[0] has no role" },
        { "[{'role': 'user', 'content': 5}]", "messages[0].content is neither" },
        { "[{'role': 'user', 'content': [5]}]", "messages[0].content[0] has no type" },
        { "[{'role': 'user', 'content': [{'type': 'text'}]}]", "messages[0].content[0].text is no string" },
        { "[{'role': 'user', 'content': ['x', {'type': 'image_url', 'image_url': {'url': 'data:'}}]}]",
          "messages[0].content[1] is of type image_url; this model reads text only" },
        { "[{'role': 'assistant', 'tool_calls': {}}]", "messages[0].tool_calls is not a list" },
        { "[{'role': 'assistant', 'tool_calls': [{'function': {}}]}]", "messages[0].tool_calls[0] has no function" },
        { "[{'role': 'assistant', 'tool_calls': ['f']}]", "messages[0].tool_calls[0] has no function" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *messages = read_quoted(cases[i].messages);
        struct error err = { "" };
        assert_null(messages_normalise(messages, true, &err));
        assert_says(err, cases[i].sentence);
        json_decref(messages);
    }
}

// ---- tools in words -----------------------------------------------------------------------------------------------

#define WORDS(form)                                                                                                   \
    "You can use these tools:\n{\"name\": \"f\", \"parameters\": {}}\n\n"                                             \
    "To use a tool, answer only with its name and arguments, in exactly this form:\n" form "\nYou will then get its " \
    "result in "                                                                                                      \
    "<tool_response>. When no "                                                                                       \
    "tool is needed, answer "                                                                                         \
    "in words."

static const char one_tool[] = "[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]";

static void test_as_text(void **state)
{
    (void)state;
    json_t *messages = read_quoted("[{'role': 'system', 'content': 'Be kind.'}, {'role': 'user', 'content': 'Hi'},"
                                   "{'role': 'assistant', 'content': 'So:', 'tool_calls': [{'function': {'name': 'f', "
                                   "'arguments': {'a': 1}}},"
                                   " {'function': {'name': 'f', 'arguments': {}}}]},"
                                   "{'role': 'tool', 'content': 'one', 'tool_call_id': '1'}, {'role': 'tool', "
                                   "'content': 'two'},"
                                   "{'role': 'assistant', 'content': '', 'tool_calls': [{'function': {'name': 'f', "
                                   "'arguments': {}}}]}]");
    json_t *tools = read_quoted(one_tool);
    json_t *words = tools_as_text(form_of("hermes"), messages, tools);
    static const struct {
        const char *role, *content;
    } expected[] = {
        { "system",
          "Be kind.\n\n" WORDS("<tool_call>\n{\"name\": \"TOOL\", \"arguments\": {\"ARGUMENT\": VALUE}}\n"
                               "</tool_call>") },
        { "user", "Hi" },
        { "assistant",
          "So:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
          "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>" },
        { "user", "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>" },
        { "assistant", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>" },
    };
    assert_int_equal(json_array_size(words), COUNT_OF(expected));
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        const json_t *message = json_array_get(words, i);
        assert_true(message_has_role(message, expected[i].role));
        assert_string_equal(message_text(message).data, expected[i].content);
        assert_null(json_object_get(message, "tool_calls"));
    }
    json_decref(words);

    json_array_remove(messages, 0); // no system message: one is made, but only to speak of tools
    words = tools_as_text(form_of("llama3_json"), messages, tools);
    assert_string_equal(message_text(json_array_get(words, 0)).data,
                        WORDS("{\"name\": \"TOOL\", \"parameters\": {\"ARGUMENT\": VALUE}}"));
    assert_string_equal(message_text(json_array_get(words, 2)).data,
                        "So:\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"f\", \"parameters\": {}}");
    json_decref(words);
    words = tools_as_text(form_of("hermes"), messages, NULL);
    assert_true(message_has_role(json_array_get(words, 0), "user"));
    json_decref(words);
    json_decref(messages);
    json_decref(tools);
}

// ---- what a template is given -------------------------------------------------------------------------------------

static const char list_user[] = "[{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, 'b']}]";

static void test_chat(void **state)
{
    (void)state;
#define PLAIN "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
#define LISTS "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
    static const struct {
        const char *template, *messages, *tools, *normal;
    } cases[] = {
        // joined, unless the template reads lists as it reads texts, or reads nothing else
        { PLAIN "{{ tools }}", list_user, NULL, "[{\"role\": \"user\", \"content\": \"a\\nb\"}]" },
        { "{% for m in messages %}{% if m.content is string %}<{{ m.content }}>{% else %}"
          "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}{{ tools }}",
          list_user, NULL,
          "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
          "{\"type\": \"text\", \"text\": \"b\"}]}]" },
        { LISTS, "[{'role': 'system', 'content': 'a'}]", NULL,
          "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]" },
        // a template that knows tools gets results as they are, another one in words
        { PLAIN "{{ tools }}", "[{'role': 'tool', 'content': 'r'}]", NULL,
          "[{\"role\": \"tool\", \"content\": \"r\"}]" },
        { PLAIN, "[{'role': 'tool', 'content': 'r'}]", NULL,
          "[{\"role\": \"user\", \"content\": \"<tool_response>\\nr\\n</tool_response>\"}]" },
        { "{{ raise_exception('no') }}", "[{'role': 'user', 'content': 'x'}]", NULL,
          "[{\"role\": \"user\", \"content\": \"x\"}]" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct checkpoint checkpoint = { .path = "test", .chat_template = bytes_of(cases[i].template) };
        struct error err = { "" };
        struct chat *chat = chat_open(&checkpoint, NULL, &err);
        assert_non_null(chat);
        json_t *messages = read_quoted(cases[i].messages);
        assert_json(chat_normalise(chat, messages, NULL, &err), cases[i].normal);
        json_decref(messages);
        messages = json_object();
        assert_null(chat_normalise(chat, messages, NULL, &err));
        json_decref(messages);
        chat_close(chat);
    }
}

// Where a template refuses system messages, the tools stand before the user's words; the user's own are not moved.
static void test_chat_without_system(void **state)
{
    (void)state;
    struct checkpoint checkpoint = { .path = "test",
                                     .chat_template = bytes_of("{% if messages[0].role == 'system' %}{{ "
                                                               "raise_exception('no system') }}{% endif %}" PLAIN) };
    struct error err;
    struct chat *chat = chat_open(&checkpoint, NULL, &err);
    bool supports_tools = true;
    assert_ptr_equal(chat_tool_form(chat, &supports_tools), form_of("hermes"));
    assert_false(supports_tools);
    json_t *tools = read_quoted(one_tool);
    static const struct {
        const char *messages;
        size_t count;
    } cases[] = {
        { "[{'role': 'user', 'content': 'Hi'}]", 1 },
        { "[{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'Hi'}]", 2 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *messages = read_quoted(cases[i].messages);
        json_t *normal = chat_normalise(chat, messages, tools, &err);
        assert_int_equal(json_array_size(normal), cases[i].count);
        const char *first = message_text(json_array_get(normal, 0)).data;
        assert_non_null(strstr(first, "You can use these tools"));
        assert_int_equal(strcmp(first + strlen(first) - 4, "\n\nHi") == 0, i == 0);
        json_decref(normal);
        json_decref(messages);
    }
    json_decref(tools);
    chat_close(chat);
}

// ---- what a call must be ------------------------------------------------------------------------------------------

// Over a vocabulary of bytes: may this be the whole answer?
static bool accepts(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary, const char *text)
{
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    bool ok = true;
    for (; *text && ok; text++) {
        uint32_t mask[(256 + 1 + 31) / 32];
        memset(mask, 0xFF, sizeof mask);
        matcher_restrict(matcher, mask);
        unsigned char byte = (unsigned char)*text;
        ok = mask[byte / 32] >> byte % 32 & 1;
        if (ok)
            matcher_accept(matcher, byte);
    }
    uint32_t mask[(256 + 1 + 31) / 32];
    memset(mask, 0xFF, sizeof mask);
    if (ok)
        matcher_restrict(matcher, mask);
    ok = ok && mask[256 / 32] & 1; // the end may come
    matcher_close(matcher);
    return ok;
}

static const char two_tools[] = "[{'type': 'function', 'function': {'name': 'f', 'parameters': {'properties': {'a': "
                                "{'type': 'boolean'}},"
                                " 'required': ['a'], 'additionalProperties': false}}}, {'type': 'function', "
                                "'function': {'name': 'g\\u0022h'}}]";

#define HERMES_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":true}}\n</tool_call>"
#define HERMES_G "<tool_call>\n{\"name\": \"g\\\"h\", \"arguments\": {}}\n</tool_call>"
#define LLAMA3_F "{\"name\": \"f\", \"parameters\": {\"a\":true}}"

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *form;
        const char *name;
        bool parallel;
        const char *text;
        bool accepted, otherwise;
    } cases[] = {
        { "hermes", NULL, false, HERMES_F, true },
        { "hermes", NULL, false, "<tool_call>{\"name\":\"f\",\"arguments\":{\n  \"a\": true\n}}</tool_call>", true },
        { "hermes", NULL, false, "<tool_call>\n{\n \"name\": \"g\\\"h\",\n \"arguments\": {}\n}\n</tool_call>", true },
        { "llama3_json", NULL, false, "{\n \"name\": \"f\", \"parameters\": { \"a\" : true}\n}", true },
        { "hermes", NULL, true, HERMES_F "\n" HERMES_G, true, true },
        { "hermes", NULL, true, "{\"city\": 5}", true, true },
        { "hermes", NULL, true, "{\"city\": null}", false, true },
        { "hermes", NULL, true, "{\"city\": 5}", false, false },
        { "hermes", NULL, true, HERMES_F "\n{\"city\": 5}", false, true },
        { "llama3_json", NULL, false, LLAMA3_F, true, true },
        { "llama3_json", NULL, false, "{\"city\": 5}", true, true },
        { "hermes", NULL, false, HERMES_G, true },
        { "hermes", NULL, false, HERMES_F "\n" HERMES_G, false },
        { "hermes", NULL, true, HERMES_F "\n" HERMES_G, true },
        { "hermes", "f", false, HERMES_F, true },
        { "hermes", "f", false, HERMES_G, false },
        { "hermes", "g\"h", true, HERMES_G "\n" HERMES_G, true },
        { "hermes", NULL, false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", false },
        { "hermes", NULL, false, "<tool_call>\n{\"name\": \"f\", \"arguments\": 5}\n</tool_call>", false },
        { "hermes", NULL, false, "Text.", false },
        { "llama3_json", NULL, false, LLAMA3_F, true },
        { "llama3_json", NULL, true, LLAMA3_F "\n" LLAMA3_F, false },
        { "llama3_json", NULL, false, HERMES_F, false },
    };
    struct tokenizer *tokenizer = open_byte_level("", "",
                                                  "'added_tokens':[{'id':256,'content':'<|im_end|>','special':true}],");
    struct grammar_vocabulary *vocabulary = grammar_vocabulary_open(tokenizer);
    json_t *tools = read_quoted(two_tools);
    json_t *answer = read_quoted("{'properties': {'city': {'type': 'integer'}}, 'required': ['city']}");
    struct error err = { "" };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tools_choice choice = { cases[i].name, cases[i].parallel, cases[i].otherwise ? answer : NULL };
        struct grammar *grammar = tools_grammar(form_of(cases[i].form), tools, &choice, &err);
        if (!grammar)
            fail_msg("%s", err.text);
        if (accepts(grammar, vocabulary, cases[i].text) != cases[i].accepted)
            fail_msg("%s: expected %s", cases[i].text, cases[i].accepted ? "yes" : "no");
        grammar_free(grammar);
    }
    assert_null(tools_grammar(form_of("hermes"), tools, &(struct tools_choice){ .name = "h" }, &err));
    assert_says(err, "tool_choice names h, which is not among the tools");
    json_array_clear(tools);
    assert_null(tools_grammar(form_of("hermes"), tools, &(struct tools_choice){ 0 }, &err));
    assert_says(err, "there are no tools");
    json_decref(tools);
    json_decref(answer);
    grammar_vocabulary_close(vocabulary);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),      cmocka_unit_test(test_check),
        cmocka_unit_test(test_normalise), cmocka_unit_test(test_normalise_arguments),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_as_text),
        cmocka_unit_test(test_chat),      cmocka_unit_test(test_chat_without_system),
        cmocka_unit_test(test_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
