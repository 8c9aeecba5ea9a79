// SPDX-License-Identifier: Apache-2.0
// format/safetensors.h: the safetensors container. After safetensors_parse returns true every tensor lies inside the
// file, no two overlap, and its byte range is exactly what its type and shape need.
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/tensor.h"

struct safetensors {
    struct tensor *tensors; // in header order
    size_t tensor_count;
    struct arena arena;
};

bool safetensors_parse(struct bytes in, struct safetensors *out, struct error *err); // on failure nothing needs freeing
void safetensors_free(struct safetensors *file);

#endif
