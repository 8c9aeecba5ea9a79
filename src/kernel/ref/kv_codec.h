// SPDX-License-Identifier: Apache-2.0
// kernel/ref/kv_codec.h: the KV cache's quantisation formats: the definition that every faster kernel is tested
// against. load inverts store, up to rounding.
//
//   format                bytes in `data`   bytes in `scale`            a value is
//   float32/16, bfloat16  dim * 4 or 2      none                        itself, rounded as IEEE 754 says
//   fp8_e4m3, fp8_e5m2    dim               none                        code * layer_scale
//   fp8_per_token_head    dim               4: f32                      E4M3 code * scale
//   int8_per_token_head   dim               4: f32                      code * scale
//   int4_per_token_head   dim / 2           4: f32, zero point in its   (code - zero point) * scale, then the inverse
//                                              4 low mantissa bits      of the rotation (below)
//   nvfp4, nvfp4_4over6   dim / 2           dim / 16: E4M3              E2M1 code * E4M3 scale * layer_scale
//   fp8_ds_mla            656               none: in the record         E4M3 code * f32 scale of its 128; the last 64
//                                                                       values bfloat16 (kv/layout.h)
//
//   (1) two codes in a byte: the even index is the low nibble
//   (2) numbers are little-endian and may lie at any address
//   (3) layer_scale is positive and finite; formats that do not name it ignore it
//   (4) NaN is stored as NaN if the format has one (E4M3, E5M2 and the wider ones), otherwise as 0; scales ignore it
//   (5) infinity and values out of range saturate to the largest finite value, which is 2^100 for formats with a scale
//       per token; float32, float16 and bfloat16 keep infinity and overflow to it
#ifndef KERNEL_REF_KV_CODEC_H
#define KERNEL_REF_KV_CODEC_H

#include "kernel/minifloat.h"
#include "kv/layout.h"

// Both take one vector of one head and token. dim is a multiple of the format's block, for int4 a power of two as well.
// load may be asked for the first channels of a latent only; for fp8_ds_mla these are all but the rotary ones.
struct kv_codec {
    void (*store)(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale);
    void (*load)(const uint8_t *data, const uint8_t *scale, int dim, float layer_scale, float *x);
    // store with a search for the scales of least squared error (below); NULL if the format has no search.
    void (*store_searched)(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale);
};

// Formats with a scale per vector clamp magnitudes to KV_MAGNITUDE_MAX, so that scales, rotations and sums stay finite,
// and scales to at least KV_SCALE_MIN, also for a vector of zeros.
#define KV_MAGNITUDE_MAX 0x1p100f
#define KV_SCALE_MIN 1e-6f

// int4_per_token_head stores a randomised Hadamard rotation (as QuaRot), y = H s x, which spreads outliers over all
// channels.
//   s: a sign per channel: negative where bit channel % 64 of word channel / 64 is set, the words being what
//      splitmix64 gives from the seed below
//   H: the Hadamard matrix in natural order, H[i][j] = (-1)^popcount(i & j), not normalised: H H = dim
MINIFLOAT uint64_t kv_rotation_signs(int word)
{
    uint64_t z = 0x9E3779B9u + (uint64_t)(word + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// nvfp4's scale search: candidates are the scale that maps the largest magnitude to 6, and E4M3 codes some steps from
// it. Five steps up maps it to about 4, one step back clips it a little. On keys and values of real models these five
// candidates have 96 % of the gain of searching all codes. The least sum of squared errors wins, ties to the first.
// Sums are a tree: the second half of the squares, and then of their sums, is added to the first.
enum { KV_SCALES_TRIED = 5, KV_SCALE_CODE_MAX = 0x7E };
MINIFLOAT int kv_scale_tried(int first, int index)
{
    int step = index == 1 ? 5 : index == 2 ? -1 : index == 3 ? 4 : 1;
    int code = first + step > 1 ? first + step : 1;
    return index == 0 ? first : code < KV_SCALE_CODE_MAX ? code : KV_SCALE_CODE_MAX;
}

extern const struct kv_codec kv_codecs[DTYPE_COUNT]; // set for every dtype whose use includes KV or LATENT

#endif
