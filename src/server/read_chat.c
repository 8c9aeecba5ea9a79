// SPDX-License-Identifier: Apache-2.0
// server/read_chat.c: /v1/chat/completions: messages and tools into a prompt, and what the answer has to look like.
#include "base/memory.h"
#include "format/json.h"
#include "server/read.h"

// ---- the prompt ---------------------------------------------------------------------------------------------------

// What the template sees: the messages, the tools and the request's own variables.
static json_t *template_input(const struct job *job, json_t *messages)
{
    json_t *input = json_object();
    json_object_update(input, json_object_get(job->json, "chat_template_kwargs"));
    json_object_set_new(input, "messages", messages);
    if (job->tools)
        json_object_set(input, "tools", (json_t *)job->tools);
    static const char *const passed[] = { "add_generation_prompt", "documents", "enable_thinking", "thinking",
                                          "reasoning_effort" };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = json_object_get(job->json, passed[i]);
        if (value && !json_is_null(value))
            json_object_set(input, passed[i], value);
    }
    return input;
}

bool read_messages(struct job *job, struct strbuf *out)
{
    const struct chat *chat = job->api->chat;
    struct error trouble;
    if (!chat)
        return api_fail(&job->error, 400, "messages", "%s", job->api->chat_trouble);
    const json_t *given = json_object_get(job->json, "messages");
    const json_t *variables = json_object_get(job->json, "chat_template_kwargs");
    bool opens_answer;
    if (!json_get_bool(job->json, "add_generation_prompt", &opens_answer, &trouble))
        return api_fail(&job->error, 400, "add_generation_prompt", "%s", trouble.text);
    if (variables && !json_is_null(variables) && !json_is_object(variables))
        return api_fail(&job->error, 400, "chat_template_kwargs", "\"chat_template_kwargs\" is an object of variables");
    if (!json_array_size(given))
        return api_fail(&job->error, 400, "messages", "\"messages\" is a list of at least one message");
    json_t *messages = chat_normalise(chat, given, job->tools, &trouble);
    if (!messages)
        return api_fail(&job->error, 400, "messages", "%s", trouble.text);
    json_t *input = template_input(job, messages);
    bool ok = chat_render(chat, input, out, &trouble)
        || api_fail(&job->error, 400, "messages", "the chat template refuses these messages: %s", trouble.text);
    json_decref(input);
    return ok;
}

// ---- the answer's form --------------------------------------------------------------------------------------------

bool read_response_format(struct job *job)
{
    const json_t *format = json_object_get(job->json, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    struct error trouble;
    if (!format || json_is_null(format) || (type && !strcmp(type, "text")))
        return true;
    if (type && !strcmp(type, "json_object")) {
        job->grammar = grammar_json_object();
        return true;
    }
    if (!type || strcmp(type, "json_schema"))
        return api_fail(&job->error, 400, "response_format",
                        "\"response_format\" is an object whose type is text, json_object or json_schema");
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (!schema)
        return api_fail(&job->error, 400, "response_format", "\"response_format\" has no json_schema.schema");
    job->grammar = grammar_from_schema(schema, &trouble);
    return job->grammar || api_fail(&job->error, 400, "response_format", "the schema cannot be used: %s", trouble.text);
}

// Is there a tool of this name?
static bool knows_tool(const json_t *tools, const char *name)
{
    size_t index;
    const json_t *tool;
    json_array_foreach(tools, index, tool) {
        const char *known = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (known && !strcmp(known, name))
            return true;
    }
    return false;
}

// none, auto, required, or {"type": "function", "function": {"name": ...}}: *forced, and the tool's *name in the last.
static bool read_tool_choice(struct job *job, bool *forced, const char **name)
{
    const json_t *choice = json_object_get(job->json, "tool_choice");
    const char *word = json_string_value(choice);
    *forced = false;
    *name = NULL;
    if (!choice || json_is_null(choice) || (word && !strcmp(word, "auto")))
        return true;
    if (word && !strcmp(word, "none")) {
        job->tools = NULL;
        return true;
    }
    *name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    *forced = *name || (word && !strcmp(word, "required"));
    if (!*forced)
        return api_fail(&job->error, 400, "tool_choice",
                        "\"tool_choice\" is none, auto, required or {\"type\": \"function\", "
                        "\"function\": {\"name\": ...}}");
    if (!job->tools || (*name && !knows_tool(job->tools, *name)))
        return api_fail(&job->error, 400, "tool_choice", "\"tool_choice\" asks for a tool that is not in \"tools\"");
    return true;
}

bool read_tools(struct job *job)
{
    const json_t *tools = json_object_get(job->json, "tools");
    bool parallel = true, forced, knows_tools;
    const char *name;
    struct error trouble;
    if (json_is_array(tools) && !json_array_size(tools))
        tools = NULL;
    job->tools = json_is_null(tools) ? NULL : tools;
    if (job->tools && !tools_check(job->tools, &trouble))
        return api_fail(&job->error, 400, "tools", "%s", trouble.text);
    if (!json_get_bool(job->json, "parallel_tool_calls", &parallel, &trouble))
        return api_fail(&job->error, 400, "parallel_tool_calls", "%s", trouble.text);
    if (!read_tool_choice(job, &forced, &name))
        return false;
    if (!job->tools || !job->api->chat)
        return true;
    job->tool_form = chat_tool_form(job->api->chat, &knows_tools);
    int32_t marker = tokenizer_find(job->api->tokenizer, bytes_of("<tool_call>"));
    if (marker >= 0 && tokenizer_is_special(job->api->tokenizer, marker))
        job->fields.skip_special = false; // or the reader would not see it
    if (!forced)
        return true;
    if (job->grammar)
        return api_fail(&job->error, 400, "tool_choice",
                        "\"response_format\" and a \"tool_choice\" that forces a call contradict each other");
    job->grammar = tools_grammar(job->tool_form, job->tools, name, parallel && !name, &trouble);
    return job->grammar || api_fail(&job->error, 400, "tools", "the tools' schemas cannot be used: %s", trouble.text);
}

bool read_chat(struct job *job)
{
    struct strbuf text = { 0 };
    int flags = TOKENIZE_PARSE_SPECIAL | (job->fields.add_special ? TOKENIZE_ADD_SPECIAL : 0);
    job->prompts = memory_new(1, sizeof *job->prompts);
    bool ok = read_format(job) && read_tools(job) && read_messages(job, &text)
        && read_prompt_text(job, strbuf_bytes(&text), flags, "messages");
    strbuf_free(&text);
    return ok;
}
