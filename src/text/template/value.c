// SPDX-License-Identifier: Apache-2.0
// Truth, equality, order and lists of template values, as in Python.
#include "text/template/value.h"

#include <assert.h>
#include <math.h>

#include "base/utf8.h"
#include "text/template/iterate.h"
#include "text/template/unicode.h"

const char *value_kind(struct value value)
{
    static const char *const kinds[VALUE_TYPE_COUNT] = {
        [VALUE_MISSING] = "nothing",
        [VALUE_UNDEFINED] = "an undefined value",
        [VALUE_NONE] = "none",
        [VALUE_BOOL] = "a boolean",
        [VALUE_INT] = "an integer",
        [VALUE_FLOAT] = "a float",
        [VALUE_STRING] = "a string",
        [VALUE_LIST] = "a list",
        [VALUE_TUPLE] = "a tuple",
        [VALUE_DICT] = "a dict",
        [VALUE_VIEW] = "a view of a dict",
        [VALUE_RANGE] = "a range",
        [VALUE_ITERATOR] = "an iterator",
        [VALUE_NAMESPACE] = "a namespace",
        [VALUE_MACRO] = "a macro",
        [VALUE_LOOP] = "a loop",
        [VALUE_FUNCTION] = "a function",
        [VALUE_METHOD] = "a method",
    };
    return kinds[value.type];
}

bool value_length(struct render *render, struct value value, size_t *length)
{
    switch (value.type) {
    case VALUE_UNDEFINED: return *length = 0, true;
    case VALUE_STRING: render_step_bytes(render, value.string.len); return *length = utf8_count(value.string), true;
    case VALUE_LIST:
    case VALUE_TUPLE: return *length = value.list->count, true;
    case VALUE_DICT:
    case VALUE_VIEW: return *length = value.dict->count, true;
    case VALUE_RANGE: return *length = value.range->count, true;
    default: return false;
    }
}

bool value_truth(struct render *render, struct value value)
{
    switch (value.type) {
    case VALUE_MISSING:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return value.truth;
    case VALUE_INT: return value.integer != 0;
    case VALUE_FLOAT: return value.number != 0;
    case VALUE_STRING: return value.string.len != 0;
    default: {
        size_t length;
        return !value_length(render, value, &length) || length != 0;
    }
    }
}

bool value_is_hashable(struct render *render, struct value value)
{
    if (value.type != VALUE_TUPLE)
        return value.type != VALUE_LIST && value.type != VALUE_DICT;
    if (!render_enter(render))
        return false;
    bool hashable = true;
    for (size_t i = 0; i < value.list->count && hashable; i++)
        hashable = render_step(render, 1) && value_is_hashable(render, value.list->items[i]);
    render_leave(render);
    return hashable;
}

bool value_same(struct value a, struct value b)
{
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case VALUE_NONE: return true;
    case VALUE_BOOL: return a.truth == b.truth;
    case VALUE_INT: return a.integer == b.integer;
    case VALUE_FLOAT: return a.number == b.number;
    case VALUE_STRING: return bytes_equal(a.string, b.string) && a.safe == b.safe;
    case VALUE_METHOD:
    case VALUE_FUNCTION: return a.method.builtin == b.method.builtin && a.method.self == b.method.self;
    case VALUE_UNDEFINED: return false;
    default: return a.list == b.list; // whichever pointer it is
    }
}

