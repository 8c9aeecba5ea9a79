// SPDX-License-Identifier: Apache-2.0
// engine/kernels/ceiling.h: roofline ceilings: the highest memory bandwidth and arithmetic throughput of a machine,
// measured. The speed of a kernel means little without them.
#ifndef ENGINE_KERNELS_CEILING_H
#define ENGINE_KERNELS_CEILING_H

#include "device/cuda.h"
#include "device/device.h"
#include "device/thread_pool.h"

struct ceiling {
    double bytes_per_s;    // read from memory, far beyond the caches
    double flops_per_s;    // f32 multiply-adds, two each
    double int8_ops_per_s; // the same of 8-bit integers
};

bool ceiling_measure(struct ceiling *ceiling, struct thread_pool *pool, const struct device *device, struct error *err);

// The same of a GPU: memory by copying, arithmetic by products of bfloat16. Takes 1 GB of it for the time being.
bool ceiling_measure_cuda(struct ceiling *ceiling, struct cuda *cuda, struct error *err);

double ceiling_now(void); // seconds, from some moment on

#endif
