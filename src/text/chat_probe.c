// SPDX-License-Identifier: Apache-2.0
#include "text/chat_probe.h"

#include <string.h>

#include "text/messages.h"

// Words of the probes. None is part of another one, and no template has them.
#define CALL_ID "qX7probe9" // as Mistral wants ids
#define CALL_ID_LATER "a1b2c3d4e"
#define NAME "nibble_probe_name"
#define KEY "nibble_probe_key"
#define VALUE "nibble-probe-value"
#define VALUE_LATER "nibble-second-value"
#define RESULT "nibble-probe-result"
#define THOUGHT "nibble-probe-thought"
#define CONTENT "nibble-probe-content"
#define SYSTEM "nibble-probe-system"
#define SYSTEM_NEXT "nibble-next-system"
#define SYSTEM_LATE "nibble-late-system"

#define USER "{'role': 'user', 'content': 'Hi'}"
#define CALL(id, value) \
    "{'id': '" id "', 'type': 'function', 'function': {'name': '" NAME "', 'arguments': {'" KEY "': '" value "'}}}"
#define CALLS(more, list) "{'role': 'assistant', 'content': '', " more "'tool_calls': [" list "]}"
#define RESULT_OF(id) "{'role': 'tool', 'tool_call_id': '" id "', 'content': '" RESULT "'}"
#define ONE_CALL CALL(CALL_ID, VALUE)
#define TOOLS                                                                                                     \
    "'tools': [{'type': 'function', 'function': {'name': '" NAME "', 'description': 'x', 'parameters': {'type': " \
    "'object', 'properties': {'" KEY "': {'type': 'string', 'description': 'x'}}, 'required': ['" KEY "']}}}]"
#define CHAT(messages) "{'messages': [" messages "], " SWITCHES "}"
#define TOOL_CHAT(messages) "{'messages': [" messages "], " TOOLS ", " SWITCHES "}"
#define ANSWERED(messages) "{'messages': [" messages "], 'add_generation_prompt': false, " SWITCHES "}"
#define SWITCHES "'enable_thinking': true, 'thinking': true"

// ---- one probe ----------------------------------------------------------------------------------------------------

static json_t *read_probe(const char *text)
{
    struct strbuf json = { 0 };
    for (; *text; text++)
        strbuf_add_byte(&json, *text == '\'' ? '"' : *text);
    json_t *request = json_loads(strbuf_text(&json), 0, NULL);
    strbuf_free(&json);
    return request;
}

// The prompt of a conversation in this shape; empty when the template refuses it.
static struct strbuf probe(const struct chat *chat, const struct message_shape *shape, const char *text)
{
    json_t *request = read_probe(text);
    struct strbuf prompt = { 0 };
    struct error ignored;
    json_t *messages = messages_normalise(json_object_get(request, "messages"), true, &ignored);
    if (!shape->takes_tools)
        json_object_del(request, "tools");
    if (shape->iterates_tools && !json_object_get(request, "tools"))
        json_object_set_new(request, "tools", json_array());
    json_object_set_new(request, "bos_token", json_string("<s>")); // the checkpoint may not name them
    json_object_set_new(request, "eos_token", json_string("</s>"));
    json_object_set_new(request, "messages", message_shape_apply(shape, tools_form_default(), messages));
    json_decref(messages);
    if (!chat_render_within(chat, request, PROBE_STEPS_MAX, &prompt, &ignored))
        strbuf_free(&prompt);
    json_decref(request);
    return prompt;
}

static const char *find(const struct strbuf *prompt, const char *word)
{
    return prompt->len ? memmem(prompt->data, prompt->len, word, strlen(word)) : NULL;
}

// Are all of these words in the prompt? A NULL ends them.
static bool shows(const struct chat *chat, const struct message_shape *shape, const char *text,
                  const char *const *words)
{
    struct strbuf prompt = probe(chat, shape, text);
    bool all = prompt.len;
    for (; all && *words; words++)
        all = find(&prompt, *words);
    strbuf_free(&prompt);
    return all;
}

static bool renders(const struct chat *chat, const struct message_shape *shape, const char *text)
{
    return shows(chat, shape, text, (const char *const[]){ NULL });
}

#define SHOWS(chat, shape, text, ...) shows(chat, shape, text, (const char *const[]){ __VA_ARGS__, NULL })

