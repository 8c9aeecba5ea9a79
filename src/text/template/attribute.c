// SPDX-License-Identifier: Apache-2.0
// text/template/attribute.c: a.b, a["b"] and a[1:2], with Python's rules. A dot finds a method first and a key then,
// brackets the other way round. A missing attribute is undefined; an attribute of an undefined value is an error.
#include "text/template/eval.h"
#include "text/template/unicode.h"

static struct value undefined_in(struct value of, enum undefined_reason reason, struct bytes name)
{
    struct value value = value_undefined(reason, name);
    value.owner = of.type;
    return value;
}

static struct value method(struct render *render, struct value of, struct bytes name)
{
    const struct builtin *builtin = method_find(of.type, name);
    if (!builtin)
        return value_missing();
    if (!builtin->run)
        return undefined_in(of, UNDEFINED_FORBIDDEN, name);
    struct value *self = render_new(render, sizeof *self);
    *self = of;
    return (struct value){ .type = VALUE_METHOD, .method = { builtin, self } };
}

static struct value loop_attribute(struct render *render, struct loop *loop, struct bytes name)
{
    static const char words[][10] = { "index", "index0", "revindex", "revindex0", "first",
                                      "last",  "length", "previtem", "nextitem" };
    size_t word = 0;
    while (word < sizeof words / sizeof *words && !bytes_equal(name, bytes_of(words[word])))
        word++;
    int64_t index = (int64_t)loop->index;
    switch (word) {
    case 0: return value_int(index);
    case 1: return value_int(index - 1);
    case 2: return value_int((int64_t)loop_length(render, loop) - index + 1);
    case 3: return value_int((int64_t)loop_length(render, loop) - index);
    case 4: return value_bool(index == 1);
    case 5: return value_bool(!loop_peek(render, loop));
    case 6: return value_int((int64_t)loop_length(render, loop));
    case 7: return index > 1 ? loop->before : value_undefined(UNDEFINED_NO_ITEM, name);
    case 8: return loop_peek(render, loop) ? loop->after : value_undefined(UNDEFINED_NO_ITEM, name);
    default: return value_missing();
    }
}

// Python's getattr; missing when there is none.
static struct value own_attribute(struct render *render, struct value of, struct bytes name)
{
    if (of.type == VALUE_UNDEFINED)
        return render_fail_undefined(render, of);
    if (of.type == VALUE_NAMESPACE) {
        struct value *attribute = dict_find_name(render, of.dict, name);
        return attribute ? *attribute : value_missing();
    }
    struct value value = of.type == VALUE_LOOP ? loop_attribute(render, of.loop, name) : value_missing();
    return value_given(value) ? value : method(render, of, name);
}

// The first and the last characters of a long string are found without counting the others.
static struct value character_at(struct render *render, struct value of, int64_t index)
{
    struct bytes text = of.string;
    size_t length = 0;
    if (index >= 0)
        text = bytes_from(text, unicode_offset(text, (size_t)index));
    for (; index < -1 && text.len && render_step(render, 1); index++) {
        unicode_last(text, &length);
        text.len -= length;
    }
    if (!text.len)
        return value_missing();
    if (index < 0) {
        unicode_last(text, &length);
        text = bytes_from(text, text.len - length);
    }
    unicode_first(text, &text.len);
    render_step_bytes(render, (size_t)(text.data - of.string.data));
    struct value character = value_string(text);
    character.safe = of.safe;
    return character;
}

// Python's __getitem__; missing when there is none.
static struct value own_item(struct render *render, struct value of, struct value key)
{
    if (of.type == VALUE_DICT) {
        struct value *found = value_is_hashable(render, key) ? dict_find(render, of.dict, key) : NULL;
        return found ? *found : value_missing();
    }
    size_t length;
    if (!value_is_integral(key) || of.type == VALUE_VIEW)
        return value_missing();
    if (of.type == VALUE_STRING)
        return character_at(render, of, value_integer(key));
    if (!value_length(render, of, &length))
        return value_missing();
    int64_t index = value_integer(key);
    index += index < 0 ? (int64_t)length : 0;
    if (index < 0 || (uint64_t)index >= length)
        return value_missing();
    return of.type == VALUE_RANGE ? range_at(of.range, (size_t)index) : of.list->items[index];
}

struct value attribute_get(struct render *render, struct value of, struct bytes name)
{
    struct value value = own_attribute(render, of, name);
    if (!value_given(value))
        value = own_item(render, of, value_string(name));
    return value_given(value) ? value : undefined_in(of, UNDEFINED_ATTRIBUTE, name);
}

struct value attribute_item(struct render *render, struct value of, struct value key)
{
    if (of.type == VALUE_UNDEFINED)
        return render_fail_undefined(render, of);
    struct value value = own_item(render, of, key);
    if (value_given(value))
        return value;
    if (key.type != VALUE_STRING)
        return undefined_in(of, UNDEFINED_ELEMENT, bytes_of(""));
    value = own_attribute(render, of, key.string);
    return value_given(value) ? value : undefined_in(of, UNDEFINED_ATTRIBUTE, key.string);
}

