// SPDX-License-Identifier: Apache-2.0
#include "tools/cache_formats.h"

#include <string.h>

#include "base/error.h"

bool cache_formats_read(const struct option_texts *typed, struct cache_formats *out, struct error *err)
{
    for (int i = 0; i < typed->count; i++) {
        const char *between = strchr(typed->items[i], ':') ? "" : ",";
        for (const char *at = typed->items[i]; *at;) {
            size_t len = strcspn(at, between);
            if (out->count == CACHE_FORMATS_MAX)
                return fail_usage(err, "--kv-cache-dtype takes up to %d formats", CACHE_FORMATS_MAX);
            if (len)
                out->items[out->count++] = arena_text(&out->arena, at, len);
            at += len + (at[len] != 0);
        }
    }
    if (!out->count)
        out->items[out->count++] = "auto";
    return true;
}

void cache_formats_free(struct cache_formats *formats) { arena_free(&formats->arena); }
