// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear.c: GEMM, and grouped GEMM for experts: the division of work and the packing of activations; the
// micro-kernels are in linear_tile.c. Work is counted in token-groups, a token times sixteen rows of any output, and
// each thread takes a contiguous run of them, one panel of tokens after the other. A panel's activations stay in the L2
// cache while groups of weights stream past them. For experts, a "token" is a (row, expert) pair. Activations are
// gathered in the order of pairs, sorted by expert, and token-groups are counted through all experts in use.
#include <assert.h>
#include <immintrin.h>

#include "kernel/x86/linear_tile.h"

enum { CHUNK_BYTES = 256 << 10, PANELS_PER_CHUNK = 4 };

// ---- packed activations ----

// Packed activations, as int8 and as floats; NULL if no weight format needs that.
struct tiled_x {
    enum tile_planes planes; // of integers
    uint8_t *integers, *floats;
};

static size_t integer_bytes(enum tile_planes planes, int tokens, int in)
{
    return (size_t)(tokens * tile_integer_bytes(planes)) * (size_t)(in / INT8_BLOCK);
}

static size_t float_bytes(int tokens, int in) { return (size_t)tokens * (size_t)in * TILE_FLOAT_BYTES; }

// In the op's scratch memory, filled by all threads.
static struct tiled_x shared_x(enum tile_planes planes, uint64_t formats, void *scratch, int tokens, int in)
{
    struct tiled_x x = { .planes = planes };
    if (formats & ~PACKED_FLOAT_SET)
        x.integers = scratch;
    if (formats & PACKED_FLOAT_SET)
        x.floats = (uint8_t *)scratch + (x.integers ? integer_bytes(planes, tokens, in) : 0);
    return x;
}

// The width of the next tile, a power of two, with `left` tokens left.
static int tile_width(int left)
{
    int width = TILE_TOKENS;
    while (width > left)
        width /= 2;
    return width;
}

static inline int32_t sum_of_16(const int8_t *codes)
{
    __m128i biased = _mm_xor_si128(_mm_loadu_si128((const void *)codes), _mm_set1_epi8(-128));
    __m128i halves = _mm_sad_epu8(biased, _mm_setzero_si128());
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
}

// Minus the sum of 16 values, from all planes of their codes.
static inline int32_t minus_sum(enum tile_planes planes, const int8_t codes[TILE_PLANES_MAX][INT8_BLOCK], int first)
{
    int32_t sum = sum_of_16(codes[planes - 1] + first);
    return -(planes == TILE_INT16 ? sum + sum_of_16(codes[0] + first) * (1 << INT16_SHIFT) : sum);
}

// Packs one block of a tile from x, whose rows are `stride` apart.
static inline void fill_integers(enum tile_planes planes, const float *x, int stride, int tokens, uint8_t *block)
{
    for (int token = 0; token < tokens; token++, x += stride) {
        int8_t codes[TILE_PLANES_MAX][INT8_BLOCK];
        float scale = planes == TILE_INT16 ? int16_round(x, codes[0], codes[1]) : int8_round(x, codes[0]);
        int32_t low = minus_sum(planes, codes, 0), high = minus_sum(planes, codes, INT8_BLOCK / 2), both = low + high;
        float sum = scale * (float)-both;
        const void *const parts[TILE_PARTS] = { &scale, &sum, &both, &low, &high };
        for (int plane = 0; plane < (int)planes; plane++)
            memcpy(block + (plane * tokens + token) * INT8_BLOCK, codes[plane], INT8_BLOCK);
        for (int part = 0; part < TILE_PARTS; part++)
            memcpy(block + tile_part_at((int)planes, tokens, (enum tile_part)part, token), parts[part], 4);
    }
}

static inline void fill_floats(const float *x, int stride, int tokens, int count, uint8_t *block)
{
    for (int k = 0; k < count; k++)
        for (int token = 0; token < tokens; token++)
            memcpy(block + (k * tokens + token) * TILE_FLOAT_BYTES, x + (size_t)token * (size_t)stride + k, sizeof *x);
}

static int block_count(int in, int block)
{
    return in - block * INT8_BLOCK < INT8_BLOCK ? in - block * INT8_BLOCK : INT8_BLOCK;
}

