// SPDX-License-Identifier: Apache-2.0
// text/template/methods.c: the methods of strings, which count in code points.
#include "text/template/builtin.h"
#include "text/template/eval.h"
#include "text/template/format.h"
#include "text/template/split.h"
#include "text/template/unicode.h"

static struct value convert(struct call *call, void (*change)(struct strbuf *, struct bytes))
{
    size_t mark = text_mark(call->render);
    if (render_step_characters(call->render, call->self.string.len * 2)) // each is looked up and written
        change(call->render->out, call->self.string);
    return text_take(call->render, mark);
}

static struct value string_capitalize(struct call *call) { return convert(call, unicode_capitalize); }
static struct value string_casefold(struct call *call) { return convert(call, unicode_casefold); }
static struct value string_lower(struct call *call) { return convert(call, unicode_lower); }
static struct value string_swapcase(struct call *call) { return convert(call, unicode_swapcase); }
static struct value string_title(struct call *call) { return convert(call, unicode_title); }
static struct value string_upper(struct call *call) { return convert(call, unicode_upper); }

// True when there is a character and all of them are such.
static struct value all_are(struct call *call, bool (*is)(uint32_t), bool when_empty)
{
    struct bytes text = call->self.string;
    render_step_characters(call->render, text.len);
    if (!text.len)
        return value_bool(when_empty);
    for (size_t at = 0, length; at < text.len; at += length)
        if (!is(unicode_first(rest_of(text, at), &length)))
            return value_bool(false);
    return value_bool(true);
}

static bool is_ascii(uint32_t c) { return c < 0x80; }
static bool is_alnum(uint32_t c) { return unicode_is_alnum(c); }
static struct value string_isalnum(struct call *call) { return all_are(call, is_alnum, false); }
static struct value string_isalpha(struct call *call) { return all_are(call, unicode_is_alpha, false); }
static struct value string_isascii(struct call *call) { return all_are(call, is_ascii, true); }
static struct value string_isdecimal(struct call *call) { return all_are(call, unicode_is_decimal, false); }
static struct value string_isdigit(struct call *call) { return all_are(call, unicode_is_digit, false); }
static struct value string_isnumeric(struct call *call) { return all_are(call, unicode_is_numeric, false); }
static struct value string_isprintable(struct call *call) { return all_are(call, unicode_is_printable, true); }
static struct value string_isspace(struct call *call) { return all_are(call, unicode_is_space, false); }

static struct value string_isidentifier(struct call *call)
{
    size_t length;
    if (call->self.string.len && unicode_is_numeric(unicode_first(call->self.string, &length)))
        return value_bool(false);
    return all_are(call, unicode_is_word, false);
}

// Some character has a case, and none has one that `forbidden` names.
static struct value one_case(struct call *call, bool (*forbidden)(uint32_t))
{
    struct bytes text = call->self.string;
    bool cased = false;
    render_step_characters(call->render, text.len);
    for (size_t at = 0, length; at < text.len; at += length) {
        uint32_t c = unicode_first(rest_of(text, at), &length);
        if (forbidden(c) || unicode_is_title(c))
            return value_bool(false);
        cased |= unicode_is_cased(c);
    }
    return value_bool(cased);
}

static struct value string_islower(struct call *call) { return one_case(call, unicode_is_upper); }
static struct value string_isupper(struct call *call) { return one_case(call, unicode_is_lower); }

static struct value string_istitle(struct call *call)
{
    struct bytes text = call->self.string;
    bool any = false, inside = false;
    render_step_characters(call->render, text.len);
    for (size_t at = 0, length; at < text.len; at += length) {
        uint32_t c = unicode_first(rest_of(text, at), &length);
        bool capital = unicode_is_upper(c) || unicode_is_title(c), small = !capital && unicode_is_lower(c);
        if ((capital && inside) || (small && !inside))
            return value_bool(false);
        inside = capital || small;
        any |= inside;
    }
    return value_bool(any);
}

