// SPDX-License-Identifier: Apache-2.0
// Iterators over each type of value, and look-ahead of loops.
#include "text/template/iterate.h"

#include "text/template/unicode.h"

static bool next_of_nothing(struct render *render, struct iterator *iterator, struct value *item)
{
    (void)render, (void)iterator, (void)item;
    return false;
}

static bool next_of_list(struct render *render, struct iterator *iterator, struct value *item)
{
    (void)render;
    const struct list *list = iterator->source.list;
    if (iterator->at >= list->count)
        return false;
    *item = list->items[iterator->at++];
    return true;
}

static bool next_of_string(struct render *render, struct iterator *iterator, struct value *item)
{
    (void)render;
    struct bytes text = iterator->source.string, rest = { text.data + iterator->at, text.len - iterator->at };
    if (!rest.len)
        return false;
    unicode_first(rest, &rest.len);
    iterator->at += rest.len;
    *item = value_string(rest);
    return true;
}

static struct value entry_of(struct render *render, struct value dict, size_t index)
{
    const struct entry *entry = &dict.dict->entries[index];
    if (dict.type == VALUE_VIEW && dict.view == VIEW_VALUES)
        return entry->value;
    if (dict.type == VALUE_VIEW && dict.view == VIEW_ITEMS)
        return value_pair(render, entry->key, entry->value);
    return entry->key;
}

static bool next_of_dict(struct render *render, struct iterator *iterator, struct value *item)
{
    if (iterator->at >= iterator->source.dict->count)
        return false;
    *item = entry_of(render, iterator->source, iterator->at++);
    return true;
}

static bool next_of_range(struct render *render, struct iterator *iterator, struct value *item)
{
    (void)render;
    if (iterator->at >= iterator->source.range->count)
        return false;
    *item = range_at(iterator->source.range, iterator->at++);
    return true;
}

static bool (*const walkers[VALUE_TYPE_COUNT])(struct render *, struct iterator *, struct value *) = {
    [VALUE_UNDEFINED] = next_of_nothing, [VALUE_STRING] = next_of_string, [VALUE_LIST] = next_of_list,
    [VALUE_TUPLE] = next_of_list,        [VALUE_DICT] = next_of_dict,     [VALUE_VIEW] = next_of_dict,
    [VALUE_RANGE] = next_of_range,
};

bool value_is_iterable(struct value value) { return value.type == VALUE_ITERATOR || walkers[value.type]; }

struct iterator *iterator_of(struct render *render, struct value value)
{
    if (value.type == VALUE_ITERATOR)
        return value.iterator;
    if (!walkers[value.type])
        return render_fail(render, "%s cannot be iterated over", value_kind(value)), NULL;
    struct iterator *iterator = render_new(render, sizeof *iterator);
    *iterator = (struct iterator){ .next = walkers[value.type], .source = value };
    return iterator;
}

bool iterator_next(struct render *render, struct iterator *iterator, struct value *item)
{
    if (!iterator || !render_step(render, 1) || !render_enter(render)) // lazy filters stack up
        return false;
    bool more = iterator->next(render, iterator, item);
    render_leave(render);
    return more && !render->failed;
}

bool loop_peek(struct render *render, struct loop *loop)
{
    if (!loop->ahead)
        loop->ahead = iterator_next(render, loop->iterator, &loop->after);
    return loop->ahead;
}

bool loop_next(struct render *render, struct loop *loop, struct value *item)
{
    if (!loop_peek(render, loop))
        return false;
    loop->ahead = false;
    loop->index++;
    loop->before = loop->current;
    loop->current = *item = loop->after;
    return true;
}

size_t loop_length(struct render *render, struct loop *loop)
{
    if (!loop->length_known && !value_length(render, loop->iterable, &loop->length)) {
        struct list *rest = list_from(render, value_iterator(loop->iterator));
        loop->length = rest->count + loop->index + loop->ahead;
        loop->iterator = iterator_of(render, value_list(rest));
    }
    loop->length_known = true;
    return loop->length;
}
