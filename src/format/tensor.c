// SPDX-License-Identifier: Apache-2.0
#include "format/tensor.h"

#include <stdlib.h>

#include "base/memory.h"

bool tensor_measure(struct tensor *tensor, struct error *err)
{
    const struct dtype_info *type = &dtype_table[tensor->dtype];
    int64_t values = 1;
    for (int i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(values, tensor->shape[i], &values))
            return fail(err, "tensor '%s' has more values than 64 bits can count", tensor->name);
    int64_t row = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    if (row % type->block)
        return fail(err, "tensor '%s' has rows of %lld values, and %s comes in blocks of %d", tensor->name,
                    (long long)row, type->word, type->block);
    if (values / type->block > INT64_MAX / type->block_bytes)
        return fail(err, "tensor '%s' has more bytes than 64 bits can count", tensor->name);
    tensor->bytes = dtype_bytes(tensor->dtype, (size_t)values);
    return true;
}

static int compare_places(const void *a, const void *b)
{
    const struct tensor *left = *(const struct tensor *const *)a, *right = *(const struct tensor *const *)b;
    if (left->data != right->data)
        return left->data < right->data ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes); // an empty tensor sorts first
}

bool tensor_check_overlaps(const struct tensor *tensors, size_t count, struct error *err)
{
    const struct tensor **sorted = memory_new(count, sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &tensors[i];
    qsort(sorted, count, sizeof *sorted, compare_places);
    bool ok = true;
    for (size_t i = 1; ok && i < count; i++)
        if (sorted[i - 1]->data + sorted[i - 1]->bytes > sorted[i]->data)
            ok = fail(err, "tensors '%s' and '%s' overlap; the file is damaged, download it again", sorted[i - 1]->name,
                      sorted[i]->name);
    free(sorted);
    return ok;
}
