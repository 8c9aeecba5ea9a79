// SPDX-License-Identifier: Apache-2.0
// Forms of tool calls: which one a chat template asks for, and which one has a name.
#include "text/tools/form.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "text/template/lex.h"

struct bytes form_tag(const char *tag)
{
    struct bytes text = bytes_of(tag ? tag : "");
    while (text.len && *text.data == '\n')
        text = bytes_from(text, 1);
    while (text.len && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == ' '))
        text.len--;
    return text;
}

// ---- in a template ------------------------------------------------------------------------------------------------

// Does this token read the variable? Not an attribute of that name, and not where it is set or a parameter is named.
static bool reads_variable(const struct token *token, const struct token *previous, const char *name)
{
    return token->type == TOKEN_NAME && bytes_equal(token->text, bytes_of(name))
        && !(previous && previous->type == TOKEN_DOT) && token[1].type != TOKEN_ASSIGN;
}

static bool holds_all(struct bytes text, const char *const parts[FORM_SIGNS_MAX])
{
    bool all = parts[0];
    for (int i = 0; i < FORM_SIGNS_MAX && parts[i]; i++)
        all = all && bytes_hold(text, parts[i]);
    return all;
}

const struct tool_form *tools_form_default(void)
{
    const struct tool_form *form = tool_forms;
    while (strcmp(form->name, "hermes") != 0)
        form++;
    return form;
}

static const struct tool_form *find_by_signs(struct bytes text)
{
    for (size_t i = 0; i < tool_form_count; i++)
        if (holds_all(text, tool_forms[i].signs[0]) || holds_all(text, tool_forms[i].signs[1]))
            return &tool_forms[i];
    return tools_form_default();
}

const struct tool_form *tools_form(struct bytes template_source, bool *supports_tools)
{
    struct arena arena = { 0 };
    struct error ignored; // a template that cannot be read has no form of its own
    struct token *tokens = template_lex(template_source, &arena, &ignored);
    struct strbuf text = { 0 };
    *supports_tools = false;
    for (const struct token *token = tokens, *previous = NULL; token && token->type != TOKEN_END; previous = token++) {
        *supports_tools |= reads_variable(token, previous, "tools");
        if (token->type != TOKEN_DATA && token->type != TOKEN_STRING)
            continue;
        strbuf_add(&text, token->text.data, token->text.len);
        strbuf_add_byte(&text, '\0');
    }
    const struct tool_form *form = find_by_signs(strbuf_bytes(&text));
    strbuf_free(&text);
    free(tokens);
    arena_free(&arena);
    return form;
}

// ---- by name ------------------------------------------------------------------------------------------------------

static bool has_name(const struct tool_form *form, struct bytes name)
{
    return bytes_equal(bytes_of(form->name), name) || bytes_is_word(form->aliases, name);
}

struct name_list {
    struct arena arena;
    const char **names;
    size_t count, capacity;
};

static void add_name(struct name_list *list, struct bytes name)
{
    for (size_t i = 0; i < list->count; i++)
        if (bytes_equal(bytes_of(list->names[i]), name))
            return;
    MEMORY_RESERVE(list->names, list->count, list->capacity);
    list->names[list->count++] = arena_text(&list->arena, name.data, name.len);
}

static bool fail_unknown(const char *wanted, struct error *err)
{
    struct name_list list = { 0 };
    struct strbuf all = { 0 };
    for (size_t i = 0; i < tool_form_count; i++) {
        const char *aliases = tool_forms[i].aliases;
        add_name(&list, bytes_of(tool_forms[i].name));
        for (struct bytes name; bytes_next_word(&aliases, &name);)
            add_name(&list, name);
    }
    for (size_t i = 0; i < list.count; i++)
        strbuf_add_format(&all, "%s%s", i ? ", " : "", list.names[i]);
    const char *near = suggest(bytes_of(wanted), list.names, list.count);
    fail(err, "there is no form of tool calls named %.60s%s%s%s; known are %s", wanted, near ? " (did you mean " : "",
         near ? near : "", near ? "?)" : "", strbuf_text(&all));
    strbuf_free(&all);
    free(list.names);
    arena_free(&list.arena);
    return false;
}

const struct tool_form *tools_form_named(const char *name, const struct tool_form *found, struct error *err)
{
    if (found && has_name(found, bytes_of(name)))
        return found; // an alias of several: the one that the template has
    for (int aliases = 0; aliases < 2; aliases++)
        for (size_t i = 0; i < tool_form_count; i++)
            if (aliases ? has_name(&tool_forms[i], bytes_of(name)) : !strcmp(tool_forms[i].name, name))
                return &tool_forms[i];
    fail_unknown(name, err);
    return NULL;
}

const char *tools_form_name(const struct tool_form *form) { return form->name; }

const char *const *tools_form_stops(const struct tool_form *form) { return form->stops; }

bool tools_form_reads_always(const struct tool_form *form) { return form->channels || form->drops[0]; }

bool tools_form_has_short_ids(const struct tool_form *form) { return form->short_id; }

void tools_form_markers(const struct tool_form *form, void (*add)(void *context, struct bytes text), void *context)
{
    const char *const texts[] = { form->open, form->close, form->call, form->parameter, form->quote };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (const char *at = texts[i]; at && *at;) {
            size_t len = strcspn(at, "%\n");
            if (len)
                add(context, (struct bytes){ at, len });
            at += len;
            at += *at == '%' ? 2 : *at == '\n';
        }
    }
    for (int i = 0; i < FORM_DROPS_MAX && form->drops[i]; i++)
        add(context, bytes_of(form->drops[i]));
}