static bool lists_equal(struct render *render, const struct list *a, const struct list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!value_equal(render, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool dicts_equal(struct render *render, struct dict *a, struct dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        struct value *other = dict_find(render, b, a->entries[i].key);
        if (!other || !value_equal(render, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool ranges_equal(const struct range *a, const struct range *b)
{
    return a->count == b->count && (a->count == 0 || a->start == b->start) && (a->count < 2 || a->step == b->step);
}

// Exact even where the integer has no double of its own.
static enum order order_int_float(int64_t a, double b)
{
    if (isnan(b))
        return ORDER_NONE;
    if (b >= 0x1p63)
        return ORDER_LESS;
    if (b < -0x1p63)
        return ORDER_GREATER;
    int64_t whole = (int64_t)b;
    if (a != whole)
        return a < whole ? ORDER_LESS : ORDER_GREATER;
    double rest = b - (double)whole;
    return rest > 0 ? ORDER_LESS : rest < 0 ? ORDER_GREATER : ORDER_EQUAL;
}

static enum order order_numbers(struct value a, struct value b)
{
    if (a.type == VALUE_FLOAT && b.type == VALUE_FLOAT) {
        if (isnan(a.number) || isnan(b.number))
            return ORDER_NONE;
        return a.number < b.number ? ORDER_LESS : a.number > b.number ? ORDER_GREATER : ORDER_EQUAL;
    }
    if (b.type == VALUE_FLOAT)
        return order_int_float(value_integer(a), b.number);
    if (a.type == VALUE_FLOAT) {
        enum order order = order_int_float(value_integer(b), a.number);
        return order == ORDER_NONE ? ORDER_NONE : (enum order) - order;
    }
    int64_t x = value_integer(a), y = value_integer(b);
    return x < y ? ORDER_LESS : x > y ? ORDER_GREATER : ORDER_EQUAL;
}

static bool equal_within(struct render *render, struct value a, struct value b)
{
    switch (a.type) {
    case VALUE_UNDEFINED: return true;
    case VALUE_STRING:
        render_step_bytes(render, a.string.len == b.string.len ? a.string.len : 0);
        return bytes_equal(a.string, b.string);
    case VALUE_LIST:
    case VALUE_TUPLE: return lists_equal(render, a.list, b.list);
    case VALUE_DICT: return dicts_equal(render, a.dict, b.dict);
    case VALUE_RANGE: return ranges_equal(a.range, b.range);
    default: return value_same(a, b);
    }
}

bool value_equal(struct render *render, struct value a, struct value b)
{
    if (!render_step(render, 1))
        return false;
    if (value_is_number(a) && value_is_number(b))
        return order_numbers(a, b) == ORDER_EQUAL;
    if (a.type != b.type || !render_enter(render))
        return false;
    bool equal = equal_within(render, a, b);
    render_leave(render);
    return equal;
}

static enum order order_strings(struct render *render, struct bytes a, struct bytes b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    render_step_bytes(render, common);
    int order = common ? memcmp(a.data, b.data, common) : 0; // UTF-8 sorts as its code points do
    if (order)
        return order < 0 ? ORDER_LESS : ORDER_GREATER;
    return a.len < b.len ? ORDER_LESS : a.len > b.len ? ORDER_GREATER : ORDER_EQUAL;
}

static enum order order_lists(struct render *render, const struct list *a, const struct list *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!value_equal(render, a->items[i], b->items[i]))
            return value_order(render, a->items[i], b->items[i]);
    return a->count < b->count ? ORDER_LESS : a->count > b->count ? ORDER_GREATER : ORDER_EQUAL;
}

enum order value_order(struct render *render, struct value a, struct value b)
{
    if (!render_step(render, 1))
        return ORDER_NONE;
    if (value_is_number(a) && value_is_number(b))
        return order_numbers(a, b);
    if (!render_enter(render))
        return ORDER_NONE;
    enum order order = ORDER_NONE;
    if (a.type == VALUE_STRING && b.type == VALUE_STRING)
        order = order_strings(render, a.string, b.string);
    else if (a.type == b.type && value_is_list(a))
        order = order_lists(render, a.list, b.list);
    else if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED)
        render_fail_undefined(render, a.type == VALUE_UNDEFINED ? a : b);
    else
        render_fail(render, "%s and %s have no order", value_kind(a), value_kind(b));
    render_leave(render);
    return order;
}

struct list *list_new(struct render *render, size_t capacity)
{
    struct list *list = render_new(render, sizeof *list);
    if (capacity && (list->items = render_room(render, capacity, sizeof *list->items)))
        list->capacity = capacity;
    return list;
}

void list_add(struct render *render, struct list *list, struct value item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        struct value *items = render_room(render, capacity, sizeof *items);
        if (!items)
            return;
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

struct list *list_from(struct render *render, struct value iterable)
{
    size_t expected = 0;
    if (iterable.type != VALUE_STRING)
        value_length(render, iterable, &expected);
    struct list *list = list_new(render, expected);
    struct iterator *iterator = iterator_of(render, iterable);
    struct value item;
    while (iterator_next(render, iterator, &item))
        list_add(render, list, item);
    return list;
}

struct value value_pair(struct render *render, struct value first, struct value second)
{
    struct list *pair = list_new(render, 2);
    list_add(render, pair, first);
    list_add(render, pair, second);
    return value_tuple(pair);
}

// Merges the sorted halves [from, middle) and [middle, to) of `order`, a list of item numbers.
static void merge(struct render *render, const struct list *keys, uint32_t *order, uint32_t *spare, size_t from,
                  size_t middle, size_t to, bool reverse)
{
    size_t left = from, right = middle;
    for (size_t i = from; i < to; i++) {
        bool take_right = left == middle;
        if (left < middle && right < to) {
            struct value a = keys->items[order[left]], b = keys->items[order[right]];
            take_right = value_order(render, reverse ? a : b, reverse ? b : a) == ORDER_LESS;
        }
        spare[i] = take_right ? order[right++] : order[left++];
    }
    memcpy(order + from, spare + from, (to - from) * sizeof *order);
}

void list_sort(struct render *render, struct list *items, const struct list *keys, bool reverse)
{
    size_t count = items->count;
    uint32_t *order = render_room(render, count, 2 * sizeof *order);
    struct value *sorted = render_room(render, count, sizeof *sorted);
    if (!order || !sorted || keys->count != count) // the last only after an error
        return;
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t width = 1; width < count && !render->failed; width *= 2)
        for (size_t from = 0; from + width < count; from += 2 * width) {
            size_t to = from + 2 * width < count ? from + 2 * width : count;
            merge(render, keys, order, order + count, from, from + width, to, reverse);
        }
    for (size_t i = 0; i < count; i++)
        sorted[i] = items->items[order[i]];
    items->items = sorted;
    items->capacity = count;
}

struct value range_at(const struct range *range, size_t index)
{
    return value_int(range->start + (int64_t)index * range->step);
}
