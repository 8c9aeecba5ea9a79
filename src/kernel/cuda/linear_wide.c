// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wide.c: the rows of linear for prefill with quantised weights (linear_wide.cu): mixed-precision
// GEMM, weights dequantised in registers for mma, one row of the table for each tile size. A tile serves the load whose
// tokens fill it best; the larger loads, too, where shared memory is too small for their own.
#include "kernel/cuda/linear_rows.h"

enum { FUNCTION, COMBINE }; // a row's functions

struct wide_variant {
    int record_bytes, tokens; // tokens: of a tile
};

#define SHARED_BYTES(warps, record_bytes, tokens) \
    (LINEAR_WIDE_STAGES                           \
     * ((warps) * (LINEAR_WIDE_WARP_ROWS / LINEAR_ROWS) * (record_bytes) + (tokens) * LINEAR_RECORD * 2))

// Split-K: into how many parts k is cut, so that few tokens still keep a GPU busy.
static int splits_of(int tiles, int tile_rows, int tokens, int in)
{
    int splits = tokens <= LINEAR_SPLIT_TOKENS_MAX ? LINEAR_SPLIT_ROWS_MAX / (tiles * tile_rows) : 1;
    int most = (int)cuda_blocks(in, LINEAR_RECORD) / 4;
    splits = splits < most ? splits : most;
    return splits > 1 ? splits : 1;
}

static int describe_wide(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct wide_variant *variant = kernel->variant;
    struct cuda_linear_wide wide = { .linear = linear_params(arguments) };
    int tokens = variant->tokens, warps = LINEAR_WIDE_WARPS_MAX;
    while (warps > 1 && SHARED_BYTES(warps, variant->record_bytes, tokens) > shape->shared_bytes)
        warps /= 2;
    int tile_rows = warps * LINEAR_WIDE_WARP_ROWS, tiles = linear_tiles(&wide.linear, tile_rows);
    wide.partials = wide.linear.scratch;
    wide.splits = splits_of(tiles, tile_rows, shape->rows, wide.linear.in);
    calls[0] = cuda_call_make(kernel->functions[FUNCTION], cuda_blocks(shape->rows, tokens), (unsigned)tiles,
                              (unsigned)(warps * LINEAR_WARP), &wide, sizeof wide);
    calls[0].grid[2] = (unsigned)wide.splits;
    calls[0].shared_bytes = (unsigned)SHARED_BYTES(warps, variant->record_bytes, tokens);
    if (wide.splits == 1)
        return 1;
    calls[1] = linear_combined(kernel->functions[COMBINE], &wide, shape);
    return 2;
}

// The largest tile has priority. A row needs shared memory for all warps; the smallest tile can do with fewer of them.
#define ROW(kind, tile, order, loads, bytes, all_bytes)                   \
    { .name = "linear_wide_" #kind "_" #tile,                             \
      LINEAR_CUDA,                                                        \
      LINEAR_PACKED_ROW(kind),                                            \
      .priority = order,                                                  \
      .load = loads,                                                      \
      .architectures = cuda_all_architectures,                            \
      .shared_bytes = all_bytes,                                          \
      .fuses = KERNEL_FUSES_ADD,                                          \
      .scratch_bytes = linear_partials_scratch,                           \
      .describe = describe_wide,                                          \
      .functions = { "linear_wide_" #kind "_" #tile, "linear_wide_add" }, \
      .variant = &(const struct wide_variant){ .record_bytes = bytes, .tokens = tile } },
#define ROWS(kind, bytes)                                                         \
    ROW(kind, 32, 10, KERNEL_PREFILL, bytes, 0)                                   \
    ROW(kind, 64, 11, KERNEL_ROWS_64 | KERNEL_ROWS_128 | KERNEL_ROWS_MORE, bytes, \
        SHARED_BYTES(LINEAR_WIDE_WARPS_MAX, bytes, 64))                           \
    ROW(kind, 128, 12, KERNEL_ROWS_128 | KERNEL_ROWS_MORE, bytes, SHARED_BYTES(LINEAR_WIDE_WARPS_MAX, bytes, 128))

const struct kernel cuda_linear_wide_rows[] = {
#define X(kind, bits, block, floats, small, min) ROWS(kind, LINEAR_RECORD_BYTES(bits, block, small, min))
    LINEAR_KINDS(X)
#undef X
};
const int cuda_linear_wide_count = sizeof cuda_linear_wide_rows / sizeof *cuda_linear_wide_rows;
