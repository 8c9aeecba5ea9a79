// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include "kernel/cuda/images.h"

static const char *missing_features(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    uint32_t missing = kernel->needs & ~device->features;
    return missing ? arena_format(arena, "needs %s", device_feature_words(arena, missing)) : NULL;
}

static const char *missing_architecture(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    const char *listed = "";
    if (kernel->device != DEVICE_CUDA || cuda_runs_on(kernel->architectures, device))
        return NULL;
    if (cuda_is_listed(kernel->architectures, device->sm))
        return arena_format(arena, "is not compiled for sm_%d in this build", device->sm);
    for (const int *sm = kernel->architectures; *sm; sm++)
        listed = arena_format(arena, "%s sm_%d", listed, *sm);
    return arena_format(arena, "is written for%s, not sm_%d", listed, device->sm);
}

static const char *missing_product(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    if (kernel->device != DEVICE_CUDA || device->sm >= kernel->sm_min)
        return NULL;
    return arena_format(arena, "needs products that sm_%d is the first to have, not sm_%d", kernel->sm_min, device->sm);
}

static const char *missing_shared(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    if (kernel->device != DEVICE_CUDA || kernel->shared_bytes <= device->shared_bytes)
        return NULL;
    return arena_format(arena, "needs %d KiB of shared memory for a block, and %s has %d", kernel->shared_bytes >> 10,
                        device->word, device->shared_bytes >> 10);
}

static const char *missing_format(uint64_t listed, uint64_t wanted, const char *what, struct arena *arena)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (wanted & ~listed & (uint64_t)1 << dtype)
            return arena_format(arena, "does not read %s in %s", what, dtype_word((enum dtype)dtype));
    return NULL;
}

static const char *wrong_rows(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    for (int i = 0; i < LINEAR_OUTPUTS_MAX && kernel->rows_multiple; i++)
        if (request->rows[i] % kernel->rows_multiple)
            return arena_format(arena, "needs matrices whose rows are a multiple of %d, not %d", kernel->rows_multiple,
                                request->rows[i]);
    return NULL;
}

static const char *wrong_cols(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    if (!kernel->cols_multiple || request->cols % kernel->cols_multiple == 0)
        return NULL;
    return arena_format(arena, "needs matrices whose columns are a multiple of %d, not %d", kernel->cols_multiple,
                        request->cols);
}

static const char *missing_input(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    return kernel->x ? missing_format(kernel->x, request->x, "its input", arena) : NULL;
}

// Returns what is wrong with the shape of an op that rotates, or keeps a state, or NULL.
static const char *wrong_shape(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    int multiple = kernel->keys_multiple ? kernel->keys_multiple : 1;
    if (kernel->rotary_first && request->rotary_behind)
        return "needs heads that begin with their rotary dims";
    if (kernel->conv_kernel_max && request->conv_kernel > kernel->conv_kernel_max)
        return arena_format(arena, "has conv kernels up to %d, not %d", kernel->conv_kernel_max, request->conv_kernel);
    if (kernel->keys_max && request->keys > kernel->keys_max)
        return arena_format(arena, "has up to %d keys in a head, not %d", kernel->keys_max, request->keys);
    if (request->keys % multiple || request->mixed % multiple)
        return arena_format(arena, "needs keys, and q, k and v together, that are multiples of %d, not %d and %d",
                            multiple, request->keys, request->mixed);
    return NULL;
}

static const char *wrong_head_dim(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    int multiple = kernel->head_dim_multiple ? kernel->head_dim_multiple : 1;
    int largest = request->latent || request->v_dim > request->k_dim ? request->v_dim : request->k_dim;
    if (kernel->head_dim && (request->k_dim != kernel->head_dim || request->v_dim != kernel->head_dim))
        return arena_format(arena, "is for head size %d, not %d", kernel->head_dim, largest);
    if (request->k_dim % multiple || request->v_dim % multiple)
        return arena_format(arena, "needs a head size that is a multiple of %d, not %d", multiple,
                            request->v_dim % multiple ? request->v_dim : request->k_dim);
    if (kernel->head_dim_max && largest > kernel->head_dim_max)
        return arena_format(arena, "has head sizes up to %d, not %d", kernel->head_dim_max, largest);
    return NULL;
}

// Keys and values, or latents, which are both.
static const char *missing_cache_format(const struct kernel *kernel, const struct fit_request *request,
                                        struct arena *arena)
{
    const uint64_t k = (uint64_t)1 << request->k, v = (uint64_t)1 << request->v;
    if (request->latent)
        return kernel->latents ? missing_format(kernel->latents, k, "latents", arena) : "does not read latents";
    if (!kernel->k)
        return "reads latents alone";
    const char *keys = missing_format(kernel->k, k, "keys", arena);
    const char *values = missing_format(kernel->v, v, "values", arena);
    return keys && values ? arena_format(arena, "%s; %s", keys, values) : keys ? keys : values;
}

// Sink pages.
static const char *missing_sink(const struct kernel *kernel, const struct fit_request *request, struct arena *arena)
{
    const uint64_t rest = (uint64_t)1 << request->k | (uint64_t)1 << request->v;
    const char *missing = missing_format(kernel->sink, request->sink, "sink pages", arena);
    if (missing || !request->sink || !kernel->sink_beside)
        return missing;
    return missing_format(kernel->sink_beside, rest, "sink pages of another format beside keys or values", arena);
}

static const char *wrong_device(const struct kernel *kernel, const struct device *device)
{
    static const char *const reasons[] = {
        [DEVICE_CPU] = "runs on CPUs",
        [DEVICE_CUDA] = "runs on NVIDIA GPUs",
        [DEVICE_NONE] = "runs nowhere",
    };
    return kernel->device == device->kind ? NULL : reasons[kernel->device];
}

const char *fit_reasons(const struct kernel *kernel, const struct fit_request *request, const struct device *device,
                        struct arena *arena)
{
    const char *wrong = wrong_device(kernel, device);
    const char *architecture = wrong ? NULL : missing_architecture(kernel, device, arena);
    const char *const reasons[] = {
        wrong,
        wrong ? NULL : missing_features(kernel, device, arena),
        architecture,
        wrong || architecture ? NULL : missing_product(kernel, device, arena),
        wrong || architecture ? NULL : missing_shared(kernel, device, arena),
        missing_format(kernel->weights, request->weights, "weights", arena),
        wrong_rows(kernel, request, arena),
        wrong_cols(kernel, request, arena),
        missing_input(kernel, request, arena),
        wrong_shape(kernel, request, arena),
        request->has_cache ? missing_cache_format(kernel, request, arena) : NULL,
        request->has_cache ? missing_sink(kernel, request, arena) : NULL,
        !request->int8 && kernel->int8 & request->weights ? "rounds activations to 8 bits, which --activations int8 "
                                                            "asks for"
                                                          : NULL,
        request->k_dim ? wrong_head_dim(kernel, request, arena) : NULL,
    };
    const char *all = NULL;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i])
            all = all ? arena_format(arena, "%s; %s", all, reasons[i]) : reasons[i];
    return all;
}
