// SPDX-License-Identifier: Apache-2.0
// Parsing and rendering of a template.
#include "text/template.h"

#include <stdlib.h>

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

// Looks up the names that a template uses without setting them: variables first, then global functions.
static void look_outside(struct render *render, const json_t *variables)
{
    const struct template *template = render->template;
    render->outside = render_room(render, template->outside_count, sizeof *render->outside);
    for (size_t i = 0; render->outside && i < template->outside_count && !render->failed; i++) {
        const json_t *variable = json_object_get(variables, template->outside[i]);
        const struct builtin *global = global_find(bytes_of(template->outside[i]));
        if (variable)
            render->outside[i] = value_from_json(render, variable, false);
        else if (global)
            render->outside[i] = (struct value){ .type = VALUE_FUNCTION, .method.builtin = global };
    }
}

bool template_render(const struct template *template, const json_t *variables, const struct template_limits *limits,
                     struct strbuf *out, struct error *err)
{
    struct render render = { .template = template, .line = 1, .err = err, .out = out, .now = limits->now };
    render.steps_max = limits->steps ? limits->steps : RENDER_STEPS_MAX;
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
