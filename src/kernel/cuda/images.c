// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/images.h"

#include "kernel/cuda/attention_shapes.h"

const int cuda_all_architectures[] = { 80, 86, 89, 90, 100, 103, 120, 121, 0 };
const int cuda_wgmma_architectures[] = { 90, 0 };

bool cuda_is_listed(const int *architectures, int sm)
{
    while (*architectures && *architectures != sm)
        architectures++;
    return *architectures != 0;
}

static bool is_newer_than_all(int sm)
{
    for (const int *known = cuda_architectures; *known; known++)
        if (sm <= *known)
            return false;
    return true;
}

// Whether a device runs PTX, as it is newer than all images.
static bool needs_ptx(int sm) { return cuda_ptx_architecture && is_newer_than_all(sm); }

bool cuda_runs_on(const int *architectures, const struct device *device)
{
    if (device->imagined)
        return cuda_is_listed(architectures, device->sm);
    return (cuda_is_listed(architectures, device->sm) && cuda_is_listed(cuda_architectures, device->sm))
        || (architectures == cuda_all_architectures && needs_ptx(device->sm));
}

bool cuda_has_code(int sm) { return cuda_is_listed(cuda_architectures, sm) || needs_ptx(sm); }

int cuda_code_sm(int sm) { return needs_ptx(sm) ? CUDA_PTX_SM : sm; }

// Functions are looked up at once, since the driver loads them lazily: that must not happen within a step.
static bool load_image(struct cuda *cuda, const struct cuda_image *image, struct error *err)
{
    if (!cuda_load_image(cuda, image->bytes, image->size, image->name, err))
        return false;
    for (const struct cuda_image_function *function = image->functions; function->name; function++)
        if (!cuda_find(cuda, function->name, err))
            return false;
    return true;
}

bool cuda_load_images(struct cuda *cuda, struct error *err)
{
    int sm = cuda_sm(cuda), wanted = needs_ptx(sm) ? 0 : sm, version = cuda_driver_version(cuda), loaded = 0;
    if (version < cuda_driver_needed)
        return fail(err,
                    "the NVIDIA driver is one for CUDA %d.%d, and the kernels of this build need one for %d.%d or "
                    "later: install a newer driver",
                    version / 1000, version % 1000 / 10, cuda_driver_needed / 1000, cuda_driver_needed % 1000 / 10);
    for (const struct cuda_image *image = cuda_images; image->name; image++) {
        if (image->architecture != wanted)
            continue;
        if (!load_image(cuda, image, err))
            return false;
        loaded++;
    }
    return loaded
        || fail(err, "this build holds no sm_%d code: build with -Dcuda-archs=%d%s", sm, sm,
                cuda_is_listed(cuda_wgmma_architectures, sm) ? "a" : "");
}

bool cuda_call_queue(struct cuda *cuda, const struct cuda_call *call, struct error *err)
{
    if (!call->function)
        return cuda_multiply(cuda, &call->product, err);
    struct cuda_launch launch = { .function = cuda_find(cuda, call->function, err),
                                  .grid = { call->grid[0], call->grid[1], call->grid[2] },
                                  .block = call->block,
                                  .shared_bytes = call->shared_bytes,
                                  .params = call->params,
                                  .params_bytes = call->params_bytes,
                                  .overlap = true };
    return launch.function && cuda_launch(cuda, &launch, err);
}
