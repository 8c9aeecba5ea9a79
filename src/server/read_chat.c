// SPDX-License-Identifier: Apache-2.0
// server/read_chat.c: reads /v1/chat/completions: renders messages and tools to a prompt, builds the answer's grammar.
#include "base/memory.h"
#include "format/json.h"
#include "server/check.h"
#include "server/kind.h"
#include "server/grammar_cache.h"
#include "server/json_writer.h"
#include "server/read.h"
#include "text/chat_continue.h"

// ---- the prompt ---------------------------------------------------------------------------------------------------

// The template's variables: the messages, the tools and the request's own. NULL: one is refused.
static json_t *template_input(struct job *job, json_t *messages)
{
    json_t *input = json_object();
    json_object_update(input, json_object_get(job->json, "chat_template_kwargs"));
    json_object_set_new(input, "messages", messages);
    json_t *tools = chat_tools(job_chat(job), job->prompt_tools);
    if (tools)
        json_object_set_new(input, "tools", tools);
    static const char *const passed[] = { "add_generation_prompt", "continue_final_message", "documents" };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = field_of(job->json, passed[i]);
        if (value)
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
    if (field_is_empty(source) || !(kind_of(job)->endpoint & (ON_CHAT | ON_TOKENIZE | ON_TEMPLATE)))
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
    const json_t *variables = field_of(job->json, "chat_template_kwargs");
    if (!read_end_of_prompt(job))
        return false;
    if (variables && !json_is_object(variables))
        return api_fail(&job->error, 400, "chat_template_kwargs", "\"chat_template_kwargs\" is an object of variables");
    if (!json_array_size(given))
        return api_fail(&job->error, 400, "messages", "\"messages\" is a list of at least one message");
    json_t *messages = chat_normalise(chat, given, job->prompt_tools, &cause);
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

static const json_t *function_of(const json_t *tool) { return json_object_get(tool, "function"); }

// True when there is a tool of this name.
static bool knows_tool(const json_t *tools, const char *name)
{
    size_t index;
    const json_t *tool;
    json_array_foreach (tools, index, tool)
        if (field_is(function_of(tool), "name", name))
            return true;
    return false;
}

// True when one of the tools (or the one of this name) is strict.
static bool is_strict(const json_t *tools, const char *name)
{
    size_t index;
    const json_t *tool;
    json_array_foreach (tools, index, tool)
        if (json_is_true(json_object_get(function_of(tool), "strict"))
            && (!name || field_is(function_of(tool), "name", name)))
            return true;
    return false;
}

static bool fail_choice(struct job *job)
{
    return api_fail(&job->error, 400, "tool_choice",
                    "\"tool_choice\" is none, auto, required, {\"type\": \"function\", \"function\": "
                    "{\"name\": ...}} or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\" or "
                    "\"required\", \"tools\": [...]}}");
}

static bool fail_unknown_tool(struct job *job)
{
    return api_fail(&job->error, 400, "tool_choice", "\"tool_choice\" asks for a tool that is not in \"tools\"");
}

// The name in {"type": "function", "function": {"name": ...}}; NULL: it is something else, which is refused.
static const char *named_tool(struct job *job, const json_t *choice)
{
    const json_t *function = function_of(choice);
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!fields_check_keys(choice, "tool_choice", WORDS("type", "function"), &job->error)
        || !fields_check_keys(function, "tool_choice", WORDS("name"), &job->error))
        return NULL;
    if (!name)
        fail_choice(job);
    else if (!knows_tool(job->tools, name))
        fail_unknown_tool(job);
    return job->error.status ? NULL : name;
}

// The tools of a list of {"type": "function", "function": {"name": ...}}, as a new list; NULL: refused.
static json_t *listed_tools(struct job *job, const json_t *list)
{
    json_t *allowed = json_array(), *entry, *tool;
    size_t i, k;
    json_array_foreach (list, i, entry) {
        const char *name = named_tool(job, entry);
        if (!name)
            return json_decref(allowed), NULL;
        json_array_foreach (job->tools, k, tool)
            if (field_is(function_of(tool), "name", name) && !knows_tool(allowed, name))
                json_array_append(allowed, tool);
    }
    return allowed;
}

// Calls of other tools than those listed are text; the prompt has all tools, so that its beginning stays the same.
static bool read_allowed_tools(struct job *job, const json_t *choice)
{
    static const char *const words[] = { "type", "allowed_tools", NULL },
                             *const own_words[] = { "mode", "tools", NULL },
                             *const modes[] = { "auto", "required", NULL };
    const json_t *own = json_object_get(choice, "allowed_tools"), *list = json_object_get(own, "tools");
    int mode = field_word(own, "mode", modes);
    if (!fields_check_keys(choice, "tool_choice", words, &job->error)
        || !fields_check_keys(own, "tool_choice", own_words, &job->error))
        return false;
    if (!json_array_size(list) || json_array_size(list) > TOOLS_MAX || mode < 0)
        return fail_choice(job);
    job->kept_tools = listed_tools(job, list);
    job->tools = job->kept_tools;
    job->must_call = mode;
    return job->kept_tools;
}