// ---- contents and roles -------------------------------------------------------------------------------------------

static void probe_contents(const struct chat *chat, struct message_shape *shape)
{
    static const char as_list[] = CHAT("{'role': 'user', 'content': [{'type': 'text', 'text': '" CONTENT "'}]}");
    struct strbuf text = probe(chat, shape, CHAT("{'role': 'user', 'content': '" CONTENT "'}"));
    struct strbuf list = probe(chat, shape, as_list);
    shape->needs_lists = !find(&text, CONTENT) && find(&list, CONTENT);
    shape->takes_lists = shape->needs_lists || (text.len && bytes_equal(strbuf_bytes(&text), strbuf_bytes(&list)));
    bool shows_user = find(&text, CONTENT);
    strbuf_free(&text);
    strbuf_free(&list);
    shape->takes_system = !shows_user
        || SHOWS(chat, shape, CHAT("{'role': 'system', 'content': '" SYSTEM "'}, " USER), SYSTEM);
    shape->one_system = shape->takes_system
        && !SHOWS(chat, shape,
                  CHAT("{'role': 'system', 'content': '" SYSTEM "'}, "
                       "{'role': 'system', 'content': '" SYSTEM_NEXT "'}, " USER ", "
                       "{'role': 'assistant', 'content': 'Hello'}, "
                       "{'role': 'system', 'content': '" SYSTEM_LATE "'}, " USER),
                  SYSTEM, SYSTEM_NEXT, SYSTEM_LATE);
}

// ---- earlier calls and results ------------------------------------------------------------------------------------

// True when the call is written: its value stands in the prompt, and its arguments not as Python prints a dict.
static bool writes_call(const struct chat *chat, const struct message_shape *shape, const char *text)
{
    struct strbuf prompt = probe(chat, shape, text);
    bool written = find(&prompt, VALUE) && !find(&prompt, "{'" KEY "': '" VALUE);
    written = written && (!shape->arguments_as_text || find(&prompt, "{\"" KEY "\": \"" VALUE "\"}"));
    written = written && (!shape->writes_results || find(&prompt, RESULT));
    strbuf_free(&prompt);
    return written;
}

// Tries the shapes that a call may have, the most usual first.
static bool find_call_shape(const struct chat *chat, struct message_shape *shape, const char *text)
{
    static const struct {
        bool no_content_is_null, arguments_as_text;
    } tries[] = { { false, false }, { true, false }, { false, true }, { true, true } };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        shape->no_content_is_null = tries[i].no_content_is_null;
        shape->arguments_as_text = tries[i].arguments_as_text;
        if (writes_call(chat, shape, text))
            return true;
    }
    shape->no_content_is_null = shape->arguments_as_text = false;
    return false;
}

static void probe_calls(const struct chat *chat, struct message_shape *shape)
{
    static const char called[] = TOOL_CHAT(USER ", " CALLS("", ONE_CALL));
    static const char answered[] = TOOL_CHAT(USER ", " CALLS("", ONE_CALL) ", " RESULT_OF(CALL_ID));
    shape->writes_calls = shape->writes_results = true;
    if (find_call_shape(chat, shape, answered))
        return;
    shape->writes_results = false;
    shape->writes_calls = find_call_shape(chat, shape, called);
    if (shape->writes_calls)
        return;
    shape->writes_results = true;
    shape->writes_results = SHOWS(chat, shape, answered, RESULT);
}

static void probe_ids(const struct chat *chat, struct message_shape *shape)
{
    static const char other_id[] = TOOL_CHAT(USER ", " CALLS("", CALL("call_1", VALUE)) ", " RESULT_OF("call_1"));
    shape->ids = IDS_ANY;
    if (!renders(chat, shape, other_id)) {
        shape->ids = IDS_NINE;
        return;
    }
    struct strbuf prompt = probe(chat, shape, ANSWERED(USER ", " CALLS("", ONE_CALL)));
    if ((find(&prompt, CALL_ID) && !find(&prompt, NAME)) || find(&prompt, "functions." NAME ":"))
        shape->ids = IDS_NAMED;
    strbuf_free(&prompt);
}

