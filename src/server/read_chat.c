// SPDX-License-Identifier: Apache-2.0
// server/read_chat.c: reads /v1/chat/completions: renders messages and tools to a prompt, builds the answer's grammar.
#include "base/memory.h"
#include "format/json.h"
#include "server/check.h"
#include "server/kind.h"
#include "server/grammar_cache.h"
#include "server/read.h"
#include "text/chat_continue.h"

// ---- the prompt ---------------------------------------------------------------------------------------------------

// The template's variables: the messages, the tools and the request's own. NULL: one is refused.
static json_t *template_input(struct job *job, json_t *messages)
{
    json_t *input = json_object();
    json_object_update(input, json_object_get(job->json, "chat_template_kwargs"));
    json_object_set_new(input, "messages", messages);
    json_t *tools = chat_tools(job_chat(job), job->tools);
    if (tools)
        json_object_set_new(input, "tools", tools);
    static const char *const passed[] = { "add_generation_prompt", "continue_final_message", "documents" };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = json_object_get(job->json, passed[i]);
        if (value && !json_is_null(value))
            json_object_set(input, passed[i], value);
    }
    if (read_reasoning(job, input))
        return input;
    json_decref(input);
    return NULL;
}

// Whether the prompt begins an answer, or leaves the last message open.
static bool read_end_of_prompt(struct job *job)
{
    bool opens_answer, continues;
    struct error cause;
    return fields_read_bool(job->json, "add_generation_prompt", &opens_answer, &job->error)
        && (chat_asks_to_continue(job->json, &continues, &cause)
            || api_fail_field(&job->error, "continue_final_message", &cause));
}

bool read_own_template(struct job *job)
{
    const json_t *source = json_object_get(job->json, "chat_template");
    struct error cause;
    if (!source || field_is_empty(source) || !(kind_of(job)->endpoint & (ON_CHAT | ON_TOKENIZE | ON_TEMPLATE)))
        return true; // elsewhere fields_check refuses it
    if (!job->api->trust_chat_template)
        return api_fail_code(&job->error, 400, "chat_template", "unsupported_parameter",
                             "\"chat_template\" is not supported; start the server with --trust-request-chat-template, "
                             "or with --chat-template FILE");
    if (!json_is_string(source))
        return api_fail(&job->error, 400, "chat_template", "\"chat_template\" is a template as a string");
    job->own_chat = chat_open_source(job->api->checkpoint, json_bytes(source), &cause);
    return job->own_chat || api_fail_field(&job->error, "chat_template", &cause);
}

bool read_messages(struct job *job, struct strbuf *out)
{
    const struct chat *chat = job_chat(job);
    struct error cause;
    if (!chat)
        return api_fail(&job->error, 400, "messages", "%s", job->api->chat_error_text);
    const json_t *given = json_object_get(job->json, "messages");
    const json_t *variables = json_object_get(job->json, "chat_template_kwargs");
    if (!read_end_of_prompt(job))
        return false;
    if (variables && !json_is_null(variables) && !json_is_object(variables))
        return api_fail(&job->error, 400, "chat_template_kwargs", "\"chat_template_kwargs\" is an object of variables");
    if (!json_array_size(given))
        return api_fail(&job->error, 400, "messages", "\"messages\" is a list of at least one message");
    json_t *messages = chat_normalise(chat, given, job->tools, &cause);
    if (!messages)
        return api_fail_field(&job->error, "messages", &cause);
    json_t *input = template_input(job, messages);
    if (!input)
        return false;
    bool continues = json_is_true(json_object_get(input, "continue_final_message"));
    bool ok = chat_render(chat, input, out, &cause)
        || (continues
                ? api_fail_field(&job->error, "continue_final_message", &cause)
                : api_fail(&job->error, 400, "messages", "the chat template refuses these messages: %s", cause.text));
    job->error.quotes = !ok; // a template may repeat what it refuses
    read_prompt_end(job, strbuf_bytes(out));
    json_decref(input);
    return ok;
}

// ---- tools and the answer's form -----------------------------------------------------------------------------------

