// SPDX-License-Identifier: Apache-2.0
#include "text/template/lazy.h"

#include "text/template/unicode.h"

struct lazy {                   // what a lazy filter remembers
    struct arguments arguments; // of the filter or test that it applies
    const struct builtin *builtin;
    struct value path, otherwise; // the attribute it looks at
    bool reject, prepared, done;
    int64_t number; // of items in a batch, of slices
    struct value fill;
    struct list *items;   // slice: all of them
    struct dict *seen;    // unique
    struct value carried; // batch: an item that was read, but belongs to the next one
};

static struct value lazy_new(struct call *call, bool (*next)(struct render *, struct iterator *, struct value *),
                             struct lazy **out)
{
    struct lazy *lazy = render_new(call->render, sizeof *lazy);
    struct iterator *iterator = render_new(call->render, sizeof *iterator);
    *iterator = (struct iterator){ .next = next, .source = call->self, .state = lazy };
    lazy->arguments = *call->all;
    lazy->path = value_none();
    *out = lazy;
    return value_iterator(iterator);
}

static bool draw(struct render *render, struct iterator *iterator, struct value *item)
{
    if (!iterator->from)
        iterator->from = iterator_of(render, iterator->source);
    return iterator_next(render, iterator->from, item);
}

// The first argument, which is taken off; missing when there is none.
static struct value shift(struct arguments *arguments)
{
    if (!arguments->count)
        return value_missing();
    arguments->count--;
    return *arguments->values++;
}

static const struct builtin *find_named(struct render *render, struct value name,
                                        const struct builtin *(*find)(struct bytes), const char *kind)
{
    const struct builtin *builtin = name.type == VALUE_STRING ? find(name.string) : NULL;
    if (!builtin && name.type == VALUE_STRING)
        trouble(render, "there is no %s called '%.*s'", kind, shown_length(name.string), name.string.data);
    else if (!builtin)
        trouble(render, "the name of a %s is a string, not %s", kind, value_kind(name));
    return builtin;
}

// map(attribute='a', default=b), or map('filter', arguments of the filter).
static void prepare_map(struct render *render, struct lazy *lazy)
{
    struct arguments *arguments = &lazy->arguments;
    bool by_attribute = false, others = false;
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        struct keyword keyword = arguments->keywords[i];
        if (bytes_equal(keyword.name, bytes_of("attribute"))) {
            by_attribute = true;
            lazy->path = keyword.value;
        } else if (bytes_equal(keyword.name, bytes_of("default"))) {
            lazy->otherwise = keyword.value;
        } else {
            others = true;
        }
    }
    if (arguments->count || !by_attribute)
        lazy->builtin = find_named(render, shift(arguments), filter_find, "filter");
    else if (others)
        trouble(render, "map by attribute takes attribute and default only");
}

static bool next_map(struct render *render, struct iterator *iterator, struct value *item)
{
    struct lazy *lazy = iterator->state;
    if (!lazy->prepared) {
        lazy->prepared = true;
        lazy->done = !value_truth(render, iterator->source);
        if (!lazy->done)
            prepare_map(render, lazy);
    }
    if (lazy->done || !draw(render, iterator, item))
        return false;
    *item = lazy->builtin ? builtin_call(render, lazy->builtin, *item, &lazy->arguments)
                          : attribute_path(render, *item, lazy->path, lazy->otherwise);
    return true;
}

struct value filter_map(struct call *call)
{
    struct lazy *lazy;
    return lazy_new(call, next_map, &lazy);
}

static bool next_selected(struct render *render, struct iterator *iterator, struct value *item)
{
    struct lazy *lazy = iterator->state;
    if (!lazy->prepared) {
        lazy->prepared = true;
        lazy->done = !value_truth(render, iterator->source);
        if (!lazy->done && !value_given(lazy->path))
            lazy->path = shift(&lazy->arguments);
        if (!lazy->done && !value_given(lazy->path))
            trouble(render, "selectattr and rejectattr take the name of an attribute");
        if (!lazy->done && lazy->arguments.count)
            lazy->builtin = find_named(render, shift(&lazy->arguments), test_find, "test");
    }
    while (!lazy->done && draw(render, iterator, item)) {
        struct value value = attribute_path(render, *item, lazy->path, value_none());
        if (lazy->builtin)
            value = builtin_call(render, lazy->builtin, value, &lazy->arguments);
        if (value_truth(render, value) != lazy->reject)
            return true;
    }
    return false;
}

