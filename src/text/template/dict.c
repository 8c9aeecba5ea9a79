// SPDX-License-Identifier: Apache-2.0
// text/template/dict.c: Python's dict: insertion order, and a hash index once a larger one is first searched. Probes
// are charged as steps, so keys made to collide end in an error.
#include <math.h>

#include "text/template/value.h"

enum { DICT_SCAN_MAX = 8 }; // entries that are searched without an index

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

// Equal values hash alike: 1, 1.0 and true are one key. The key is known to be hashable, which bounds its depth.
static uint64_t hash_of(struct render *render, struct value key)
{
    uint64_t hash = key.type;
    switch (key.type) {
    case VALUE_BOOL:
    case VALUE_INT: return mix((uint64_t)value_integer(key));
    case VALUE_FLOAT:
        if (key.number >= -0x1p63 && key.number < 0x1p63 && key.number == floor(key.number))
            return mix((uint64_t)(int64_t)key.number);
        memcpy(&hash, &key.number, sizeof hash);
        return mix(hash);
    case VALUE_STRING:
        for (size_t i = 0; i < key.string.len; i++)
            hash = (hash ^ (unsigned char)key.string.data[i]) * 0x100000001b3u;
        return mix(hash);
    case VALUE_TUPLE:
        for (size_t i = 0; i < key.list->count && render_step(render, 1); i++)
            hash = mix(hash ^ hash_of(render, key.list->items[i]));
        return hash;
    default: return mix(hash);
    }
}

static uint32_t *slot_of(struct render *render, struct dict *dict, struct value key)
{
    if (key.type == VALUE_STRING)
        render_step_bytes(render, key.string.len);
    for (size_t i = hash_of(render, key);; i++) {
        uint32_t *slot = &dict->index[i & (dict->index_size - 1)];
        if (!*slot || value_equal(render, dict->entries[*slot - 1].key, key) || !render_step(render, 1))
            return slot;
    }
}

static bool make_index(struct render *render, struct dict *dict)
{
    size_t size = 64;
    while (size < dict->count * 4)
        size *= 2;
    uint32_t *index = render_room(render, size, sizeof *index);
    if (!index)
        return false;
    dict->index = index;
    dict->index_size = size;
    for (size_t i = 0; i < dict->count; i++)
        *slot_of(render, dict, dict->entries[i].key) = (uint32_t)i + 1;
    return true;
}

struct dict *dict_new(struct render *render, size_t capacity)
{
    struct dict *dict = render_new(render, sizeof *dict);
    if (capacity && (dict->entries = render_room(render, capacity, sizeof *dict->entries)))
        dict->capacity = capacity;
    return dict;
}

struct value *dict_find(struct render *render, struct dict *dict, struct value key)
{
    if (dict->count <= DICT_SCAN_MAX) {
        for (size_t i = 0; i < dict->count; i++)
            if (value_equal(render, dict->entries[i].key, key))
                return &dict->entries[i].value;
        return NULL;
    }
    if (!dict->index && !make_index(render, dict))
        return NULL;
    uint32_t entry = *slot_of(render, dict, key);
    return entry && !render->failed ? &dict->entries[entry - 1].value : NULL;
}

struct value *dict_find_name(struct render *render, struct dict *dict, struct bytes name)
{
    return dict_find(render, dict, value_string(name));
}

void dict_append(struct render *render, struct dict *dict, struct value key, struct value value)
{
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity ? dict->capacity * 2 : 8;
        struct entry *entries = render_room(render, capacity, sizeof *entries);
        if (!entries)
            return;
        if (dict->count)
            memcpy(entries, dict->entries, dict->count * sizeof *entries);
        dict->entries = entries;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (struct entry){ key, value };
    if (!dict->index)
        return;
    if (dict->count * 2 > dict->index_size)
        make_index(render, dict);
    else
        *slot_of(render, dict, key) = (uint32_t)dict->count;
}

void dict_put(struct render *render, struct dict *dict, struct value key, struct value value)
{
    if (!value_is_hashable(render, key)) {
        render_fail(render, "%s cannot be the key of a dict", value_kind(key));
        return;
    }
    struct value *old = dict_find(render, dict, key);
    if (old)
        *old = value;
    else
        dict_append(render, dict, key, value);
}
