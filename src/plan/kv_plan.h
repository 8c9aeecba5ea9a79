// SPDX-License-Identifier: Apache-2.0
// plan/kv_plan.h: cache formats that were found by measuring (`nibble tune`) and written down: a JSON file that stands
// for the flags of the cache, and names the model that it was made for.
#ifndef PLAN_KV_PLAN_H
#define PLAN_KV_PLAN_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum { KV_PLAN_VERSION = 1 };

struct kv_plan {
    const char *architecture;
    int layers;
    const char *kv_cache_dtype;                          // as the flags of these names
    const char *kv_transform, *kv_scale, *kv_sink_pages; // NULL: as they are without a flag
};

// Texts are kept in the arena. The flags' words are not interpreted here.
bool kv_plan_read(struct bytes in, struct arena *arena, struct kv_plan *out, struct error *err);

#endif
