// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_native.c: linear with NVFP4 weights that are multiplied as they are, by cuBLASLt, on GPUs that
// can. Whether one can is what cuBLASLt says when it is asked for the first product: before anybody is served, in the
// row's self-test. Its other operand is NVFP4 as well, so that activations are rounded to 4 bits: nobody gets that who
// has not asked for it, and who has gets it for few tokens and for many alike.
#include "kernel/cuda/linear_native.h"

#include <assert.h>
#include <string.h>

#include "kernel/blocks.h"
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { X_BLOCK = 128, FINISH_BLOCK = 256, FINISH_BLOCKS_MAX = 1024 };
enum { BLOCK_VALUES = 64, BLOCK_RUNS = BLOCK_VALUES / NVFP4_RUN };

// ---- weights ----

static size_t native_bytes(enum dtype dtype, int rows, int cols)
{
    assert(dtype == DTYPE_NVFP4_GGUF && cols % BLOCK_VALUES == 0);
    return linear_native_scales(rows, cols) + nvfp4_scales_bytes(rows, cols / NVFP4_RUN);
}

// A file has the codes of values i and i + 8 of a run in one byte.
static void pack_run(const uint8_t *from, uint8_t *to)
{
    for (int i = 0; i < NVFP4_RUN / 4; i++) {
        int a = from[2 * i], b = from[2 * i + 1];
        to[i] = (uint8_t)((a & 15) | (b & 15) << 4);
        to[i + NVFP4_RUN / 4] = (uint8_t)(a >> 4 | (b & 0xF0));
    }
}

static void pack_row(const struct weight *weight, int row, uint8_t *codes, uint8_t *scales)
{
    int blocks = weight->cols / BLOCK_VALUES;
    const struct NVFP4_GGUF *block = (const struct NVFP4_GGUF *)weight->data + (size_t)row * (size_t)blocks;
    codes += (size_t)row * (size_t)(weight->cols / 2);
    for (int i = 0; i < blocks; i++, block++)
        for (int s = 0; s < BLOCK_RUNS; s++, codes += NVFP4_RUN / 2) {
            pack_run(block->codes + s * (NVFP4_RUN / 2), codes);
            scales[nvfp4_scale_at(row, i * BLOCK_RUNS + s, weight->cols / NVFP4_RUN)] = nvfp4_scale(block, s);
        }
}

// A share is whole rows of tiles, so that no two callers write into one. Rows that fill up the last have a scale of 0.
static void pack_native(const struct weight *weight, int part, int parts, void *out)
{
    int first, end, runs = weight->cols / NVFP4_RUN;
    uint8_t *codes = out, *scales = codes + linear_native_scales(weight->rows, weight->cols);
    kernel_share(nvfp4_tiles(weight->rows, NVFP4_TILE_ROWS), part, parts, &first, &end);
    memset(scales + nvfp4_scales_bytes(first * NVFP4_TILE_ROWS, runs), 0,
           nvfp4_scales_bytes((end - first) * NVFP4_TILE_ROWS, runs));
    for (int row = first * NVFP4_TILE_ROWS; row < end * NVFP4_TILE_ROWS && row < weight->rows; row++)
        pack_row(weight, row, codes, scales);
}

const struct kernel_packing linear_native_packing = { .name = "nvfp4", .bytes = native_bytes, .pack = pack_native };

// ---- calls ----

// y = y + bias, which a product does not do.
static struct cuda_call finish(const struct linear_args *args, const struct cuda_product *product, const float *bias)
{
    struct cuda_linear p = { .rows = args->rows,
                             .act = -1,
                             .f32_out = product->f32_out,
                             .outputs = 1,
                             .output = { { .bias = bias, .y = product->y, .rows = product->out, .scale = 1 } } };
    unsigned blocks = cuda_blocks((int64_t)product->rows * product->out, FINISH_BLOCK);
    return cuda_call_make("linear_finish_bf16", blocks < FINISH_BLOCKS_MAX ? blocks : FINISH_BLOCKS_MAX, 1,
                          FINISH_BLOCK, &p, sizeof p);
}

static int describe_native(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct linear_args *args = arguments;
    uint8_t *codes = args->scratch, *scales = codes + linear_native_scales(shape->rows, args->in);
    struct cuda_linear_x x = { args->rows, (const uint16_t *)(const void *)args->x, codes, scales, args->in };
    int rows = nvfp4_tiles(shape->rows, NVFP4_TILE_ROWS) * NVFP4_TILE_ROWS, count = 0;
    calls[count++] = cuda_call_make("linear_x_nvfp4", cuda_blocks(args->in / NVFP4_RUN, X_BLOCK), (unsigned)rows,
                                    X_BLOCK, &x, sizeof x);
    for (int i = 0; i < args->outputs; i++) {
        const struct linear_output *output = &args->output[i];
        const uint8_t *w = output->weight.data;
        struct cuda_product product = { .dtype = DTYPE_NVFP4_GGUF,
                                        .rows = shape->rows,
                                        .in = args->in,
                                        .out = output->weight.rows,
                                        .x = codes,
                                        .x_scales = scales,
                                        .w = w,
                                        .w_scales = w + linear_native_scales(output->weight.rows, args->in),
                                        .y = args->add ? args->add->x : output->y,
                                        .factor = output->weight.scale,
                                        .f32_out = args->add || args->f32_y,
                                        .accumulate = args->add != NULL };
        calls[count++] = (struct cuda_call){ .product = product };
        if (output->bias)
            calls[count++] = finish(args, &product, output->bias);
    }
    assert(count <= CUDA_CALLS_MAX);
    return count;
}

static size_t native_scratch(const struct kernel_extent *extent)
{
    return linear_native_scales(extent->rows, extent->width)
        + nvfp4_scales_bytes(extent->rows, extent->width / NVFP4_RUN);
}

const struct kernel cuda_native_rows[] = {
    { .name = "linear_cuda_nvfp4",
      .device = DEVICE_CUDA,
      .op = OP_LINEAR,
      .load = KERNEL_ANY,
      .priority = 30,
      .architectures = cuda_all_architectures,
      .sm_min = 100,
      .weights = DTYPE_BIT(NVFP4_GGUF),
      .nvfp4 = DTYPE_BIT(NVFP4_GGUF),
      .packing = &linear_native_packing,
      .rows_multiple = 16,
      .tolerance = 0.015f,
      .fuses = KERNEL_FUSES_ADD,
      .scratch_bytes = native_scratch,
      .describe = describe_native },
};
const int cuda_native_count = sizeof cuda_native_rows / sizeof *cuda_native_rows;