static struct value select_items(struct call *call, bool by_attribute, bool reject)
{
    struct lazy *lazy;
    struct value iterator = lazy_new(call, next_selected, &lazy);
    lazy->reject = reject;
    if (by_attribute)
        lazy->path.type = VALUE_MISSING;
    return iterator;
}

struct value filter_select(struct call *call) { return select_items(call, false, false); }
struct value filter_reject(struct call *call) { return select_items(call, false, true); }
struct value filter_selectattr(struct call *call) { return select_items(call, true, false); }
struct value filter_rejectattr(struct call *call) { return select_items(call, true, true); }

static bool next_unique(struct render *render, struct iterator *iterator, struct value *item)
{
    struct lazy *lazy = iterator->state;
    while (draw(render, iterator, item)) {
        struct value key = attribute_path(render, *item, lazy->path, value_none());
        if (lazy->builtin && key.type == VALUE_STRING)
            key = builtin_call(render, lazy->builtin, key, &(struct arguments){ 0 });
        size_t before = lazy->seen->count;
        dict_put(render, lazy->seen, key, value_none());
        if (lazy->seen->count > before)
            return true;
    }
    return false;
}

struct value filter_unique(struct call *call)
{
    struct lazy *lazy;
    struct value iterator = lazy_new(call, next_unique, &lazy);
    lazy->seen = dict_new(call->render, 0);
    lazy->builtin = call_truth(call, 0, false) ? NULL : method_find(VALUE_STRING, bytes_of("lower"));
    if (call_has(call, 1))
        lazy->path = call->arg[1];
    return iterator;
}

static bool next_item(struct render *render, struct iterator *iterator, struct value *item)
{
    struct value source = iterator->source;
    if (!iterator->from && source.type == VALUE_DICT)
        iterator->source = value_view(source.dict, VIEW_ITEMS);
    else if (!iterator->from && source.type != VALUE_UNDEFINED)
        trouble(render, "items takes a dict, not %s", value_kind(source));
    return draw(render, iterator, item);
}

struct value filter_items(struct call *call)
{
    struct lazy *lazy;
    return lazy_new(call, next_item, &lazy);
}

static bool next_batch(struct render *render, struct iterator *iterator, struct value *out)
{
    struct lazy *lazy = iterator->state;
    struct list *batch = list_new(render, 0);
    struct value item;
    if (value_given(lazy->carried))
        list_add(render, batch, lazy->carried);
    lazy->carried.type = VALUE_MISSING;
    *out = value_list(batch);
    while (!lazy->done && draw(render, iterator, &item)) {
        if ((int64_t)batch->count == lazy->number) {
            lazy->carried = item;
            return true;
        }
        list_add(render, batch, item);
    }
    lazy->done = true;
    if (!batch->count)
        return false;
    while (value_given(lazy->fill) && (int64_t)batch->count < lazy->number && render_step(render, 1))
        list_add(render, batch, lazy->fill);
    return true;
}

static struct value numbered(struct call *call, bool (*next)(struct render *, struct iterator *, struct value *))
{
    struct lazy *lazy;
    struct value iterator = lazy_new(call, next, &lazy);
    lazy->number = call_int(call, 0, 1);
    if (call_has(call, 1))
        lazy->fill = call->arg[1];
    return iterator;
}

struct value filter_batch(struct call *call) { return numbered(call, next_batch); }

// Slices differ in length by one at most; the longer ones come first.
static bool next_slice(struct render *render, struct iterator *iterator, struct value *out)
{
    struct lazy *lazy = iterator->state;
    if (!lazy->items)
        lazy->items = list_from(render, iterator->source);
    if (lazy->number == 0)
        trouble(render, "slice takes the number of slices, which is not zero");
    if (lazy->number <= 0 || (int64_t)iterator->at >= lazy->number)
        return false;
    size_t number = iterator->at++, slices = (size_t)lazy->number;
    size_t each = lazy->items->count / slices, extra = lazy->items->count % slices;
    size_t start = number * each + (number < extra ? number : extra), count = each + (number < extra);
    struct list *slice = list_new(render, count);
    for (size_t i = start; i < start + count; i++)
        list_add(render, slice, lazy->items->items[i]);
    if (value_given(lazy->fill) && number >= extra)
        list_add(render, slice, lazy->fill);
    *out = value_list(slice);
    return true;
}

struct value filter_slice(struct call *call) { return numbered(call, next_slice); }