// The part of the string that arguments 1 and 2 bound, and the index of its start; false when they leave nothing,
// not even an empty string.
static bool window(struct call *call, struct bytes *part, int64_t *start)
{
    struct bytes text = call->self.string;
    *part = text;
    *start = 0;
    if (!call_has(call, 1) && !call_has(call, 2))
        return true;
    render_step_bytes(call->render, text.len * 2);
    int64_t length = (int64_t)unicode_count(text), bound[2] = { 0, length };
    for (int i = 0; i < 2; i++) {
        if (call_has(call, i + 1))
            bound[i] = call_int(call, i + 1, bound[i]);
        bound[i] += bound[i] < 0 ? length : 0;
        bound[i] = bound[i] < 0 ? 0 : bound[i];
    }
    bound[1] = bound[1] > length ? length : bound[1];
    if (bound[0] > bound[1])
        return false;
    size_t from = unicode_offset(text, (size_t)bound[0]);
    *part = rest_of(text, from);
    part->len = unicode_offset(*part, (size_t)(bound[1] - bound[0]));
    *start = bound[0];
    return true;
}

static int64_t find(struct call *call, bool last)
{
    struct bytes text, part = call_string(call, 0, "");
    int64_t start;
    if (!window(call, &text, &start) || !render_step_bytes(call->render, text.len * 2))
        return -1;
    if (!part.len)
        return last ? start + (int64_t)unicode_count(text) : start;
    const char *at = last ? search_last(call->render, text, part) : memmem(text.data, text.len, part.data, part.len);
    return at ? start + (int64_t)unicode_count((struct bytes){ text.data, (size_t)(at - text.data) }) : -1;
}

static struct value string_find(struct call *call) { return value_int(find(call, false)); }
static struct value string_rfind(struct call *call) { return value_int(find(call, true)); }

static struct value found(struct call *call, int64_t index)
{
    return index < 0 ? trouble(call->render, "the string does not contain what index() looks for") : value_int(index);
}

static struct value string_index(struct call *call) { return found(call, find(call, false)); }
static struct value string_rindex(struct call *call) { return found(call, find(call, true)); }

static struct value string_count(struct call *call)
{
    struct bytes text, part = call_string(call, 0, "");
    int64_t start, count = 0;
    if (!window(call, &text, &start) || !render_step_bytes(call->render, text.len))
        return value_int(0);
    if (!part.len)
        return value_int((int64_t)unicode_count(text) + 1);
    const char *at;
    for (; render_step(call->render, 1) && (at = memmem(text.data, text.len, part.data, part.len)); count++)
        text = rest_of(text, (size_t)(at - text.data) + part.len);
    return value_int(count);
}

static bool matches_at(struct bytes text, struct bytes part, bool end)
{
    if (part.len > text.len)
        return false;
    return bytes_equal(part, (struct bytes){ text.data + (end ? text.len - part.len : 0), part.len });
}

static struct value matches(struct call *call, bool end)
{
    struct bytes text;
    int64_t start;
    struct value wanted = call->arg[0];
    if (wanted.type != VALUE_STRING && wanted.type != VALUE_TUPLE)
        return trouble(call->render, "startswith and endswith take strings, not %s", value_kind(wanted));
    if (!window(call, &text, &start))
        return value_bool(false);
    const struct list *choices = wanted.type == VALUE_TUPLE ? wanted.list : &(struct list){ &wanted, 1, 1 };
    for (size_t i = 0; i < choices->count && render_step(call->render, 1); i++) {
        struct value choice = choices->items[i];
        if (choice.type != VALUE_STRING)
            return trouble(call->render, "startswith and endswith take tuples of strings only");
        render_step_bytes(call->render, choice.string.len);
        if (matches_at(text, choice.string, end))
            return value_bool(true);
    }
    return value_bool(false);
}

static struct value string_startswith(struct call *call) { return matches(call, false); }
static struct value string_endswith(struct call *call) { return matches(call, true); }

