// SPDX-License-Identifier: Apache-2.0
// tools/cache_formats.h: parses a list of KV cache formats, for commands that compare them.
#ifndef TOOLS_CACHE_FORMATS_H
#define TOOLS_CACHE_FORMATS_H

#include "base/memory.h"
#include "cli/options.h"
#include "nibble.h"

enum { CACHE_FORMATS_MAX = 64 };

struct cache_formats {
    const char *items[CACHE_FORMATS_MAX];
    int count;
    struct arena arena;
};

// Formats with commas between them, but for one that names ranges of layers: its commas are its own. Nothing typed:
// auto.
bool cache_formats_read(const struct option_texts *typed, struct cache_formats *out, struct error *err);
void cache_formats_free(struct cache_formats *formats);

#endif
