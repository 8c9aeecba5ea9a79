// SPDX-License-Identifier: Apache-2.0
// device/cuda_parts.h: what the files about a working GPU share.
#ifndef DEVICE_CUDA_PARTS_H
#define DEVICE_CUDA_PARTS_H

#include "base/dtype.h"
#include "base/map.h"
#include "device/cuda_driver.h"

struct cuda {
    struct cuda_driver driver;
    int ordinal, device; // as users number it, and as the driver does
    struct cuda_device facts;
    int driver_version, sm;
    struct cuda_context *context;
    struct cuda_stream *stream;
    bool capturing;
    const char *last; // what was queued last, for sentences about what failed later
    struct cuda_module **modules;
    int module_count;
    struct cuda_function **functions;
    int function_count;
    struct map function_index;      // of each, by name
    struct cuda_products *products; // cuda_products.c; NULL before the first one
    unsigned long product_count[DTYPE_COUNT];
};

// Makes this thread speak to the GPU, which every call of the driver asks for.
void cuda_enter(struct cuda *cuda);

// True for success. Otherwise the sentence says what a call of this name was for.
bool cuda_check(const struct cuda *cuda, int status, const char *call, struct error *err, const char *purpose, ...)
    __attribute__((format(printf, 5, 6)));

void cuda_products_close(struct cuda *cuda);

#endif
