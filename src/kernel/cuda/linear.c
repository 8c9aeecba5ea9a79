// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear.c: which kernels do a linear op, and on how much of the GPU.
//   (1) matrices of one op may differ in format; those that are alike go into one launch
//   (2) few tokens:  linear_skinny_*; what it cannot read goes to linear_any_*
//   (3) many tokens: 16-bit matrices go to cuBLASLt, quantised ones to linear_wgmma_* on sm_90 and to linear_wide_*
//       elsewhere, float32 to linear_any_f32
#include "kernel/cuda/linear.h"

#include <assert.h>

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { PIECE = 8, WARP = 32, ANY_WARPS = 8, ANY_TOKENS = 64, SMALL_BLOCK = 256, SMALL_BLOCKS_MAX = 1024 };
enum { TILE_TOKENS = 32, WIDE_SIZES = 3, WGMMA_SIZES = 4 }; // tiles of 32, 64, 128 and 256 tokens

// The kernels of a packed kind, or of 16-bit floats.
struct tiled {
    const char *decode, *prefill[WIDE_SIZES], *wgmma[WGMMA_SIZES];
    int record, record_bytes; // values along k, and bytes
};

static const struct tiled tiled_packed[LINEAR_KIND_COUNT] = {
#define SIZE(kernel, kind, tokens) "linear_" #kernel "_" #kind "_" #tokens
#define X(kind, bits, block, floats, small, min)                                                          \
    [LINEAR_##kind] = { .decode = "linear_skinny_" #kind,                                                 \
                        .prefill = { SIZE(wide, kind, 32), SIZE(wide, kind, 64), SIZE(wide, kind, 128) }, \
                        .wgmma = { SIZE(wgmma, kind, 32), SIZE(wgmma, kind, 64), SIZE(wgmma, kind, 128),  \
                                   SIZE(wgmma, kind, 256) },                                              \
                        .record = LINEAR_RECORD,                                                          \
                        .record_bytes = LINEAR_RECORD_BYTES(bits, block, small, min) },
    LINEAR_KINDS(X)
#undef X
#undef SIZE
};
static const struct tiled tiled_bf16 = { .decode = "linear_skinny_bf16",
                                         .record = 64,
                                         .record_bytes = LINEAR_ROWS * 64 * 2 };
static const struct tiled tiled_f16 = { .decode = "linear_skinny_f16",
                                        .record = 64,
                                        .record_bytes = LINEAR_ROWS * 64 * 2 };

static bool is_packed(enum dtype dtype) { return linear_kind_of(dtype) != LINEAR_KIND_COUNT; }

// NULL: float32, or rows that do not begin where sixteen bytes can be read.
static const struct tiled *tiled_of(const struct weight *weight)
{
    if (is_packed(weight->dtype))
        return &tiled_packed[linear_kind_of(weight->dtype)];
    if (weight->cols % PIECE || weight->dtype == DTYPE_F32)
        return NULL;
    return weight->dtype == DTYPE_F16 ? &tiled_f16 : &tiled_bf16;
}

// ---- the list of calls ----

struct list {
    struct cuda_call *calls;
    int count;
    const struct cuda_shape *shape;
};

static struct cuda_call *add_call(struct list *list, const char *function, unsigned grid_x, unsigned grid_y,
                                  unsigned block, const void *params, size_t bytes)
{
    assert(list->count < CUDA_CALLS_MAX);
    list->calls[list->count] = cuda_call_make(function, grid_x, grid_y, block, params, bytes);
    return &list->calls[list->count++];
}

static struct cuda_linear params_of(const struct linear_args *args)
{
    struct cuda_linear p = { .rows = args->rows,
                             .x = args->x,
                             .in = args->in,
                             .act = -1,
                             .f32_out = args->f32_y,
                             .scratch = args->scratch,
                             .residual = args->add != NULL };
    if (args->norm) {
        p.x = args->norm->x;
        p.norm_weight = args->norm->weight;
        p.epsilon = args->norm->epsilon;
    }
    return p;
}

