// SPDX-License-Identifier: Apache-2.0
// engine/kernels/ceiling.h: roofline ceilings: the highest memory bandwidth and arithmetic throughput of a machine,
// measured. The speed of a kernel means little without them.
#ifndef ENGINE_KERNELS_CEILING_H
#define ENGINE_KERNELS_CEILING_H

#include "device/cuda.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "nibble.h"

// On a CPU reading is measured with each instruction set and with prefetching, for working sets from a cache's size to
// far beyond; the fastest counts.
bool ceiling_measure(struct nibble_ceiling *ceiling, struct thread_pool *pool, const struct device *device,
                     struct error *err);

// The same of a GPU: memory by copying, arithmetic by products of bfloat16. Takes 1 GB of it for the time being.
bool ceiling_measure_cuda(struct nibble_ceiling *ceiling, struct cuda *cuda, struct error *err);

#endif
