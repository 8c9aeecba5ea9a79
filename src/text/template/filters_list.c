// SPDX-License-Identifier: Apache-2.0
// text/template/filters_list.c: Jinja filters of whole sequences: sort, join, min, sum.
#include "text/template/environment.h"
#include "text/template/eval.h"
#include "text/template/print.h"

// Texts are compared without regard to case unless asked otherwise.
static struct value sort_key(struct render *render, struct value value, bool case_sensitive)
{
    if (case_sensitive || value.type != VALUE_STRING)
        return value;
    return builtin_call(render, method_find(VALUE_STRING, bytes_of("lower")), value, &(struct arguments){ 0 });
}

struct value filter_list(struct call *call) { return value_list(list_from(call->render, call->self)); }

struct value filter_first(struct call *call)
{
    struct value item;
    struct iterator *iterator = iterator_of(call->render, call->self);
    return iterator_next(call->render, iterator, &item) ? item : value_undefined(UNDEFINED_EMPTY, bytes_of(""));
}

struct value filter_last(struct call *call)
{
    const struct list *list = list_from(call->render, call->self);
    return list->count ? list->items[list->count - 1] : value_undefined(UNDEFINED_EMPTY, bytes_of(""));
}

struct value filter_reverse(struct call *call)
{
    struct render *render = call->render;
    if (call->self.type == VALUE_STRING)
        return attribute_slice(render, call->self, value_none(), value_none(), value_int(-1));
    struct list *list = list_from(render, call->self), *reversed = list_new(render, list->count);
    for (size_t i = list->count; i > 0; i--)
        list_add(render, reversed, list->items[i - 1]);
    return value_iterator(iterator_of(render, value_list(reversed)));
}

struct value filter_join(struct call *call)
{
    struct render *render = call->render;
    struct value separator = value_given(call->arg[0]) ? string_of(render, call->arg[0]) : value_text(""), item;
    struct iterator *iterator = iterator_of(render, call->self);
    size_t mark = text_mark(render);
    for (size_t i = 0; iterator_next(render, iterator, &item); i++) {
        if (call_has(call, 1))
            item = attribute_path(render, item, call->arg[1], value_none());
        text_put(render, i ? separator.string : bytes_of(""));
        print_value(render, item);
    }
    return text_take(render, mark);
}

struct value filter_sum(struct call *call)
{
    struct render *render = call->render;
    struct value total = value_given(call->arg[1]) ? call->arg[1] : value_int(0), item;
    if (total.type == VALUE_STRING)
        return render_fail(render, "sum does not add strings, join does");
    struct iterator *iterator = iterator_of(render, call->self);
    while (iterator_next(render, iterator, &item)) {
        if (call_has(call, 0))
            item = attribute_path(render, item, call->arg[0], value_none());
        total = operator_apply(render, TOKEN_ADD, total, item);
    }
    return total;
}

struct value filter_extreme(struct call *call) // the least or the greatest item
{
    struct render *render = call->render;
    bool case_sensitive = call_truth(call, 0, false);
    struct value path = value_given(call->arg[1]) ? call->arg[1] : value_none(), item, best, best_key;
    struct iterator *iterator = iterator_of(render, call->self);
    if (!iterator_next(render, iterator, &best))
        return value_undefined(UNDEFINED_EMPTY, bytes_of(""));
    best_key = sort_key(render, attribute_path(render, best, path, value_none()), case_sensitive);
    while (iterator_next(render, iterator, &item)) {
        struct value key = sort_key(render, attribute_path(render, item, path, value_none()), case_sensitive);
        if (value_order(render, key, best_key) == (enum order)call->what) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

// Several attributes, separated by commas, as one key.
static struct value multiple_key(struct render *render, struct value item, struct value paths, bool case_sensitive)
{
    struct list *key = list_new(render, 0);
    if (paths.type != VALUE_STRING) {
        struct value part = attribute_path(render, item, paths, value_none());
        list_add(render, key, sort_key(render, part, case_sensitive));
        return value_list(key);
    }
    struct bytes rest = paths.string;
    for (bool more = true; more && !render->failed;) {
        const char *comma = rest.len ? memchr(rest.data, ',', rest.len) : NULL;
        struct bytes path = { rest.data, comma ? (size_t)(comma - rest.data) : rest.len };
        struct value part = attribute_path(render, item, value_string(path), value_none());
        list_add(render, key, sort_key(render, part, case_sensitive));
        more = comma;
        if (more)
            rest = (struct bytes){ comma + 1, rest.len - path.len - 1 };
    }
    return value_list(key);
}

struct value filter_sort(struct call *call)
{
    struct render *render = call->render;
    struct list *items = list_from(render, call->self), *keys = list_new(render, items->count);
    struct value paths = value_given(call->arg[2]) ? call->arg[2] : value_none();
    bool case_sensitive = call_truth(call, 1, false);
    for (size_t i = 0; i < items->count && !render->failed; i++)
        list_add(render, keys, multiple_key(render, items->items[i], paths, case_sensitive));
    list_sort(render, items, keys, call_truth(call, 0, false));
    return value_list(items);
}

struct value filter_dictsort(struct call *call)
{
    struct render *render = call->render;
    struct bytes by = call_string(call, 1, "key");
    bool by_value = bytes_equal(by, bytes_of("value")), case_sensitive = call_truth(call, 0, false);
    if (!by_value && !bytes_equal(by, bytes_of("key")))
        return render_fail(render, "dictsort sorts by key or by value");
    if (call->self.type != VALUE_DICT)
        return render_fail_kind(render, "dictsort takes a dict", call->self);
    const struct dict *dict = call->self.dict;
    struct list *items = list_new(render, dict->count), *keys = list_new(render, dict->count);
    for (size_t i = 0; i < dict->count && !render->failed; i++) {
        struct entry entry = dict->entries[i];
        list_add(render, items, value_pair(render, entry.key, entry.value));
        list_add(render, keys, sort_key(render, by_value ? entry.value : entry.key, case_sensitive));
    }
    list_sort(render, items, keys, call_truth(call, 2, false));
    return value_list(items);
}
