// SPDX-License-Identifier: Apache-2.0
// plan/device.c: what `auto` means here.
#include <stdio.h>
#include <string.h>

#include "kernel/cuda/images.h"
#include "plan/plan.h"

// Why a GPU that was found is not used, or "".
struct reason {
    char text[120];
};

static struct reason reason_against(const struct device *gpu)
{
    struct reason reason = { "" };
    int found = gpu->driver_version, needed = cuda_driver_needed;
    if (!cuda_architectures[0])
        snprintf(reason.text, sizeof reason.text, "this build has no kernels for GPUs: it was made without nvcc");
    else if (found < needed)
        snprintf(reason.text, sizeof reason.text,
                 "its driver is one for CUDA %d.%d, and this build needs one for "
                 "CUDA %d.%d or later",
                 found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10);
    else if (!cuda_runs_on(cuda_all_architectures, gpu))
        snprintf(reason.text, sizeof reason.text, "this build has no kernels for it");
    else if (gpu->kind == DEVICE_NONE)
        snprintf(reason.text, sizeof reason.text, "%.*s", (int)sizeof reason.text - 1, gpu->note);
    return reason;
}

// A driver that is too old for the kernels is as good as none: no plan fits it.
static void leave_out_old_driver(struct device *device)
{
    if (device->kind != DEVICE_CUDA || device->imagined || device->driver_version >= cuda_driver_needed)
        return;
    device->kind = DEVICE_NONE;
    snprintf(device->note, sizeof device->note, "%.40s: %.110s", device->name, reason_against(device).text);
}

bool plan_choose_device(struct device *device, const char *word, struct error *err)
{
    struct device gpu;
    if (word && strcmp(word, "auto") != 0) {
        if (!device_parse(device, word, err))
            return false;
        leave_out_old_driver(device);
        return true;
    }
    if (!device_parse(&gpu, "cuda", err) || !device_open_cpu(device, err))
        return false;
    if (!gpu.name[0])
        return true;
    struct reason reason = reason_against(&gpu);
    if (!reason.text[0])
        *device = gpu;
    else
        snprintf(device->note, sizeof device->note, "not on %.40s (%s): %.90s", gpu.name, gpu.word, reason.text);
    return true;
}
