// SPDX-License-Identifier: Apache-2.0
// server/messages_read.c: Anthropic's /v1/messages rewritten as a chat: tools, tool_choice, thinking, structured
// outputs and the sampling fields.
#include "server/read.h"
#include "server/translate.h"

const struct field_name messages_field_names[] = {
    { "stop", "stop_sequences" },
    { "response_format", "output_config" },
    { NULL, NULL },
};

// ---- tools --------------------------------------------------------------------------------------------------------

// Tools with a type of their own: Anthropic's servers run them, or its models alone know their schema.
static bool refuse_tool_type(struct api_error *err, size_t index, const char *type)
{
    static const struct {
        const char *prefix, *instead;
    } types[] = {
        { "web_search_", "give the model a tool that searches" },
        { "web_fetch_", "give the model a tool that fetches pages" },
        { "code_execution_", "give the model a tool that runs code" },
        { "tool_search_tool_", "send all tools; none is deferred here" },
        { "mcp_toolset", "call MCP servers on the client's side" },
        { "advisor_", "this server has one model" },
    };
    const char *instead = "describe it as a custom tool with a name and an input_schema";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strncmp(types[i].prefix, type, strlen(types[i].prefix)))
            instead = types[i].instead;
    return api_fail_code(err, 400, "tools", "unsupported_value",
                         "\"tools\"[%zu] is of type %.60s, a tool of Anthropic's own; %s", index, type, instead);
}

// Examples of inputs, which templates have no place for, are written behind the description.
static json_t *description_of(const json_t *tool)
{
    const json_t *description = field_of(tool, "description"), *examples = json_object_get(tool, "input_examples");
    struct strbuf text = { 0 };
    if (!json_array_size(examples))
        return json_incref((json_t *)description);
    strbuf_add(&text, json_string_value(description), json_string_length(description));
    strbuf_add_text(&text, "\nExamples of its input: ");
    api_dump(examples, &text);
    return translate_text(&text);
}

