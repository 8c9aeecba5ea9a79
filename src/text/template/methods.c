// SPDX-License-Identifier: Apache-2.0
// text/template/methods.c: methods of dict and of Jinja's loop object.
#include "text/template/environment.h"

struct value dict_get(struct call *call)
{
    if (!value_is_hashable(call->render, call->arg[0]))
        return render_fail(call->render, "%s cannot be the key of a dict", value_kind(call->arg[0]));
    struct value *value = dict_find(call->render, call->self.dict, call->arg[0]);
    return value ? *value : value_given(call->arg[1]) ? call->arg[1] : value_none();
}

struct value dict_keys(struct call *call) { return value_view(call->self.dict, VIEW_KEYS); }
struct value dict_values(struct call *call) { return value_view(call->self.dict, VIEW_VALUES); }
struct value dict_items(struct call *call) { return value_view(call->self.dict, VIEW_ITEMS); }

struct value loop_cycle(struct call *call)
{
    if (!call->all->count || call->all->keyword_count)
        return render_fail(call->render, "loop.cycle takes the values to choose from");
    size_t index = call->self.loop->index;
    return call->all->values[(index ? index - 1 : 0) % call->all->count];
}
