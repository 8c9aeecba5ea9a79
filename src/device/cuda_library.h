// SPDX-License-Identifier: Apache-2.0
// device/cuda_library.h: dlopen of NVIDIA's libraries (cuBLASLt, NCCL) from their usual places.
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

#include <stddef.h>

// Opens the first of these names (NULL-terminated) that is found by the loader, beside the program, in the CUDA
// toolkit's folder or among Python's packages. NULL if none is. Libraries are never unloaded.
void *cuda_library_open(const char *const *names);

// A function of a library and the pointer to set.
struct library_call {
    const char *symbol;
    void **slot;
};

// Looks up `count` functions; returns the first missing symbol, or NULL.
const char *cuda_library_bind(void *library, const struct library_call *calls, size_t count);

#endif
