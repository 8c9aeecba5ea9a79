// SPDX-License-Identifier: Apache-2.0
// model/modules.h: matches module paths against the names in a quantisation config (ignore lists, targets). Names are
// full paths, parts of paths, wildcards or regular expressions; they have one of several equivalent prefixes, and may
// name fused modules (qkv_proj, gate_up_proj).
#ifndef MODEL_MODULES_H
#define MODEL_MODULES_H

#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"

enum modules_way {
    MODULES_WHOLE, // a name is a full path, or re:REGEX, which matches prefixes
    MODULES_PARTS, // a name matches every module whose path contains its components; '*' matches anything
};

struct modules {
    enum modules_way way;
    struct map names; // plain names -> value
    struct modules_pattern *patterns;
    size_t pattern_count;
    struct arena arena;
};

// Adds a name or pattern with its `value` >= 0.
bool modules_add(struct modules *modules, const char *name, int value, struct error *err);
bool modules_add_regex(struct modules *modules, const char *regex, int value, struct error *err);

// The value of the first match, names before patterns; -1 if none matches.
bool modules_find(const struct modules *modules, const char *path, int *value, struct error *err);

void modules_free(struct modules *modules);

#endif
