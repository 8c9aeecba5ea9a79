// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear.c: from linear's arguments to parameters, and the helpers that several of its rows launch.
#include "kernel/cuda/linear_rows.h"

enum { ELEMENTWISE_BLOCKS_MAX = 1024 };

// ---- parameters ----

static struct cuda_linear_output output_of(const struct linear_args *args, int i)
{
    const struct linear_output *output = &args->output[i];
    const struct weight *weight = &output->weight;
    void *y = args->add ? args->add->x : args->act_mul ? args->act_mul->out : output->y;
    return (struct cuda_linear_output){ weight->data, output->bias, y, weight->rows, weight->scale };
}

struct cuda_linear linear_params(const struct linear_args *args)
{
    struct cuda_linear p = { .rows = args->rows,
                             .x = args->x,
                             .in = args->in,
                             .outputs = args->outputs,
                             .act = args->act_mul ? (int)args->act_mul->act : -1,
                             .f32_out = args->f32_y,
                             .scratch = args->scratch,
                             .residual = args->add != NULL };
    if (args->norm) {
        p.x = args->norm->x;
        p.norm_weight = args->norm->weight;
        p.epsilon = args->norm->epsilon;
    }
    for (int i = 0; i < args->outputs; i++)
        p.output[i] = output_of(args, i);
    return p;
}

struct cuda_linear linear_params_at(const struct cuda_linear *all, int i)
{
    struct cuda_linear p = *all;
    p.outputs = 1;
    p.output[0] = all->output[i];
    p.act = i == all->outputs - 1 ? all->act : -1;
    return p;
}

int linear_tiles(const struct cuda_linear *p, int tile_rows)
{
    int tiles = 0;
    for (int i = 0; i < p->outputs; i++)
        tiles += (int)cuda_blocks(p->output[i].rows, tile_rows);
    return tiles;
}

// ---- helpers ----

struct cuda_call linear_elementwise(const char *function, const struct cuda_linear *p, int64_t values)
{
    unsigned blocks = cuda_blocks(values, LINEAR_SMALL_BLOCK);
    return cuda_call_make(function, blocks < ELEMENTWISE_BLOCKS_MAX ? blocks : ELEMENTWISE_BLOCKS_MAX, 1,
                          LINEAR_SMALL_BLOCK, p, sizeof *p);
}

struct cuda_call linear_normed(const char *function, struct cuda_linear *p, const struct cuda_shape *shape)
{
    struct cuda_call call = cuda_call_make(function, (unsigned)shape->rows, 1, LINEAR_SMALL_BLOCK, p, sizeof *p);
    p->x = p->scratch;
    p->norm_weight = NULL;
    return call;
}

struct cuda_call linear_converted(const char *function, struct cuda_linear *p, void *to, const struct cuda_shape *shape)
{
    p->scratch = to;
    struct cuda_call call = linear_elementwise(function, p, (int64_t)shape->rows * p->in);
    p->x = to;
    return call;
}

struct cuda_call linear_combined(const char *function, const struct cuda_linear_wide *wide,
                                 const struct cuda_shape *shape)
{
    int rows = 0;
    for (int i = 0; i < wide->linear.outputs; i++)
        rows += wide->linear.output[i].rows;
    return cuda_call_make(function, cuda_blocks(rows, LINEAR_SMALL_BLOCK), (unsigned)shape->rows, LINEAR_SMALL_BLOCK,
                          wide, sizeof *wide);
}

// ---- scratch ----

size_t linear_x_bytes(int rows, int width)
{
    enum { ALIGNMENT = 256 };
    return ((size_t)rows * (size_t)width * sizeof(uint16_t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t linear_x_scratch(const struct kernel_extent *extent) { return linear_x_bytes(extent->rows, extent->width); }

size_t linear_partials_scratch(const struct kernel_extent *extent)
{
    int tokens = 32; // of a tile: k is split for no more than LINEAR_SPLIT_TOKENS_MAX
    while (tokens < extent->rows && tokens < LINEAR_SPLIT_TOKENS_MAX)
        tokens *= 2;
    return (size_t)tokens * LINEAR_SPLIT_ROWS_MAX * sizeof(float);
}
