// SPDX-License-Identifier: Apache-2.0
#include "kv/layout.h"

#include <assert.h>

const char *kv_format_misfit(struct arena *arena, enum dtype dtype, int dim)
{
    int block = dtype_table[dtype].block;
    if (dtype_table[dtype].use == DTYPE_USE_LATENT)
        return arena_format(arena, "%s holds MLA latents, and there are none", dtype_word(dtype));
    if (dim % block)
        return arena_format(arena, "%s needs a head size that is a multiple of %d, not %d", dtype_word(dtype), block,
                            dim);
    bool power_of_two = (dim & (dim - 1)) == 0;
    if (dtype == DTYPE_INT4_TOKEN && (!power_of_two || dim > KV_INT4_DIM_MAX))
        return arena_format(arena,
                            "%s rotates each vector and needs a head size that is a power of two up to %d, not %d",
                            dtype_word(dtype), KV_INT4_DIM_MAX, dim);
    return NULL;
}

const char *kv_latent_misfit(struct arena *arena, enum dtype dtype, int dim, int value_dim)
{
    if (dtype == DTYPE_INT4_TOKEN)
        return arena_format(arena, "%s rotates whole vectors, and of latents a part is read by itself",
                            dtype_word(dtype));
    if (dtype != DTYPE_FP8_DS_MLA)
        return kv_format_misfit(arena, dtype, value_dim % dtype_table[dtype].block ? value_dim : dim);
    if (value_dim == KV_RECORD_LATENT && dim == KV_RECORD_LATENT + KV_RECORD_ROPE)
        return NULL;
    return arena_format(arena, "%s is a record of latents of %d + %d channels, not %d + %d", dtype_word(dtype),
                        KV_RECORD_LATENT, KV_RECORD_ROPE, value_dim, dim - value_dim);
}

static size_t data_bytes_of(enum dtype dtype, int dim)
{
    if (dtype_table[dtype].scale == DTYPE_SCALE_INSIDE)
        return dtype_bytes(dtype, (size_t)dim);
    return (size_t)dim * (size_t)dtype_table[dtype].bits / 8;
}

static size_t scale_bytes_of(enum dtype dtype, int dim)
{
    switch (dtype_table[dtype].scale) {
    case DTYPE_SCALE_VECTOR: return sizeof(float);
    case DTYPE_SCALE_BLOCK: return (size_t)(dim / dtype_table[dtype].block);
    default: return 0;
    }
}

static size_t place_side(struct kv_side *side, enum dtype dtype, int heads, int dim, size_t offset)
{
    assert(dtype_table[dtype].use & DTYPE_USE_CACHE);
    size_t vectors = (size_t)heads * KV_PAGE_TOKENS;
    *side = (struct kv_side){
        .dtype = dtype,
        .heads = heads,
        .dim = dim,
        .data_bytes = data_bytes_of(dtype, dim),
        .scale_bytes = scale_bytes_of(dtype, dim),
        .data_offset = offset,
    };
    side->scale_offset = offset + vectors * side->data_bytes;
    return side->scale_offset + vectors * side->scale_bytes;
}

struct kv_layout kv_layout_make(enum dtype k, enum dtype v, int heads, int k_dim, int v_dim)
{
    struct kv_layout layout = { 0 };
    size_t end_of_k = place_side(&layout.k, k, heads, k_dim, 0);
    layout.layer_bytes = place_side(&layout.v, v, heads, v_dim, end_of_k);
    return layout;
}

struct kv_layout kv_layout_make_latent(enum dtype dtype, int dim, int value_dim)
{
    struct kv_layout layout = { .latent = true };
    layout.layer_bytes = place_side(&layout.k, dtype, 1, dim, 0);
    layout.v = layout.k;
    layout.v.dim = value_dim;
    return layout;
}

struct kv_state kv_state_make(int inputs, int channels, int heads, int keys, int values)
{
    enum { ALIGNMENT = 64 }; // of the state matrix, and of the next layer
    struct kv_state state = { .inputs = inputs, .channels = channels, .heads = heads, .keys = keys, .values = values };
    size_t inputs_bytes = (size_t)inputs * (size_t)channels * sizeof(float);
    size_t matrix_bytes = (size_t)heads * (size_t)keys * (size_t)values * sizeof(float);
    state.matrix_offset = (inputs_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    state.layer_bytes = (state.matrix_offset + matrix_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return state;
}