static struct cuda_linear_output output_of(const struct linear_args *args, int i)
{
    const struct linear_output *output = &args->output[i];
    const struct weight *weight = &output->weight;
    void *y = args->add ? args->add->x : args->act_mul ? args->act_mul->out : output->y;
    return (struct cuda_linear_output){ weight->data, output->bias, y, weight->rows, weight->scale };
}

// The parameters for matrix `first` and all after it that are like it and not done. With an activation of matrices that
// differ the gate comes first, and then up, which finds the gate where the result goes.
static struct cuda_linear take_alike(const struct linear_args *args, const struct cuda_linear *all, int first,
                                     uint32_t *done)
{
    struct cuda_linear p = *all;
    const struct tiled *tiled = tiled_of(&args->output[first].weight);
    for (int i = first; i < args->outputs && (tiled || i == first); i++)
        if (!(*done >> i & 1) && tiled_of(&args->output[i].weight) == tiled) {
            p.output[p.outputs++] = output_of(args, i);
            *done |= 1u << i;
        }
    if (args->act_mul && (p.outputs == 2 || first == 1))
        p.act = (int)args->act_mul->act;
    return p;
}

// ---- small steps ----

static void add_small(struct list *list, const char *function, const struct cuda_linear *p, int64_t values)
{
    unsigned blocks = cuda_blocks(values, SMALL_BLOCK);
    add_call(list, function, blocks < SMALL_BLOCKS_MAX ? blocks : SMALL_BLOCKS_MAX, 1, SMALL_BLOCK, p, sizeof *p);
}

static void add_norm(struct list *list, struct cuda_linear *p)
{
    add_call(list, "linear_norm", (unsigned)list->shape->rows, 1, SMALL_BLOCK, p, sizeof *p);
    p->x = p->scratch;
    p->norm_weight = NULL;
}

