// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/gated_delta.c: the rows of the gated delta rule, recurrent form (gated_delta.cu).
#include "kernel/cuda/gated_delta.h"

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

static int describe_gated_delta(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                                struct cuda_call *calls)
{
    const struct gated_delta_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    const struct cuda_gated_delta params = { .batch = *args->batch->on_device,
                                             .state = cuda_state_make(&args->state, layout->matrix_offset),
                                             .mixed = (const uint16_t *)(const void *)args->mixed,
                                             .dt = (const uint16_t *)(const void *)args->dt,
                                             .beta = (const uint16_t *)(const void *)args->beta,
                                             .a = args->a,
                                             .dt_bias = args->dt_bias,
                                             .out = (uint16_t *)(void *)args->out,
                                             .groups = args->groups,
                                             .interleaved = args->interleaved,
                                             .heads = layout->heads,
                                             .keys = layout->keys,
                                             .values = layout->values };
    calls[0] = cuda_call_make(kernel->functions[0],
                              (unsigned)layout->heads * cuda_blocks(layout->values, DELTA_COLUMNS),
                              cuda_blocks(shape->sequences, 1), DELTA_THREADS, &params, sizeof params);
    return 1;
}

#define ROW(word, loads, rank)                                                                                         \
    .name = word, .functions = { word }, .device = DEVICE_CUDA, .op = OP_GATED_DELTA, .load = loads, .priority = rank, \
    .architectures = cuda_all_architectures, .describe = describe_gated_delta
#define USUAL .keys_max = DELTA_KEYS_USUAL, .keys_multiple = DELTA_RUN

const struct kernel cuda_gated_delta_rows[] = {
    { ROW("gated_delta_decode", KERNEL_ROWS_1, 2), USUAL },
    { ROW("gated_delta_prefill", KERNEL_ANY & ~KERNEL_ROWS_1, 2), USUAL },
    { ROW("gated_delta_any", KERNEL_ANY, 1), .keys_max = GATED_DELTA_KEYS_MAX },
};
const int cuda_gated_delta_count = sizeof cuda_gated_delta_rows / sizeof *cuda_gated_delta_rows;
