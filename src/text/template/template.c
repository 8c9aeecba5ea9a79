// SPDX-License-Identifier: Apache-2.0
// Parsing and rendering of a template, and JSON as template values.
#include "text/template.h"

#include <stdlib.h>

#include "format/json.h"
#include "text/template/eval.h"

struct template *template_parse(struct bytes source, struct error *err)
{
    struct template *template = memory_new(1, sizeof *template);
    struct token *tokens = template_lex(source, &template->arena, err);
    bool parsed = tokens && template_build(template, tokens, err) && template_resolve(template, err);
    free(tokens);
    if (parsed)
        return template;
    template_free(template);
    return NULL;
}

void template_free(struct template *template)
{
    if (!template)
        return;
    arena_free(&template->arena);
    free(template->outside);
    free(template);
}

bool template_reads(const struct template *template, const char *variable)
{
    for (size_t i = 0; i < template->outside_count; i++)
        if (!strcmp(template->outside[i], variable))
            return true;
    return false;
}

static struct value from_json(struct render *render, const json_t *json);

static struct value from_array(struct render *render, const json_t *array)
{
    size_t count = json_array_size(array);
    struct list *list = list_new(render, count);
    for (size_t i = 0; i < count && !render->failed; i++)
        list_add(render, list, from_json(render, json_array_get(array, i)));
    return value_list(list);
}

static struct value from_object(struct render *render, const json_t *object)
{
    struct dict *dict = dict_new(render, json_object_size(object));
    json_t *unconst = (json_t *)object; // jansson's iterators are not const, but reading changes nothing
    for (void *at = json_object_iter(unconst); at && !render->failed; at = json_object_iter_next(unconst, at)) {
        struct value key = value_text(json_object_iter_key(at));
        dict_append(render, dict, key, from_json(render, json_object_iter_value(at)));
    }
    return value_dict(dict);
}

static struct value from_json(struct render *render, const json_t *json)
{
    if (!render_enter(render))
        return value_none();
    struct value value = value_none();
    switch (json_typeof(json)) {
    case JSON_OBJECT: value = from_object(render, json); break;
    case JSON_ARRAY: value = from_array(render, json); break;
    case JSON_STRING: value = value_string(json_bytes(json)); break;
    case JSON_INTEGER: value = value_int(json_integer_value(json)); break;
    case JSON_REAL: value = value_float(json_real_value(json)); break;
    case JSON_TRUE: value = value_bool(true); break;
    case JSON_FALSE: value = value_bool(false); break;
    case JSON_NULL: break;
    }
    render_leave(render);
    return value;
}

// Looks up the names that a template uses without setting them: variables first, then global functions.
static void look_outside(struct render *render, const json_t *variables)
{
    const struct template *template = render->template;
    render->outside = render_room(render, template->outside_count, sizeof *render->outside);
    for (size_t i = 0; render->outside && i < template->outside_count && !render->failed; i++) {
        const json_t *variable = json_object_get(variables, template->outside[i]);
        const struct builtin *global = global_find(bytes_of(template->outside[i]));
        if (variable)
            render->outside[i] = from_json(render, variable);
        else if (global)
            render->outside[i] = (struct value){ .type = VALUE_FUNCTION, .method.builtin = global };
    }
}

bool template_render(const struct template *template, const json_t *variables, time_t now, struct strbuf *out,
                     struct error *err)
{
    struct render render = { .template = template, .line = 1, .err = err, .out = out, .now = now };
    render.out_start = out->len;
    look_outside(&render, variables);
    render.frame = activation_new(&render, NULL, template->slot_count);
    if (!render.failed) {
        scope_enter(&render, &template->scope);
        run_statements(&render, template->body);
    }
    if (render.failed)
        text_drop(&render, render.out_start);
    arena_free(&render.arena);
    return !render.failed;
}