// x as one copy in scratch; a second one begins behind it.
static size_t copy_bytes(int rows, int width)
{
    enum { ALIGNMENT = 256 };
    return ((size_t)rows * (size_t)width * sizeof(uint16_t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// Into the second half of scratch: the first may hold the x that is converted.
static void add_x_f16(struct list *list, struct cuda_linear *p)
{
    int64_t values = (int64_t)list->shape->rows * p->in;
    p->scratch = (char *)p->scratch + copy_bytes(list->shape->rows, p->in);
    add_small(list, "linear_x_f16", p, values);
    p->x = p->scratch;
}

static void add_any(struct list *list, const struct cuda_linear *p, enum dtype dtype)
{
    const char *function = dtype == DTYPE_F32 ? "linear_any_f32"
        : dtype == DTYPE_F16                  ? "linear_any_f16"
                                              : "linear_any_bf16";
    int tokens = list->shape->rows < ANY_TOKENS ? list->shape->rows : ANY_TOKENS;
    add_call(list, function, cuda_blocks(p->output[0].rows, ANY_WARPS), (unsigned)tokens, ANY_WARPS * WARP, p,
             sizeof *p);
}

// ---- few tokens ----

// Packed weights are multiplied two groups of rows at a time, floats one.
static int skinny_groups(const struct tiled *tiled) { return tiled->record == LINEAR_RECORD ? 2 : 1; }

// Rings, sums of two rounds, gates, squares and factors, four barriers, x.
static size_t skinny_shared_bytes(const struct tiled *tiled, int warps, int x_rows, int in)
{
    int groups = skinny_groups(tiled), stage_bytes = groups * tiled->record_bytes;
    int ring_bytes = warps * linear_skinny_stages(stage_bytes) * stage_bytes;
    int sums = warps * LINEAR_ROWS * LINEAR_SKINNY_TOKENS * (groups == 1 ? 3 : 4);
    int others = (warps + 2) * LINEAR_SKINNY_TOKENS;
    size_t x_bytes = (size_t)x_rows * cuda_blocks(in, tiled->record) * (size_t)tiled->record * sizeof(uint16_t);
    return (size_t)ring_bytes + (size_t)(sums + others) * sizeof(float) + 4 * sizeof(uint64_t) + x_bytes;
}

static int log2_of(int value)
{
    int shift = 0;
    while (value >> (shift + 1))
        shift++;
    return shift;
}

// Fewer warps along k where they would have less than four records each, if there are rows enough for all others.
static int skinny_split_shift(int warps, int records, int tiles, int multiprocessors)
{
    int shift = log2_of(warps);
    while (shift > 2 && records < 4 << shift && tiles >= multiprocessors * 4 * (warps >> shift))
        shift--;
    return shift;
}

// How many warps multiply: each has its own start, which takes them longer than little work does.
static int skinny_warp_count(const struct tiled *tiled, int records, int tiles, const struct cuda_shape *shape)
{
    enum { LITTLE_BYTES = 160 << 10 }; // of a block's weights
    int tile_bytes = records * skinny_groups(tiled) * tiled->record_bytes, warps = LINEAR_SKINNY_WARPS_MAX;
    bool little = (int)cuda_blocks(tiles, shape->multiprocessors) <= LITTLE_BYTES / tile_bytes;
    return little || skinny_shared_bytes(tiled, warps, 0, 0) > (size_t)shape->shared_bytes ? warps / 2 : warps;
}

// Blocks and their shares of the tiles.
static struct cuda_linear_skinny skinny_shares(const struct cuda_linear *p, const struct tiled *tiled, int *warps,
                                               unsigned *blocks, const struct cuda_shape *shape)
{
    bool both = p->act >= 0 && p->outputs == 2;
    int tiles = 0, tile_rows = LINEAR_ROWS * (both ? 1 : skinny_groups(tiled));
    int records = (int)cuda_blocks(p->in, tiled->record);
    for (int i = 0; i < (both ? 1 : p->outputs); i++)
        tiles += (int)cuda_blocks(p->output[i].rows, tile_rows);
    *warps = skinny_warp_count(tiled, records, tiles, shape);
    int split_shift = skinny_split_shift(*warps, records, tiles, shape->multiprocessors);
    int side_shift = log2_of(*warps) - split_shift;
    *blocks = cuda_blocks(tiles, 1 << side_shift);
    if (*blocks > (unsigned)shape->multiprocessors)
        *blocks = (unsigned)shape->multiprocessors;
    return (struct cuda_linear_skinny){ .split_shift = split_shift,
                                        .side_shift = side_shift,
                                        .tiles_each = tiles / (int)*blocks,
                                        .tiles_rest = tiles % (int)*blocks };
}

// The matrices of p, all of this kind. A multiprocessor has one block: of two, one might wait for the other's results.
static void add_skinny(struct list *list, struct cuda_linear p, const struct tiled *tiled)
{
    const struct cuda_shape *shape = list->shape;
    size_t most = (size_t)shape->shared_bytes;
    int rows = shape->rows < LINEAR_SKINNY_TOKENS ? shape->rows : LINEAR_SKINNY_TOKENS, warps;
    unsigned blocks;
    struct cuda_linear_skinny few = skinny_shares(&p, tiled, &warps, &blocks, shape);
    bool x_shared = skinny_shared_bytes(tiled, warps, rows, p.in) <= most, half = tiled == &tiled_f16;
    if (p.norm_weight && (!x_shared || half))
        add_norm(list, &p);
    if (half && !x_shared)
        add_x_f16(list, &p);
    few.linear = p;
    few.x_shared = x_shared;
    size_t shared_bytes = skinny_shared_bytes(tiled, warps, x_shared ? rows : 0, p.in);
    struct cuda_call *call = add_call(list, tiled->decode, blocks, 1, (unsigned)(warps + 1) * WARP, &few, sizeof few);
    call->shared_bytes = (unsigned)(shared_bytes > most / 2 ? shared_bytes : most / 2 + 1);
}

static int describe_skinny(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct linear_args *args = arguments;
    struct list list = { calls, 0, shape };
    struct cuda_linear all = params_of(args);
    for (int i = 0; i < args->outputs; i++)
        if (all.norm_weight && !tiled_of(&args->output[i].weight))
            add_norm(&list, &all);
    uint32_t done = 0;
    for (int i = 0; i < args->outputs; i++) {
        if (done >> i & 1)
            continue;
        struct cuda_linear p = take_alike(args, &all, i, &done);
        if (tiled_of(&args->output[i].weight))
            add_skinny(&list, p, tiled_of(&args->output[i].weight));
        else
            add_any(&list, &p, args->output[i].weight.dtype);
    }
    return list.count;
}

// ---- many tokens ----

// A 16-bit matrix by cuBLASLt, which knows neither scale nor bias. Products of f16 give f16.
static void add_product(struct list *list, const struct cuda_linear *p, enum dtype dtype)
{
    const struct cuda_linear_output *output = &p->output[0];
    bool wide = p->residual || p->f32_out, f16_out = dtype == DTYPE_F16 && !wide;
    assert(list->count < CUDA_CALLS_MAX);
    list->calls[list->count++] = (struct cuda_call){ .product = { .dtype = dtype,
                                                                  .rows = list->shape->rows,
                                                                  .in = p->in,
                                                                  .out = output->rows,
                                                                  .x = p->x,
                                                                  .w = output->weight,
                                                                  .y = output->y,
                                                                  .f32_out = wide,
                                                                  .accumulate = p->residual } };
    if (output->bias || output->scale != 1 || f16_out)
        add_small(list, f16_out ? "linear_finish_f16" : "linear_finish_bf16", p,
                  (int64_t)list->shape->rows * output->rows);
}

// Into how many parts matrices are cut along k, so that few rows still keep a GPU busy.
static int wide_splits(int tiles, int tile_rows, int tokens, int in)
{
    int splits = tokens <= LINEAR_SPLIT_TOKENS_MAX ? LINEAR_SPLIT_ROWS_MAX / (tiles * tile_rows) : 1;
    int most = (int)cuda_blocks(in, LINEAR_RECORD) / 4;
    splits = splits < most ? splits : most;
    return splits > 1 ? splits : 1;
}

static size_t arranged_bytes(int rows, int in)
{
    return (size_t)cuda_blocks(rows, LINEAR_WGMMA_TOKENS_MAX) * LINEAR_WGMMA_TOKENS_MAX
        * (size_t)cuda_blocks(in, LINEAR_RECORD) * LINEAR_RECORD * sizeof(uint16_t);
}

// sm_90a's scratch: x arranged, who has left sums, sums.
static_assert(LINEAR_RANGES_MAX * sizeof(int32_t) <= LINEAR_LEFT_BYTES, "a number for each range");
static int32_t *after_arranged(void *scratch, int rows, int in)
{
    return (int32_t *)((uint8_t *)scratch + arranged_bytes(rows, in));
}

static int tiles_of(const struct cuda_linear *p, int tile_rows)
{
    int tiles = 0;
    for (int i = 0; i < p->outputs; i++)
        tiles += (int)cuda_blocks(p->output[i].rows, tile_rows);
    return tiles;
}

static void add_sums(struct list *list, const struct cuda_linear_wide *many)
{
    int rows = 0;
    for (int i = 0; i < many->linear.outputs; i++)
        rows += many->linear.output[i].rows;
    if (many->splits > 1)
        add_call(list, "linear_wide_add", cuda_blocks(rows, SMALL_BLOCK), (unsigned)list->shape->rows, SMALL_BLOCK,
                 many, sizeof *many);
}

static size_t wide_shared_bytes(const struct tiled *tiled, int warps, int tokens)
{
    return (size_t)(LINEAR_WIDE_STAGES
                    * (warps * (LINEAR_WIDE_WARP_ROWS / LINEAR_ROWS) * tiled->record_bytes
                       + tokens * LINEAR_RECORD * (int)sizeof(uint16_t)));
}

static int size_for(int rows, int sizes)
{
    int size = 0;
    while (size + 1 < sizes && rows > TILE_TOKENS << size)
        size++;
    return size;
}

// One launch over tiles of (rows, tokens), and another one where sums have to be added.
static void add_wide(struct list *list, const struct cuda_linear *p, const struct tiled *tiled)
{
    size_t most = (size_t)list->shape->shared_bytes;
    int size = size_for(list->shape->rows, WIDE_SIZES), warps = LINEAR_WIDE_WARPS_MAX;
    while (size > 0 && wide_shared_bytes(tiled, warps, TILE_TOKENS << size) > most)
        size--;
    while (warps > 1 && wide_shared_bytes(tiled, warps, TILE_TOKENS << size) > most)
        warps /= 2;
    int tokens = TILE_TOKENS << size, tile_rows = warps * LINEAR_WIDE_WARP_ROWS, tiles = tiles_of(p, tile_rows);
    struct cuda_linear_wide many = { .linear = *p,
                                     .partials = p->scratch,
                                     .splits = wide_splits(tiles, tile_rows, list->shape->rows, p->in) };
    struct cuda_call *call = add_call(list, tiled->prefill[size], cuda_blocks(list->shape->rows, tokens),
                                      (unsigned)tiles, (unsigned)(warps * WARP), &many, sizeof many);
    call->grid[2] = (unsigned)many.splits;
    call->shared_bytes = (unsigned)wide_shared_bytes(tiled, warps, tokens);
    add_sums(list, &many);
}

// Into which ranges the tiles of a launch are cut, for so many blocks at a time: equal parts of each tile if these keep
// nearly all blocks busy, else equal parts of the whole, wherever tiles end. Up to 128 tokens neither depends on their
// number.
static void choose_ranges(struct cuda_linear_wide *many, int tiles, int blocks, int tokens)
{
    int records = (int)cuda_blocks(many->linear.in, LINEAR_RECORD), units = tiles * records, splits = 1;
    if (tokens <= LINEAR_SPLIT_TOKENS_MAX)
        splits = blocks / tiles < records / 4 ? blocks / tiles : records / 4;
    many->splits = splits > 1 ? splits : 1;
    many->ranges = tiles * many->splits;
    int waves = (int)cuda_blocks(many->ranges, blocks);
    if (tokens > LINEAR_SPLIT_TOKENS_MAX || 10 * many->ranges >= 9 * waves * blocks || units < 4 * blocks) {
        many->left = NULL;
    } else {
        many->splits = 1;
        many->ranges = blocks;
    }
    many->each = units / many->ranges;
    many->rest = units % many->ranges;
}

// x has been arranged.
static void add_wgmma(struct list *list, const struct cuda_linear *p, const struct tiled *tiled, int launch)
{
    int size = size_for(list->shape->rows, WGMMA_SIZES), tokens = TILE_TOKENS << size;
    int tiles = tiles_of(p, linear_wgmma_warps(tokens) * LINEAR_ROWS), blocks = list->shape->multiprocessors;
    int32_t *left = after_arranged(p->scratch, list->shape->rows, p->in);
    struct cuda_linear_wide many = { .linear = *p,
                                     .x = p->scratch,
                                     .tokens = tokens,
                                     .launch = launch,
                                     .left = left,
                                     .partials = (float *)((uint8_t *)left + LINEAR_LEFT_BYTES) };
    choose_ranges(&many, tiles, blocks < LINEAR_RANGES_MAX ? blocks : LINEAR_RANGES_MAX, list->shape->rows);
    struct cuda_call *call = add_call(list, tiled->wgmma[size], cuda_blocks(list->shape->rows, tokens),
                                      (unsigned)many.ranges, (unsigned)(linear_wgmma_warps(tokens) * WARP), &many,
                                      sizeof many);
    call->shared_bytes = (unsigned)(linear_wgmma_stages(tiled->record_bytes, tokens)
                                        * linear_wgmma_stage_bytes(tiled->record_bytes, tokens)
                                    + LINEAR_WGMMA_ALIGNMENT);
    add_sums(list, &many);
}

static void add_arrange(struct list *list, const struct cuda_linear *p)
{
    int rows = list->shape->rows, tokens = TILE_TOKENS << size_for(rows, WGMMA_SIZES);
    struct cuda_linear_wide many = {
        .linear = *p, .x = p->scratch, .tokens = tokens, .left = after_arranged(p->scratch, rows, p->in)
    };
    add_call(list, "linear_arrange", cuda_blocks(cuda_blocks(p->in, LINEAR_RECORD) * 16, SMALL_BLOCK),
             cuda_blocks(rows, tokens) * (unsigned)tokens, SMALL_BLOCK, &many, sizeof many);
}

static void describe_packed(struct list *list, const struct linear_args *args, const struct cuda_linear *all)
{
    bool wgmma = cuda_is_listed(cuda_wgmma_architectures, list->shape->sm);
    uint32_t done = 0;
    for (int i = 0, launch = 0; i < args->outputs; i++) {
        const struct weight *weight = &args->output[i].weight;
        if (!is_packed(weight->dtype) || done >> i & 1)
            continue;
        if (wgmma && !done)
            add_arrange(list, all);
        struct cuda_linear p = take_alike(args, all, i, &done);
        if (wgmma)
            add_wgmma(list, &p, tiled_of(weight), ++launch);
        else
            add_wide(list, &p, tiled_of(weight));
    }
}

static void describe_floats(struct list *list, const struct linear_args *args, const struct cuda_linear *all)
{
    struct cuda_linear with_f16 = *all;
    for (int i = 0; i < args->outputs; i++) {
        enum dtype dtype = args->output[i].weight.dtype;
        if (is_packed(dtype))
            continue;
        bool product = dtype != DTYPE_F32 && !(all->residual && args->output[i].weight.scale != 1);
        if (product && dtype == DTYPE_F16 && with_f16.x == all->x)
            add_x_f16(list, &with_f16);
        struct cuda_linear p = product && dtype == DTYPE_F16 ? with_f16 : *all;
        p.output[p.outputs++] = output_of(args, i);
        if (product)
            add_product(list, &p, dtype);
        else
            add_any(list, &p, dtype);
    }
}

// Packed matrices first: what is in scratch is theirs, and then that of the others.
static int describe_wide(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call calls[CUDA_CALLS_MAX])
{
    struct list list = { calls, 0, shape };
    struct cuda_linear all = params_of(arguments);
    describe_packed(&list, arguments, &all);
    describe_floats(&list, arguments, &all);
    return list.count;
}

// ---- rows ----

// x, normed or converted
static size_t skinny_scratch(const struct kernel_extent *extent) { return 2 * copy_bytes(extent->rows, extent->width); }

// x, converted; or arranged, and the sums of splits
static size_t wide_scratch(const struct kernel_extent *extent)
{
    int tokens = TILE_TOKENS << size_for(extent->rows, WIDE_SIZES); // of a tile, as far as there are splits
    size_t sums = (size_t)tokens * LINEAR_SPLIT_ROWS_MAX * sizeof(float);
    size_t arranged = arranged_bytes(extent->rows, extent->width) + LINEAR_LEFT_BYTES + sums;
    size_t converted = skinny_scratch(extent);
    return arranged > converted ? arranged : converted;
}

#define FLOATS (DTYPE_BIT(BF16) | DTYPE_BIT(F16) | DTYPE_BIT(F32))
#define BIT(id, kind) | DTYPE_BIT(id)
#define PACKED (0 LINEAR_FORMATS(BIT))
#define LINEAR .device = DEVICE_CUDA, .op = OP_LINEAR, .architectures = cuda_all_architectures, .tolerance = 0.015f
#define FEW                                                                              \
    .load = KERNEL_DECODE, .scratch_bytes = skinny_scratch, .describe = describe_skinny, \
    .fuses = KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD
#define MANY .load = KERNEL_PREFILL, .scratch_bytes = wide_scratch, .describe = describe_wide, .fuses = KERNEL_FUSES_ADD

const struct kernel cuda_linear_rows[] = {
    { .name = "linear_cuda_float_skinny", LINEAR, FEW, .priority = 20, .weights = FLOATS },
    { .name = "linear_cuda_float_wide", LINEAR, MANY, .priority = 20, .weights = FLOATS },
    { .name = "linear_skinny_cuda",
      LINEAR,
      FEW,
      .priority = 10,
      .weights = FLOATS | PACKED,
      .dequantised = PACKED,
      .packing = &linear_packing },
    { .name = "linear_wide_cuda",
      LINEAR,
      MANY,
      .priority = 10,
      .weights = FLOATS | PACKED,
      .dequantised = PACKED,
      .packing = &linear_packing },
};
const int cuda_linear_count = sizeof cuda_linear_rows / sizeof *cuda_linear_rows;
