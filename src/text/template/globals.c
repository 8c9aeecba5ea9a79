// SPDX-License-Identifier: Apache-2.0
// text/template/globals.c: Jinja's global functions, those of transformers' chat templates, and methods of list,
// dict and the loop object.
#include "text/template/environment.h"

static uint64_t distance(int64_t from, int64_t to) { return (uint64_t)to - (uint64_t)from; }

struct value global_range(struct call *call)
{
    bool one = !value_given(call->arg[1]);
    int64_t start = one ? 0 : call_int(call, 0, 0), stop = call_int(call, one ? 0 : 1, 0), step = call_int(call, 2, 1);
    if (step == 0)
        return render_fail(call->render, "the step of a range cannot be zero");
    uint64_t span = step > 0 ? (stop > start ? distance(start, stop) : 0) : (stop < start ? distance(stop, start) : 0);
    uint64_t pace = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t count = span ? (span - 1) / pace + 1 : 0;
    if (count > RENDER_RANGE_MAX)
        return render_fail(call->render, "a range has more than %d numbers, which is the limit", RENDER_RANGE_MAX);
    struct range *range = render_new(call->render, sizeof *range);
    *range = (struct range){ .start = start, .step = step, .count = count, .stop = stop };
    return (struct value){ .type = VALUE_RANGE, .range = range };
}

static void put_pair(struct render *render, struct dict *dict, struct value pair)
{
    struct list *items = list_from(render, pair);
    if (items->count == 2)
        dict_put(render, dict, items->items[0], items->items[1]);
    else
        render_fail(render, "a dict is made from pairs, and here are %zu values", items->count);
}

// dict() and namespace() take a dict or pairs, and names.
static struct dict *dict_from(struct call *call)
{
    struct render *render = call->render;
    struct dict *dict = dict_new(render, 0);
    if (call->all->count > 1)
        render_fail(render, "at most one argument without a name is taken, not %zu", call->all->count);
    if (call->all->count == 1) {
        struct value from = call->all->values[0], item;
        if (from.type == VALUE_UNDEFINED)
            render_fail_undefined(render, from);
        if (from.type == VALUE_DICT)
            from = value_view(from.dict, VIEW_ITEMS);
        struct iterator *iterator = iterator_of(render, from);
        while (iterator_next(render, iterator, &item))
            put_pair(render, dict, item);
    }
    for (size_t i = 0; i < call->all->keyword_count; i++)
        dict_put(render, dict, value_string(call->all->keywords[i].name), call->all->keywords[i].value);
    return dict;
}

struct value global_dict(struct call *call) { return value_dict(dict_from(call)); }

struct value global_namespace(struct call *call)
{
    struct dict *attributes = dict_from(call);
    for (size_t i = 0; i < attributes->count; i++) {
        struct value key = attributes->entries[i].key;
        if (key.type == VALUE_STRING && key.string.len && key.string.data[0] == '_')
            return render_fail(call->render, "attributes of a namespace cannot start with an underscore");
    }
    return (struct value){ .type = VALUE_NAMESPACE, .dict = attributes };
}

// The message is passed on as the template's author wrote it.
struct value global_raise_exception(struct call *call)
{
    struct render *render = call->render;
    struct bytes message = string_of(render, call->arg[0]).string;
    if (!render->failed) {
        fail(render->err, "%.*s", message.len < ERROR_TEXT_MAX ? (int)message.len : ERROR_TEXT_MAX, message.data);
        render->failed = true;
    }
    return value_none();
}

enum { STRFTIME_BYTES_MAX = 1024 };

// Directives that Python's strftime answers differently from C's, for a naive time without microseconds.
static const char *strftime_own(char directive)
{
    return directive == 'f' ? "000000" : directive == 'z' || directive == 'Z' ? "" : NULL;
}

struct value global_strftime_now(struct call *call)
{
    struct render *render = call->render;
    struct bytes format = call_string(call, 0, "");
    char plain[STRFTIME_BYTES_MAX], text[STRFTIME_BYTES_MAX];
    size_t used = 0;
    render_step(render, RENDER_STEPS_PER_NUMBER);
    plain[used++] = '.'; // so that an empty result is not taken for one that does not fit
    for (size_t i = 0; i < format.len && format.data[i]; i++) {
        const char *own = format.data[i] == '%' && i + 1 < format.len ? strftime_own(format.data[i + 1]) : NULL;
        size_t length = own ? strlen(own) : format.data[i] == '%' && i + 1 < format.len ? 2 : 1;
        if (used + length >= sizeof plain)
            return render_fail(render, "the format of strftime_now is too long");
        memcpy(plain + used, own ? own : format.data + i, length);
        used += length;
        i += own || length == 2;
    }
    plain[used] = '\0';
    struct tm local;
    if (!localtime_r(&render->now, &local))
        return render_fail(render, "the time cannot be told");
    size_t length = strftime(text, sizeof text, plain, &local);
    if (!length)
        return render_fail(render, "the result of strftime_now is too long");
    size_t mark = text_mark(render);
    text_put(render, (struct bytes){ text + 1, length - 1 });
    return text_take(render, mark);
}

// ---- methods ----

struct value list_append(struct call *call)
{
    list_add(call->render, call->self.list, call->arg[0]);
    return value_none();
}

struct value list_pop(struct call *call)
{
    struct list *list = call->self.list;
    int64_t given = call_int(call, 0, -1), index = given < 0 ? given + (int64_t)list->count : given;
    if (!list->count)
        return render_fail(call->render, "pop: the list is empty");
    if (index < 0 || (uint64_t)index >= list->count)
        return render_fail(call->render, "pop: the list has no item %lld", (long long)given);
    size_t behind = list->count - 1 - (size_t)index;
    struct value item = list->items[index];
    render_step_bytes(call->render, behind * sizeof item);
    memmove(list->items + index, list->items + index + 1, behind * sizeof item);
    list->count--;
    return item;
}

struct value dict_get(struct call *call)
{
    if (!value_is_hashable(call->render, call->arg[0]))
        return render_fail(call->render, "%s cannot be the key of a dict", value_kind(call->arg[0]));
    struct value *value = dict_find(call->render, call->self.dict, call->arg[0]);
    return value ? *value : value_given(call->arg[1]) ? call->arg[1] : value_none();
}

struct value dict_view(struct call *call) { return value_view(call->self.dict, (enum view_kind)call->what); }

struct value loop_cycle(struct call *call)
{
    if (!call->all->count || call->all->keyword_count)
        return render_fail(call->render, "loop.cycle takes the values to choose from");
    size_t index = call->self.loop->index;
    return call->all->values[(index ? index - 1 : 0) % call->all->count];
}
