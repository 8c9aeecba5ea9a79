// SPDX-License-Identifier: Apache-2.0
// text/template/filters_text.c: Jinja filters of strings.
#include "text/template/environment.h"
#include "text/template/unicode.h"

// Calls the string method of that name on str(value).
static struct value by_method(struct call *call, const char *name, size_t count)
{
    while (count && !value_given(call->arg[count - 1]))
        count--;
    struct arguments arguments = { .values = call->arg, .count = count };
    const struct builtin *method = method_find(VALUE_STRING, bytes_of(name));
    return method_call(call->render, method, string_of(call->render, call->self), &arguments);
}

struct value filter_capitalize(struct call *call) { return by_method(call, "capitalize", 0); }
struct value filter_lower(struct call *call) { return by_method(call, "lower", 0); }
struct value filter_upper(struct call *call) { return by_method(call, "upper", 0); }
struct value filter_trim(struct call *call) { return by_method(call, "strip", 1); }

struct value filter_replace(struct call *call)
{
    call->self = string_of(call->render, call->self);
    call->self.safe = false;
    for (int i = 0; i < 2; i++)
        call->arg[i] = string_of(call->render, call->arg[i]);
    if (call->arg[2].type == VALUE_NONE)
        call->arg[2].type = VALUE_MISSING;
    return by_method(call, "replace", 3);
}

struct value filter_string(struct call *call) { return string_of(call->render, call->self); }
struct value filter_safe(struct call *call)
{
    struct value text = string_of(call->render, call->self);
    text.safe = true;
    return text;
}

struct value filter_indent(struct call *call)
{
    struct render *render = call->render;
    struct bytes text = call->self.string, indent;
    if (call->self.type != VALUE_STRING)
        return render_fail_kind(render, "indent takes a string", call->self);
    size_t mark = text_mark(render);
    if (call->arg[0].type == VALUE_STRING) {
        indent = call->arg[0].string;
    } else {
        int64_t width = call_int(call, 0, 4);
        text_put_fill(render, bytes_of(" "), width > 0 ? (size_t)width : 0);
        indent = text_take(render, mark).string;
    }
    text_put(render, text);
    text_put_byte(render, '\n'); // without it, splitting would lose a line end at the end
    struct list *lines = split_lines(render, text_take(render, mark).string, false);
    bool blank = call_truth(call, 2, false);
    text_put(render, call_truth(call, 1, false) ? indent : bytes_of(""));
    for (size_t i = 0; i < lines->count && !render->failed; i++) {
        text_put(render, bytes_of(i ? "\n" : ""));
        text_put(render, i && (blank || lines->items[i].string.len) ? indent : bytes_of(""));
        text_put(render, lines->items[i].string);
    }
    struct value result = text_take(render, mark);
    result.safe = call->self.safe;
    return result;
}

static bool begins_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || unicode_is_space(c);
}

// Words begin after white space, hyphens and opening brackets, which is not what the method title() does.
struct value filter_title(struct call *call)
{
    struct render *render = call->render;
    struct value text = string_of(render, call->self);
    struct bytes rest = text.string;
    size_t mark = text_mark(render);
    render_step_characters(render, rest.len * 2);
    while (rest.len && render_step(render, 1)) {
        size_t first, end = 0, length;
        bool between = begins_word(unicode_first(rest, &first));
        while (end < rest.len && begins_word(unicode_first(bytes_from(rest, end), &length)) == between)
            end += length;
        unicode_upper(render->out, (struct bytes){ rest.data, first });
        unicode_lower(render->out, (struct bytes){ rest.data + first, end - first });
        rest = bytes_from(rest, end);
    }
    return text_take(render, mark);
}