// True when there is a tool of this name.
static bool knows_tool(const json_t *tools, const char *name)
{
    size_t index;
    const json_t *tool;
    json_array_foreach (tools, index, tool) {
        const char *known = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (known && !strcmp(known, name))
            return true;
    }
    return false;
}

// True when one of the tools (or the one of this name) is strict.
static bool is_strict(const json_t *tools, const char *name)
{
    size_t index;
    const json_t *tool;
    json_array_foreach (tools, index, tool) {
        const json_t *function = json_object_get(tool, "function");
        const char *known = json_string_value(json_object_get(function, "name"));
        if (json_is_true(json_object_get(function, "strict")) && (!name || (known && !strcmp(known, name))))
            return true;
    }
    return false;
}

// none, auto, required, or {"type": "function", "function": {"name": ...}}: job->must_call, and in the last
// job->must_name.
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
    static const char *const words[] = { "type", "function", NULL }, *const function_words[] = { "name", NULL };
    const json_t *function = json_object_get(choice, "function");
    if (!fields_check_keys(choice, "tool_choice", words, &job->error)
        || !fields_check_keys(function, "tool_choice", function_words, &job->error))
        return false;
    job->must_name = json_string_value(json_object_get(function, "name"));
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
    bool parallel = true, supports_tools;
    struct error cause;
    if (json_is_array(tools) && !json_array_size(tools))
        tools = NULL;
    job->tools = json_is_null(tools) ? NULL : tools;
    if (job->tools && !tools_check(job->tools, &cause))
        return api_fail_field(&job->error, "tools", &cause);
    if (!fields_read_bool(job->json, "parallel_tool_calls", &parallel, &job->error) || !read_tool_choice(job))
        return false;
    if (!job->tools || !job_chat(job))
        return true;
    job->one_call = !parallel || job->must_name;
    job->tool_form = chat_tool_form(job_chat(job), &supports_tools);
    int32_t marker = tokenizer_find(job->api->tokenizer, bytes_of("<tool_call>"));
    if (marker >= 0 && tokenizer_is_special(job->api->tokenizer, marker))
        job->params.skip_special = false; // or the reader would not see it
    return true;
}

// A call that is required comes now, and the form holds for the answer of a later request. Else the model may do
// either: call tools, or answer in that form.
static bool make_grammar(struct job *job, struct answer_form *form)
{
    struct tools_choice choice = { .name = job->must_name,
                                   .parallel = !job->one_call,
                                   .otherwise = job->must_call ? NULL : form->schema };
    struct error cause;
    bool has_tools = job->tools && job_chat(job);
    if (has_tools && !job->must_call && form->grammar)
        return api_fail(&job->error, 400, form->field,
                        "\"%s\" is no JSON schema and cannot stand beside \"tools\"; use response_format, or "
                        "tool_choice none",
                        form->field);
    if (has_tools && !job->must_call && form->compact)
        return api_fail(&job->error, 400, form->field, "disable_any_whitespace cannot stand beside \"tools\"");
    // The form is tried alone at first, so that its own errors are not reported as the tools'.
    if (!job->must_call && !read_form_grammar(job, form))
        return false;
    if (!has_tools || !(job->must_call || form->schema))
        return true;
    grammar_free(job->grammar);
    job->grammar = grammar_cache_tools(job->api, job->tool_form, job->tools, &choice, &cause);
    if (!job->grammar)
        return api_fail(&job->error, 400, "tools", "the tools' schemas cannot be used: %s", cause.text);
    return check_prepare(job, NULL, is_strict(job->tools, job->must_name), "tools");
}

bool read_chat(struct job *job)
{
    struct strbuf text = { 0 };
    struct answer_form form;
    int flags = TOKENIZE_PARSE_SPECIAL | (job->params.add_special ? TOKENIZE_ADD_SPECIAL : 0);
    job->prompts = memory_new(1, sizeof *job->prompts);
    bool ok = read_format(job, &form) && read_tools(job) && make_grammar(job, &form) && read_messages(job, &text)
        && read_prompt_text(job, strbuf_bytes(&text), flags, "messages");
    read_form_free(&form);
    strbuf_free(&text);
    return ok;
}
