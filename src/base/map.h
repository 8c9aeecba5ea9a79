// SPDX-License-Identifier: Apache-2.0
// base/map.h: from a byte string to a number. Keys are borrowed and must outlive the map; nothing is ever removed.
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/bytes.h"

struct map {
    struct map_slot *slots; // open addressing, a power of two of them
    size_t count, capacity;
    uint64_t seed; // differs from map to map, so that no file can be made of keys that all collide
};

void map_put(struct map *map, struct bytes key, int64_t value);        // a later value replaces an earlier one
bool map_get(const struct map *map, struct bytes key, int64_t *value); // false when absent; *value then untouched
void map_free(struct map *map);

#endif
