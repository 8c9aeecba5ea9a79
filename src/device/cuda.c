// SPDX-License-Identifier: Apache-2.0
// device/cuda.c: NVIDIA GPUs through the driver library, opened at run time so that the binary starts without one.
#include <dlfcn.h>
#include <stdio.h>

#include "device/device.h"

// The few calls of the driver API that a report needs. Results are 0 for success.
struct driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int len, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_memory)(size_t *bytes, int device);
};

enum { ATTRIBUTE_CAPABILITY_MAJOR = 75, ATTRIBUTE_CAPABILITY_MINOR = 76 };

static const char *load_driver(void *library, struct driver *driver)
{
    const struct { const char *name; void **slot; } symbols[] = {
        { "cuInit", (void **)&driver->init },
        { "cuDriverGetVersion", (void **)&driver->driver_version },
        { "cuDeviceGetCount", (void **)&driver->device_count },
        { "cuDeviceGet", (void **)&driver->device_get },
        { "cuDeviceGetName", (void **)&driver->device_name },
        { "cuDeviceGetAttribute", (void **)&driver->device_attribute },
        { "cuDeviceTotalMem_v2", (void **)&driver->device_memory },
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!(*symbols[i].slot = dlsym(library, symbols[i].name)))
            return symbols[i].name;
    return NULL;
}

static void list_devices(const struct driver *driver, struct cuda_report *report)
{
    int count = 0;
    int status = driver->init(0);
    driver->driver_version(&report->driver_version);
    if (status || (status = driver->device_count(&count))) {
        snprintf(report->note, sizeof report->note, "the NVIDIA driver is there but does not start (error %d)", status);
        return;
    }
    for (int i = 0; i < count && i < CUDA_DEVICES_MAX; i++) {
        struct cuda_device *found = &report->devices[report->count];
        int device;
        if (driver->device_get(&device, i) || driver->device_name(found->name, sizeof found->name, device)
            || driver->device_attribute(&found->major, ATTRIBUTE_CAPABILITY_MAJOR, device)
            || driver->device_attribute(&found->minor, ATTRIBUTE_CAPABILITY_MINOR, device)
            || driver->device_memory(&found->memory_bytes, device))
            continue;
        report->count++;
    }
    if (!report->count)
        snprintf(report->note, sizeof report->note, "the NVIDIA driver finds no device");
}

void device_probe_cuda(struct cuda_report *report)
{
    *report = (struct cuda_report){ 0 };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(report->note, sizeof report->note, "no NVIDIA driver (libcuda.so.1 is not installed)");
        return;
    }
    struct driver driver;
    const char *missing = load_driver(library, &driver);
    if (missing)
        snprintf(report->note, sizeof report->note, "the NVIDIA driver lacks %s; it is too old or broken", missing);
    else
        list_devices(&driver, report);
    dlclose(library);
}
