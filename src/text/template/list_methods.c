// SPDX-License-Identifier: Apache-2.0
// text/template/list_methods.c: methods of Python's list.
#include "text/template/environment.h"

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
