// SPDX-License-Identifier: Apache-2.0
// Argument binding of functions and macros, and calls.

#include "text/template/eval.h"
#include "text/template/unicode.h"

// Number of the parameter, -1 when none has that name.
static int parameter_index(const char *parameters, struct bytes name)
{
    if (*parameters == '/')
        return -1;
    for (int index = 0; *parameters; index++) {
        size_t length = strcspn(parameters, " ");
        if (bytes_equal((struct bytes){ parameters, length }, name))
            return index;
        parameters += length + (parameters[length] == ' ');
    }
    return -1;
}

static size_t parameter_count(const char *parameters)
{
    size_t count = *parameters != '\0';
    for (; *parameters; parameters++)
        count += *parameters == ' ';
    return count;
}

static bool bind_arguments(struct call *call, const struct builtin *builtin)
{
    const struct arguments *all = call->all;
    size_t count = parameter_count(builtin->parameters);
    if (all->count > count)
        return render_fail(call->render, "%s takes at most %zu arguments, not %zu", builtin->name, count, all->count),
               false;
    for (size_t i = 0; i < all->count; i++)
        call->arg[i] = all->values[i];
    for (size_t i = 0; i < all->keyword_count; i++) {
        struct keyword keyword = all->keywords[i];
        int index = parameter_index(builtin->parameters, keyword.name);
        if (index < 0 || value_given(call->arg[index]))
            return render_fail(call->render, "%s %s argument '%.*s'", builtin->name,
                               index < 0 ? "has no" : "was given twice the", shown_length(keyword.name),
                               keyword.name.data),
                   false;
        call->arg[index] = keyword.value;
    }
    for (int i = 0; i < builtin->required; i++)
        if (!value_given(call->arg[i]))
            return render_fail(call->render, "%s needs %d arguments", builtin->name, builtin->required), false;
    return true;
}

struct value builtin_call(struct render *render, const struct builtin *builtin, struct value self,
                          const struct arguments *arguments)
{
    struct call call = { .render = render, .self = self, .all = arguments, .what = builtin->what };
    if (!render_step(render, 1) || (*builtin->parameters != '*' && !bind_arguments(&call, builtin)))
        return value_none();
    return builtin->run(&call);
}

// Strings that a method makes of a safe string are safe as well (Markup).
static struct value keep_safe(struct value result)
{
    result.safe = result.type == VALUE_STRING;
    if (value_is_list(result))
        for (size_t i = 0; i < result.list->count; i++)
            result.list->items[i].safe = result.list->items[i].type == VALUE_STRING;
    return result;
}

struct value method_call(struct render *render, const struct builtin *method, struct value self,
                         const struct arguments *arguments)
{
    struct value result = builtin_call(render, method, self, arguments);
    return self.type == VALUE_STRING && self.safe ? keep_safe(result) : result;
}

int64_t call_int(struct call *call, int index, int64_t otherwise)
{
    struct value value = call->arg[index];
    if (!value_given(value))
        return otherwise;
    if (!value_is_integral(value))
        return render_fail(call->render, "expected an integer as an argument, found %s", value_kind(value)), otherwise;
    return value_integer(value);
}

bool call_truth(struct call *call, int index, bool otherwise)
{
    return value_given(call->arg[index]) ? value_truth(call->render, call->arg[index]) : otherwise;
}

struct bytes call_string(struct call *call, int index, const char *otherwise)
{
    struct value value = call->arg[index];
    if (!value_given(value))
        return bytes_of(otherwise);
    if (value.type != VALUE_STRING)
        return render_fail(call->render, "expected a string as an argument, found %s", value_kind(value)),
               bytes_of(otherwise);
    return value.string;
}

struct value macro_new(struct render *render, const struct node_function *function)
{
    struct macro *macro = render_new(render, sizeof *macro);
    *macro = (struct macro){ function, render->frame };
    return (struct value){ .type = VALUE_MACRO, .macro = macro };
}

static void bind_parameters(struct render *render, const struct node_function *function, const struct arguments *given,
                            struct activation *frame)
{
    const struct node_parameter *parameter = function->parameters;
    if (given->count > function->parameter_count)
        render_fail(render, "the macro takes at most %zu arguments, not %zu", function->parameter_count, given->count);
    for (size_t i = 0; i < given->count && parameter; i++, parameter = parameter->next)
        frame->slots[parameter->slot] = given->values[i];
    for (size_t i = 0; i < given->keyword_count; i++) {
        struct bytes name = given->keywords[i].name;
        parameter = node_find_parameter(function, name);
        if (parameter && !value_given(frame->slots[parameter->slot]))
            frame->slots[parameter->slot] = given->keywords[i].value;
        else
            render_fail(render, "the macro %s parameter '%.*s'", parameter ? "was given twice the" : "has no",
                        shown_length(name), name.data);
    }
}

// Parameters without an argument take their default, which is evaluated in the macro's scope.
static void fill_defaults(struct render *render, const struct node_function *function)
{
    for (const struct node_parameter *parameter = function->parameters; parameter; parameter = parameter->next)
        if (!value_given(render->frame->slots[parameter->slot])) {
            struct value value = value_undefined(UNDEFINED_PARAMETER, parameter->name);
            if (parameter->otherwise)
                value = eval_expression(render, parameter->otherwise);
            render->frame->slots[parameter->slot] = value;
        }
}

static struct value call_macro(struct render *render, const struct macro *macro, const struct arguments *arguments)
{
    const struct node_function *function = macro->function;
    struct activation *frame = activation_new(render, macro->frame, function->slot_count), *outer = render->frame;
    if (!frame)
        return value_none();
    bind_parameters(render, function, arguments, frame);
    size_t mark = text_mark(render);
    render->frame = frame;
    scope_enter(render, &function->scope);
    fill_defaults(render, function);
    run_statements(render, function->body);
    render->frame = outer;
    return text_take(render, mark);
}

struct value call_value(struct render *render, struct value callee, const struct arguments *arguments)
{
    switch (callee.type) {
    case VALUE_MACRO: return call_macro(render, callee.macro, arguments);
    case VALUE_FUNCTION: return builtin_call(render, callee.method.builtin, value_none(), arguments);
    case VALUE_METHOD: return method_call(render, callee.method.builtin, *callee.method.self, arguments);
    case VALUE_UNDEFINED: return render_fail_undefined(render, callee);
    default: return render_fail(render, "%s cannot be called", value_kind(callee));
    }
}
