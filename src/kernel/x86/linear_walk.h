// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_walk.h: who computes which tile. Work is counted in token-groups, a token times sixteen rows of any
// output; a part takes a run of them, chunk of tokens by chunk of tokens. A chunk's activations stay in the second
// level of the caches while the groups of weights, each in the first, pass by them.
// To be included after linear_tile.h and a choice of any_int8_tile(), which may be the one there; both are compiled
// once for each instruction set.
#ifndef KERNEL_X86_LINEAR_WALK_H
#define KERNEL_X86_LINEAR_WALK_H

// ---- every format and width ----

typedef void tile_run(const uint8_t *w, const uint8_t *x, int in, float *out);

#define INT8_TILE(id, tokens, ...)                                                              \
    static void tile_##id##_##tokens(const uint8_t *w, const uint8_t *x, int in, float *out)    \
    {                                                                                           \
        any_int8_tile((struct packed_format)PACKED_FORMAT(__VA_ARGS__), tokens, w, x, in, out); \
    }
#define FLOAT_TILE(id, tokens)                                                               \
    static void tile_##id##_##tokens(const uint8_t *w, const uint8_t *x, int in, float *out) \
    {                                                                                        \
        float_tile(DTYPE_##id, tokens, w, x, in, out);                                       \
    }
#define TILE_NAME(id, tokens) tile_##id##_##tokens,

#define X(id, ...) TILE_WIDTHS_WITH(INT8_TILE, id, __VA_ARGS__)
PACKED_FORMATS(X)
#undef X
#define X(id) TILE_WIDTHS(FLOAT_TILE, id)
PACKED_FLOATS(X)
#undef X

// By format, and by log2 of the number of tokens.
static tile_run *const tiles[DTYPE_COUNT][TILE_WIDTH_COUNT] = {
#define X(id, ...) [DTYPE_##id] = { TILE_WIDTHS(TILE_NAME, id) },
    PACKED_FORMATS(X) PACKED_FLOATS(X)
#undef X
};

// ---- who does what ----

enum { CHUNK_BYTES = 256 << 10, SHARES_OF_A_PART = 4 };

// Activations in tiles, for the formats that want them so.
struct tiled_x {
    uint8_t *int8, *floats;
};

static bool is_float(enum dtype dtype) { return PACKED_FLOAT_SET >> dtype & 1; }

static bool reads_floats(const struct linear_args *args)
{
    bool any = false;
    for (int i = 0; i < args->outputs; i++)
        any |= is_float(args->output[i].weight.dtype);
    return any;
}

static bool reads_int8(const struct linear_args *args)
{
    bool any = false;
    for (int i = 0; i < args->outputs; i++)
        any |= !is_float(args->output[i].weight.dtype);
    return any;
}

static size_t int8_bytes(int tokens, int in) { return (size_t)tokens * (size_t)(in / INT8_BLOCK) * TILE_INT8_BYTES; }

static size_t float_bytes(int tokens, int in) { return (size_t)tokens * (size_t)in * TILE_FLOAT_BYTES; }

// The width of the tile that begins with so many tokens left: a power of two.
static int tile_width(int left)
{
    int width = TILE_TOKENS;
    while (width > left)
        width /= 2;
    return width;
}

// A share of all tiles' blocks of 32 values.
static void fill_tiles(const struct linear_args *args, struct tiled_x x, int part, int parts)
{
    int in = args->in, tokens = *args->rows, blocks = (in + INT8_BLOCK - 1) / INT8_BLOCK, first, end;
    kernel_share(tokens, part, parts, &first, &end);
    for (int token = 0, width; token < tokens; token += width) {
        width = tile_width(tokens - token);
        // The blocks of a tile are shared as its tokens would be.
        int from = first <= token ? 0 : first < token + width ? blocks * (first - token) / width : blocks;
        int to = end <= token ? 0 : end < token + width ? blocks * (end - token) / width : blocks;
        for (int block = from; block < to; block++) {
            const float *at = args->x + (size_t)token * (size_t)in + block * INT8_BLOCK;
            int count = in - block * INT8_BLOCK < INT8_BLOCK ? in - block * INT8_BLOCK : INT8_BLOCK;
            if (x.int8)
                fill_int8(at, in, width, x.int8 + int8_bytes(token, in) + block * width * TILE_INT8_BYTES);
            if (x.floats)
                fill_floats(at, in, width, count,
                            x.floats + float_bytes(token, in) + block * INT8_BLOCK * width * TILE_FLOAT_BYTES);
        }
    }
}

// The sums of a tile become results.
static void finish_tile(const struct linear_output *output, int row, int rows, int token, int tokens,
                        const float sums[TILE_TOKENS][PACKED_ROWS])
{
    const struct weight *weight = &output->weight;
    for (int i = 0; i < tokens; i++) {
        float *y = output->y + (size_t)(token + i) * (size_t)weight->rows + row;
        for (int j = 0; j < rows; j++)
            y[j] = sums[i][j] * weight->scale;
        for (int j = 0; output->bias && j < rows; j++)
            y[j] += output->bias[row + j];
    }
}

// One group of rows for the tokens of a chunk.
static void run_group(const struct linear_output *output, int group, int in, struct tiled_x x, int token, int end)
{
    const struct weight *weight = &output->weight;
    const uint8_t *w = (const uint8_t *)weight->data + (size_t)group * packed_group_bytes(weight->dtype, in);
    int row = group * PACKED_ROWS, rows = weight->rows - row < PACKED_ROWS ? weight->rows - row : PACKED_ROWS;
    for (int width; token < end; token += width) {
        float sums[TILE_TOKENS][PACKED_ROWS];
        width = tile_width(end - token);
        bool floats = is_float(weight->dtype);
        const uint8_t *at = floats ? x.floats + float_bytes(token, in) : x.int8 + int8_bytes(token, in);
        tiles[weight->dtype][__builtin_ctz((unsigned)width)](w, at, in, sums[0]);
        finish_tile(output, row, rows, token, width, sums);
    }
}

static int group_count(const struct linear_output *output)
{
    return (output->weight.rows + PACKED_ROWS - 1) / PACKED_ROWS;
}

// Groups [first, end) of all outputs, counted through.
static void run_groups(const struct linear_args *args, struct tiled_x x, int first, int end, int token, int last_token)
{
    for (int i = 0; i < args->outputs; i++) {
        int groups = group_count(&args->output[i]);
        for (int group = first > 0 ? first : 0; group < groups && group < end; group++)
            run_group(&args->output[i], group, args->in, x, token, last_token);
        first -= groups;
        end -= groups;
    }
}

// Tokens of a chunk: whole tiles, few enough for the cache and for every part to have its share.
static int chunk_tokens(const struct linear_args *args, int groups, int parts)
{
    size_t token_bytes = reads_floats(args) ? float_bytes(1, args->in) : int8_bytes(1, args->in);
    int64_t by_cache = (int64_t)(CHUNK_BYTES / token_bytes);
    int64_t by_parts = (int64_t)groups * *args->rows / ((int64_t)SHARES_OF_A_PART * parts);
    int64_t tokens = by_cache < by_parts ? by_cache : by_parts;
    return tokens < TILE_TOKENS ? TILE_TOKENS : (int)(tokens / TILE_TOKENS * TILE_TOKENS);
}

static int clamp_group(int64_t share, int tokens, int groups)
{
    int64_t group = (share + tokens - 1) / tokens;
    return share <= 0 ? 0 : group < groups ? (int)group : groups;
}

static void run_share(const struct linear_args *args, struct tiled_x x, int part, int parts)
{
    int tokens = *args->rows, groups = 0;
    for (int i = 0; i < args->outputs; i++)
        groups += group_count(&args->output[i]);
    int64_t all = (int64_t)groups * tokens, first = all * part / parts, end = all * (part + 1) / parts;
    int chunk = chunk_tokens(args, groups, parts);
    for (int token = 0; token < tokens; token += chunk) {
        int count = tokens - token < chunk ? tokens - token : chunk;
        run_groups(args, x, clamp_group(first, count, groups), clamp_group(end, count, groups), token, token + count);
        first -= (int64_t)count * groups;
        end -= (int64_t)count * groups;
    }
}

// ---- the kernels ----

// In the op's scratch memory, filled by all parts together.
static struct tiled_x shared_x(const struct linear_args *args)
{
    struct tiled_x x = { 0 };
    if (reads_int8(args))
        x.int8 = args->scratch;
    if (reads_floats(args))
        x.floats = (uint8_t *)args->scratch + (x.int8 ? int8_bytes(*args->rows, args->in) : 0);
    return x;
}

static void prepare_many(const struct linear_args *args, int part, int parts)
{
    fill_tiles(args, shared_x(args), part, parts);
}

static void run_many(const struct linear_args *args, int part, int parts)
{
    run_share(args, shared_x(args), part, parts);
}

// Few tokens are quickly tiled: each part does it for itself, on its stack.
static inline void run_few(const struct linear_args *args, int part, int parts)
{
    int tokens = *args->rows;
    assert(args->in <= LINEAR_IN_MAX && tokens <= KERNEL_DECODE_ROWS_MAX);
    uint32_t int8[(reads_int8(args) ? int8_bytes(tokens, args->in) : 0) / sizeof(uint32_t) + 1];
    uint32_t floats[(reads_floats(args) ? float_bytes(tokens, args->in) : 0) / sizeof(uint32_t) + 1];
    struct tiled_x x = { .int8 = reads_int8(args) ? (uint8_t *)int8 : NULL,
                         .floats = reads_floats(args) ? (uint8_t *)floats : NULL };
    fill_tiles(args, x, 0, 1);
    run_share(args, x, part, parts);
}

// Weights that were decoded when they were packed: the same with f32 in place of their formats.
static inline struct linear_args decoded(const struct linear_args *args)
{
    struct linear_args floats = *args;
    for (int i = 0; i < floats.outputs; i++)
        floats.output[i].weight.dtype = DTYPE_F32;
    return floats;
}

#endif
