// SPDX-License-Identifier: Apache-2.0
// Tool-call formats of model families (Hermes, Llama 3): detection in a chat template, tool checks, and the grammar.
#include "text/tools/form.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "text/template/lex.h"

const struct tool_form_text tool_forms[] = {
    [TOOLS_HERMES] = { .open = "<tool_call>", .close = "</tool_call>", .arguments = "arguments", .several = true },
    [TOOLS_LLAMA3] = { .open = "", .close = "", .arguments = "parameters" },
};

void tool_form_begin(enum tool_form form, const json_t *name, struct strbuf *out)
{
    const struct tool_form_text *text = &tool_forms[form];
    char *quoted = json_dumps(name, JSON_ENCODE_ANY);
    strbuf_add_format(out, "%s%s{\"name\": %s, \"%s\": ", text->open, *text->open ? "\n" : "", quoted, text->arguments);
    free(quoted);
}

void tool_form_end(enum tool_form form, struct strbuf *out)
{
    const struct tool_form_text *text = &tool_forms[form];
    strbuf_add_format(out, "}%s%s", *text->close ? "\n" : "", text->close);
}

// ---- which form ---------------------------------------------------------------------------------------------------

// Does this token read the variable? Not an attribute of that name, and not where it is set or a parameter is named.
static bool reads_variable(const struct token *token, const struct token *previous, const char *name)
{
    return token->type == TOKEN_NAME && bytes_equal(token->text, bytes_of(name))
        && !(previous && previous->type == TOKEN_DOT) && token[1].type != TOKEN_ASSIGN;
}

static bool holds(struct bytes text, const char *part)
{
    return text.len && memmem(text.data, text.len, part, strlen(part));
}

enum tool_form tools_form(struct bytes template_source, bool *supports_tools)
{
    struct arena arena = { 0 };
    struct error ignored; // a template that cannot be read has no form of its own
    struct token *tokens = template_lex(template_source, &arena, &ignored);
    bool tag = false, python_tag = false, ipython = false, parameters = false;
    *supports_tools = false;
    for (const struct token *token = tokens, *previous = NULL; token && token->type != TOKEN_END; previous = token++) {
        *supports_tools |= reads_variable(token, previous, "tools");
        if (token->type != TOKEN_DATA && token->type != TOKEN_STRING)
            continue;
        tag |= holds(token->text, tool_forms[TOOLS_HERMES].open);
        python_tag |= holds(token->text, TOOL_PYTHON_TAG);
        ipython |= holds(token->text, "ipython");
        parameters |= holds(token->text, "\"parameters\"");
    }
    free(tokens);
    arena_free(&arena);
    return !tag && (python_tag || (ipython && parameters)) ? TOOLS_LLAMA3 : TOOLS_HERMES;
}

// ---- what clients send --------------------------------------------------------------------------------------------

static bool check_tool(const json_t *tool, size_t index, struct error *err)
{
    const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return fail(err, "tools[%zu].type is not \"function\", the only kind of tool there is here", index);
    if (!json_is_object(function))
        return fail(err, "tools[%zu].function is not an object", index);
    const json_t *name = json_object_get(function, "name");
    size_t length = json_string_length(name);
    if (!length || length > TOOL_NAME_BYTES_MAX || strlen(json_string_value(name)) != length)
        return fail(err, "tools[%zu].function.name is not a string of 1 to %d bytes", index, TOOL_NAME_BYTES_MAX);
    const json_t *description = json_object_get(function, "description");
    if (description && !json_is_null(description) && !json_is_string(description))
        return fail(err, "tools[%zu].function.description is not a string", index);
    const json_t *parameters = json_object_get(function, "parameters");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return fail(err, "tools[%zu].function.parameters is not an object (a JSON schema)", index);
    return true;
}

const json_t *tool_name(const json_t *tools, size_t index)
{
    return json_object_get(json_object_get(json_array_get(tools, index), "function"), "name");
}

