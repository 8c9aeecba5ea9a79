// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/describe.h"

#include <assert.h>
#include <math.h>
#include <string.h>

unsigned cuda_blocks(int64_t count, int64_t each)
{
    int64_t blocks = (count + each - 1) / each;
    assert(blocks <= INT32_MAX);
    return blocks > 0 ? (unsigned)blocks : 1;
}

struct cuda_call cuda_call_make(const char *function, unsigned grid_x, unsigned grid_y, unsigned block,
                                const void *params, size_t bytes)
{
    struct cuda_call call = {
        .function = function, .grid = { grid_x, grid_y, 1 }, .block = block, .params_bytes = bytes
    };
    assert(bytes <= sizeof call.params);
    memcpy(call.params, params, bytes);
    return call;
}

static struct cuda_side side_make(const struct kv_side *side, size_t layer_offset, float scale)
{
    return (struct cuda_side){ .data = (uint32_t)(layer_offset + side->data_offset),
                               .data_bytes = (uint32_t)side->data_bytes,
                               .scales = (uint32_t)(layer_offset + side->scale_offset),
                               .scale_bytes = (uint32_t)side->scale_bytes,
                               .dtype = side->dtype,
                               .scale = scale };
}

struct cuda_place cuda_place_make(const struct kv_place *place)
{
    const struct kv_layout *layout = &place->layout;
    assert(place->page_bytes <= UINT32_MAX); // offsets within a page
    return (struct cuda_place){ .pool = place->pool,
                                .page_bytes = place->page_bytes,
                                .k = side_make(&layout->k, place->layer_offset, place->k_scale),
                                .v = side_make(&layout->v, place->layer_offset, place->v_scale),
                                .class_index = place->class_index,
                                .heads = layout->k.heads,
                                .k_dim = layout->k.dim,
                                .v_dim = layout->v.dim };
}

struct cuda_state cuda_state_make(const struct state_place *place, size_t part)
{
    return (struct cuda_state){ .pool = place->pool + place->layer_offset + part,
                                .page_bytes = place->page_bytes,
                                .class_index = place->class_index,
                                .page_tokens = place->page_tokens };
}

struct cuda_rope cuda_rope_make(const struct rope_args *rope)
{
    return (struct cuda_rope){ .q = (uint16_t *)(void *)rope->q,
                               .k = (uint16_t *)(void *)rope->k,
                               .frequencies = rope->frequencies,
                               .heads = rope->heads,
                               .kv_heads = rope->kv_heads,
                               .head_dim = rope->head_dim,
                               .first = rope->first,
                               .rotated = rope->rotated,
                               .interleaved = rope->interleaved,
                               .magnitude = rope->magnitude };
}

struct cuda_transform cuda_transform_make(const struct transform_args *transform)
{
    return (struct cuda_transform){ .q = (uint16_t *)(void *)transform->q,
                                    .k = (uint16_t *)(void *)transform->k,
                                    .centre = transform->centre,
                                    .heads = transform->heads,
                                    .kv_heads = transform->kv_heads,
                                    .head_dim = transform->head_dim,
                                    .block = transform->block,
                                    .factor = transform->block ? 1 / sqrtf((float)transform->block) : 1 };
}
