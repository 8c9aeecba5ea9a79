// SPDX-License-Identifier: Apache-2.0
// text/template/string_methods.c: methods of Python's str.
#include "base/utf8.h"
#include "text/template/environment.h"
#include "text/template/print.h"
#include "text/template/unicode.h"

struct value string_convert(struct call *call)
{
    static void (*const changes[])(struct strbuf *, struct bytes) = {
        [CONVERT_CAPITALIZE] = unicode_capitalize,
        [CONVERT_LOWER] = unicode_lower,
        [CONVERT_TITLE] = unicode_title,
        [CONVERT_UPPER] = unicode_upper,
    };
    size_t mark = text_mark(call->render);
    if (render_step_characters(call->render, call->self.string.len * 2)) // each is looked up and written
        changes[call->what](call->render->out, call->self.string);
    return text_take(call->render, mark);
}

struct value string_matches(struct call *call)
{
    struct value wanted = call->arg[0];
    if (wanted.type != VALUE_STRING && wanted.type != VALUE_TUPLE)
        return render_fail(call->render, "startswith and endswith take strings, not %s", value_kind(wanted));
    const struct list *choices = wanted.type == VALUE_TUPLE ? wanted.list : &(struct list){ &wanted, 1, 1 };
    for (size_t i = 0; i < choices->count && render_step(call->render, 1); i++) {
        struct bytes part = choices->items[i].string;
        if (choices->items[i].type != VALUE_STRING)
            return render_fail(call->render, "startswith and endswith take tuples of strings only");
        render_step_bytes(call->render, part.len);
        if (call->what == AT_END ? bytes_end_with(call->self.string, part) : bytes_start_with(call->self.string, part))
            return value_bool(true);
    }
    return value_bool(false);
}

struct value string_remove(struct call *call)
{
    struct bytes text = call->self.string, part = call_string(call, 0, "");
    render_step_bytes(call->render, part.len);
    if (call->what == AT_END)
        text.len -= bytes_end_with(text, part) ? part.len : 0;
    else if (bytes_start_with(text, part))
        text = bytes_from(text, part.len);
    return value_string(text);
}

static bool is_one_of(uint32_t c, struct bytes set)
{
    for (size_t at = 0, length; at < set.len; at += length)
        if (unicode_first(bytes_from(set, at), &length) == c)
            return true;
    return false;
}

struct value string_strip(struct call *call)
{
    bool left = call->what & AT_START, right = call->what & AT_END;
    struct bytes text = call->self.string;
    bool spaces = !call_has(call, 0);
    struct bytes set = spaces ? bytes_of("") : call_string(call, 0, "");
    size_t length, cost = set.len / RENDER_BYTES_PER_STEP + 1;
    while (left && text.len && render_step(call->render, cost)) {
        uint32_t c = unicode_first(text, &length);
        if (spaces ? !unicode_is_space(c) : !is_one_of(c, set))
            break;
        text = bytes_from(text, length);
    }
    while (right && text.len && render_step(call->render, cost)) {
        uint32_t c = unicode_last(text, &length);
        if (spaces ? !unicode_is_space(c) : !is_one_of(c, set))
            break;
        text.len -= length;
    }
    return value_string(text);
}

struct value string_replace(struct call *call)
{
    struct render *render = call->render;
    struct bytes text = call->self.string, old = call_string(call, 0, "");
    struct value new = call->arg[1];
    int64_t count = call_int(call, 2, -1);
    if (call->self.safe)
        new = escape_html(render, new);
    else
        call_string(call, 1, "");
    size_t mark = text_mark(render);
    while (count != 0 && text.len >= old.len && render_step(render, 1)) {
        const char *at = memmem(text.data, text.len, old.data, old.len);
        if (!at)
            break;
        text_put(render, (struct bytes){ text.data, (size_t)(at - text.data) });
        text_put(render, new.string);
        text = bytes_from(text, (size_t)(at - text.data) + old.len);
        count -= count > 0;
        if (old.len)
            continue;
        size_t length = 0; // an empty string is found before each character, and at the end
        if (!text.len)
            break;
        unicode_first(text, &length);
        text_put(render, (struct bytes){ text.data, length });
        text = bytes_from(text, length);
    }
    text_put(render, text);
    return text_take(render, mark);
}

struct value string_join(struct call *call)
{
    struct render *render = call->render;
    struct iterator *iterator = iterator_of(render, call->arg[0]);
    size_t mark = text_mark(render);
    struct value item;
    for (size_t i = 0; iterator_next(render, iterator, &item); i++) {
        if (call->self.safe)
            item = escape_html(render, item);
        if (item.type != VALUE_STRING)
            return text_drop(render, mark), render_fail(render, "join takes strings, not %s", value_kind(item));
        text_put(render, i ? call->self.string : bytes_of(""));
        text_put(render, item.string);
    }
    return text_take(render, mark);
}

// Index of the first or the last place of a string, -1 when it is nowhere.
struct value string_find(struct call *call)
{
    bool last = call->what == AT_END;
    struct bytes text = call->self.string, part = call_string(call, 0, "");
    if (!render_step_bytes(call->render, text.len * 2))
        return value_none();
    const char *at = last ? search_last(call->render, text, part) : memmem(text.data, text.len, part.data, part.len);
    if (!at)
        return value_int(-1);
    return value_int((int64_t)utf8_count((struct bytes){ text.data, (size_t)(at - text.data) }));
}

// The value of a field of format(): "" is the next argument, a number counts them, a name is that of a keyword.
static struct value format_argument(struct call *call, struct bytes field, size_t *automatic)
{
    const struct arguments *all = call->all;
    size_t index = field.len ? 0 : (*automatic)++;
    bool number = true;
    for (size_t i = 0; i < field.len && number; i++) {
        number = field.data[i] >= '0' && field.data[i] <= '9';
        index = index > all->count ? index : index * 10 + (size_t)(field.data[i] - '0');
    }
    if (number && index < all->count)
        return all->values[index];
    for (size_t i = 0; i < all->keyword_count && render_step(call->render, 1); i++)
        if (bytes_equal(all->keywords[i].name, field))
            return all->keywords[i].value;
    return render_fail(call->render, "format() has no value for '{%.*s}'; it takes {}, {0} and {name} alone",
                       shown_length(field), field.data);
}

struct value string_format(struct call *call)
{
    struct render *render = call->render;
    struct bytes rest = call->self.string;
    size_t mark = text_mark(render), automatic = 0;
    for (size_t plain; rest.len && render_step(render, 1); rest = bytes_from(rest, plain)) {
        for (plain = 0; plain < rest.len && rest.data[plain] != '{' && rest.data[plain] != '}';)
            plain++;
        text_put(render, (struct bytes){ rest.data, plain });
        rest = bytes_from(rest, plain);
        plain = 0;
        if (!rest.len)
            break;
        const char *close = memchr(rest.data, '}', rest.len);
        if (rest.len > 1 && rest.data[1] == rest.data[0]) { // {{ and }} are braces
            text_put_byte(render, rest.data[0]);
            plain = 2;
        } else if (close && rest.data[0] == '{') {
            plain = (size_t)(close - rest.data) + 1;
            struct value value = format_argument(call, (struct bytes){ rest.data + 1, plain - 2 }, &automatic);
            print_value(render, call->self.safe ? escape_html(render, value) : value);
        } else {
            render_fail(render, "a format has a single '%c'", rest.data[0]);
        }
    }
    return text_take(render, mark);
}
