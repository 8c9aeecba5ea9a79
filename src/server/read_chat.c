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
    json_t *variables = json_object_get(job->json, "chat_template_kwargs");
    if (json_is_object(variables))
        json_object_update(input, variables);
    json_object_set_new(input, "messages", messages);
    if (job->tools)
        json_object_set(input, "tools", (json_t *)job->tools);
    static const char *const passed[] = { "add_generation_prompt", "documents" };
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

// The schema of a JSON answer (new reference), NULL when any text will do.
static bool read_response_format(struct job *job, json_t **schema)
{
    const json_t *format = json_object_get(job->json, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    *schema = NULL;
    if (!format || json_is_null(format) || (type && !strcmp(type, "text")))
        return true;
    if (type && !strcmp(type, "json_object")) {
        *schema = json_pack("{s:s}", "type", "object");
        return true;
    }
    if (!type || strcmp(type, "json_schema"))
        return api_fail(&job->error, 400, "response_format",
                        "\"response_format\" is an object whose type is text, json_object or json_schema");
    *schema = json_incref(json_object_get(json_object_get(format, "json_schema"), "schema"));
    return *schema || api_fail(&job->error, 400, "response_format", "\"response_format\" has no json_schema.schema");
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

// none, auto, required, or {"type": "function", "function": {"name": ...}}: job->must_call, and in the last job->must_name.
static bool read_tool_choice(struct job *job)
{
    const json_t *choice = json_object_get(job->json, "tool_choice");
    const char *word = json_string_value(choice);
    if (!choice || json_is_null(choice) || (word && !strcmp(word, "auto")))
        return true;
    if (word && !strcmp(word, "none")) {
        job->tools = NULL;
        return true;
    }
    job->must_name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    job->must_call = job->must_name || (word && !strcmp(word, "required"));
    if (!job->must_call)
        return api_fail(&job->error, 400, "tool_choice",
                        "\"tool_choice\" is none, auto, required or {\"type\": \"function\", "
                        "\"function\": {\"name\": ...}}");
    if (!job->tools || (job->must_name && !knows_tool(job->tools, job->must_name)))
        return api_fail(&job->error, 400, "tool_choice", "\"tool_choice\" asks for a tool that is not in \"tools\"");
    return true;
}

bool read_tools(struct job *job)
{
    const json_t *tools = json_object_get(job->json, "tools");
    bool parallel = true, knows_tools;
    struct error trouble;
    if (json_is_array(tools) && !json_array_size(tools))
        tools = NULL;
    job->tools = json_is_null(tools) ? NULL : tools;
    if (job->tools && !tools_check(job->tools, &trouble))
        return api_fail(&job->error, 400, "tools", "%s", trouble.text);
    if (!json_get_bool(job->json, "parallel_tool_calls", &parallel, &trouble))
        return api_fail(&job->error, 400, "parallel_tool_calls", "%s", trouble.text);
    if (!read_tool_choice(job))
        return false;
    if (!job->tools || !job->api->chat)
        return true;
    job->one_call = !parallel || job->must_name;
    job->tool_form = chat_tool_form(job->api->chat, &knows_tools);
    int32_t marker = tokenizer_find(job->api->tokenizer, bytes_of("<tool_call>"));
    if (marker >= 0 && tokenizer_is_special(job->api->tokenizer, marker))
        job->fields.skip_special = false; // or the reader would not see it
    return true;
}

// A call that is required comes now, and the schema holds for the answer of a later request. Else the model may do either:
// call tools, or answer as the schema says.
static bool make_grammar(struct job *job, const json_t *schema)
{
    struct tools_choice choice = { .name = job->must_name, .parallel = !job->one_call,
                                   .otherwise = job->must_call ? NULL : schema };
    struct error trouble;
    if (schema && !job->must_call) { // alone at first: what is wrong with it is not the tools' fault
        job->grammar = grammar_from_schema(schema, &trouble);
        if (!job->grammar)
            return api_fail(&job->error, 400, "response_format", "the schema cannot be used: %s", trouble.text);
    }
    if (!job->tools || !job->api->chat || !(job->must_call || schema))
        return true;
    grammar_free(job->grammar);
    job->grammar = tools_grammar(job->tool_form, job->tools, &choice, &trouble);
    return job->grammar || api_fail(&job->error, 400, "tools", "the tools' schemas cannot be used: %s", trouble.text);
}

bool read_chat(struct job *job)
{
    struct strbuf text = { 0 };
    if (job->fields.echo)
        return api_fail(&job->error, 400, "echo", "\"echo\" belongs to /v1/completions");
    job->prompts = memory_new(1, sizeof *job->prompts);
    json_t *schema;
    bool ok = read_response_format(job, &schema) && read_tools(job) && make_grammar(job, schema)
        && read_messages(job, &text)
        && read_prompt_text(job, strbuf_bytes(&text), TOKENIZE_PARSE_SPECIAL, "messages");
    json_decref(schema);
    strbuf_free(&text);
    return ok;
}
