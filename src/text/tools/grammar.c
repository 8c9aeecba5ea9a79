// SPDX-License-Identifier: Apache-2.0
// text/tools/grammar.c: the grammar of forced calls, from the same pattern that the reader follows.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "text/tools/form.h"

enum { PARTS_MAX = 24 };

struct call_parts {
    struct grammar_part parts[PARTS_MAX];
    int count;
    json_t *schema;
    struct grammar_parameters parameters;
    struct arena arena; // literals
};

static void add_literal(struct call_parts *call, const char *text, size_t len)
{
    struct grammar_part *last = call->count ? &call->parts[call->count - 1] : NULL;
    if (!len)
        return;
    if (last && last->literal && !last->is_word)
        last->literal = arena_format(&call->arena, "%s%.*s", last->literal, (int)len, text);
    else
        call->parts[call->count++] = (struct grammar_part){ .literal = arena_text(&call->arena, text, len) };
}

static void add_mark(struct call_parts *call, char mark)
{
    call->parts[call->count++] = (struct grammar_part){ .mark = mark };
}

static const char *quote(struct call_parts *call, const char *text)
{
    struct strbuf quoted = { 0 };
    json_add_string(text, &quoted);
    const char *kept = arena_text(&call->arena, quoted.data, quoted.len);
    strbuf_free(&quoted);
    return kept;
}

// A text that must not be joined with its neighbour, so that alternatives share what is before it.
static void add_word(struct call_parts *call, const char *text)
{
    call->parts[call->count++] = (struct grammar_part){ .literal = text, .is_word = true };
}

// {"name": NAME, "arguments": {...}}, with JSON's white space wherever there may be some.
static void add_object(struct call_parts *call, const struct tool_form *form, const char *name)
{
    add_mark(call, '{');
    if (!form->name_is_key) {
        add_word(call, quote(call, form_name_key(form)));
        add_mark(call, ':');
        add_word(call, quote(call, name));
        add_mark(call, ',');
        add_word(call, quote(call, form_arguments_key(form)));
    } else {
        add_word(call, quote(call, name));
    }
    add_mark(call, ':');
    call->parts[call->count++] = (struct grammar_part){ .schema = call->schema };
    add_mark(call, '}');
}

// ---- parameters ---------------------------------------------------------------------------------------------------

// Returns the text between a parameter's name and its value, with the type written out.
static const char *behind_key(struct call_parts *call, const char *pattern, const char *type)
{
    struct strbuf text = { 0 };
    for (const char *at = strstr(pattern, "%k") + 2; strncmp(at, "%v", 2) != 0; at++) {
        if (*at == '%')
            strbuf_add_text(&text, type);
        at += *at == '%';
        strbuf_add(&text, at, at[-1] != '%');
    }
    const char *kept = arena_text(&call->arena, strbuf_text(&text), text.len);
    strbuf_free(&text);
    return kept;
}

static void describe_tags(struct call_parts *call, const struct tool_form *form, const char *end)
{
    const char *pattern = form->parameter, *close = strstr(pattern, "%v") + 2;
    size_t before = (size_t)(strstr(pattern, "%k") - pattern);
    bool named = form->types == TYPES_NAMED;
    call->parameters = (struct grammar_parameters){
        .before = arena_text(&call->arena, pattern, before),
        .text_behind = behind_key(call, pattern, named ? "string" : "true"),
        .json_behind = behind_key(call, pattern, named ? "object" : "false"),
        .text_close = close,
        .json_close = close,
        .between = "\n",
        .end = end,
    };
    if (form->cdata) {
        call->parameters.text_behind = arena_format(&call->arena, "%s<![CDATA[", call->parameters.text_behind);
        call->parameters.text_close = arena_format(&call->arena, "]]>%s", close);
    }
}

static void describe_gemma(struct call_parts *call, const struct tool_form *form, const char *end)
{
    const char *quoted = arena_format(&call->arena, ":%s", form->quote);
    call->parameters = (struct grammar_parameters){
        .before = "",
        .text_behind = quoted,
        .json_behind = form->quotes_all ? quoted : ":",
        .text_close = form->quote,
        .json_close = form->quotes_all ? form->quote : "",
        .between = ",",
        .end = end,
    };
}

