// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_skinny.c: the rows of linear for decode (linear_skinny.cu): skinny GEMM of one to eight tokens at
// the speed of the memory that the weights come from.
#include "kernel/cuda/linear_rows.h"

enum { FUNCTION, NORM, CONVERT }; // a row's functions

struct skinny_variant {
    int record, record_bytes; // values along k, and the bytes that sixteen rows have of them
    int groups;               // of sixteen rows that a warp multiplies at a time
    bool f16;                 // x becomes float16: while it is copied into shared memory, or else before
};

// Ring buffers, two tiles' sums, gates, squares and factors of the norm, four barriers, x.
static size_t shared_bytes_of(const struct skinny_variant *variant, int warps, int x_rows, int in)
{
    int stage_bytes = variant->groups * variant->record_bytes;
    int ring_bytes = warps * linear_skinny_stages(stage_bytes) * stage_bytes;
    int sums = warps * LINEAR_ROWS * LINEAR_SKINNY_TOKENS * (variant->groups == 1 ? 3 : 4);
    int others = (warps + 2) * LINEAR_SKINNY_TOKENS;
    size_t x_bytes = (size_t)x_rows * cuda_blocks(in, variant->record) * (size_t)variant->record * sizeof(uint16_t);
    return (size_t)ring_bytes + (size_t)(sums + others) * sizeof(float) + 4 * sizeof(uint64_t) + x_bytes;
}

static int log2_of(int value)
{
    int shift = 0;
    while (value >> (shift + 1))
        shift++;
    return shift;
}

// Split-K over fewer warps where they would have less than four records each, if there are tiles enough for the others.
static int split_shift_of(int warps, int records, int tiles, int multiprocessors)
{
    int shift = log2_of(warps);
    while (shift > 2 && records < 4 << shift && tiles >= multiprocessors * 4 * (warps >> shift))
        shift--;
    return shift;
}

// How many warps multiply: to start sixteen takes longer than eight need for little work.
static int warps_of(const struct skinny_variant *variant, int records, int tiles, const struct cuda_shape *shape)
{
    enum { LITTLE_BYTES = 160 << 10 }; // of a block's weights
    int tile_bytes = records * variant->groups * variant->record_bytes, warps = LINEAR_SKINNY_WARPS_MAX;
    bool little = (int)cuda_blocks(tiles, shape->multiprocessors) <= LITTLE_BYTES / tile_bytes;
    return little || shared_bytes_of(variant, warps, 0, 0) > (size_t)shape->shared_bytes ? warps / 2 : warps;
}

// Blocks and the tiles that each has.
static struct cuda_linear_skinny grid_of(const struct cuda_linear *p, const struct skinny_variant *variant, int *warps,
                                         unsigned *blocks, const struct cuda_shape *shape)
{
    bool both = p->act >= 0 && p->outputs == 2;
    int tiles = 0, tile_rows = LINEAR_ROWS * (both ? 1 : variant->groups);
    int records = (int)cuda_blocks(p->in, variant->record);
    for (int i = 0; i < (both ? 1 : p->outputs); i++)
        tiles += (int)cuda_blocks(p->output[i].rows, tile_rows);
    *warps = warps_of(variant, records, tiles, shape);
    int split_shift = split_shift_of(*warps, records, tiles, shape->multiprocessors);
    int side_shift = log2_of(*warps) - split_shift;
    *blocks = cuda_blocks(tiles, 1 << side_shift);
    if (*blocks > (unsigned)shape->multiprocessors)
        *blocks = (unsigned)shape->multiprocessors;
    return (struct cuda_linear_skinny){ .split_shift = split_shift,
                                        .side_shift = side_shift,
                                        .tiles_each = tiles / (int)*blocks,
                                        .tiles_rest = tiles % (int)*blocks };
}

// A multiprocessor has one block, which asks for more than half of the shared memory: of two, one might wait for the
// other's results.
static int describe_skinny(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct skinny_variant *variant = kernel->variant;
    struct cuda_linear p = linear_params(arguments);
    size_t most = (size_t)shape->shared_bytes;
    int rows = shape->rows < LINEAR_SKINNY_TOKENS ? shape->rows : LINEAR_SKINNY_TOKENS, warps, count = 0;
    unsigned blocks;
    struct cuda_linear_skinny skinny = grid_of(&p, variant, &warps, &blocks, shape);
    skinny.x_shared = shared_bytes_of(variant, warps, rows, p.in) <= most;
    if (p.norm_weight && (!skinny.x_shared || variant->f16))
        calls[count++] = linear_normed(kernel->functions[NORM], &p, shape);
    if (variant->f16 && !skinny.x_shared) // behind the normed x, which it may read
        calls[count++] = linear_converted(kernel->functions[CONVERT], &p,
                                          (char *)p.scratch + linear_x_bytes(shape->rows, p.in), shape);
    skinny.linear = p;
    size_t shared_bytes = shared_bytes_of(variant, warps, skinny.x_shared ? rows : 0, p.in);
    calls[count] = cuda_call_make(kernel->functions[FUNCTION], blocks, 1, (unsigned)(warps + 1) * LINEAR_WARP, &skinny,
                                  sizeof skinny);
    calls[count].shared_bytes = (unsigned)(shared_bytes > most / 2 ? shared_bytes : most / 2 + 1);
    return count + 1;
}

static size_t f16_scratch(const struct kernel_extent *extent) { return 2 * linear_x_scratch(extent); }

#define SKINNY(word)                                                                   \
    .name = "linear_skinny_" word, LINEAR_CUDA, .priority = 10, .load = KERNEL_DECODE, \
    .architectures = cuda_all_architectures, .describe = describe_skinny,              \
    .fuses = KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD

enum { FLOAT_RECORD = 64, FLOAT_RECORD_BYTES = LINEAR_ROWS * FLOAT_RECORD * 2 };
static const struct skinny_variant bf16 = { FLOAT_RECORD, FLOAT_RECORD_BYTES, .groups = 1 };
static const struct skinny_variant f16 = { FLOAT_RECORD, FLOAT_RECORD_BYTES, .groups = 1, .f16 = true };

const struct kernel cuda_linear_skinny_rows[] = {
    { SKINNY("bf16"), .weights = DTYPE_BIT(BF16), .cols_multiple = LINEAR_FLOAT_COLUMNS,
      .scratch_bytes = linear_x_scratch, .functions = { "linear_skinny_bf16", "linear_norm" }, .variant = &bf16 },
    { SKINNY("f16"), .weights = DTYPE_BIT(F16), .cols_multiple = LINEAR_FLOAT_COLUMNS, .scratch_bytes = f16_scratch,
      .functions = { "linear_skinny_f16", "linear_norm", "linear_x_f16" }, .variant = &f16 },
#define X(kind, bits, block, floats, small, min)                                                              \
    { SKINNY(#kind), LINEAR_PACKED_ROW(kind), .scratch_bytes = linear_x_scratch,                              \
      .functions = { "linear_skinny_" #kind, "linear_norm" },                                                 \
      .variant = &(const struct skinny_variant){ LINEAR_RECORD, LINEAR_RECORD_BYTES(bits, block, small, min), \
                                                 .groups = 2 } },
    LINEAR_KINDS(X)
#undef X
};
const int cuda_linear_skinny_count = sizeof cuda_linear_skinny_rows / sizeof *cuda_linear_skinny_rows;
