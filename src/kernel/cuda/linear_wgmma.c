// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wgmma.c: the rows of linear for prefill with quantised weights on Hopper (linear_wide_wgmma.cu):
// mixed-precision GEMM, weights dequantised in registers for wgmma, Stream-K over the records of all tiles. One row of
// the table for each tile size; a tile serves the load whose tokens fill it best.
#include "kernel/cuda/linear_rows.h"

enum { FUNCTION, ARRANGE, COMBINE }; // a row's functions

struct wgmma_variant {
    int record_bytes, tokens; // tokens: of a tile
};

// Into which ranges the tiles of a launch are cut, for so many blocks at a time: equal parts of each tile (split-K) if
// these keep nearly all blocks busy, else equal parts of the whole, wherever tiles end (Stream-K). Up to 128 tokens
// neither depends on their number.
static void choose_ranges(struct cuda_linear_wide *wide, int tiles, int blocks, int tokens)
{
    int records = (int)cuda_blocks(wide->linear.in, LINEAR_RECORD), units = tiles * records, splits = 1;
    if (tokens <= LINEAR_SPLIT_TOKENS_MAX)
        splits = blocks / tiles < records / 4 ? blocks / tiles : records / 4;
    wide->splits = splits > 1 ? splits : 1;
    wide->ranges = tiles * wide->splits;
    int waves = (int)cuda_blocks(wide->ranges, blocks);
    if (tokens > LINEAR_SPLIT_TOKENS_MAX || 10 * wide->ranges >= 9 * waves * blocks || units < 4 * blocks) {
        wide->left = NULL;
    } else {
        wide->splits = 1;
        wide->ranges = blocks;
    }
    wide->each = units / wide->ranges;
    wide->rest = units % wide->ranges;
}

static size_t arranged_bytes(int rows, int in)
{
    return (size_t)cuda_blocks(rows, LINEAR_WGMMA_TOKENS_MAX) * LINEAR_WGMMA_TOKENS_MAX
        * (size_t)cuda_blocks(in, LINEAR_RECORD) * LINEAR_RECORD * sizeof(uint16_t);
}

// Scratch holds x arranged, a flag for each range, partial sums.
static_assert(LINEAR_RANGES_MAX * sizeof(int32_t) <= LINEAR_LEFT_BYTES, "a flag for each range");
static struct cuda_linear_wide wide_of(const struct linear_args *args, int tokens, const struct cuda_shape *shape)
{
    struct cuda_linear p = linear_params(args);
    uint8_t *left = (uint8_t *)p.scratch + arranged_bytes(shape->rows, p.in);
    return (struct cuda_linear_wide){ .linear = p,
                                      .x = p.scratch,
                                      .tokens = tokens,
                                      .left = (int32_t *)left,
                                      .partials = (float *)(left + LINEAR_LEFT_BYTES) };
}

static int describe_wgmma(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                          struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct wgmma_variant *variant = kernel->variant;
    int tokens = variant->tokens, warps = linear_wgmma_warps(tokens), blocks = shape->multiprocessors;
    struct cuda_linear_wide wide = wide_of(arguments, tokens, shape);
    unsigned token_tiles = cuda_blocks(shape->rows, tokens);
    calls[0] = cuda_call_make(kernel->functions[ARRANGE],
                              cuda_blocks(cuda_blocks(wide.linear.in, LINEAR_RECORD) * 16, LINEAR_SMALL_BLOCK),
                              token_tiles * (unsigned)tokens, LINEAR_SMALL_BLOCK, &wide, sizeof wide);
    choose_ranges(&wide, linear_tiles(&wide.linear, warps * LINEAR_ROWS),
                  blocks < LINEAR_RANGES_MAX ? blocks : LINEAR_RANGES_MAX, shape->rows);
    calls[1] = cuda_call_make(kernel->functions[FUNCTION], token_tiles, (unsigned)wide.ranges,
                              (unsigned)(warps * LINEAR_WARP), &wide, sizeof wide);
    calls[1].shared_bytes = (unsigned)(linear_wgmma_stages(variant->record_bytes, tokens)
                                           * linear_wgmma_stage_bytes(variant->record_bytes, tokens)
                                       + LINEAR_WGMMA_ALIGNMENT);
    if (wide.splits == 1)
        return 2;
    calls[2] = linear_combined(kernel->functions[COMBINE], &wide, shape);
    return 3;
}

static size_t wgmma_scratch(const struct kernel_extent *extent)
{
    return arranged_bytes(extent->rows, extent->width) + LINEAR_LEFT_BYTES + linear_partials_scratch(extent);
}

#define ROW(kind, tile, loads, bytes)                                                        \
    { .name = "linear_wgmma_" #kind "_" #tile,                                               \
      LINEAR_CUDA,                                                                           \
      LINEAR_PACKED_ROW(kind),                                                               \
      .priority = 20,                                                                        \
      .load = loads,                                                                         \
      .architectures = cuda_wgmma_architectures,                                             \
      .shared_bytes = LINEAR_WGMMA_SHARED_BYTES + LINEAR_WGMMA_BARRIER_BYTES,                \
      .fuses = KERNEL_FUSES_ADD,                                                             \
      .scratch_bytes = wgmma_scratch,                                                        \
      .describe = describe_wgmma,                                                            \
      .functions = { "linear_wgmma_" #kind "_" #tile, "linear_arrange", "linear_wide_add" }, \
      .variant = &(const struct wgmma_variant){ .record_bytes = bytes, .tokens = tile } },
#define ROWS(kind, bytes)                  \
    ROW(kind, 32, KERNEL_ROWS_32, bytes)   \
    ROW(kind, 64, KERNEL_ROWS_64, bytes)   \
    ROW(kind, 128, KERNEL_ROWS_128, bytes) \
    ROW(kind, 256, KERNEL_ROWS_MORE, bytes)

const struct kernel cuda_linear_wgmma_rows[] = {
#define X(kind, bits, block, floats, small, min) ROWS(kind, LINEAR_RECORD_BYTES(bits, block, small, min))
    LINEAR_KINDS(X)
#undef X
};
const int cuda_linear_wgmma_count = sizeof cuda_linear_wgmma_rows / sizeof *cuda_linear_wgmma_rows;