static void add_parameters(struct call_parts *call, const struct tool_form *form, char slot, const char *end)
{
    if (slot == 'p')
        describe_tags(call, form, end);
    else if (slot == 'g')
        describe_gemma(call, form, end);
    else
        call->parameters = (struct grammar_parameters){
            .before = "", .json_behind = "=", .json_close = "", .between = ", ", .end = end, .python = true
        };
    call->parameters.schema = call->schema;
    call->parts[call->count++] = (struct grammar_part){ .parameters = &call->parameters };
}

// ---- calls --------------------------------------------------------------------------------------------------------

// Appends what a slot stands for; returns the place in the pattern behind it.
static const char *add_slot(struct call_parts *call, const struct tool_form *form, const char *name, const char *at)
{
    const char *behind = at + 2;
    const char *id = form->id_prefix ? "[0-9]{1,4}" : form->short_id ? "[A-Za-z0-9]{9}" : "[A-Za-z0-9]{8,24}";
    size_t len;
    switch (at[1]) {
    case 'n': add_word(call, name); return behind;
    case 'i': call->parts[call->count++] = (struct grammar_part){ .pattern = id }; return behind;
    case 'x': call->parts[call->count++] = (struct grammar_part){ .pattern = "[1-9][0-9]?" }; return behind;
    case 'j': call->parts[call->count++] = (struct grammar_part){ .schema = call->schema }; return behind;
    case 'o': add_object(call, form, name); return behind;
    default: // the parameters have their end with them
        len = (*behind == '\n') + form_literal(behind + (*behind == '\n')).len;
        add_parameters(call, form, at[1], arena_text(&call->arena, behind, len));
        return behind + len;
    }
}

static void add_pattern(struct call_parts *call, const struct tool_form *form, const char *name)
{
    for (const char *at = form->call; *at;) {
        size_t len = strcspn(at, "%");
        add_literal(call, at, len);
        at += len;
        if (*at)
            at = add_slot(call, form, name, at);
    }
}

// Line breaks beside an object are white space of JSON, which its brackets bring.
static void add_tag(struct call_parts *call, const struct tool_form *form, const char *tag)
{
    bool trims = !strcmp(form->call, "%o");
    struct bytes text = trims ? form_tag(tag) : bytes_of(tag ? tag : "");
    add_literal(call, text.data, text.len);
}

static void make_parts(const struct tool_form *form, const json_t *tools, size_t index, struct call_parts *call)
{
    bool strict;
    const char *name = json_string_value(tool_name(tools, index));
    call->schema = tools_schema(tools, bytes_of(name), &strict);
    if (form->each)
        add_tag(call, form, form->open);
    add_pattern(call, form, name);
    if (form->each)
        add_tag(call, form, form->close);
}

static void free_parts(struct call_parts *call)
{
    json_decref(call->schema);
    arena_free(&call->arena);
}

struct grammar *tools_grammar(const struct tool_form *form, const json_t *tools, const struct tools_choice *choice,
                              struct error *err)
{
    size_t size = json_array_size(tools);
    bool around = !form->each && !form->bare;
    struct call_parts *calls = memory_new(size, sizeof *calls);
    struct grammar_alternative *alternatives = memory_new(size, sizeof *alternatives);
    struct arena arena = { 0 };
    struct grammar_parts parts = {
        .alternatives = alternatives,
        .otherwise = choice->otherwise,
        .before = arena_format(&arena, "%s%s", around && form->open ? form->open : "", form->list ? "[" : ""),
        .behind = arena_format(&arena, "%s%s", form->list ? "]" : "", around && form->close ? form->close : ""),
        .separator = choice->parallel && !form->single ? form_between(form) : NULL,
    };
    for (size_t i = 0; i < size; i++) {
        if (choice->name && strcmp(json_string_value(tool_name(tools, i)), choice->name) != 0)
            continue;
        struct call_parts *call = &calls[parts.count];
        make_parts(form, tools, i, call);
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
    arena_free(&arena);
    free(calls);
    free(alternatives);
    return grammar;
}
