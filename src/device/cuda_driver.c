// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_driver.h"
#include "device/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>

static bool find_calls(struct cuda_driver *driver, void *library, struct error *err)
{
    const struct library_call calls[] = {
#define X(name, symbol, ...) { symbol, (void **)&driver->name },
        CUDA_DRIVER_CALLS(X)
#undef X
    };
    const char *missing = cuda_library_bind(library, calls, sizeof calls / sizeof *calls);
    return !missing || fail(err, "the NVIDIA driver lacks %s: it is too old, 550 or later is needed", missing);
}

bool cuda_driver_open(struct cuda_driver *driver, struct error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail(err, "no NVIDIA driver (%s)", dlerror());
    if (!find_calls(driver, library, err))
        return false;
    int status = driver->init(0);
    if (status == CUDA_NO_DEVICE)
        return fail(err, "the NVIDIA driver finds no device");
    if (status)
        return fail(err, "the NVIDIA driver does not start: %s", cuda_driver_status_text(driver, status).text);
    return true;
}

int cuda_driver_describe(const struct cuda_driver *driver, int ordinal, int *device, struct cuda_device *found)
{
    const struct {
        enum cuda_attribute attribute;
        int *slot;
    } facts[] = {
        { CUDA_DEVICE_CAPABILITY_MAJOR, &found->major },
        { CUDA_DEVICE_CAPABILITY_MINOR, &found->minor },
        { CUDA_DEVICE_MULTIPROCESSORS, &found->multiprocessors },
        { CUDA_DEVICE_SHARED_BYTES, &found->shared_bytes },
    };
    *found = (struct cuda_device){ .ordinal = ordinal };
    int status = driver->device_get(device, ordinal);
    status = status ? status : driver->device_name(found->name, sizeof found->name, *device);
    status = status ? status : driver->device_memory(&found->memory_bytes, *device);
    for (size_t i = 0; i < sizeof facts / sizeof *facts && !status; i++)
        status = driver->device_attribute(facts[i].slot, facts[i].attribute, *device);
    return status;
}

struct cuda_status_text cuda_driver_status_text(const struct cuda_driver *driver, int status)
{
    struct cuda_status_text says;
    const char *name = NULL, *text = NULL;
    if (driver->error_name(status, &name) || driver->error_text(status, &text) || !name || !text)
        snprintf(says.text, sizeof says.text, "error %d", status);
    else
        snprintf(says.text, sizeof says.text, "%s (%s)", name, text);
    return says;
}
