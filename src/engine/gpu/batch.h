// SPDX-License-Identifier: Apache-2.0
// engine/gpu/batch.h: host-to-device transfer of a step's batch. The batch is one block of bytes that is filled on the
// host, copied to a GPU at once and read there through a struct cuda_batch. The maxima decide where its parts lie, with
// the page tables last, so that a step copies only the tables that it has. Blocks of several maxima may use the same
// memory, one at a time.
#ifndef ENGINE_GPU_BATCH_H
#define ENGINE_GPU_BATCH_H

#include "kernel/cuda/params.h"
#include "kernel/op.h"

struct cuda_batch_block {
    int tokens, sequences, outputs, classes; // the most that fits
    size_t pages;                            // entries of all page tables together, likewise
    size_t bytes;                            // of the whole block
};

// Sets `bytes` from the rest.
void cuda_batch_measure(struct cuda_batch_block *block);

// The view of a block that kernels get: pointers to its parts, for a block that begins at this address of the device.
struct cuda_batch cuda_batch_view(const struct cuda_batch_block *block, const void *device);

// Writes the batch into the host's copy of a block and returns how many of its bytes are to be copied to the device.
// Pages that a window has given back take no room: the others keep their index.
size_t cuda_batch_fill(const struct cuda_batch_block *block, const struct batch *batch, void *host);

// How many entries of page tables a batch has in one class, those of given back pages not counted.
size_t cuda_batch_pages(const struct batch *batch, int class_index);

#endif
