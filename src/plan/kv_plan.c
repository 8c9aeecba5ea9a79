// SPDX-License-Identifier: Apache-2.0
#include "plan/kv_plan.h"

#include <string.h>

#include "format/json.h"

enum { LAYERS_MAX = 1 << 16 };

static bool read_text(const json_t *root, const char *key, struct arena *arena, const char **out, struct error *err)
{
    const char *text = NULL;
    if (!json_get_text(root, key, &text, err))
        return false;
    *out = text ? arena_text(arena, text, strlen(text)) : NULL;
    return true;
}

static bool read_object(const json_t *root, struct arena *arena, struct kv_plan *out, struct error *err)
{
    int64_t version = 0, layers = 0;
    if (!json_is_object(root) || !json_object_get(root, "kv_plan"))
        return fail(err, "is no plan of a cache: it has no \"kv_plan\"; `nibble tune` writes such files");
    if (!json_get_int(root, "kv_plan", 0, INT32_MAX, &version, err)
        || !json_get_int(root, "layers", 1, LAYERS_MAX, &layers, err)
        || !read_text(root, "architecture", arena, &out->architecture, err)
        || !read_text(root, "kv_cache_dtype", arena, &out->kv_cache_dtype, err)
        || !read_text(root, "kv_transform", arena, &out->kv_transform, err)
        || !read_text(root, "kv_scale", arena, &out->kv_scale, err)
        || !read_text(root, "kv_sink_pages", arena, &out->kv_sink_pages, err))
        return false;
    out->layers = (int)layers;
    if (version != KV_PLAN_VERSION)
        return fail(err, "is a plan of version %lld, and this nibble reads version %d; run `nibble tune` again",
                    (long long)version, KV_PLAN_VERSION);
    if (!out->architecture || !out->layers || !out->kv_cache_dtype)
        return fail(err, "lacks \"architecture\", \"layers\" or \"kv_cache_dtype\"; run `nibble tune` again");
    return true;
}

bool kv_plan_read(struct bytes in, struct arena *arena, struct kv_plan *out, struct error *err)
{
    json_t *root;
    *out = (struct kv_plan){ 0 };
    if (!json_read(in, &root, err))
        return false;
    bool ok = read_object(root, arena, out, err);
    json_decref(root);
    return ok;
}
