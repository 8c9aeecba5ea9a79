// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_native.c: block-scaled W4A4 GEMM: NVFP4 weights multiplied as they are by cuBLASLt, on GPUs whose
// tensor cores take them (Blackwell). cuBLASLt says whether a GPU has them when it is asked for the first product, in
// the row's self-test at start-up. Activations are rounded to NVFP4 as well, which is done only where the user asks for
// it, and then in decode and prefill alike.
#include "kernel/cuda/linear_native.h"

#include <assert.h>
#include <string.h>

#include "kernel/blocks.h"
#include "kernel/cuda/linear_rows.h"

enum { PRODUCT, QUANTISE, FINISH }; // the row's functions
enum { X_BLOCK = 128 };
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

// A chunk is whole rows of tiles, so that no two chunks write into one. Rows that fill up the last have a scale of 0.
static void pack_native(const struct weight *weight, int chunk, int chunks, void *out)
{
    int first, end, runs = weight->cols / NVFP4_RUN;
    uint8_t *codes = out, *scales = codes + linear_native_scales(weight->rows, weight->cols);
    kernel_range(nvfp4_tiles(weight->rows, NVFP4_TILE_ROWS), chunk, chunks, &first, &end);
    memset(scales + nvfp4_scales_bytes(first * NVFP4_TILE_ROWS, runs), 0,
           nvfp4_scales_bytes((end - first) * NVFP4_TILE_ROWS, runs));
    for (int row = first * NVFP4_TILE_ROWS; row < end * NVFP4_TILE_ROWS && row < weight->rows; row++)
        pack_row(weight, row, codes, scales);
}

const struct kernel_packing linear_native_packing = { .name = "nvfp4", .bytes = native_bytes, .pack = pack_native };

// ---- calls ----

static struct cuda_call quantise_x(const struct kernel *kernel, const struct linear_args *args,
                                   const struct cuda_shape *shape, uint8_t *codes, uint8_t *scales)
{
    struct cuda_linear_x x = { args->rows, (const uint16_t *)(const void *)args->x, codes, scales, args->in };
    int rows = nvfp4_tiles(shape->rows, NVFP4_TILE_ROWS) * NVFP4_TILE_ROWS;
    return cuda_call_make(kernel->functions[QUANTISE], cuda_blocks(args->in / NVFP4_RUN, X_BLOCK), (unsigned)rows,
                          X_BLOCK, &x, sizeof x);
}

// A product scales its result but knows no bias.
static int describe_native(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    struct cuda_linear all = linear_params(arguments);
    uint8_t *codes = all.scratch, *scales = codes + linear_native_scales(shape->rows, all.in);
    int count = 0;
    calls[count++] = quantise_x(kernel, arguments, shape, codes, scales);
    for (int i = 0; i < all.outputs; i++) {
        struct cuda_linear p = linear_params_at(&all, i);
        struct cuda_linear_output *output = &p.output[0];
        calls[count++] = (struct cuda_call){
            .product = { .dtype = DTYPE_NVFP4_GGUF,
                         .rows = shape->rows,
                         .in = p.in,
                         .out = output->rows,
                         .x = codes,
                         .x_scales = scales,
                         .w = output->weight,
                         .w_scales = output->weight + linear_native_scales(output->rows, p.in),
                         .y = output->y,
                         .factor = output->scale,
                         .f32_out = p.residual || p.f32_out,
                         .accumulate = p.residual },
        };
        output->scale = 1;
        if (output->bias)
            calls[count++] = linear_elementwise(kernel->functions[FINISH], &p, (int64_t)shape->rows * output->rows);
    }
    return count;
}

static size_t native_scratch(const struct kernel_extent *extent)
{
    return linear_native_scales(extent->rows, extent->width)
        + nvfp4_scales_bytes(extent->rows, extent->width / NVFP4_RUN);
}

const struct kernel cuda_linear_native_rows[] = {
    { .name = "linear_cublaslt_nvfp4",
      LINEAR_CUDA,
      .load = KERNEL_ANY,
      .priority = 30,
      .architectures = cuda_all_architectures,
      .sm_min = 100,
      .weights = DTYPE_BIT(NVFP4_GGUF),
      .nvfp4 = DTYPE_BIT(NVFP4_GGUF),
      .packing = &linear_native_packing,
      .rows_multiple = 16,
      .fuses = KERNEL_FUSES_ADD,
      .scratch_bytes = native_scratch,
      .describe = describe_native,
      .functions = { "cublaslt_nvfp4", "linear_x_nvfp4", "linear_finish_bf16" } },
};
const int cuda_linear_native_count = sizeof cuda_linear_native_rows / sizeof *cuda_linear_native_rows;