static struct value string_removeprefix(struct call *call)
{
    struct bytes text = call->self.string, part = call_string(call, 0, "");
    render_step_bytes(call->render, part.len);
    return value_string(matches_at(text, part, false) ? rest_of(text, part.len) : text);
}

static struct value string_removesuffix(struct call *call)
{
    struct bytes text = call->self.string, part = call_string(call, 0, "");
    render_step_bytes(call->render, part.len);
    return value_string(matches_at(text, part, true) ? (struct bytes){ text.data, text.len - part.len } : text);
}

static bool is_one_of(uint32_t c, struct bytes set)
{
    for (size_t at = 0, length; at < set.len; at += length)
        if (unicode_first(rest_of(set, at), &length) == c)
            return true;
    return false;
}

static struct value strip(struct call *call, bool left, bool right)
{
    struct bytes text = call->self.string;
    bool spaces = !call_has(call, 0);
    struct bytes set = spaces ? bytes_of("") : call_string(call, 0, "");
    size_t length, cost = set.len / RENDER_BYTES_PER_STEP + 1;
    while (left && text.len && render_step(call->render, cost)) {
        uint32_t c = unicode_first(text, &length);
        if (spaces ? !unicode_is_space(c) : !is_one_of(c, set))
            break;
        text = rest_of(text, length);
    }
    while (right && text.len && render_step(call->render, cost)) {
        uint32_t c = unicode_last(text, &length);
        if (spaces ? !unicode_is_space(c) : !is_one_of(c, set))
            break;
        text.len -= length;
    }
    return value_string(text);
}

static struct value string_strip(struct call *call) { return strip(call, true, true); }
static struct value string_lstrip(struct call *call) { return strip(call, true, false); }
static struct value string_rstrip(struct call *call) { return strip(call, false, true); }

static struct value string_replace(struct call *call)
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
        text = rest_of(text, (size_t)(at - text.data) + old.len);
        count -= count > 0;
        if (old.len)
            continue;
        size_t length = 0; // an empty string is found before each character, and at the end
        if (!text.len)
            break;
        unicode_first(text, &length);
        text_put(render, (struct bytes){ text.data, length });
        text = rest_of(text, length);
    }
    text_put(render, text);
    return text_take(render, mark);
}

static struct value string_join(struct call *call)
{
    struct render *render = call->render;
    struct iterator *iterator = iterator_of(render, call->arg[0]);
    size_t mark = text_mark(render);
    struct value item;
    for (size_t i = 0; iterator_next(render, iterator, &item); i++) {
        if (call->self.safe)
            item = escape_html(render, item);
        if (item.type != VALUE_STRING)
            return text_drop(render, mark), trouble(render, "join takes strings, not %s", value_kind(item));
        text_put(render, i ? call->self.string : bytes_of(""));
        text_put(render, item.string);
    }
    return text_take(render, mark);
}

static struct value padded(struct call *call, bool centre, bool left)
{
    struct render *render = call->render;
    int64_t width = call_int(call, 0, 0);
    struct bytes fill = call_string(call, 1, " ");
    size_t length = unicode_count(call->self.string), mark = text_mark(render);
    if (unicode_count(fill) != 1)
        return trouble(render, "the fill is one character");
    size_t gap = width > 0 && (uint64_t)width > length ? (size_t)width - length : 0;
    size_t before = centre ? gap / 2 + (gap & (size_t)width & 1) : left ? 0 : gap;
    text_put_fill(render, fill, before);
    text_put(render, call->self.string);
    text_put_fill(render, fill, gap - before);
    return text_take(render, mark);
}

static struct value string_center(struct call *call) { return padded(call, true, false); }
static struct value string_ljust(struct call *call) { return padded(call, false, true); }
static struct value string_rjust(struct call *call) { return padded(call, false, false); }

static struct value string_zfill(struct call *call)
{
    struct render *render = call->render;
    struct bytes text = call->self.string;
    int64_t width = call_int(call, 0, 0);
    size_t length = unicode_count(text), mark = text_mark(render);
    size_t sign = text.len && (text.data[0] == '+' || text.data[0] == '-');
    text_put(render, (struct bytes){ text.data, sign });
    text_put_fill(render, bytes_of("0"), width > 0 && (uint64_t)width > length ? (size_t)width - length : 0);
    text_put(render, rest_of(text, sign));
    return text_take(render, mark);
}

