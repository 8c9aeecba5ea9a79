// SPDX-License-Identifier: Apache-2.0
// text/template/containers.c: the methods of everything but strings. Rows without a function are methods that would
// change a list or a dict, which a template must not.
#include <math.h>

#include "text/template/builtin.h"
#include "text/template/iterate.h"

static struct value list_index(struct call *call)
{
    const struct list *list = call->self.list;
    int64_t count = (int64_t)list->count, from = call_int(call, 1, 0), to = call_int(call, 2, count);
    from += from < 0 ? count : 0;
    to += to < 0 ? count : 0;
    for (int64_t i = from < 0 ? 0 : from; i < to && i < count && render_step(call->render, 1); i++)
        if (value_equal(call->render, list->items[i], call->arg[0]))
            return value_int(i);
    return trouble(call->render, "%s does not contain what index() looks for", value_kind(call->self));
}

static struct value list_count(struct call *call)
{
    int64_t count = 0;
    for (size_t i = 0; i < call->self.list->count && render_step(call->render, 1); i++)
        count += value_equal(call->render, call->self.list->items[i], call->arg[0]);
    return value_int(count);
}

static struct value list_copy(struct call *call) { return value_list(list_from(call->render, call->self)); }

static struct value dict_get(struct call *call)
{
    if (!value_is_hashable(call->render, call->arg[0]))
        return trouble(call->render, "%s cannot be the key of a dict", value_kind(call->arg[0]));
    struct value *value = dict_find(call->render, call->self.dict, call->arg[0]);
    return value ? *value : value_given(call->arg[1]) ? call->arg[1] : value_none();
}

static struct value dict_keys(struct call *call) { return value_view(call->self.dict, VIEW_KEYS); }
static struct value dict_values(struct call *call) { return value_view(call->self.dict, VIEW_VALUES); }
static struct value dict_items(struct call *call) { return value_view(call->self.dict, VIEW_ITEMS); }

static struct value dict_copy(struct call *call)
{
    const struct dict *from = call->self.dict;
    struct dict *copy = dict_new(call->render, from->count);
    for (size_t i = 0; i < from->count && !call->render->failed; i++)
        dict_append(call->render, copy, from->entries[i].key, from->entries[i].value);
    return value_dict(copy);
}

static struct value range_find(struct call *call, bool *found)
{
    struct iterator *iterator = iterator_of(call->render, call->self);
    struct value item;
    for (int64_t i = 0; iterator_next(call->render, iterator, &item); i++)
        if (value_equal(call->render, item, call->arg[0]))
            return *found = true, value_int(i);
    return *found = false, value_int(0);
}

static struct value range_index(struct call *call)
{
    bool found;
    struct value index = range_find(call, &found);
    return found ? index : trouble(call->render, "a range does not contain what index() looks for");
}

static struct value range_count(struct call *call)
{
    bool found;
    range_find(call, &found);
    return value_int(found);
}

static struct value int_bit_length(struct call *call)
{
    int64_t number = value_integer(call->self);
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    return value_int(magnitude ? 64 - __builtin_clzll(magnitude) : 0);
}

static struct value float_is_integer(struct call *call)
{
    return value_bool(isfinite(call->self.number) && call->self.number == floor(call->self.number));
}

static struct value loop_cycle(struct call *call)
{
    if (!call->all->count || call->all->keyword_count)
        return trouble(call->render, "loop.cycle takes the values to choose from");
    size_t index = call->self.loop->index;
    return call->all->values[(index ? index - 1 : 0) % call->all->count];
}

static struct value loop_changed(struct call *call)
{
    struct loop *loop = call->self.loop;
    struct list *now = list_new(call->render, 0);
    for (size_t i = 0; i < call->all->count; i++)
        list_add(call->render, now, call->all->values[i]);
    if (value_given(loop->changed) && value_equal(call->render, loop->changed, value_tuple(now)))
        return value_bool(false);
    loop->changed = value_tuple(now);
    return value_bool(true);
}

static struct value cycler_next(struct call *call)
{
    struct cycler *cycler = call->self.cycler;
    struct value item = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return item;
}

static struct value cycler_reset(struct call *call)
{
    call->self.cycler->at = 0;
    return value_none();
}

static const struct builtin list_rows[] = {
    { "copy", list_copy, 0, "" },
    { "count", list_count, 1, "/value" },
    { "index", list_index, 1, "/value start stop" },
    { "append", NULL, 0, "*" },
    { "clear", NULL, 0, "*" },
    { "extend", NULL, 0, "*" },
    { "insert", NULL, 0, "*" },
    { "pop", NULL, 0, "*" },
    { "remove", NULL, 0, "*" },
    { "reverse", NULL, 0, "*" },
    { "sort", NULL, 0, "*" },
};
static const struct builtin tuple_rows[] = {
    { "count", list_count, 1, "/value" },
    { "index", list_index, 1, "/value start stop" },
};
static const struct builtin dict_rows[] = {
    { "copy", dict_copy, 0, "" },     { "get", dict_get, 1, "/key default" },
    { "items", dict_items, 0, "" },   { "keys", dict_keys, 0, "" },
    { "values", dict_values, 0, "" }, { "clear", NULL, 0, "*" },
    { "pop", NULL, 0, "*" },          { "popitem", NULL, 0, "*" },
    { "setdefault", NULL, 0, "*" },   { "update", NULL, 0, "*" },
};
static const struct builtin range_rows[] = {
    { "count", range_count, 1, "/value" },
    { "index", range_index, 1, "/value" },
};
static const struct builtin int_rows[] = { { "bit_length", int_bit_length, 0, "" } };
static const struct builtin float_rows[] = { { "is_integer", float_is_integer, 0, "" } };
static const struct builtin loop_rows[] = { { "changed", loop_changed, 0, "*" }, { "cycle", loop_cycle, 0, "*" } };
static const struct builtin cycler_rows[] = { { "next", cycler_next, 0, "" }, { "reset", cycler_reset, 0, "" } };

#define TABLE(rows) { rows, sizeof rows / sizeof *rows }

static const struct builtin_table tables[VALUE_TYPE_COUNT] = {
    [VALUE_BOOL] = TABLE(int_rows),    [VALUE_INT] = TABLE(int_rows),     [VALUE_FLOAT] = TABLE(float_rows),
    [VALUE_LIST] = TABLE(list_rows),   [VALUE_TUPLE] = TABLE(tuple_rows), [VALUE_DICT] = TABLE(dict_rows),
    [VALUE_RANGE] = TABLE(range_rows), [VALUE_LOOP] = TABLE(loop_rows),   [VALUE_CYCLER] = TABLE(cycler_rows),
};

const struct builtin *method_find(enum value_type type, struct bytes name)
{
    const struct builtin_table *table = type == VALUE_STRING ? &string_methods : &tables[type];
    return builtin_find(table->rows, table->count, name);
}
