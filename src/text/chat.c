// SPDX-License-Identifier: Apache-2.0
// Chat template selection, and the variables that it is rendered with (Hugging Face's apply_chat_template).
#include "text/chat.h"

#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "format/json.h"
#include "text/chat_continue.h"
#include "text/chat_probe.h"
#include "text/messages.h"
#include "text/template.h"

struct chat {
    struct template *plain;
    struct template *with_tools; // NULL: the plain one serves both
    struct strbuf source;        // of the plain one
    json_t *specials;            // bos_token, eos_token ...
    const struct tool_form *tool_form;
    bool supports_tools;
    const struct reasoning_form *reasoning;
    struct message_shape shape;
};

// ---- special tokens -----------------------------------------------------------------------------------------------

static const struct {
    const char *variable, *gguf;
} special_tokens[] = {
    { "bos_token", "tokenizer.ggml.bos_token_id" },
    { "eos_token", "tokenizer.ggml.eos_token_id" },
    { "unk_token", "tokenizer.ggml.unknown_token_id" },
    { "pad_token", "tokenizer.ggml.padding_token_id" },
};

static json_t *special_from_gguf(const struct gguf *gguf, const char *key)
{
    const struct gguf_value *id = gguf_find(gguf, key), *vocabulary = gguf_find(gguf, "tokenizer.ggml.tokens");
    if (!id || id->type == GGUF_STRING || id->type == GGUF_ARRAY || !vocabulary || !vocabulary->strings
        || id->integer < 0 || (size_t)id->integer >= vocabulary->count)
        return NULL;
    struct bytes piece = vocabulary->strings[id->integer];
    return json_stringn(piece.data, piece.len);
}

// tokenizer_config.json has either the text or an object around it.
static json_t *special_from_config(const json_t *config, const char *key)
{
    json_t *value = json_object_get(config, key);
    json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(text) ? json_incref(text) : NULL;
}

static json_t *collect_specials(const struct checkpoint *checkpoint)
{
    json_t *specials = json_object();
    for (size_t i = 0; checkpoint && i < sizeof special_tokens / sizeof *special_tokens; i++) {
        json_t *text = checkpoint->gguf ? special_from_gguf(checkpoint->gguf, special_tokens[i].gguf)
                                        : special_from_config(checkpoint->tokenizer_config, special_tokens[i].variable);
        if (text)
            json_object_set_new(specials, special_tokens[i].variable, text);
    }
    return specials;
}

// ---- which template -----------------------------------------------------------------------------------------------

// Sources of the plain and the tool template; .data is NULL where there is none.
struct sources {
    struct bytes plain, with_tools;
};

static bool sources_from_gguf(const struct gguf *gguf, struct sources *out, struct error *err)
{
    return gguf_get_string(gguf, "tokenizer.chat_template", &out->plain, err)
        && gguf_get_string(gguf, "tokenizer.chat_template.tool_use", &out->with_tools, err);
}

// tokenizer_config.json: a string, or a list of {name, template}.
static void sources_from_config(const json_t *config, struct sources *out)
{
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_string(value))
        out->plain = json_bytes(value);
    size_t index;
    const json_t *entry;
    json_array_foreach (value, index, entry) {
        struct bytes name = json_bytes(json_object_get(entry, "name"));
        const json_t *source = json_object_get(entry, "template");
        if (name.data && bytes_equal(name, bytes_of("default")))
            out->plain = json_bytes(source);
        if (name.data && bytes_equal(name, bytes_of("tool_use")))
            out->with_tools = json_bytes(source);
    }
}

static bool find_sources(const struct checkpoint *checkpoint, struct sources *out, struct error *err)
{
    if (checkpoint->gguf)
        return sources_from_gguf(checkpoint->gguf, out, err);
    if (checkpoint->chat_template.data)
        out->plain = checkpoint->chat_template;
    else
        sources_from_config(checkpoint->tokenizer_config, out);
    return true;
}

static bool parse_sources(struct chat *chat, const struct sources *sources, struct error *err)
{
    struct bytes plain = sources->plain.data ? sources->plain : sources->with_tools;
    if (!plain.data)
        return fail(err, "the model has no chat template; give one with --chat-template FILE, or use --raw");
    chat->tool_form = tools_form(sources->with_tools.data ? sources->with_tools : plain, &chat->supports_tools);
    chat->reasoning = reasoning_find(plain);
    if (!chat->reasoning && sources->with_tools.data)
        chat->reasoning = reasoning_find(sources->with_tools);
    strbuf_add(&chat->source, plain.data, plain.len);
    chat->plain = template_parse(plain, err);
    if (chat->plain && sources->with_tools.data)
        chat->with_tools = template_parse(sources->with_tools, err);
    return chat->plain && (chat->with_tools || !sources->with_tools.data);
}

static bool open_templates(struct chat *chat, const struct checkpoint *checkpoint, const char *template_file,
                           struct error *err)
{
    struct sources sources = { 0 };
    if (!template_file)
        return find_sources(checkpoint, &sources, err) && parse_sources(chat, &sources, err);
    struct file file;
    if (!file_open(&file, template_file, err))
        return false;
    sources.plain = file.content.data ? file.content : bytes_of("");
    bool ok = parse_sources(chat, &sources, err) || fail_within(err, "%s", template_file);
    file_close(&file);
    return ok;
}

// ---- rendering ----------------------------------------------------------------------------------------------------