static void probe_content_of_call(const struct chat *chat, struct message_shape *shape)
{
    static const char with_content[] = TOOL_CHAT(USER ", {'role': 'assistant', 'content': '" CONTENT "', 'tool_calls': "
                                                      "[" ONE_CALL "]}, " RESULT_OF(CALL_ID));
    if (SHOWS(chat, shape, with_content, VALUE))
        return;
    shape->calls_or_content = true;
    shape->calls_or_content = SHOWS(chat, shape, with_content, VALUE, CONTENT);
}

static void probe_several(const struct chat *chat, struct message_shape *shape)
{
    static const char several[] = TOOL_CHAT(USER ", " CALLS(
        "", ONE_CALL ", " CALL(CALL_ID_LATER, VALUE_LATER)) ", " RESULT_OF(CALL_ID) ", " RESULT_OF(CALL_ID_LATER));
    if (SHOWS(chat, shape, several, VALUE, VALUE_LATER))
        return;
    shape->one_call = true;
    shape->one_call = SHOWS(chat, shape, several, VALUE, VALUE_LATER);
}

// The template writes a result where JSON has to stand: behind a key, and without quotes.
static void probe_results(const struct chat *chat, struct message_shape *shape)
{
    static const char answered[] = TOOL_CHAT(USER ", " CALLS("", ONE_CALL) ", " RESULT_OF(CALL_ID));
    struct strbuf prompt = probe(chat, shape, answered);
    shape->results_as_json = find(&prompt, "\": " RESULT);
    strbuf_free(&prompt);
}

// ---- earlier thoughts ---------------------------------------------------------------------------------------------

#define THINKS "'reasoning_content': '" THOUGHT "', "

// The thought is in the prompt, and not as part of a list that is printed as a whole.
static bool writes_thought(const struct chat *chat, const struct message_shape *shape, const char *text)
{
    struct strbuf prompt = probe(chat, shape, text);
    bool written = find(&prompt, THOUGHT) && !find(&prompt, "thinking': '" THOUGHT)
        && !find(&prompt, "thinking\": \"" THOUGHT);
    strbuf_free(&prompt);
    return written;
}

static bool shows_thought(const struct chat *chat, const struct message_shape *shape)
{
    static const char in_loop[] = TOOL_CHAT(USER ", " CALLS(THINKS, ONE_CALL) ", " RESULT_OF(CALL_ID));
    static const char last[] = ANSWERED(USER ", {'role': 'assistant', " THINKS "'content': 'Hello'}");
    return (shape->writes_calls && writes_thought(chat, shape, in_loop)) || writes_thought(chat, shape, last);
}

static void probe_thoughts(const struct chat *chat, struct message_shape *shape)
{
    static const char *const keys[] = { MESSAGE_THOUGHT, "reasoning", "thinking" };
    static const char both[] = TOOL_CHAT(USER ", {'role': 'assistant', " THINKS "'content': '" CONTENT "', "
                                              "'tool_calls': "
                                              "[" ONE_CALL "]}, " RESULT_OF(CALL_ID));
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !found; i++) {
        shape->thought_key = keys[i];
        found = shows_thought(chat, shape);
    }
    if (!found) {
        shape->thought_key = NULL;
        shape->thought_blocks = true;
        found = shape->thought_blocks = shows_thought(chat, shape);
    }
    shape->thought_or_content = found && shape->writes_calls && !renders(chat, shape, both);
}

static void probe_tools(const struct chat *chat, struct message_shape *shape)
{
    bool without = renders(chat, shape, CHAT(USER));
    shape->takes_tools = true;
    shape->takes_tools = renders(chat, shape, TOOL_CHAT(USER)) || !without;
    shape->iterates_tools = !without;
    shape->iterates_tools = !without && renders(chat, shape, CHAT(USER));
}

struct message_shape chat_probe(const struct chat *chat)
{
    struct message_shape shape = { .writes_calls = true, .writes_results = true, .takes_system = true };
    probe_tools(chat, &shape);
    probe_contents(chat, &shape);
    probe_calls(chat, &shape);
    if (shape.writes_calls) {
        probe_ids(chat, &shape);
        probe_several(chat, &shape);
        probe_content_of_call(chat, &shape);
    }
    if (shape.writes_calls && shape.writes_results)
        probe_results(chat, &shape);
    probe_thoughts(chat, &shape);
    return shape;
}
