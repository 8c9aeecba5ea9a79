// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/images.h: the compiled kernels that this build carries, made by kernel/cuda/embed.py, and the
// architectures that the sources are written for. Rows name the latter, so that every build plans alike; images say
// what can be run.
#ifndef KERNEL_CUDA_IMAGES_H
#define KERNEL_CUDA_IMAGES_H

#include <stddef.h>

#include "kernel/kernel.h"

struct cuda_image {
    const char *name; // of the .cu file
    int architecture; // 90 for sm_90; 0: PTX, for devices newer than every architecture of the build
    const unsigned char *bytes;
    size_t size;
    const struct cuda_image_function {
        const char *name;
        int shared_bytes; // static; not known of PTX
    } *functions;         // the kernels in it; ends in one without a name
};

extern const struct cuda_image cuda_images[]; // ends in one without a name
extern const int cuda_architectures[];  // that this build has images for; ends in 0; empty in a build without nvcc
extern const int cuda_ptx_architecture; // that PTX is compiled for; 0: there is none
extern const int cuda_driver_needed;    // 13000 for CUDA 13.0

// The architectures that the sources are written for (meson.build has the same lists): all files but the wgmma ones,
// and the wgmma ones.
extern const int cuda_all_architectures[], cuda_wgmma_architectures[]; // end in 0

// Whether kernels for these architectures run on a device. Each architecture must be named; family members do not run
// each other's code. A real device also needs an image of this build, or is newer than all that the build names and has
// the kernel as PTX, as those for all architectures are.
bool cuda_runs_on(const int *architectures, const struct device *device);

// Whether this build has code for a device of this architecture.
bool cuda_has_code(int sm);

// Whether a list names this architecture.
bool cuda_is_listed(const int *architectures, int sm);

// The architecture to whose limits the code of such a device is compiled: its own, or for PTX, which is for devices
// that are not known yet, one with as little shared memory as any (CUDA_PTX_SM).
int cuda_code_sm(int sm);

// Loads every image that is for this GPU.
bool cuda_load_images(struct cuda *cuda, struct error *err);

// Queues what a row has described: a kernel of these images, or a product.
bool cuda_call_queue(struct cuda *cuda, const struct cuda_call *call, struct error *err);

#endif
