// SPDX-License-Identifier: Apache-2.0
// kv/layout.h: what each byte of a page means. A page holds KV_PAGE_TOKENS tokens of every layer of one class, and
// carries its own scales, so that moving, sharing or hashing it is moving, sharing or hashing bytes:
//
//   page  = layer 0 | layer 1 | ...                      of the class, layer_bytes each
//   layer = K data | K scales | V data | V scales
//   data  = (kv head, token, data_bytes)                 tokens of one head lie together
//   scales= (kv head, token, scale_bytes)                linear, in the same order
#ifndef KV_LAYOUT_H
#define KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/memory.h"

enum { KV_PAGE_TOKENS = 16, KV_INT4_DIM_MAX = 512 };

// One side (K or V) of a layer.
struct kv_side {
    enum dtype dtype;
    int heads, dim;
    size_t data_bytes, scale_bytes;   // of one head's vector of one token
    size_t data_offset, scale_offset; // of the side's parts within the layer
};

struct kv_layout {
    struct kv_side k, v;
    size_t layer_bytes;
};

// Why a format cannot hold vectors of this size, or NULL when it can.
const char *kv_format_misfit(struct arena *arena, enum dtype dtype, int dim);

// The sides must fit (kv_format_misfit). K and V may differ in format and in dim.
struct kv_layout kv_layout_make(enum dtype k, enum dtype v, int heads, int k_dim, int v_dim);

// A layer's bytes for one token.
static inline size_t kv_layout_token_bytes(const struct kv_layout *layout)
{
    return layout->layer_bytes / KV_PAGE_TOKENS;
}

// Where a token's vector of one head is, given the layer's place in the page.
static inline size_t kv_data_at(const struct kv_side *side, int head, int token)
{
    return side->data_offset + ((size_t)head * KV_PAGE_TOKENS + (size_t)token) * side->data_bytes;
}

static inline size_t kv_scale_at(const struct kv_side *side, int head, int token)
{
    return side->scale_offset + ((size_t)head * KV_PAGE_TOKENS + (size_t)token) * side->scale_bytes;
}

#endif
