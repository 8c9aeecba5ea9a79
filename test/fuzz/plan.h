// SPDX-License-Identifier: Apache-2.0
// test/fuzz/plan.h: from the headers of a checkpoint to a plan, on the devices and with the caches that a byte chooses.
// Headers come without weights: behind them lie zeros, as many as small models have.
#ifndef FUZZ_PLAN_H
#define FUZZ_PLAN_H

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

enum { WEIGHT_BYTES = 16 << 20 };

// The header with zeros behind it; the same memory each time, so that nothing is allocated or cleared but what was
// used.
static inline struct bytes with_weights(struct bytes header)
{
    static char *file;
    static size_t used;
    if (!file)
        file = memory_map_new(WEIGHT_BYTES);
    if (header.len > used)
        used = header.len;
    memset(file, 0, used);
    memcpy(file, header.data, header.len);
    return (struct bytes){ file, WEIGHT_BYTES };
}

static inline void add_tensors(struct checkpoint *checkpoint, const struct tensor *tensors, size_t count)
{
    checkpoint->tensors = tensors;
    checkpoint->tensor_count = count;
    for (size_t i = 0; i < count; i++)
        map_put(&checkpoint->names, bytes_of(tensors[i].name), (int64_t)i);
}

static inline void describe_and_plan(const struct checkpoint *checkpoint, uint8_t choice)
{
    static const char *const devices[] = { "cpu:avx512", "cpu:ref", "sm_90" };
    static const char *const caches[] = { NULL, "fp8", "nvfp4", "0:bfloat16,1-:fp8/nvfp4" };
    struct plan_options options = { .user.kv_cache_dtype = caches[choice / 3 % 4], .user.max_num_seqs = 4 };
    struct device device;
    struct model model;
    struct plan plan;
    struct error err;
    if (!device_parse(&device, devices[choice % 3], &err))
        abort();
    if (!model_describe(&model, checkpoint, &err))
        return;
    plan_make(&plan, &model, &device, &options, &err);
    plan_free(&plan);
    model_free(&model);
}

#endif
