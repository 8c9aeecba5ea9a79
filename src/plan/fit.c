// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

static const char *missing_load(const struct kernel *kernel, const struct fit_request *request)
{
    if (kernel->load & request->load)
        return NULL;
    return request->load == KERNEL_FEW ? "is for many tokens at a time" : "is for few tokens at a time";
}

static const char *missing_features(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    uint32_t missing = kernel->needs & ~device->features;
    return missing ? arena_format(arena, "needs %s", device_feature_words(arena, missing)) : NULL;
}

static const char *missing_format(uint64_t listed, uint64_t wanted, const char *what, struct arena *arena)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (wanted & ~listed & (uint64_t)1 << dtype)
            return arena_format(arena, "does not read %s in %s", what, dtype_word((enum dtype)dtype));
    return NULL;
}

static const char *wrong_head_dim(const struct kernel *kernel, int head_dim, struct arena *arena)
{
    if (kernel->head_dim_multiple && head_dim % kernel->head_dim_multiple)
        return arena_format(arena, "needs a head size that is a multiple of %d, not %d", kernel->head_dim_multiple,
                            head_dim);
    if (kernel->head_dim_max && head_dim > kernel->head_dim_max)
        return arena_format(arena, "has head sizes up to %d, not %d", kernel->head_dim_max, head_dim);
    return NULL;
}

const char *fit_reason(const struct kernel *kernel, const struct fit_request *request, const struct device *device,
                       struct arena *arena)
{
    const char *reason = missing_load(kernel, request);
    if (!reason)
        reason = missing_features(kernel, device, arena);
    if (!reason)
        reason = missing_format(kernel->weights, request->weights, "weights", arena);
    if (!reason && request->has_cache)
        reason = missing_format(kernel->k, (uint64_t)1 << request->k, "keys", arena);
    if (!reason && request->has_cache)
        reason = missing_format(kernel->v, (uint64_t)1 << request->v, "values", arena);
    if (!reason && request->has_cache)
        reason = wrong_head_dim(kernel, request->head_dim, arena);
    return reason;
}
