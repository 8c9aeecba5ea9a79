// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/ssm_scan.c: the rows of Mamba 2 (ssm_scan.cu): the short causal convolution and the selective scan.
#include "kernel/cuda/ssm_scan.h"

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

struct conv_variant {
    int tile_tokens;
};

static int describe_conv(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct conv_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    const struct conv_variant *variant = kernel->variant;
    const struct cuda_conv params = { .batch = *args->batch->on_device,
                                      .state = cuda_state_make(&args->state, 0),
                                      .x = (const uint16_t *)(const void *)args->x,
                                      .out = (uint16_t *)(void *)args->out,
                                      .kernel = args->kernel,
                                      .bias = args->bias,
                                      .inputs = layout->inputs,
                                      .channels = layout->channels,
                                      .tiles = (int32_t)cuda_blocks(shape->rows_each, variant->tile_tokens) };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(layout->channels, CONV_THREADS * CONV_CHANNELS),
                              cuda_blocks((int64_t)shape->sequences * params.tiles, 1), CONV_THREADS, &params,
                              sizeof params);
    return 1;
}

static int describe_ssm_scan(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                             struct cuda_call *calls)
{
    const struct ssm_scan_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    const struct cuda_ssm_scan params = { .batch = *args->batch->on_device,
                                          .state = cuda_state_make(&args->state, layout->matrix_offset),
                                          .mixed = (const uint16_t *)(const void *)args->mixed,
                                          .dt = (const uint16_t *)(const void *)args->dt,
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
    calls[0] = cuda_call_make(kernel->functions[0], (unsigned)layout->heads * cuda_blocks(layout->values, SCAN_COLUMNS),
                              cuda_blocks(shape->sequences, 1), SCAN_THREADS, &params, sizeof params);
    return 1;
}

#define ROW(word, id, loads, rank)                                                                              \
    .name = word, .functions = { word }, .device = DEVICE_CUDA, .op = OP_##id, .load = loads, .priority = rank, \
    .architectures = cuda_all_architectures
#define CONV(conv_width, rank)                                                                                  \
    ROW("conv_" #conv_width, CONV, KERNEL_ANY, rank), .conv_kernel_max = conv_width, .describe = describe_conv, \
        .variant = &(const struct conv_variant)                                                                 \
    {                                                                                                           \
        CONV_##conv_width##_TOKENS                                                                              \
    }
#define SCAN(keys, word, loads, rank) \
    ROW("ssm_scan_" #keys "_" #word, SSM_SCAN, loads, rank), .keys_max = keys, .describe = describe_ssm_scan

const struct kernel cuda_ssm_scan_rows[] = {
    { CONV(4, 2) },
    { CONV(16, 1) },
    { SCAN(128, decode, KERNEL_ROWS_1, 2) },
    { SCAN(128, prefill, KERNEL_ANY & ~KERNEL_ROWS_1, 2) },
    { SCAN(256, decode, KERNEL_ROWS_1, 1) },
    { SCAN(256, prefill, KERNEL_ANY & ~KERNEL_ROWS_1, 1) },
};
const int cuda_ssm_scan_count = sizeof cuda_ssm_scan_rows / sizeof *cuda_ssm_scan_rows;
