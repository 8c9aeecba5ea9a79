// SPDX-License-Identifier: Apache-2.0
// device/cuda_library.h: NVIDIA's libraries, where they are installed.
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

// The first of these names, up to a NULL, that is found: where the loader looks, beside the program, in the toolkit's
// own folder or among Python's packages. NULL: none is. What was loaded is never unloaded.
void *cuda_library_open(const char *const *names);

#endif