// Packs a block of the tile that begins with `token`, from values at `from`.
static void fill_block(struct tiled_x x, int in, int token, int width, int block, const float *from, int stride)
{
    if (x.integers)
        fill_integers(
            x.planes, from, stride, width,
            x.integers + integer_bytes(x.planes, token, in) + block * width * tile_integer_bytes((int)x.planes));
    if (x.floats)
        fill_floats(from, stride, width, block_count(in, block),
                    x.floats + float_bytes(token, in) + block * INT8_BLOCK * width * TILE_FLOAT_BYTES);
}

// ---- groups of rows ----

enum {
    OUTPUTS_MAX = (int)LINEAR_OUTPUTS_MAX > (int)EXPERTS_OUTPUTS_MAX ? (int)LINEAR_OUTPUTS_MAX
                                                                     : (int)EXPERTS_OUTPUTS_MAX
};

// The outputs of a linear, or of one expert.
struct product {
    struct tiled_x x;
    int in, outputs, groups;
    const int32_t *row_of; // the row of y for each token; NULL: the token's number
    struct output {
        const struct weight *weight;
        const uint8_t *data;
        const float *bias;
        float *y, scale;
        int groups;
    } output[OUTPUTS_MAX];
};

static int group_count(int rows) { return (rows + PACKED_ROWS - 1) / PACKED_ROWS; }

static void add_output(struct product *product, struct output output)
{
    output.groups = group_count(output.weight->rows);
    product->groups += output.groups;
    product->output[product->outputs++] = output;
}

// Stores a tile's sums, scaled and with bias.
static void finish_tile(const struct product *product, const struct output *output, int row, int rows, int token,
                        int tokens, const float sums[TILE_TOKENS][PACKED_ROWS])
{
    for (int i = 0; i < tokens; i++) {
        int at = product->row_of ? product->row_of[token + i] : token + i;
        float *y = output->y + (size_t)at * (size_t)output->weight->rows + row;
        for (int j = 0; j < rows; j++)
            y[j] = sums[i][j] * output->scale;
        for (int j = 0; output->bias && j < rows; j++)
            y[j] += output->bias[row + j];
    }
}

// One group of rows for the tokens of a panel.
static void run_group(const struct product *product, const struct output *output, int group, int token, int end)
{
    const struct weight *weight = output->weight;
    int in = product->in, row = group * PACKED_ROWS;
    int rows = weight->rows - row < PACKED_ROWS ? weight->rows - row : PACKED_ROWS;
    const uint8_t *w = output->data + (size_t)group * packed_group_bytes(weight->dtype, in);
    bool floats = PACKED_FLOAT_SET >> weight->dtype & 1;
    for (int width; token < end; token += width) {
        float sums[TILE_TOKENS][PACKED_ROWS];
        width = tile_width(end - token);
        const uint8_t *x = floats ? product->x.floats + float_bytes(token, in)
                                  : product->x.integers + integer_bytes(product->x.planes, token, in);
        tile_run *const *tiles = ISA_NAME(linear_tiles)[floats ? 0 : product->x.planes - 1][weight->dtype];
        tiles[__builtin_ctz((unsigned)width)](w, x, in, sums[0]);
        finish_tile(product, output, row, rows, token, width, sums);
    }
}

// ---- division of work ----

// A thread's run of token-groups, relative to the next panel.
struct group_run {
    int64_t first, end;
};

static struct group_run group_run_of(int64_t all, int chunk, int chunks)
{
    return (struct group_run){ all * chunk / chunks, all * (chunk + 1) / chunks };
}

// The tokens of a panel: whole tiles, small enough for the cache, and at most `most`.
static int panel_tokens(struct tiled_x x, int in, int64_t most)
{
    int64_t by_cache = (int64_t)(CHUNK_BYTES / (x.floats ? float_bytes(1, in) : integer_bytes(x.planes, 1, in)));
    int64_t tokens = by_cache < most ? by_cache : most;
    return tokens < TILE_TOKENS ? TILE_TOKENS : (int)(tokens / TILE_TOKENS * TILE_TOKENS);
}

static int clamp_group(int64_t place, int tokens, int groups)
{
    int64_t group = (place + tokens - 1) / tokens;
    return place <= 0 ? 0 : group < groups ? (int)group : groups;
}

// Computes what of a panel of tokens is in the run: groups are counted through all outputs.
static void run_panel(const struct product *product, struct group_run *run, int token, int tokens)
{
    int first = clamp_group(run->first, tokens, product->groups);
    int end = clamp_group(run->end, tokens, product->groups);
    for (int i = 0; i < product->outputs; i++) {
        const struct output *output = &product->output[i];
        for (int group = first > 0 ? first : 0; group < output->groups && group < end; group++)
            run_group(product, output, group, token, token + tokens);
        first -= output->groups;
        end -= output->groups;
    }
    run->first -= (int64_t)tokens * product->groups;
    run->end -= (int64_t)tokens * product->groups;
}