static json_t *translate_tool(const json_t *tool, size_t index, struct api_error *err)
{
    static const char *const keys[] = { "type",
                                        "name",
                                        "description",
                                        "input_schema",
                                        "strict",
                                        "cache_control",
                                        "eager_input_streaming",
                                        "defer_loading",
                                        "allowed_callers",
                                        "input_examples",
                                        NULL };
    const json_t *type = json_object_get(tool, "type");
    if (!json_is_object(tool))
        return api_fail(err, 400, "tools", "\"tools\"[%zu] is no object", index), NULL;
    if (json_is_string(type) && strcmp(json_string_value(type), "custom"))
        return refuse_tool_type(err, index, json_string_value(type)), NULL;
    if (!fields_check_keys(tool, "tools", keys, err))
        return NULL;
    if (!json_is_object(json_object_get(tool, "input_schema")))
        return api_fail(err, 400, "tools", "\"tools\"[%zu] has no input_schema, a JSON schema", index), NULL;
    json_t *function = json_pack("{s:O*, s:o*, s:O, s:O*}", "name", json_object_get(tool, "name"), "description",
                                 description_of(tool), "parameters", json_object_get(tool, "input_schema"), "strict",
                                 json_object_get(tool, "strict"));
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static bool translate_tools(struct job *job, json_t *body)
{
    const json_t *tools = field_of(job->json, "tools"), *tool;
    size_t index;
    if (!tools)
        return true;
    if (!json_is_array(tools))
        return api_fail(&job->error, 400, "tools", "\"tools\" is a list of tools");
    json_t *list = json_array();
    json_object_set_new(body, "tools", list);
    json_array_foreach (tools, index, tool) {
        json_t *own = translate_tool(tool, index, &job->error);
        if (!own)
            return false;
        json_array_append_new(list, own);
    }
    return true;
}

static bool translate_choice(struct job *job, json_t *body)
{
    enum { AUTO, ANY, NONE, TOOL };
    static const char *const types[] = { "auto", "any", "none", "tool", NULL },
                             *const own[] = { "auto", "required", "none" };
    const json_t *choice = field_of(job->json, "tool_choice"), *name = json_object_get(choice, "name");
    int type = field_word(choice, "type", types);
    bool one = false;
    if (!choice
        || !fields_check_keys(choice, "tool_choice", WORDS("type", "name", "disable_parallel_tool_use"), &job->error))
        return !choice;
    if (type < 0 || (type == TOOL && !json_is_string(name)))
        return api_fail(&job->error, 400, "tool_choice",
                        "\"tool_choice\" is an object of type auto, any, none, or tool with a name");
    if (!fields_read_bool(choice, "disable_parallel_tool_use", &one, &job->error))
        return fields_fail_within("tool_choice", &job->error);
    json_object_set_new(body, "tool_choice", type == TOOL ? translate_named_tool(name) : json_string(own[type]));
    json_object_set_new(body, "parallel_tool_calls", json_boolean(!one));
    return true;
}

// ---- thinking and the answer's form -------------------------------------------------------------------------------

// A budget closes the thought; whether there is one at all is a variable of the template, where it has one.
static bool translate_thinking(struct job *job, json_t *body)
{
    enum { ENABLED, DISABLED };
    const json_t *thinking = field_of(job->json, "thinking");
    int type = field_word(thinking, "type", WORDS("enabled", "disabled", "adaptive", "between_tools")),
        shown = field_word(thinking, "display", WORDS("omitted", "summarized"));
    int64_t budget = 0;
    if (!thinking || !fields_check_keys(thinking, "thinking", WORDS("type", "budget_tokens", "display"), &job->error))
        return !thinking;
    if (type < 0 || (field_of(thinking, "display") && shown < 0))
        return api_fail(&job->error, 400, "thinking",
                        "\"thinking\" is an object of type enabled, disabled, adaptive or between_tools; its display "
                        "is summarized or omitted");
    if (!fields_read_int(thinking, "budget_tokens", 1, INT32_MAX, &budget, &job->error))
        return fields_fail_within("thinking", &job->error);
    if (budget)
        json_object_set_new(body, "max_reasoning_tokens", json_integer(budget));
    if (type == ENABLED || type == DISABLED) {
        json_object_set_new(body, "enable_thinking", json_boolean(type == ENABLED));
        json_object_set_new(body, "thinking", json_boolean(type == ENABLED));
    }
    if (shown == 0)
        json_object_set_new(body, "include_reasoning", json_false());
    return true;
}

static bool translate_format(struct job *job, const json_t *format, const char *field, json_t *body)
{
    const json_t *schema = json_object_get(format, "schema");
    if (!format || !fields_check_keys(format, field, WORDS("type", "schema"), &job->error))
        return !format;
    if (!field_is(format, "type", "json_schema") || !json_is_object(schema))
        return api_fail(&job->error, 400, field, "the format in \"%s\" is an object of type json_schema with a schema",
                        field);
    return json_object_set_new(body, "response_format", translate_schema("output", schema)) == 0;
}

// Templates that read an effort know three degrees.
static bool translate_output(struct job *job, json_t *body)
{
    enum { HIGH = 2 };
    static const char *const efforts[] = { "low", "medium", "high", "xhigh", "max", NULL };
    const json_t *config = field_of(job->json, "output_config");
    if (!translate_format(job, field_of(job->json, "output_format"), "output_format", body) || !config)
        return !job->error.status;
    if (!json_is_object(config))
        return api_fail(&job->error, 400, "output_config", "\"output_config\" is an object");
    if (!fields_check_keys(config, "output_config", WORDS("format", "effort"), &job->error)
        || !translate_format(job, field_of(config, "format"), "output_config", body))
        return false;
    int degree = field_word(config, "effort", efforts);
    if (field_of(config, "effort") && degree < 0)
        return api_fail(&job->error, 400, "output_config",
                        "the effort in \"output_config\" is low, medium, high, xhigh or max");
    if (degree >= 0 && job->api->chat && chat_reads(job->api->chat, "reasoning_effort"))
        json_object_set_new(body, "reasoning_effort", json_string(efforts[degree < HIGH ? degree : HIGH]));
    return true;
}

// Which earlier thoughts the prompt has is the template's matter; no other edit of a conversation is built.
static bool check_context_management(struct job *job)
{
    static const char thoughts[] = "clear_thinking_";
    const json_t *management = field_of(job->json, "context_management"), *edit;
    const json_t *edits = json_object_get(management, "edits");
    size_t index;
    if (!management)
        return true;
    if (!json_is_object(management))
        return api_fail(&job->error, 400, "context_management", "\"context_management\" is an object");
    if (!fields_check_keys(management, "context_management", WORDS("edits"), &job->error))
        return false;
    json_array_foreach (edits, index, edit) {
        const char *type = json_string_value(json_object_get(edit, "type"));
        if (!type || strncmp(type, thoughts, strlen(thoughts)))
            return api_fail_code(&job->error, 400, "context_management", "unsupported_parameter",
                                 "\"context_management\" is not supported with an edit of type %.60s; shorten the "
                                 "conversation before it is sent",
                                 type ? type : "none");
    }
    return true;
}

// ---- the request --------------------------------------------------------------------------------------------------

static bool translate_length(struct job *job, json_t *body)
{
    int64_t most = 0;
    if (!fields_read_int(job->json, "max_tokens", 1, INT32_MAX, &most, &job->error))
        return false;
    if (!most)
        return api_fail_code(&job->error, 400, "max_tokens", "missing_required_parameter", "\"max_tokens\" is missing");
    json_object_set_new(body, "max_tokens", json_integer(most));
    return true;
}

static bool copy_fields(struct job *job, json_t *body)
{
    static const struct field_name copied[] = {
        { "temperature", "temperature" },
        { "top_p", "top_p" },
        { "top_k", "top_k" },
        { "stream", "stream" },
        { "stop", "stop_sequences" },
        { "chat_template_kwargs", "chat_template_kwargs" },
    };
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        json_t *value = field_of(job->json, copied[i].client);
        if (value)
            json_object_set(body, copied[i].own, value);
    }
    const json_t *stops = json_object_get(body, "stop");
    return !stops || json_is_array(stops)
        || api_fail(&job->error, 400, "stop_sequences", "\"stop_sequences\" is a list of strings");
}

// An assistant's message at the end is the beginning of the answer (prefill), unless it waits for results of calls.
static void continue_last(json_t *body, const json_t *messages)
{
    const json_t *last = translate_last(messages, "assistant");
    if (!last || json_object_get(last, "tool_calls"))
        return;
    json_object_set_new(body, "continue_final_message", json_true());
    json_object_set_new(body, "add_generation_prompt", json_false());
}

static bool translate(struct job *job, json_t *body)
{
    json_t *messages = messages_conversation(job, json_object_get(job->json, "system"),
                                             json_object_get(job->json, "messages"));
    if (!messages)
        return false;
    json_object_set_new(body, "messages", messages);
    continue_last(body, messages);
    return translate_tools(job, body) && translate_choice(job, body) && translate_thinking(job, body)
        && translate_output(job, body) && check_context_management(job) && copy_fields(job, body);
}

static bool translate_all(struct job *job, json_t *body) { return translate_length(job, body) && translate(job, body); }

bool messages_translate(struct job *job) { return translate_json(job, translate_all); }

bool messages_count(struct job *job)
{
    return translate_json(job, translate) && read_count(job, TOKENIZE_PARSE_SPECIAL, "{");
}
