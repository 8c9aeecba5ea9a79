// SPDX-License-Identifier: Apache-2.0
// model/modules.h: which modules of a model the names in a quantisation config mean. They are written as paths, as part
// of one, with '*' or as regular expressions; with one of several beginnings that stand for the same; and for q, k and
// v (or gate and up) together, as some engines fuse them.
#ifndef MODEL_MODULES_H
#define MODEL_MODULES_H

#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"

enum modules_way {
    MODULES_WHOLE, // a name is a path, or re:REGEX, which need not match to the end
    MODULES_PARTS, // a name stands for every module that has it, component for component, in its path; '*' for anything
};

struct modules {
    enum modules_way way;
    struct map names; // those without '*' and re:, to their values
    struct modules_pattern *patterns;
    size_t pattern_count;
    struct arena arena;
};

// Adds what stands for `value`, at least 0.
bool modules_add(struct modules *modules, const char *name, int value, struct error *err);
bool modules_add_regex(struct modules *modules, const char *regex, int value, struct error *err);

// The value of the first that means this module, names before patterns; -1: none does.
bool modules_find(const struct modules *modules, const char *path, int *value, struct error *err);

void modules_free(struct modules *modules);

#endif
