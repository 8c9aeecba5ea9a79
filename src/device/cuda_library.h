// SPDX-License-Identifier: Apache-2.0
// device/cuda_library.h: dlopen of NVIDIA's libraries (cuBLASLt, NCCL) from their usual places.
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

// Opens the first of these names (NULL-terminated) that is found by the loader, beside the program, in the CUDA
// toolkit's folder or among Python's packages. NULL if none is. Libraries are never unloaded.
void *cuda_library_open(const char *const *names);

#endif
