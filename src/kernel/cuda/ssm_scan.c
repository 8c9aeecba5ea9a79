// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/ssm_scan.c: the rows of scan.cu.
#include "kernel/cuda/ssm_scan.h"

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

static int describe_conv(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct conv_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    bool few = layout->inputs < CONV_TAPS_FEW;
    const struct cuda_conv params = { .batch = *args->batch->on_device,
                                      .state = cuda_state_make(&args->state, 0),
                                      .x = (const uint16_t *)(const void *)args->x,
                                      .out = (uint16_t *)(void *)args->out,
                                      .kernel = args->kernel,
                                      .bias = args->bias,
                                      .inputs = layout->inputs,
                                      .channels = layout->channels,
                                      .tiles = (int32_t)cuda_blocks(shape->rows_each,
                                                                    few ? CONV_TOKENS_FEW : CONV_TOKENS_MANY) };
    calls[0] = cuda_call_make(few ? "conv_4" : "conv_16", cuda_blocks(layout->channels, CONV_THREADS * CONV_CHANNELS),
                              cuda_blocks((int64_t)shape->sequences * params.tiles, 1), CONV_THREADS, &params,
                              sizeof params);
    return 1;
}

static int describe_ssm_scan(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                             struct cuda_call *calls)
{
    static const char *const functions[2][2] = { { "scan_256_wide", "scan_256_one" },
                                                 { "scan_128_wide", "scan_128_one" } };
    const struct ssm_scan_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    const struct cuda_scan params = { .batch = *args->batch->on_device,
                                      .state = cuda_state_make(&args->state, layout->matrix_offset),
                                      .mixed = (const uint16_t *)(const void *)args->mixed,
                                      .time = (const uint16_t *)(const void *)args->time,
                                      .a = args->a,
                                      .d = args->d,
                                      .dt_bias = args->dt_bias,
                                      .out = (uint16_t *)(void *)args->out,
                                      .groups = args->groups,
                                      .heads = layout->heads,
                                      .keys = layout->keys,
                                      .values = layout->values,
                                      .dt_min = args->dt_min,
                                      .dt_max = args->dt_max };
    calls[0] = cuda_call_make(functions[layout->keys <= SCAN_KEYS_FEW][shape->rows_each == 1],
                              (unsigned)layout->heads * cuda_blocks(layout->values, SCAN_COLUMNS),
                              cuda_blocks(shape->sequences, 1), SCAN_THREADS, &params, sizeof params);
    return 1;
}

const struct kernel cuda_scan_rows[] = {
    { .name = "conv_cuda",
      .device = DEVICE_CUDA,
      .op = OP_CONV,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_conv },
    { .name = "ssm_scan_cuda",
      .device = DEVICE_CUDA,
      .op = OP_SSM_SCAN,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_ssm_scan },
};
const int cuda_scan_count = sizeof cuda_scan_rows / sizeof *cuda_scan_rows;
