// SPDX-License-Identifier: Apache-2.0
// format/safetensors_write.h: a checkpoint's weights as safetensors files. First every tensor is named, then the files
// are made at their full size, then bytes are put where they belong, in any order. One file is model.safetensors;
// several are model-00001-of-00003.safetensors and so on, with model.safetensors.index.json beside them.
//   (1) within a file tensors with wide elements come first, so that each lies at a multiple of its element's size
//   (2) there are no holes between them
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

// The tensor's place in what follows. The folder and names are copied; the type must be one that safetensors have.
void safetensors_out_open(struct safetensors_out *out, const char *folder);
size_t safetensors_out_add(struct safetensors_out *out, const char *name, enum dtype dtype, int rank,
                           const int64_t *shape);

// Makes the files, none with more than shard_bytes of data unless a single tensor has more. A disk without room for
// them is found here, where the file system can tell.
bool safetensors_out_begin(struct safetensors_out *out, size_t shard_bytes, struct error *err);

bool safetensors_out_put(struct safetensors_out *out, size_t entry, size_t offset, const void *data, size_t bytes,
                         struct error *err);

// Everything is on the disk when this returns true.
bool safetensors_out_finish(struct safetensors_out *out, struct error *err);
void safetensors_out_close(struct safetensors_out *out); // files that are not finished stay, and are no checkpoint

#endif
