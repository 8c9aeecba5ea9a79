// SPDX-License-Identifier: Apache-2.0
// plan/device.c: what `auto` means here.
#include <stdio.h>
#include <string.h>

#include "kernel/cuda/images.h"
#include "plan/plan.h"

// Why the GPU that was found is not used, or NULL.
static const char *reason_against_gpu(const struct device *gpu)
{
    if (!cuda_architectures[0])
        return "this build has no kernels for GPUs: it was made without nvcc";
    return cuda_runs_on(cuda_architectures, gpu) ? NULL : "this build has no kernels for it";
}

bool plan_choose_device(struct device *device, const char *word, struct error *err)
{
    struct device gpu;
    if (word && strcmp(word, "auto") != 0)
        return device_parse(device, word, err);
    if (!device_parse(&gpu, "cuda", err) || !device_open_cpu(device, err))
        return false;
    if (gpu.kind != DEVICE_CUDA)
        return true;
    const char *reason = reason_against_gpu(&gpu);
    if (!reason)
        *device = gpu;
    else
        snprintf(device->note, sizeof device->note, "not on %.40s (%s): %s", gpu.name, gpu.word, reason);
    return true;
}
