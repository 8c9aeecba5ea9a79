// SPDX-License-Identifier: Apache-2.0
// base/map.h: a hash map from byte strings to integers. Keys are borrowed and must outlive the map; entries cannot be
// removed.
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/bytes.h"

struct map {
    struct map_slot *slots; // open addressing; the capacity is a power of two
    size_t count, capacity;
    uint64_t seed; // random per map, so that no file can hold keys that all collide
};

void map_put(struct map *map, struct bytes key, int64_t value);        // a later value replaces an earlier one
bool map_get(const struct map *map, struct bytes key, int64_t *value); // false when absent; *value then untouched
void map_free(struct map *map);

#endif
