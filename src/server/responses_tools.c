// SPDX-License-Identifier: Apache-2.0
// server/responses_tools.c: reads tools, tool_choice, text and reasoning of /v1/responses: the same as a chat's, in
// another shape.
#include "server/responses.h"

#include "server/check.h"
#include "server/translate.h"

// ---- tools --------------------------------------------------------------------------------------------------------

// Tools that OpenAI's servers run, and what to give a model in their place. Codex CLI offers two of them beside its
// functions whatever the server, and does without them: there they are left out, and the log's line says so.
static const struct {
    const char *type, *instead;
    bool is_optional;
} other_tools[] = {
    { "custom", "describe it as a function with a text as its argument" },
    { "web_search", "give the model a function that searches", .is_optional = true },
    { "web_search_preview", "give the model a function that searches" },
    { "file_search", "give the model a function that searches your files" },
    { "computer", "give the model functions for what it may do" },
    { "computer_use", "give the model functions for what it may do" },
    { "computer_use_preview", "give the model functions for what it may do" },
    { "mcp", "call the MCP server in the client, and give its tools as functions" },
    { "code_interpreter", "give the model a function that runs code" },
    { "image_generation", "this server reads and writes text alone" },
    { "local_shell", "give the model a function that runs commands" },
    { "shell", "give the model a function that runs commands" },
    { "apply_patch", "give the model a function that edits files" },
    { "namespace", "give its tools as functions", .is_optional = true },
    { "tool_search", "give all tools with the request" },
    { "programmatic_tool_calling", "give the model a function that runs code" },
};

static bool fail_type(struct job *job, const char *field, const char *type)
{
    const char *instead = "tools are functions";
    for (size_t i = 0; i < sizeof other_tools / sizeof *other_tools; i++)
        if (!strcmp(other_tools[i].type, type))
            instead = other_tools[i].instead;
    return api_fail_code(&job->error, 400, field, "unsupported_value",
                         "a tool of the type \"%.60s\" in \"%s\" is not supported; %s", type, field, instead);
}

static bool is_among(const char *key, const char *const *words)
{
    while (*words && strcmp(*words, key))
        words++;
    return *words;
}