// A bound of a slice, counted from the end when negative, kept within [low, high].
static int64_t slice_bound(struct render *render, struct value bound, int64_t length, int64_t low, int64_t high,
                           int64_t otherwise)
{
    if (bound.type == VALUE_NONE)
        return otherwise;
    if (!value_is_integral(bound))
        return render_fail(render, "a slice goes by integers, not by %s", value_kind(bound)), otherwise;
    int64_t index = value_integer(bound);
    index += index < 0 ? length : 0;
    return index < low ? low : index > high ? high : index;
}

static struct value slice_string(struct render *render, struct value of, int64_t start, int64_t step, int64_t count)
{
    struct value part;
    if (step == 1) {
        size_t from = unicode_offset(of.string, (size_t)start);
        struct bytes rest = bytes_from(of.string, from);
        rest.len = unicode_offset(rest, (size_t)count);
        part = value_string(rest);
    } else {
        struct list *characters = list_from(render, of);
        size_t mark = text_mark(render);
        for (int64_t i = 0; i < count && !render->failed; i++)
            text_put(render, characters->items[start + i * step].string);
        part = text_take(render, mark);
    }
    part.safe = of.safe;
    return part;
}

static struct value slice_list(struct render *render, struct value of, int64_t start, int64_t step, int64_t count)
{
    struct list *part = list_new(render, (size_t)count);
    for (int64_t i = 0; i < count && !render->failed; i++)
        list_add(render, part, of.list->items[start + i * step]);
    return of.type == VALUE_LIST ? value_list(part) : value_tuple(part);
}

static struct value slice_range(struct render *render, const struct range *of, int64_t start, int64_t step,
                                int64_t count, int64_t stop)
{
    uint64_t base = (uint64_t)of->start, pace = (uint64_t)of->step; // what is past the last item may wrap around
    struct range *part = render_new(render, sizeof *part);
    *part = (struct range){
        .start = (int64_t)(base + (uint64_t)start * pace),
        .step = (int64_t)(pace * (uint64_t)step),
        .count = (size_t)count,
        .stop = (int64_t)(base + (uint64_t)stop * pace),
    };
    return (struct value){ .type = VALUE_RANGE, .range = part };
}

struct value attribute_slice(struct render *render, struct value of, struct value start, struct value stop,
                             struct value step)
{
    size_t length;
    if (of.type == VALUE_UNDEFINED)
        return render_fail_undefined(render, of);
    if (!value_is_list(of) && of.type != VALUE_STRING && of.type != VALUE_RANGE)
        return render_fail(render, "%s cannot be sliced", value_kind(of));
    value_length(render, of, &length);
    int64_t end = (int64_t)length, stride = 1;
    if (step.type != VALUE_NONE)
        stride = slice_bound(render, step, 0, -end - 1, end + 1, 1); // a longer stride takes no more items
    if (stride == 0)
        return render_fail(render, "the step of a slice cannot be zero");
    bool back = stride < 0;
    int64_t low = back ? -1 : 0, high = back ? end - 1 : end;
    int64_t from = slice_bound(render, start, end, low, high, back ? high : low);
    int64_t to = slice_bound(render, stop, end, low, high, back ? low : high);
    int64_t span = back ? from - to : to - from, pace = back ? -stride : stride;
    int64_t count = span > 0 ? (span - 1) / pace + 1 : 0;
    if (render->failed)
        return value_none();
    if (of.type == VALUE_STRING)
        return slice_string(render, of, from, stride, count);
    if (of.type == VALUE_RANGE)
        return slice_range(render, of.range, from, stride, count, to);
    return slice_list(render, of, from, stride, count);
}

static bool all_digits(struct bytes text)
{
    enum { DIGITS_MAX = 18 }; // more would not fit 64 bits, nor any list
    for (size_t i = 0; i < text.len && i < DIGITS_MAX; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return text.len && text.len <= DIGITS_MAX;
}

static struct value path_part(struct bytes part)
{
    int64_t index = 0;
    if (!all_digits(part))
        return value_string(part);
    for (size_t i = 0; i < part.len; i++)
        index = index * 10 + (part.data[i] - '0');
    return value_int(index);
}

struct value attribute_path(struct render *render, struct value item, struct value path, struct value otherwise)
{
    if (path.type == VALUE_NONE)
        return item;
    bool has_default = value_given(otherwise) && otherwise.type != VALUE_NONE;
    struct bytes rest = path.type == VALUE_STRING ? path.string : bytes_of("");
    render_step_bytes(render, rest.len);
    for (bool more = true; more && !render->failed;) {
        const char *dot = rest.len ? memchr(rest.data, '.', rest.len) : NULL;
        struct bytes part = { rest.data, dot ? (size_t)(dot - rest.data) : rest.len };
        item = attribute_item(render, item, path.type == VALUE_STRING ? path_part(part) : path);
        if (has_default && item.type == VALUE_UNDEFINED)
            item = otherwise;
        more = dot;
        if (more)
            rest = (struct bytes){ dot + 1, rest.len - part.len - 1 };
    }
    return item;
}