static struct value string_expandtabs(struct call *call)
{
    struct render *render = call->render;
    int64_t size = call_int(call, 0, 8);
    size_t mark = text_mark(render), column = 0;
    struct bytes text = call->self.string;
    render_step_characters(render, text.len * 2);
    for (size_t at = 0, length; at < text.len && !render->failed; at += length) {
        uint32_t c = unicode_first(rest_of(text, at), &length);
        size_t fill = c == '\t' && size > 0 ? (size_t)size - column % (size_t)size : 0;
        text_put_fill(render, bytes_of(" "), fill);
        if (c != '\t')
            text_put(render, (struct bytes){ text.data + at, length });
        column = c == '\n' || c == '\r' ? 0 : column + (c == '\t' ? fill : 1);
    }
    return text_take(render, mark);
}

static struct value string_format(struct call *call) { return format_braces(call->render, call->self, call->all); }

static struct value string_unsupported(struct call *call)
{
    return trouble(call->render, "this method of strings is not supported");
}

static const struct builtin rows[] = {
    { "capitalize", string_capitalize, 0, "" },
    { "casefold", string_casefold, 0, "" },
    { "center", string_center, 1, "/width fill" },
    { "count", string_count, 1, "/part start end" },
    { "encode", string_unsupported, 0, "*" },
    { "endswith", string_endswith, 1, "/part start end" },
    { "expandtabs", string_expandtabs, 0, "tabsize" },
    { "find", string_find, 1, "/part start end" },
    { "format", string_format, 0, "*" },
    { "format_map", string_unsupported, 0, "*" },
    { "index", string_index, 1, "/part start end" },
    { "isalnum", string_isalnum, 0, "" },
    { "isalpha", string_isalpha, 0, "" },
    { "isascii", string_isascii, 0, "" },
    { "isdecimal", string_isdecimal, 0, "" },
    { "isdigit", string_isdigit, 0, "" },
    { "isidentifier", string_isidentifier, 0, "" },
    { "islower", string_islower, 0, "" },
    { "isnumeric", string_isnumeric, 0, "" },
    { "isprintable", string_isprintable, 0, "" },
    { "isspace", string_isspace, 0, "" },
    { "istitle", string_istitle, 0, "" },
    { "isupper", string_isupper, 0, "" },
    { "join", string_join, 1, "/items" },
    { "ljust", string_ljust, 1, "/width fill" },
    { "lower", string_lower, 0, "" },
    { "lstrip", string_lstrip, 0, "/characters" },
    { "maketrans", string_unsupported, 0, "*" },
    { "partition", string_partition, 1, "/separator" },
    { "removeprefix", string_removeprefix, 1, "/prefix" },
    { "removesuffix", string_removesuffix, 1, "/suffix" },
    { "replace", string_replace, 2, "/old new count" },
    { "rfind", string_rfind, 1, "/part start end" },
    { "rindex", string_rindex, 1, "/part start end" },
    { "rjust", string_rjust, 1, "/width fill" },
    { "rpartition", string_rpartition, 1, "/separator" },
    { "rsplit", string_rsplit, 0, "sep maxsplit" },
    { "rstrip", string_rstrip, 0, "/characters" },
    { "split", string_split, 0, "sep maxsplit" },
    { "splitlines", string_splitlines, 0, "keepends" },
    { "startswith", string_startswith, 1, "/part start end" },
    { "strip", string_strip, 0, "/characters" },
    { "swapcase", string_swapcase, 0, "" },
    { "title", string_title, 0, "" },
    { "translate", string_unsupported, 0, "*" },
    { "upper", string_upper, 0, "" },
    { "zfill", string_zfill, 1, "/width" },
};

const struct builtin_table string_methods = { rows, sizeof rows / sizeof *rows };
