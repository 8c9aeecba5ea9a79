// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/gated_delta.c: the row of delta.cu.
#include "kernel/cuda/gated_delta.h"

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

static int describe_gated_delta(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                                struct cuda_call *calls)
{
    const struct gated_delta_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    const struct cuda_delta params = { .batch = *args->batch->on_device,
                                       .state = cuda_state_make(&args->state, layout->matrix_offset),
                                       .mixed = (const uint16_t *)(const void *)args->mixed,
                                       .time = (const uint16_t *)(const void *)args->time,
                                       .beta = (const uint16_t *)(const void *)args->beta,
                                       .a = args->a,
                                       .dt_bias = args->dt_bias,
                                       .out = (uint16_t *)(void *)args->out,
                                       .groups = args->groups,
                                       .in_turns = args->in_turns,
                                       .heads = layout->heads,
                                       .keys = layout->keys,
                                       .values = layout->values };
    int width = 2 * args->groups * layout->keys + layout->heads * layout->values;
    bool usual = layout->keys <= DELTA_KEYS_FEW && layout->keys % DELTA_RUN == 0 && width % DELTA_RUN == 0;
    const char *function = !usual ? "delta_any" : shape->rows_each > 1 ? "delta_some" : "delta_one";
    calls[0] = cuda_call_make(function, (unsigned)layout->heads * cuda_blocks(layout->values, DELTA_COLUMNS),
                              cuda_blocks(shape->sequences, 1), DELTA_THREADS, &params, sizeof params);
    return 1;
}

const struct kernel cuda_delta_rows[] = {
    { .name = "gated_delta_cuda",
      .device = DEVICE_CUDA,
      .op = OP_GATED_DELTA,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_gated_delta },
};
const int cuda_delta_count = sizeof cuda_delta_rows / sizeof *cuda_delta_rows;