// {"type": "function", "name", "description", "parameters", "strict"} as a chat has it (new reference).
static json_t *chat_tool(struct job *job, const json_t *tool, size_t index)
{
    static const char *const passed[] = { "name", "description", "parameters", "strict", NULL };
    static const char *const silent[] = { "type", "allowed_callers", NULL };
    const char *type = json_string_value(json_object_get(tool, "type")), *key;
    json_t *function, *value;
    if (type && strcmp(type, "function"))
        return fail_type(job, "tools", type), NULL;
    if (!type || !json_is_string(json_object_get(tool, "name")))
        return api_fail(&job->error, 400, "tools",
                        "entry %zu of \"tools\" is no function; write {\"type\": \"function\", \"name\": ..., "
                        "\"parameters\": {...}}",
                        index),
               NULL;
    json_object_foreach ((json_t *)tool, key, value)
        if (!is_among(key, passed) && !is_among(key, silent) && !field_is_empty(value))
            return api_fail_code(&job->error, 400, "tools", "unsupported_parameter",
                                 "\"%.60s\" of a function in \"tools\" is not supported; leave it out", key),
                   NULL;
    function = json_object();
    json_object_foreach ((json_t *)tool, key, value)
        if (is_among(key, passed) && !json_is_null(value))
            json_object_set(function, key, value); // in the client's order, which the prompt has, too
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static bool is_optional(const json_t *tool)
{
    for (size_t i = 0; i < sizeof other_tools / sizeof *other_tools; i++)
        if (other_tools[i].is_optional && field_is(tool, "type", other_tools[i].type))
            return true;
    return false;
}

static bool has_function(const json_t *tools)
{
    size_t index;
    const json_t *tool;
    json_array_foreach (tools, index, tool)
        if (field_is(tool, "type", "function"))
            return true;
    return false;
}

// The response repeats the tools that the model is offered.
static bool read_list(struct job *job, json_t *chat)
{
    const json_t *tools = field_of(job->json, "tools"), *tool;
    json_t *list = json_array(), *offered;
    const bool may_leave_out = has_function(tools);
    size_t index;
    json_object_set_new(chat, "tools", list);
    if (!tools)
        return true;
    if (!json_is_array(tools))
        return api_fail(&job->error, 400, "tools", "\"tools\" is a list");
    offered = json_array();
    json_array_foreach (tools, index, tool) {
        if (may_leave_out && is_optional(tool)) {
            check_warn(job, "a tool is left out: %s", json_string_value(json_object_get(tool, "type")));
            continue;
        }
        json_t *own = chat_tool(job, tool, index);
        if (!own)
            return json_decref(offered), false;
        json_array_append_new(list, own);
        json_array_append(offered, (json_t *)tool);
    }
    json_object_set_new(job->json, "tools", offered);
    return true;
}

// ---- tool_choice --------------------------------------------------------------------------------------------------

static json_t *find_tool(const json_t *tools, const char *name)
{
    size_t index;
    json_t *tool;
    json_array_foreach (tools, index, tool)
        if (field_is(json_object_get(tool, "function"), "name", name))
            return tool;
    return NULL;
}

// {"type": "allowed_tools", "mode", "tools": [{"type": "function", "name"}]}: the others are taken away.
static bool allow_tools(struct job *job, const json_t *choice, json_t *chat)
{
    static const char *const modes[] = { "auto", "required", NULL };
    const json_t *allowed = json_object_get(choice, "tools"), *entry;
    json_t *left = json_array();
    int mode = field_word(choice, "mode", modes);
    bool ok = (json_is_array(allowed) && json_array_size(allowed) <= TOOLS_MAX && mode >= 0)
        || api_fail(&job->error, 400, "tool_choice",
                    "allowed_tools in \"tool_choice\" has a \"mode\", auto or required, and a list \"tools\"");
    size_t index;
    for (index = 0; ok && (entry = json_array_get(allowed, index)); index++) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *type = json_string_value(json_object_get(entry, "type"));
        json_t *tool = name ? find_tool(json_object_get(chat, "tools"), name) : NULL;
        ok = (type && !strcmp(type, "function")) || fail_type(job, "tool_choice", type ? type : "");
        ok = ok
            && (tool
                || api_fail(&job->error, 400, "tool_choice", "\"tool_choice\" allows a tool that is not in \"tools\""));
        json_array_append(left, tool);
    }
    json_object_set_new(chat, "tools", left);
    if (ok)
        json_object_set_new(chat, "tool_choice", json_string(modes[mode]));
    return ok;
}

static bool read_choice(struct job *job, json_t *chat)
{
    json_t *choice = field_of(job->json, "tool_choice");
    if (!choice)
        return true;
    const json_t *type = json_object_get(choice, "type");
    if (!json_is_object(choice) || !json_is_string(type))
        return json_object_set(chat, "tool_choice", choice) == 0; // a word, or refused there
    if (field_is(choice, "type", "allowed_tools"))
        return allow_tools(job, choice, chat);
    if (!field_is(choice, "type", "function"))
        return fail_type(job, "tool_choice", json_string_value(type));
    const json_t *name = json_object_get(choice, "name");
    if (!fields_check_keys(choice, "tool_choice", WORDS("type", "name"), &job->error))
        return false;
    if (!json_is_string(name))
        return api_fail(&job->error, 400, "tool_choice", "a function in \"tool_choice\" has a \"name\"");
    return json_object_set_new(chat, "tool_choice", translate_named_tool(name)) == 0;
}

bool responses_read_tools(struct job *job, json_t *chat) { return read_list(job, chat) && read_choice(job, chat); }

// ---- text ---------------------------------------------------------------------------------------------------------