// ---- linear ----

static uint64_t linear_formats(const struct linear_args *args)
{
    uint64_t formats = 0;
    for (int i = 0; i < args->outputs; i++)
        formats |= (uint64_t)1 << args->output[i].weight.dtype;
    return formats;
}

// Packs one chunk of the activations: the blocks of a tile are divided as its tokens would be.
static void fill_tiles(const struct linear_args *args, struct tiled_x x, int chunk, int chunks)
{
    int in = args->in, tokens = *args->rows, blocks = (in + INT8_BLOCK - 1) / INT8_BLOCK, first, end;
    kernel_range(tokens, chunk, chunks, &first, &end);
    for (int token = 0, width; token < tokens; token += width) {
        width = tile_width(tokens - token);
        int from = first <= token ? 0 : first < token + width ? blocks * (first - token) / width : blocks;
        int to = end <= token ? 0 : end < token + width ? blocks * (end - token) / width : blocks;
        for (int block = from; block < to; block++)
            fill_block(x, in, token, width, block, args->x + (size_t)token * (size_t)in + block * INT8_BLOCK, in);
    }
}

static void run_linear(const struct linear_args *args, struct tiled_x x, int chunk, int chunks)
{
    struct product product = { .x = x, .in = args->in };
    for (int i = 0; i < args->outputs; i++) {
        const struct linear_output *output = &args->output[i];
        add_output(&product,
                   (struct output){ .weight = &output->weight,
                                    .data = output->weight.data,
                                    .bias = output->bias,
                                    .y = output->y,
                                    .scale = output->weight.scale });
    }
    int tokens = *args->rows;
    int64_t all = (int64_t)product.groups * tokens;
    int panel = panel_tokens(x, args->in, all / ((int64_t)PANELS_PER_CHUNK * chunks));
    struct group_run run = group_run_of(all, chunk, chunks);
    for (int token = 0; token < tokens; token += panel)
        run_panel(&product, &run, token, tokens - token < panel ? tokens - token : panel);
}

static struct tiled_x linear_x(enum tile_planes planes, const struct linear_args *args)
{
    return shared_x(planes, linear_formats(args), args->scratch, *args->rows, args->in);
}

static void run_prefill(enum tile_planes planes, const struct linear_args *args, int chunk, int chunks)
{
    bool begun = ISA_NAME(linear_begin)(linear_formats(args), *args->rows);
    run_linear(args, linear_x(planes, args), chunk, chunks);
    ISA_NAME(linear_end)(begun);
}

