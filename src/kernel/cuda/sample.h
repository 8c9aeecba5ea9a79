// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/sample.h: drawing tokens on the device. It is no op of a model: the engine calls it after the logits.
// Rows whose rule is but a few numbers (struct cuda_sampling_row) are drawn there, the others on the host.
#ifndef KERNEL_CUDA_SAMPLE_H
#define KERNEL_CUDA_SAMPLE_H

#include "kernel/cuda/params.h"
#include "kernel/kernel.h"

// The functions that are launched, in this order.
enum { CUDA_SAMPLING_CALLS = 3 };
extern const char *const cuda_sampling_functions[CUDA_SAMPLING_CALLS];

// Whether tokens are drawn on the device: it lists the chunks of a vocabulary in shared memory.
bool cuda_sampling_fits(int vocabulary);

// Scratch memory for so many rows.
size_t cuda_sampling_bytes(int rows, int vocabulary);

// Describes the launches for at most `rows` rows; it fills in the scratch and the chunks of `sampling`. `scratch` is
// aligned by 16. The vocabulary fits.
int cuda_sampling_describe(const struct cuda_sampling *sampling, void *scratch, int rows,
                           struct cuda_call calls[CUDA_CALLS_MAX]);

#endif