bool tools_check(const json_t *tools, struct error *err)
{
    if (!json_is_array(tools))
        return fail(err, "tools is not a list; write [{\"type\": \"function\", \"function\": {...}}]");
    if (json_array_size(tools) > TOOLS_MAX)
        return fail(err, "there are %zu tools; at most %d are allowed", json_array_size(tools), TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (!check_tool(json_array_get(tools, i), i, err))
            return false;
        for (size_t earlier = 0; earlier < i; earlier++)
            if (json_equal(tool_name(tools, earlier), tool_name(tools, i)))
                return fail(err, "tools[%zu] and tools[%zu] are both named %s; give each its own name", earlier, i,
                            json_string_value(tool_name(tools, i)));
    }
    return true;
}

// ---- what a call must be ------------------------------------------------------------------------------------------

// The schema of a tool's arguments (new reference), an object by default. A tool without parameters takes none.
static json_t *schema_of(const json_t *function)
{
    json_t *parameters = json_object_get(function, "parameters");
    if (!json_object_size(parameters))
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
    if (json_object_get(parameters, "type") || !json_object_get(parameters, "properties"))
        return json_incref(parameters);
    json_t *schema = json_copy(parameters);
    json_object_set_new(schema, "type", json_string("object"));
    return schema;
}

json_t *tools_schema(const json_t *tools, struct bytes name, bool *strict)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function"), *own = tool_name(tools, i);
        struct bytes text = json_bytes(own);
        *strict = json_is_true(json_object_get(function, "strict"));
        if (bytes_equal(text, name))
            return schema_of(function);
    }
    return NULL;
}

enum { PARTS_PER_CALL = 11 };

struct call_parts {
    struct grammar_part parts[PARTS_PER_CALL];
    int count;
    char *name, *key; // as JSON
    json_t *schema;
};

static void add_part(struct call_parts *call, struct grammar_part part)
{
    if (part.mark || part.schema || *part.literal)
        call->parts[call->count++] = part;
}

// open {"name": NAME, "arguments": {...}} close, with JSON's white space wherever there may be some.
static void make_parts(enum tool_form form, const json_t *function, struct call_parts *call)
{
    const struct tool_form_text *text = &tool_forms[form];
    json_t *key = json_string(text->arguments);
    call->name = json_dumps(json_object_get(function, "name"), JSON_ENCODE_ANY);
    call->key = json_dumps(key, JSON_ENCODE_ANY);
    call->schema = schema_of(function);
    json_decref(key);
    const struct grammar_part parts[PARTS_PER_CALL] = {
        { .literal = text->open },  { .mark = '{' }, { .literal = "\"name\"" },  { .mark = ':' },
        { .literal = call->name },  { .mark = ',' }, { .literal = call->key },   { .mark = ':' },
        { .schema = call->schema }, { .mark = '}' }, { .literal = text->close },
    };
    for (int i = 0; i < PARTS_PER_CALL; i++)
        add_part(call, parts[i]);
}

static void free_parts(struct call_parts *call)
{
    free(call->name);
    free(call->key);
    json_decref(call->schema);
}

struct grammar *tools_grammar(enum tool_form form, const json_t *tools, const struct tools_choice *choice,
                              struct error *err)
{
    size_t size = json_array_size(tools);
    struct call_parts *calls = memory_new(size, sizeof *calls);
    struct grammar_alternative *alternatives = memory_new(size, sizeof *alternatives);
    struct grammar_parts parts = { .alternatives = alternatives,
                                   .otherwise = choice->otherwise,
                                   .separator = choice->parallel && tool_forms[form].several ? "\n" : NULL };
    for (size_t i = 0; i < size; i++) {
        if (choice->name && strcmp(json_string_value(tool_name(tools, i)), choice->name) != 0)
            continue;
        struct call_parts *call = &calls[parts.count];
        make_parts(form, json_object_get(json_array_get(tools, i), "function"), call);
        alternatives[parts.count++] = (struct grammar_alternative){ call->parts, call->count };
    }
    struct grammar *grammar = NULL;
    if (parts.count)
        grammar = grammar_from_parts(&parts, err);
    else if (choice->name)
        fail(err, "tool_choice names %s, which is not among the tools", choice->name);
    else
        fail(err, "tool_choice asks for a call, but there are no tools");
    while (parts.count--)
        free_parts(&calls[parts.count]);
    free(calls);
    free(alternatives);
    return grammar;
}
