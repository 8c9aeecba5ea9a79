// SPDX-License-Identifier: Apache-2.0
// format/safetensors_write.h: writes a checkpoint's weights as safetensors. All tensors are declared first, then the
// files are made at their full size, then data is written in any order. One file is model.safetensors; several are
// model-00001-of-00003.safetensors and so on, with model.safetensors.index.json.
//   (1) within a file tensors with wide elements come first, so that each tensor is aligned to its element
//   (2) there are no gaps between tensors
#ifndef FORMAT_SAFETENSORS_WRITE_H
#define FORMAT_SAFETENSORS_WRITE_H

#include "base/error.h"
#include "base/memory.h"
#include "format/tensor.h"

struct safetensors_out {
    const char *folder;
    struct safetensors_entry *entries; // in the order in which they were added
    size_t count, capacity;
    struct safetensors_shard *shards;
    size_t shard_count;
    struct arena arena;
};

// safetensors_out_add declares a tensor and returns its index. The folder and names are copied; the dtype must have a
// safetensors name.
void safetensors_out_open(struct safetensors_out *out, const char *folder);
size_t safetensors_out_add(struct safetensors_out *out, const char *name, enum dtype dtype, int rank,
                           const int64_t *shape);

// Makes the files, each with at most shard_bytes of data unless a single tensor is larger. Preallocates them, so that a
// full disk is found here.
bool safetensors_out_begin(struct safetensors_out *out, size_t shard_bytes, struct error *err);

bool safetensors_out_put(struct safetensors_out *out, size_t entry, size_t offset, const void *data, size_t bytes,
                         struct error *err);

// Writes the index and fsyncs everything.
bool safetensors_out_finish(struct safetensors_out *out, struct error *err);
void safetensors_out_close(struct safetensors_out *out); // unfinished files stay on disk

#endif