// The template's variables: the keys of the request, then defaults of those that are absent.
static json_t *variables_of(const struct chat *chat, const json_t *request)
{
    json_t *variables = json_is_array(request) ? json_object() : json_copy((json_t *)request);
    if (json_is_array(request))
        json_object_set(variables, "messages", (json_t *)request);
    static const char *const none_when_absent[] = { "messages", "tools", "documents" };
    for (size_t i = 0; i < sizeof none_when_absent / sizeof *none_when_absent; i++)
        if (!json_object_get(variables, none_when_absent[i]))
            json_object_set_new(variables, none_when_absent[i], json_null());
    if (!json_object_get(variables, "add_generation_prompt"))
        json_object_set_new(variables, "add_generation_prompt", json_true());
    json_object_update_missing(variables, chat->specials);
    return variables;
}

bool chat_render_within(const struct chat *chat, const json_t *request, uint64_t steps, struct strbuf *out,
                        struct error *err)
{
    if (!json_is_array(request) && !json_is_object(request))
        return fail(err, "the chat is neither a list of messages nor an object with a list named messages");
    const json_t *messages = json_is_array(request) ? request : json_object_get(request, "messages");
    if (messages && !json_is_array(messages) && !json_is_null(messages))
        return fail(err, "messages is not a list; write [{\"role\": \"user\", \"content\": \"...\"}]");
    json_t *variables = variables_of(chat, request);
    bool tools = json_array_size(json_object_get(variables, "tools")) > 0;
    struct template_limits limits = { .now = time(NULL), .steps = steps };
    bool ok = template_render(tools && chat->with_tools ? chat->with_tools : chat->plain, variables, &limits, out, err);
    json_decref(variables);
    return ok;
}

bool chat_render(const struct chat *chat, const json_t *request, struct strbuf *out, struct error *err)
{
    bool continues;
    if (!chat_asks_to_continue(request, &continues, err))
        return false;
    return continues ? chat_continue(chat, request, out, err) : chat_render_within(chat, request, 0, out, err);
}

// ---- a chat -------------------------------------------------------------------------------------------------------

static struct chat *new_chat(const struct checkpoint *checkpoint)
{
    struct chat *chat = memory_new(1, sizeof *chat);
    chat->specials = collect_specials(checkpoint);
    return chat;
}

static struct chat *finish_chat(struct chat *chat, bool parsed)
{
    if (!parsed) {
        chat_close(chat);
        return NULL;
    }
    chat->shape = chat_probe(chat);
    chat->supports_tools = chat->supports_tools && chat->shape.takes_tools;
    return chat;
}

struct chat *chat_open(const struct checkpoint *checkpoint, const char *template_file, struct error *err)
{
    struct chat *chat = new_chat(checkpoint);
    return finish_chat(chat, open_templates(chat, checkpoint, template_file, err));
}

struct chat *chat_open_source(const struct checkpoint *checkpoint, struct bytes source, struct error *err)
{
    struct chat *chat = new_chat(checkpoint);
    struct sources sources = { .plain = source.data ? source : bytes_of("") };
    return finish_chat(chat, parse_sources(chat, &sources, err));
}

bool chat_has_template(const struct checkpoint *checkpoint)
{
    struct sources sources = { 0 };
    struct error ignored;
    return !find_sources(checkpoint, &sources, &ignored) || sources.plain.data || sources.with_tools.data;
}

void chat_close(struct chat *chat)
{
    if (!chat)
        return;
    template_free(chat->plain);
    template_free(chat->with_tools);
    strbuf_free(&chat->source);
    json_decref(chat->specials);
    free(chat);
}

struct bytes chat_source(const struct chat *chat) { return strbuf_bytes(&chat->source); }

json_t *chat_special_tokens(const struct chat *chat) { return chat->specials; }

bool chat_set_tool_form(struct chat *chat, const char *name, struct error *err)
{
    const struct tool_form *form = tools_form_named(name, chat->tool_form, err);
    if (form)
        chat->tool_form = form;
    return form;
}

const struct tool_form *chat_tool_form(const struct chat *chat, bool *supports_tools)
{
    *supports_tools = chat->supports_tools;
    return chat->tool_form;
}

const struct reasoning_form *chat_reasoning(const struct chat *chat) { return chat->reasoning; }

bool chat_reads(const struct chat *chat, const char *variable)
{
    return template_reads(chat->plain, variable) || (chat->with_tools && template_reads(chat->with_tools, variable));
}

// The messages behind the tools in words: the system message in front of them is part of it, or is made for it.
static json_t *describe_tools(const struct chat *chat, json_t *messages, const json_t *tools)
{
    bool system = message_has_role(json_array_get(messages, 0), "system");
    json_t *head = json_array();
    if (system) {
        json_array_append(head, json_array_get(messages, 0));
        json_array_remove(messages, 0);
    }
    json_t *own = tools_as_text(chat->tool_form, head, tools);
    json_array_extend(own, messages);
    if (!chat->shape.takes_system && !system && message_has_role(json_array_get(own, 0), "system"))
        messages_fold_system(own);
    json_decref(head);
    json_decref(messages);
    return own;
}

json_t *chat_normalise(const struct chat *chat, const json_t *messages, const json_t *tools, struct error *err)
{
    struct message_shape shape = chat->shape;
    json_t *own = messages_normalise(messages, chat->supports_tools && shape.takes_lists, err);
    if (!own)
        return NULL;
    if (!chat->supports_tools) {
        shape.writes_results = shape.writes_results && shape.writes_calls;
        own = describe_tools(chat, own, tools);
    }
    json_t *shaped = message_shape_apply(&shape, chat->tool_form, own);
    json_decref(own);
    return shaped;
}

json_t *chat_tools(const struct chat *chat, const json_t *tools)
{
    if (json_array_size(tools) && chat->shape.takes_tools)
        return json_incref((json_t *)tools);
    return chat->shape.iterates_tools ? json_array() : NULL;
}
