// SPDX-License-Identifier: Apache-2.0
// Iterators over each type of value, and look-ahead of loops.
#include "text/template/iterate.h"

#include "text/template/unicode.h"

static struct value entry_of(struct render *render, struct value dict, size_t index)
{
    const struct entry *entry = &dict.dict->entries[index];
    if (dict.type == VALUE_VIEW && dict.view == VIEW_VALUES)
        return entry->value;
    if (dict.type == VALUE_VIEW && dict.view == VIEW_ITEMS)
        return value_pair(render, entry->key, entry->value);
    return entry->key;
}

static struct value first_character(struct bytes rest)
{
    unicode_first(rest, &rest.len);
    return value_string(rest);
}

static bool next_of(struct render *render, struct iterator *iterator, struct value *item)
{
    struct value source = iterator->source;
    size_t length = 0, at = iterator->at;
    if (source.type == VALUE_STRING)
        length = source.string.len;
    else
        value_length(render, source, &length);
    if (at >= length)
        return false;
    switch (source.type) {
    case VALUE_STRING: *item = first_character(bytes_from(source.string, at)); break;
    case VALUE_DICT:
    case VALUE_VIEW: *item = entry_of(render, source, at); break;
    case VALUE_RANGE: *item = range_at(source.range, at); break;
    default: *item = source.list->items[at];
    }
    iterator->at += source.type == VALUE_STRING ? item->string.len : 1;
    return true;
}

static bool has_items(struct value value)
{
    return value.type == VALUE_UNDEFINED || value.type == VALUE_STRING || value_is_list(value)
        || value.type == VALUE_DICT || value.type == VALUE_VIEW || value.type == VALUE_RANGE;
}

bool value_is_iterable(struct value value) { return value.type == VALUE_ITERATOR || has_items(value); }

struct iterator *iterator_of(struct render *render, struct value value)
{
    if (value.type == VALUE_ITERATOR)
        return value.iterator;
    if (!has_items(value))
        return render_fail(render, "%s cannot be iterated over", value_kind(value)), NULL;
    struct iterator *iterator = render_new(render, sizeof *iterator);
    *iterator = (struct iterator){ .next = next_of, .source = value };
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