static bool read_schema_format(struct job *job, const json_t *format, json_t *chat)
{
    static const char *const words[] = { "type", "name", "description", "schema", "strict", NULL };
    if (!fields_check_keys(format, "text", words, &job->error))
        return false;
    if (!field_of(format, "schema"))
        return api_fail(&job->error, 400, "text", "json_schema in \"text\".format has no \"schema\"");
    json_t *own = json_object();
    for (size_t i = 1; words[i]; i++)
        if (field_of(format, words[i]))
            json_object_set(own, words[i], field_of(format, words[i]));
    return json_object_set_new(chat, "response_format",
                               json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", own))
        == 0;
}

static bool read_format_of(struct job *job, const json_t *format, json_t *chat)
{
    if (!format)
        return true;
    if (field_is(format, "type", "json_schema"))
        return read_schema_format(job, format, chat);
    if (!field_is(format, "type", "text") && !field_is(format, "type", "json_object"))
        return api_fail(&job->error, 400, "text",
                        "\"text\".format is an object whose type is text, json_object or json_schema");
    return fields_check_keys(format, "text", WORDS("type"), &job->error)
        && json_object_set(chat, "response_format", (json_t *)format) == 0;
}

bool responses_read_text(struct job *job, json_t *chat)
{
    const json_t *text = field_of(job->json, "text");
    if (!text)
        return true;
    if (!json_is_object(text))
        return api_fail(&job->error, 400, "text", "\"text\" is an object with a \"format\"");
    if (field_of(text, "verbosity") && !field_is(text, "verbosity", "medium"))
        return api_fail_code(&job->error, 400, "text", "unsupported_value",
                             "\"text\".verbosity is not supported with this value; say in the instructions how long "
                             "answers are to be");
    return fields_check_keys(text, "text", WORDS("format", "verbosity"), &job->error)
        && read_format_of(job, field_of(text, "format"), chat);
}

// ---- reasoning ----------------------------------------------------------------------------------------------------

// Words of reasoning that change nothing: a summary is the model's own reasoning, which is given in full.
static const struct {
    const char *key, *words[4], *instead;
} reasoning_words[] = {
    { "summary", { "auto", "concise", "detailed" }, "the reasoning itself is given" },
    { "generate_summary", { "auto", "concise", "detailed" }, "the reasoning itself is given" },
    { "context", { "auto", NULL }, "the chat template says which reasoning the model sees again" },
    { "mode", { "standard", NULL }, "use effort, where the chat template reads it" },
};

static bool check_reasoning_word(struct job *job, const char *key, const json_t *value)
{
    const char *word = json_string_value(value), *instead = "it has \"effort\" and \"summary\"";
    for (size_t i = 0; i < sizeof reasoning_words / sizeof *reasoning_words; i++) {
        if (strcmp(reasoning_words[i].key, key))
            continue;
        instead = reasoning_words[i].instead;
        for (const char *const *own = reasoning_words[i].words; *own; own++)
            if (word && !strcmp(*own, word))
                return true;
    }
    return api_fail_code(&job->error, 400, "reasoning", "unsupported_value",
                         "\"%.60s\" in \"reasoning\" is not supported%s; %s", key, word ? " with this value" : "",
                         instead);
}

bool responses_read_reasoning(struct job *job, json_t *chat)
{
    json_t *reasoning = field_of(job->json, "reasoning"), *value;
    const char *key;
    if (!reasoning)
        return true;
    if (!json_is_object(reasoning))
        return api_fail(&job->error, 400, "reasoning", "\"reasoning\" is an object with an \"effort\"");
    json_object_foreach (reasoning, key, value) {
        if (json_is_null(value))
            continue;
        if (strcmp(key, "effort")) {
            if (!check_reasoning_word(job, key, value))
                return false;
            continue;
        }
        if (!fields_check_one(job->api->chat, "reasoning_effort", value, ON_CHAT, &job->error))
            return false;
        json_object_set(chat, "reasoning_effort", value);
    }
    return true;
}