// job->must_call, and where one tool is named job->must_name.
static bool read_tool_choice(struct job *job)
{
    enum { NONE, AUTO, REQUIRED };
    const json_t *choice = field_of(job->json, "tool_choice");
    int word = field_word(job->json, "tool_choice", WORDS("none", "auto", "required"));
    bool one = field_is(choice, "type", "function"), several = field_is(choice, "type", "allowed_tools");
    if (!choice || word == AUTO)
        return true;
    if (word == NONE) {
        job->tools = job->prompt_tools = NULL;
        return true;
    }
    job->must_call = word == REQUIRED;
    if (!job->must_call && !one && !several)
        return fail_choice(job);
    if (!job->tools)
        return fail_unknown_tool(job);
    if (several)
        return read_allowed_tools(job, choice);
    job->must_name = one ? named_tool(job, choice) : NULL;
    job->must_call |= job->must_name != NULL;
    return job->must_call;
}

// Markers that are special tokens have to be text, or the reader would not see them.
static void show_marker(void *context, struct bytes text)
{
    struct job *job = context;
    int32_t id = tokenizer_find(job->api->tokenizer, text);
    if (id >= 0 && tokenizer_is_special(job->api->tokenizer, id))
        job->params.skip_special = false;
}

// A literal of a form may be several tokens: each <...> and [...] in it may be one.
static void show_markers(void *context, struct bytes text)
{
    for (size_t begin = 0; begin < text.len; begin++) {
        const char *end = text.data[begin] == '<' ? memchr(text.data + begin, '>', text.len - begin)
            : text.data[begin] == '['             ? memchr(text.data + begin, ']', text.len - begin)
                                                  : NULL;
        if (end)
            show_marker(context, (struct bytes){ text.data + begin, (size_t)(end - text.data) - begin + 1 });
    }
}

// The form of the model's calls: its markers are shown, and the tokens that end a turn with calls end the answer.
static void use_form(struct job *job)
{
    bool supports_tools;
    struct nibble_request *request = &job->params.request;
    job->tool_form = chat_tool_form(job_chat(job), &supports_tools);
    if (!job->tools && !tools_form_reads_always(job->tool_form))
        return;
    tools_form_markers(job->tool_form, show_markers, job);
    for (const char *const *stop = tools_form_stops(job->tool_form); *stop && !job->params.ignore_eos; stop++) {
        int32_t id = tokenizer_find(job->api->tokenizer, bytes_of(*stop));
        if (id < 0)
            continue;
        int32_t *ids = memory_grow((int32_t *)request->stop_ids, request->stop_count + 1, sizeof *ids);
        ids[request->stop_count++] = id;
        request->stop_ids = ids;
    }
}

bool read_tools(struct job *job)
{
    const json_t *tools = field_of(job->json, "tools");
    bool parallel = true;
    struct error cause;
    job->tools = job->prompt_tools = json_is_array(tools) && !json_array_size(tools) ? NULL : tools;
    if (job->tools && !tools_check(job->tools, &cause))
        return api_fail_field(&job->error, "tools", &cause);
    if (!fields_read_bool(job->json, "parallel_tool_calls", &parallel, &job->error) || !read_tool_choice(job))
        return false;
    if (!job_chat(job))
        return true;
    job->one_call = job->tools && (!parallel || job->must_name);
    use_form(job);
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
    job->grammar = grammar_cache_get(
        job->api,
        &(struct grammar_source){
            .kind = GRAMMAR_TOOLS, .json = job->tools, .form = job->tool_form, .choice = &choice },
        &cause);
    if (!job->grammar)
        return api_fail(&job->error, 400, "tools", "the tools' schemas cannot be used: %s", cause.text);
    return check_prepare(job, NULL, is_strict(job->tools, job->must_name), "tools");
}

bool read_chat_prompt(struct job *job, int flags)
{
    struct strbuf text = { 0 };
    job->prompts = memory_new(1, sizeof *job->prompts);
    bool ok = read_messages(job, &text) && read_prompt_text(job, strbuf_bytes(&text), flags, "messages");
    strbuf_free(&text);
    return ok;
}

bool read_count(struct job *job, int flags, const char *opening)
{
    if (read_tools(job) && read_chat_prompt(job, flags))
        json_write(&job->reply, "%s\"input_tokens\":%z}", opening, job->prompts[0].count);
    return false;
}

bool read_chat(struct job *job)
{
    struct answer_form form;
    int flags = TOKENIZE_PARSE_SPECIAL | (job->params.add_special ? TOKENIZE_ADD_SPECIAL : 0);
    bool ok = read_format(job, &form) && read_tools(job) && make_grammar(job, &form) && read_chat_prompt(job, flags);
    read_form_free(&form);
    return ok;
}
