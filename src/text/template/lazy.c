// SPDX-License-Identifier: Apache-2.0
// text/template/lazy.c: Jinja filters that are generators (map, select, reject, unique): an item is computed when it is
// read, so its error comes then; the iterator is always true and read once.
#include "text/template/environment.h"
#include "text/template/unicode.h"

struct lazy {                   // what a lazy filter remembers
    struct arguments arguments; // of the filter or test that it applies
    const struct builtin *builtin;
    struct value path, otherwise; // the attribute it looks at
    bool reject, prepared, done;
    struct dict *seen; // unique
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

// Removes and returns the first argument; missing when there is none.
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
        render_fail(render, "there is no %s called '%.*s'", kind, shown_length(name.string), name.string.data);
    else if (!builtin)
        render_fail(render, "the name of a %s is a string, not %s", kind, value_kind(name));
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
        render_fail(render, "map by attribute takes attribute and default only");
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
            render_fail(render, "selectattr and rejectattr take the name of an attribute");
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

struct value filter_select(struct call *call)
{
    struct lazy *lazy;
    struct value iterator = lazy_new(call, next_selected, &lazy);
    lazy->reject = call->what & SELECT_OTHERS;
    if (call->what & SELECT_BY_ATTRIBUTE)
        lazy->path.type = VALUE_MISSING;
    return iterator;
}

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
        render_fail(render, "items takes a dict, not %s", value_kind(source));
    return draw(render, iterator, item);
}

struct value filter_items(struct call *call)
{
    struct lazy *lazy;
    return lazy_new(call, next_item, &lazy);
}