#define PREFILL(name, planes)                                              \
    void ISA_NAME(name##_prepare)(const void *args, int chunk, int chunks) \
    {                                                                      \
        fill_tiles(args, linear_x(planes, args), chunk, chunks);           \
    }                                                                      \
    void ISA_NAME(name##_prefill)(const void *args, int chunk, int chunks) { run_prefill(planes, args, chunk, chunks); }
PREFILL(linear, TILE_INT16)
PREFILL(linear_int8, TILE_INT8)

#if !defined(__AMX_TILE__) // AMX has no kernels of its own for these
// Decode: packing a few tokens is cheap, so each thread does it on its own stack.
static void run_decode(enum tile_planes planes, const struct linear_args *args, int chunk, int chunks)
{
    int tokens = *args->rows;
    uint64_t formats = linear_formats(args);
    bool integers = formats & ~PACKED_FLOAT_SET, floats = formats & PACKED_FLOAT_SET;
    assert(args->in <= LINEAR_IN_MAX && tokens <= KERNEL_DECODE_ROWS_MAX);
    uint32_t integer_room[(integers ? integer_bytes(planes, tokens, args->in) : 0) / sizeof(uint32_t) + 1];
    uint32_t float_room[(floats ? float_bytes(tokens, args->in) : 0) / sizeof(uint32_t) + 1];
    struct tiled_x x = { planes, integers ? (uint8_t *)integer_room : NULL, floats ? (uint8_t *)float_room : NULL };
    fill_tiles(args, x, 0, 1);
    run_linear(args, x, chunk, chunks);
}

void ISA_NAME(linear_decode)(const void *args, int chunk, int chunks) { run_decode(TILE_INT16, args, chunk, chunks); }
void ISA_NAME(linear_int8_decode)(const void *args, int chunk, int chunks)
{
    run_decode(TILE_INT8, args, chunk, chunks);
}
#endif

// ---- experts ----

static uint64_t experts_formats(const struct experts_args *args)
{
    uint64_t formats = 0;
    for (int i = 0; i < args->outputs; i++)
        formats |= (uint64_t)1 << args->output[i].weight.dtype;
    return formats;
}

static int pair_count(const struct experts_args *args) { return *args->rows * args->routes.top_k; }

static struct tiled_x experts_x(enum tile_planes planes, const struct experts_args *args)
{
    return shared_x(planes, experts_formats(args), args->scratch, pair_count(args), args->in);
}

// Gathers a block of 32 values from the rows of x of a tile's pairs.
static void gather_block(const struct experts_args *args, int place, int width, int block,
                         float out[TILE_TOKENS * INT8_BLOCK])
{
    const struct routes *routes = &args->routes;
    for (int i = 0; i < width; i++) {
        size_t pair = (size_t)routes->pair[place + i], row = args->x_per_slot ? pair : pair / (size_t)routes->top_k;
        memcpy(out + i * INT8_BLOCK, args->x + row * (size_t)args->in + block * INT8_BLOCK,
               (size_t)block_count(args->in, block) * sizeof *out);
    }
}

static void gather_tile(const struct experts_args *args, struct tiled_x x, int place, int width)
{
    for (int block = 0; block * INT8_BLOCK < args->in; block++) {
        float values[TILE_TOKENS * INT8_BLOCK];
        gather_block(args, place, width, block, values);
        fill_block(x, args->in, place, width, block, values, INT8_BLOCK);
    }
}

// A tile belongs to the thread whose chunk of pairs has the tile's first pair.
static void gather_tiles(enum tile_planes planes, const struct experts_args *args, int chunk, int chunks)
{
    const struct routes *routes = &args->routes;
    struct tiled_x x = experts_x(planes, args);
    int first, end;
    kernel_range(pair_count(args), chunk, chunks, &first, &end);
    for (int expert = 0; expert < routes->experts && routes->first[expert] < end; expert++)
        for (int place = routes->first[expert], width; place < routes->first[expert + 1]; place += width) {
            width = tile_width(routes->first[expert + 1] - place);
            if (place >= first && place < end)
                gather_tile(args, x, place, width);
        }
}

static struct product expert_product(const struct experts_args *args, struct tiled_x x, int expert)
{
    struct product product = { .x = x, .in = args->in, .row_of = args->routes.pair };
    for (int i = 0; i < args->outputs; i++) {
        const struct experts_output *output = &args->output[i];
        const struct weight *weight = &output->weight;
        size_t bytes = (size_t)group_count(weight->rows) * packed_group_bytes(weight->dtype, args->in);
        add_output(&product,
                   (struct output){
                       .weight = weight,
                       .data = (const uint8_t *)weight->data + (size_t)expert * bytes,
                       .bias = output->bias ? output->bias + (size_t)expert * (size_t)weight->rows : NULL,
                       .y = output->y,
                       .scale = weight->scale * (output->scales ? output->scales[expert] : 1),
                   });
    }
    return product;
}

static void run_experts(enum tile_planes planes, const struct experts_args *args, int chunk, int chunks)
{
    const int32_t *first = args->routes.first;
    bool begun = ISA_NAME(linear_begin)(experts_formats(args), pair_count(args));
    struct product product = expert_product(args, experts_x(planes, args), 0);
    struct group_run run = group_run_of((int64_t)product.groups * pair_count(args), chunk, chunks);
    int panel = panel_tokens(product.x, args->in, INT64_MAX);
    for (int expert = 0; expert < args->routes.experts; expert++) {
        if (first[expert] < first[expert + 1])
            product = expert_product(args, product.x, expert);
        for (int place = first[expert], left; (left = first[expert + 1] - place) > 0; place += panel)
            run_panel(&product, &run, place, left < panel ? left : panel);
    }
    ISA_NAME(linear_end)(begun);
}

#define EXPERTS(name, planes)                                              \
    void ISA_NAME(name##_prepare)(const void *args, int chunk, int chunks) \
    {                                                                      \
        gather_tiles(planes, args, chunk, chunks);                         \
    }                                                                      \
    void ISA_NAME(name)(const void *args, int chunk, int chunks) { run_experts(planes, args, chunk, chunks); }
EXPERTS(experts, TILE_INT16)
EXPERTS(experts_int8, TILE_INT8)
