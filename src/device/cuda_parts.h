// SPDX-License-Identifier: Apache-2.0
// device/cuda_parts.h: struct cuda, private to device/cuda_*.c and ranks/nccl.c.
#ifndef DEVICE_CUDA_PARTS_H
#define DEVICE_CUDA_PARTS_H

#include "base/dtype.h"
#include "base/map.h"
#include "device/cuda_driver.h"

struct cuda {
    struct cuda_driver driver;
    int ordinal, device; // CUDA ordinal, and the driver's CUdevice
    struct cuda_device facts;
    int driver_version, sm;
    struct cuda_context *context;
    struct cuda_stream *stream;
    bool capturing;
    const char *last; // last queued work, for messages about asynchronous errors
    struct cuda_module **modules;
    int module_count;
    struct cuda_function **functions;
    int function_count;
    struct map function_index;      // name -> index into functions
    struct cuda_products *products; // cuda_products.c; NULL before the first GEMM
    unsigned long product_count[DTYPE_COUNT];
};

// Makes the GPU's context current in this thread (cuCtxSetCurrent); needed before every driver call.
void cuda_enter(struct cuda *cuda);

// True for success. Otherwise err gets the call's name, its purpose and the driver's message.
bool cuda_check(const struct cuda *cuda, int status, const char *call, struct error *err, const char *purpose, ...)
    __attribute__((format(printf, 5, 6)));

void cuda_products_close(struct cuda *cuda);

#endif
