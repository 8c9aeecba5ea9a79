// SPDX-License-Identifier: Apache-2.0
// kv/layout.h: the layout of a KV cache page (PagedAttention). A page holds KV_PAGE_TOKENS tokens of every layer of one
// cache class, with their scales, so that copying, sharing or hashing a page means its bytes alone:
//
//   page  = layer 0 | layer 1 | ...                      of the class, layer_bytes each
//   layer = K data | K scales | V data | V scales
//   data  = (kv head, token, data_bytes)                 tokens of one head lie together
//   scales= (kv head, token, scale_bytes)                linear, in the same order
//
// MLA latents: one head, stored once as K; V is the first channels of K. The side V has the offsets of K and a smaller
// dim.
#ifndef KV_LAYOUT_H
#define KV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/memory.h"

enum { KV_PAGE_TOKENS = 16, KV_SINK_PAGES_MAX = 4, KV_INT4_DIM_MAX = 512 };

// A record of fp8_ds_mla (FlashMLA's format): E4M3 codes of the latent, an f32 scale for each 128 of them, and the
// rotary channels in bfloat16.
enum { KV_RECORD_LATENT = 512, KV_RECORD_GROUP = 128, KV_RECORD_ROPE = 64 };
enum { KV_RECORD_SCALES_AT = 512, KV_RECORD_ROPE_AT = 528, KV_RECORD_BYTES = 656 };

// Formats that can store latents if the sizes fit: all but int4, which rotates whole vectors.
#define KV_BIT_IF_CACHE(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_CACHE ? DTYPE_BIT(id) : 0)
#define KV_LATENT_FORMATS ((0 DTYPES(KV_BIT_IF_CACHE)) & ~DTYPE_BIT(INT4_TOKEN))

// One side (K or V) of a layer.
struct kv_side {
    enum dtype dtype;
    int heads, dim;
    size_t data_bytes, scale_bytes;   // per head and token
    size_t data_offset, scale_offset; // within the layer
};

struct kv_layout {
    struct kv_side k, v;
    bool latent; // V is a part of K (MLA)
    size_t layer_bytes;
};

// NULL if a format can store vectors of this size, or latents of `dim` channels of which `value_dim` are values;
// otherwise the reason.
const char *kv_format_misfit(struct arena *arena, enum dtype dtype, int dim);
const char *kv_latent_misfit(struct arena *arena, enum dtype dtype, int dim, int value_dim);

// kv_format_misfit must be NULL for both sides. K and V may differ in format and in dim.
struct kv_layout kv_layout_make(enum dtype k, enum dtype v, int heads, int k_dim, int v_dim);
struct kv_layout kv_layout_make_latent(enum dtype dtype, int dim, int value_dim); // kv_latent_misfit

// The state of a recurrent layer (Mamba 2, gated delta rule), f32: the convolution's last inputs, (inputs, channels),
// oldest first, and the state matrix, (heads, keys, values). A page of states is layer 0 | layer 1 | ..., too.
struct kv_state {
    int inputs, channels;
    int heads, keys, values;
    size_t matrix_offset; // within the layer
    size_t layer_bytes;
};

struct kv_state kv_state_make(int inputs, int channels, int heads, int keys, int values);

// Bytes of a layer per token.
static inline size_t kv_layout_token_bytes(const struct kv_layout *layout)
{
    return layout->layer_bytes / KV_PAGE_TOKENS;
}

// The offset of a token's vector of one head from the layer's first byte.
static inline size_t kv_data_at(const struct kv_side *side, int head, int token)
{
    return side->data_offset + ((size_t)head * KV_PAGE_TOKENS + (size_t)token) * side->data_bytes;
}

static inline size_t kv_scale_at(const struct kv_side *side, int head, int token)
{
    return side->scale_offset + ((size_t)head * KV_PAGE_TOKENS + (size_t)token) * side->scale_bytes;
}

#endif
