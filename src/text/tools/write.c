// SPDX-License-Identifier: Apache-2.0
// text/tools/write.c: calls in a form's text, for prompts that hold earlier calls or an example of one.
#include "format/json.h"
#include "text/tools/form.h"

struct call {
    const struct tool_form *form;
    const json_t *name, *arguments;
    size_t index;
    const char *key; // of the parameter at hand
    const json_t *value;
};

static void add_raw(struct strbuf *out, const json_t *value)
{
    struct bytes text = json_bytes(value);
    if (text.data)
        strbuf_add(out, text.data, text.len);
    else
        json_add(value, out);
}

// ---- values -------------------------------------------------------------------------------------------------------

// Where Python's and Gemma's literals differ from JSON.
struct spelling {
    const char *none, *no, *yes; // words
    const char *comma, *colon;
    const char *quote; // around strings and no keys; NULL: JSON's, around both
};

static void add_literal(struct strbuf *out, const json_t *value, const struct spelling *spelling)
{
    const char *key;
    json_t *item;
    size_t i, count = 0;
    if (json_is_boolean(value) || json_is_null(value)) {
        strbuf_add_text(out, json_is_null(value) ? spelling->none : json_is_true(value) ? spelling->yes : spelling->no);
    } else if (json_is_string(value) && spelling->quote) {
        strbuf_add_text(out, spelling->quote);
        add_raw(out, value);
        strbuf_add_text(out, spelling->quote);
    } else if (json_is_array(value)) {
        strbuf_add_byte(out, '[');
        json_array_foreach (value, i, item) {
            strbuf_add_text(out, i ? spelling->comma : "");
            add_literal(out, item, spelling);
        }
        strbuf_add_byte(out, ']');
    } else if (json_is_object(value)) {
        strbuf_add_byte(out, '{');
        json_object_foreach ((json_t *)value, key, item) {
            strbuf_add_text(out, count++ ? spelling->comma : "");
            if (spelling->quote)
                strbuf_add_text(out, key);
            else
                json_add_string(key, out);
            strbuf_add_text(out, spelling->colon);
            add_literal(out, item, spelling);
        }
        strbuf_add_byte(out, '}');
    } else {
        json_add(value, out);
    }
}

static void add_python(struct strbuf *out, const json_t *value)
{
    add_literal(out, value, &(struct spelling){ "None", "False", "True", ", ", ": ", NULL });
}

// functiongemma quotes values of all types.
static void add_gemma(struct strbuf *out, const json_t *value, const struct tool_form *form)
{
    bool quoted = form->quotes_all && !json_is_string(value);
    strbuf_add_text(out, quoted ? form->quote : "");
    if (quoted)
        json_add(value, out);
    else
        add_literal(out, value, &(struct spelling){ "null", "false", "true", ",", ":", form->quote });
    strbuf_add_text(out, quoted ? form->quote : "");
}

static const char *type_name(const struct call *call)
{
    const json_t *value = call->value;
    if (call->form->types == TYPES_IS_STRING)
        return json_is_string(value) ? "true" : "false";
    return json_is_string(value) ? "string"
        : json_is_number(value)  ? "number"
        : json_is_boolean(value) ? "boolean"
        : json_is_array(value)   ? "array"
        : json_is_null(value)    ? "null"
                                 : "object";
}

// ---- patterns -----------------------------------------------------------------------------------------------------

static void write_pattern(const char *pattern, struct call *call, struct strbuf *out);

static void write_parameters(struct call *call, char slot, struct strbuf *out)
{
    const struct tool_form *form = call->form;
    json_t *value;
    size_t count = 0;
    json_object_foreach ((json_t *)call->arguments, call->key, value) {
        call->value = value;
        if (count++)
            strbuf_add_text(out, slot == 'p' ? "\n" : slot == 'a' ? ", " : ",");
        if (slot == 'p') {
            write_pattern(form->parameter, call, out);
        } else if (slot == 'a') {
            strbuf_add_format(out, "%s=", call->key);
            add_python(out, value);
        } else {
            strbuf_add_format(out, "%s:", call->key);
            add_gemma(out, value, form);
        }
    }
}

static void write_id(const struct call *call, struct strbuf *out)
{
    if (call->form->id_prefix)
        strbuf_add_format(out, "%zu", call->index);
    else
        strbuf_add_format(out, call->form->short_id ? "call%05zu" : "call_%zu", call->index);
}

static void write_object(const struct call *call, struct strbuf *out)
{
    const struct tool_form *form = call->form;
    strbuf_add_byte(out, '{');
    if (!form->name_is_key) {
        strbuf_add_format(out, "\"%s\": ", form_name_key(form));
        json_add(call->name, out);
        strbuf_add_format(out, ", \"%s\"", form_arguments_key(form));
    } else {
        json_add(call->name, out);
    }
    strbuf_add_text(out, ": ");
    json_add(call->arguments, out);
    if (form->id_key) {
        strbuf_add_format(out, ", \"%s\": \"", form->id_key);
        write_id(call, out);
        strbuf_add_byte(out, '"');
    }
    strbuf_add_byte(out, '}');
}

static void write_slot(struct call *call, char slot, struct strbuf *out)
{
    switch (slot) {
    case 'n': add_raw(out, call->name); break;
    case 'i': write_id(call, out); break;
    case 'j': json_add(call->arguments, out); break;
    case 'o': write_object(call, out); break;
    case 'k': strbuf_add_text(out, call->key); break;
    case 'v': add_raw(out, call->value); break;
    case 't': strbuf_add_text(out, type_name(call)); break;
    case 'x': strbuf_add_format(out, "%zu", call->index + 1); break;
    default: write_parameters(call, slot, out);
    }
}

static void write_pattern(const char *pattern, struct call *call, struct strbuf *out)
{
    for (const char *at = pattern; *at; at++) {
        if (*at == '%')
            write_slot(call, *++at, out);
        else
            strbuf_add_byte(out, *at);
    }
}

static void add_tag(struct strbuf *out, const struct tool_form *form, const char *tag)
{
    if (tag && !form->bare)
        strbuf_add_text(out, tag);
}

void tool_form_write(const struct tool_form *form, const json_t *calls, struct strbuf *out)
{
    json_t *value;
    size_t i;
    if (!json_array_size(calls))
        return;
    add_tag(out, form, form->each ? "" : form->open);
    strbuf_add_text(out, form->list ? "[" : "");
    json_array_foreach (calls, i, value) {
        struct call call = { .form = form,
                             .name = json_object_get(value, "name"),
                             .arguments = json_object_get(value, "arguments"),
                             .index = i };
        if (i)
            strbuf_add_text(out, form_between(form));
        add_tag(out, form, form->each ? form->open : "");
        write_pattern(form->call, &call, out);
        add_tag(out, form, form->each ? form->close : "");
    }
    strbuf_add_text(out, form->list ? "]" : "");
    add_tag(out, form, form->each ? "" : form->close);
}
