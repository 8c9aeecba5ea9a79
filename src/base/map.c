// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"

#include <stdlib.h>

#include "base/memory.h"

struct map_slot {
    struct bytes key; // .data is NULL in an empty slot
    uint64_t hash;
    int64_t value;
};

static uint64_t hash_of(const struct map *map, struct bytes key)
{
    uint64_t hash = map->seed; // FNV-1a, then mixed so that the low bits depend on every byte
    for (size_t i = 0; i < key.len; i++)
        hash = (hash ^ (unsigned char)key.data[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    return hash * 0x9E3779B97F4A7C15u >> 16;
}

static struct map_slot *slot_of(const struct map *map, struct bytes key, uint64_t hash)
{
    for (size_t i = hash;; i++) {
        struct map_slot *slot = &map->slots[i & (map->capacity - 1)];
        if (!slot->key.data || (slot->hash == hash && bytes_equal(slot->key, key)))
            return slot;
    }
}

static void grow(struct map *map)
{
    struct map old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 64;
    map->slots = memory_new(map->capacity, sizeof *map->slots);
    if (!map->seed) // address space randomisation makes the address unpredictable
        map->seed = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)map->slots * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key.data)
            *slot_of(map, old.slots[i].key, old.slots[i].hash) = old.slots[i];
    free(old.slots);
}

void map_put(struct map *map, struct bytes key, int64_t value)
{
    if (map->count * 2 >= map->capacity)
        grow(map);
    if (!key.data)
        key = bytes_of("");
    uint64_t hash = hash_of(map, key);
    struct map_slot *slot = slot_of(map, key, hash);
    map->count += !slot->key.data;
    *slot = (struct map_slot){ key, hash, value };
}

bool map_get(const struct map *map, struct bytes key, int64_t *value)
{
    if (!map->capacity)
        return false;
    struct map_slot *slot = slot_of(map, key, hash_of(map, key));
    if (!slot->key.data)
        return false;
    *value = slot->value;
    return true;
}

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){ 0 };
}
