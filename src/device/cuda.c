// SPDX-License-Identifier: Apache-2.0
// device/cuda.c: detects this machine's NVIDIA GPUs through the driver API.
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

bool device_cuda_memory_free(int ordinal, size_t *bytes, struct error *err)
{
    struct cuda_driver driver;
    struct cuda_context *context;
    int device;
    size_t total;
    if (!cuda_driver_open(&driver, err))
        return false;
    int status = driver.device_get(&device, ordinal);
    status = status ? status : driver.context_retain(&context, device);
    if (status)
        return fail(err, "GPU %d cannot be used: %s", ordinal, cuda_driver_status_text(&driver, status).text);
    status = driver.context_use(context);
    status = status ? status : driver.memory_info(bytes, &total);
    driver.context_use(NULL);
    driver.context_release(device);
    return !status || fail(err, "GPU %d cannot be used: %s", ordinal, cuda_driver_status_text(&driver, status).text);
}
