// SPDX-License-Identifier: Apache-2.0
// kernel/x86/experts_walk.h: the linear of experts, with the tiles of linear_walk.h, after which it is included.
// Activations are gathered in the order of pairs, so that those of one expert are neighbours; each expert's pairs are
// cut into tiles as the tokens of a linear are. Work is counted in pair-groups, a pair times sixteen rows, through all
// experts that were chosen: a part takes a run of them.
#ifndef KERNEL_X86_EXPERTS_WALK_H
#define KERNEL_X86_EXPERTS_WALK_H

static uint64_t experts_formats(const struct experts_args *args)
{
    uint64_t formats = 0;
    for (int i = 0; i < args->outputs; i++)
        formats |= (uint64_t)1 << args->output[i].weight.dtype;
    return formats;
}

static int pair_count(const struct experts_args *args) { return *args->rows * args->routes.chosen; }

static struct tiled_x experts_x(const struct experts_args *args)
{
    struct tiled_x x = { 0 };
    uint64_t formats = experts_formats(args);
    if (formats & ~PACKED_FLOAT_SET)
        x.int8 = args->scratch;
    if (formats & PACKED_FLOAT_SET)
        x.floats = (uint8_t *)args->scratch + (x.int8 ? int8_bytes(pair_count(args), args->in) : 0);
    return x;
}

// The rows of x of a tile's pairs, one after the other: a block of 32 values of each.
static void gather_block(const struct experts_args *args, int place, int width, int block, int count,
                         float out[TILE_TOKENS * INT8_BLOCK])
{
    const struct routes *routes = &args->routes;
    for (int i = 0; i < width; i++) {
        size_t pair = (size_t)routes->pair[place + i], row = args->x_per_slot ? pair : pair / (size_t)routes->chosen;
        memcpy(out + i * INT8_BLOCK, args->x + row * (size_t)args->in + block * INT8_BLOCK,
               (size_t)count * sizeof *out);
    }
}

static void gather_tile(const struct experts_args *args, struct tiled_x x, int place, int width)
{
    int in = args->in;
    for (int block = 0; block * INT8_BLOCK < in; block++) {
        float values[TILE_TOKENS * INT8_BLOCK];
        int count = in - block * INT8_BLOCK < INT8_BLOCK ? in - block * INT8_BLOCK : INT8_BLOCK;
        gather_block(args, place, width, block, count, values);
        if (x.int8)
            fill_int8(values, INT8_BLOCK, width, x.int8 + int8_bytes(place, in) + block * width * TILE_INT8_BYTES);
        if (x.floats)
            fill_floats(values, INT8_BLOCK, width, count,
                        x.floats + float_bytes(place, in) + block * INT8_BLOCK * width * TILE_FLOAT_BYTES);
    }
}

// Tiles whose first pair is among a part's share of pairs are the part's.
static void prepare_experts(const struct experts_args *args, int part, int parts)
{
    const struct routes *routes = &args->routes;
    struct tiled_x x = experts_x(args);
    int first, end;
    kernel_share(pair_count(args), part, parts, &first, &end);
    for (int expert = 0; expert < routes->experts && routes->first[expert] < end; expert++)
        for (int place = routes->first[expert], width; place < routes->first[expert + 1]; place += width) {
            width = tile_width(routes->first[expert + 1] - place);
            if (place >= first && place < end)
                gather_tile(args, x, place, width);
        }
}

// The sums of a tile become results, each where its pair is.
static void finish_pairs(const struct experts_args *args, const struct experts_output *output, int expert, int row,
                         int rows, int place, int width, const float sums[TILE_TOKENS][PACKED_ROWS])
{
    size_t all = (size_t)output->weight.rows;
    const float *bias = output->bias ? output->bias + (size_t)expert * all + (size_t)row : NULL;
    float scale = output->weight.scale * (output->scales ? output->scales[expert] : 1);
    for (int i = 0; i < width; i++) {
        float *y = output->y + (size_t)args->routes.pair[place + i] * all + (size_t)row;
        for (int j = 0; j < rows; j++)
            y[j] = sums[i][j] * scale;
        for (int j = 0; bias && j < rows; j++)
            y[j] += bias[j];
    }
}

// One group of an expert's rows for a run of its pairs.
static void run_expert_group(const struct experts_args *args, const struct experts_output *output, int expert,
                             int group, struct tiled_x x, int place, int end)
{
    const struct weight *weight = &output->weight;
    size_t groups = (size_t)((weight->rows + PACKED_ROWS - 1) / PACKED_ROWS), in = (size_t)args->in;
    const uint8_t *w = (const uint8_t *)weight->data
        + ((size_t)expert * groups + (size_t)group) * packed_group_bytes(weight->dtype, (int)in);
    int row = group * PACKED_ROWS, rows = weight->rows - row < PACKED_ROWS ? weight->rows - row : PACKED_ROWS;
    bool is_floats = is_float(weight->dtype);
    for (int width; place < end; place += width) {
        float sums[TILE_TOKENS][PACKED_ROWS];
        width = tile_width(end - place);
        const uint8_t *at = is_floats ? x.floats + float_bytes(place, args->in) : x.int8 + int8_bytes(place, args->in);
        tiles[weight->dtype][__builtin_ctz((unsigned)width)](w, at, args->in, sums[0]);
        finish_pairs(args, output, expert, row, rows, place, width, sums);
    }
}

// Pairs that are done together: whole tiles whose activations stay in the cache.
static int experts_chunk(const struct experts_args *args)
{
    size_t pair_bytes = experts_formats(args) & PACKED_FLOAT_SET ? float_bytes(1, args->in) : int8_bytes(1, args->in);
    int pairs = (int)(CHUNK_BYTES / pair_bytes) / TILE_TOKENS * TILE_TOKENS;
    return pairs > TILE_TOKENS ? pairs : TILE_TOKENS;
}

// Groups [first, end) of all matrices of an expert, counted through, for pairs [place, last).
static void run_expert(const struct experts_args *args, int expert, struct tiled_x x, int first, int end, int place,
                       int last)
{
    for (int i = 0; i < args->outputs; i++) {
        int groups = (args->output[i].weight.rows + PACKED_ROWS - 1) / PACKED_ROWS;
        for (int group = first > 0 ? first : 0; group < groups && group < end; group++)
            run_expert_group(args, &args->output[i], expert, group, x, place, last);
        first -= groups;
        end -= groups;
    }
}

static void run_experts(const struct experts_args *args, int part, int parts)
{
    const struct routes *routes = &args->routes;
    struct tiled_x x = experts_x(args);
    int groups = 0, chunk = experts_chunk(args);
    for (int i = 0; i < args->outputs; i++)
        groups += (args->output[i].weight.rows + PACKED_ROWS - 1) / PACKED_ROWS;
    int64_t all = (int64_t)groups * pair_count(args), first = all * part / parts, end = all * (part + 1) / parts;
    for (int expert = 0; expert < routes->experts; expert++)
        for (int place = routes->first[expert], count; place < routes->first[expert + 1]; place += count) {
            count = routes->first[expert + 1] - place < chunk ? routes->first[expert + 1] - place : chunk;
            run_expert(args, expert, x, clamp_group(first, count, groups), clamp_group(end, count, groups), place,
                       place + count);
            first -= (int64_t)count * groups;
            end -= (int64_t)count * groups;
        }
}

#endif
