// SPDX-License-Identifier: Apache-2.0
// format/tensor.h: a named tensor in a file, for both GGUF and safetensors.
#ifndef FORMAT_TENSOR_H
#define FORMAT_TENSOR_H

#include "base/dtype.h"
#include "base/error.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are used as they lie in the files");

enum {
    TENSOR_RANK_MAX = 5,         // the patch embeddings of vision-language models have five
    TENSOR_NAME_BYTES_MAX = 255, // far above any in use; limits the length of error messages
};

struct tensor {
    const char *name; // terminated
    enum dtype dtype;
    int rank;                       // 0 is a scalar
    int64_t shape[TENSOR_RANK_MAX]; // outermost first: a linear weight is (out, in) in every container
    const char *data;               // borrowed from the mapped file; NULL where `source` is not
    size_t bytes;
    const struct tensor_source *source; // not NULL: it is made of others when it is loaded (model/tensor_source.h)
};

static inline int64_t tensor_values(const struct tensor *tensor)
{
    int64_t values = 1;
    for (int i = 0; i < tensor->rank; i++)
        values *= tensor->shape[i]; // the parser has refused overflow
    return values;
}

// Checks that both parsers do on their tensors.
bool tensor_measure(struct tensor *tensor, struct error *err); // sets bytes; refuses overflow and partial blocks
bool tensor_check_overlaps(const struct tensor *tensors, size_t count, struct error *err);

#endif
