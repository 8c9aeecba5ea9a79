// SPDX-License-Identifier: Apache-2.0
// device/cuda.c: the NVIDIA GPUs of this machine, as their driver reports them.
#include <stdio.h>

#include "device/cuda_driver.h"

void device_probe_cuda(struct cuda_report *report)
{
    *report = (struct cuda_report){ 0 };
    struct cuda_driver driver;
    struct error err;
    int count = 0, device;
    if (!cuda_driver_open(&driver, &err)) {
        snprintf(report->note, sizeof report->note, "%.*s", (int)sizeof report->note - 1, err.text);
        return;
    }
    driver.driver_version(&report->driver_version);
    driver.device_count(&count);
    for (int i = 0; i < count && i < CUDA_DEVICES_MAX; i++)
        if (!cuda_driver_describe(&driver, i, &device, &report->devices[report->count]))
            report->count++;
    if (!report->count)
        snprintf(report->note, sizeof report->note, "the NVIDIA driver finds no device");
}

size_t device_cuda_memory_free(int ordinal)
{
    struct cuda_driver driver;
    struct cuda_context *context;
    struct error err;
    int device;
    size_t free = 0, total;
    if (!cuda_driver_open(&driver, &err) || driver.device_get(&device, ordinal)
        || driver.context_retain(&context, device))
        return 0;
    if (driver.context_use(context) || driver.memory_info(&free, &total))
        free = 0;
    driver.context_use(NULL);
    driver.context_release(device);
    return free;
}
