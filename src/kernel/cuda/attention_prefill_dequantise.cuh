// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_dequantise.cuh: dequantisation of pages to swizzled tiles of bfloat16 in shared memory.
//   (1) a tile of n tokens is D / 64 panels of (n, 64) values. A panel's row has eight chunks of 16 bytes; chunk c of
//       row r lies at place c ^ r % 8: the 128-byte swizzle of wgmma, without bank conflicts
//   (2) dequantisation leaves the eight values of a chunk in the order that is cheapest for the format's width, the
//       same in every chunk: queries are permuted to the order of K, results back from that of V
//   (3) the dequantised value times fold_of is that of kernel/ref/kv_codec.c, rounded to bfloat16 once; for
//       int4_per_token_head it is still rotated
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_DEQUANTISE_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_DEQUANTISE_CUH

#include "kernel/cuda/common.cuh"

enum { PANEL_VALUES = 64, PANEL_ROW_BYTES = 128, CHUNK_BYTES = 16, CHUNK_VALUES = 8, UNIT_VALUES = 16 };

// ---- tiles ----

DEVICE uint32_t chunk_at(int tile_rows, int row, int chunk)
{
    return (uint32_t)((chunk / 8 * tile_rows + row) * PANEL_ROW_BYTES + ((chunk ^ row) & 7) * CHUNK_BYTES);
}

DEVICE void store_chunk(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

template <int BYTES> DEVICE void shared_load(uint32_t address, uint32_t *out)
{
    if constexpr (BYTES == 4)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(out[0]) : "r"(address) : "memory");
    else if constexpr (BYTES == 8)
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "r"(address) : "memory");
    else
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(address)
                     : "memory");
}

// Copies, or writes zeros without reading `from`.
template <int BYTES> DEVICE void copy_async(uint32_t to, const void *from, bool wanted)
{
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                     "r"(wanted ? BYTES : 0)
                     : "memory");
}

// ---- the order of values in a chunk ----

// Place j of a chunk holds value (order >> 4 * j & 7).
DEVICE uint32_t order_of(int dtype)
{
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16: return 0x76543210;
    case DTYPE_INT4_TOKEN:
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return 0x73625140;
    default: return 0x75643120;
    }
}

DEVICE uint32_t lows(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
DEVICE uint32_t highs(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

DEVICE uint4 into_order(uint4 x, uint32_t order)
{
    switch (order) {
    case 0x73625140: return make_uint4(lows(x.x, x.z), highs(x.x, x.z), lows(x.y, x.w), highs(x.y, x.w));
    case 0x75643120: return make_uint4(lows(x.x, x.y), highs(x.x, x.y), lows(x.z, x.w), highs(x.z, x.w));
    default: return x;
    }
}

// ---- formats ----

// The factor of the dequantised values of K or V, which is folded into scores or results.
DEVICE float fold_of(const struct cuda_side &side, int dim)
{
    switch (side.dtype) {
    case DTYPE_FP8_E4M3:
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return side.scale * 0x1p8f;
    case DTYPE_FP8_TOKEN: return 0x1p8f;
    case DTYPE_FP8_E5M2: return side.scale;
    case DTYPE_INT4_TOKEN: return 1 / (float)dim;
    default: return 1;
    }
}

// Formats that are dequantised alike; bfloat16 is copied.
enum form { FORM_F32, FORM_F16, FORM_E4M3, FORM_E4M3_TOKEN, FORM_E5M2, FORM_INT8, FORM_INT4, FORM_NVFP4 };

// Sixteen values of a vector as stored, and their scale: the bits of an f32, or an E4M3 code.
template <int FORM> struct unit {
    static constexpr int BYTES = FORM == FORM_F32 ? 64
        : FORM == FORM_F16                        ? 32
        : FORM == FORM_INT4 || FORM == FORM_NVFP4 ? 8
                                                  : 16;
    static constexpr bool BY_TOKEN = FORM == FORM_E4M3_TOKEN || FORM == FORM_INT8 || FORM == FORM_INT4;
    static constexpr bool BY_BLOCK = FORM == FORM_NVFP4;
    uint32_t words[BYTES / 4], scale;
};

// data and scales are those of the vector.
template <int FORM> DEVICE void unit_load(unit<FORM> &out, const uint8_t *data, const uint8_t *scales, unsigned index)
{
    constexpr int BYTES = unit<FORM>::BYTES;
    if constexpr (BYTES == 8) {
        uint2 x = __ldg((const uint2 *)data + index);
        out.words[0] = x.x, out.words[1] = x.y;
    } else {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            uint4 x = __ldg((const uint4 *)(data + index * BYTES) + i);
            out.words[4 * i] = x.x, out.words[4 * i + 1] = x.y, out.words[4 * i + 2] = x.z, out.words[4 * i + 3] = x.w;
        }
    }
    if constexpr (unit<FORM>::BY_BLOCK)
        out.scale = __ldg(scales + index);
    else if constexpr (unit<FORM>::BY_TOKEN)
        out.scale = __ldg((const uint32_t *)scales);
}

// A vector of zeros in every format.
template <int FORM> DEVICE void unit_clear(unit<FORM> &out)
{
#pragma unroll
    for (int i = 0; i < unit<FORM>::BYTES / 4; i++)
        out.words[i] = 0;
    out.scale = 0;
}

DEVICE uint32_t bf16_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

enum : uint32_t { BF16_ONES = 0x3F803F80, BF16_NEGATIVE_ZEROS = 0x80008000, BF16_2_POW_112 = 0x77807780 };
DEVICE uint32_t bf16_multiply(uint32_t a, uint32_t b) { return bf16_fma(a, b, BF16_NEGATIVE_ZEROS); }

// An f32 as the sum of two bfloat16, each in both halves of a word: a product with it is rounded once, and the values
// of a vector do not all have the error of a rounded scale.
struct factor {
    uint32_t main, rest;
};

DEVICE struct factor factor_of(float value)
{
    uint32_t main = bf16_pair(value, value);
    float rest = value - bf16_low(main);
    return { main, bf16_pair(rest, rest) };
}

DEVICE uint32_t factor_multiply(uint32_t pair, struct factor by)
{
    return bf16_fma(pair, by.main, bf16_multiply(pair, by.rest));
}

// (word & mask) | with, as one instruction: the compiler makes two of it when both are constants.
DEVICE uint32_t mask_or(uint32_t word, uint32_t mask, uint32_t with)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word), "r"(mask), "r"(with));
    return out;
}

// Bytes 1 and 3 of a word, or those moved there, as bfloat16: E4M3 times 2^-120, E5M2 times 2^-112.
template <int FORM> DEVICE uint32_t fp8_widen(uint32_t word)
{
    return (word & 0x80008000) | (FORM == FORM_E5M2 ? word >> 3 & 0x0FE00FE0 : word >> 4 & 0x07F007F0);
}

// Bytes 0 and 2: |low seven bits| + 128, less 128 or, if negative, 256.
DEVICE uint32_t int8_widen(uint32_t word)
{
    return bf16_fma(mask_or(word, 0x007F007F, 0x43004300), BF16_ONES, mask_or(word, 0x00800080, 0xC300C300));
}

// Four words with the eight nibbles of one, in pairs (0,4) (1,5) (2,6) (3,7): E2M1 times 2^-126.
DEVICE void e2m1_widen(uint32_t word, uint32_t out[4])
{
    out[0] = (word << 12 & 0x80008000) | (word << 6 & 0x01C001C0);
    out[1] = (word << 8 & 0x80008000) | (word << 2 & 0x01C001C0);
    out[2] = (word << 4 & 0x80008000) | (word >> 2 & 0x01C001C0);
    out[3] = (word & 0x80008000) | (word >> 6 & 0x01C001C0);
}

template <int FORM> DEVICE void unit_dequantise(const unit<FORM> &in, uint32_t out[8])
{
    if constexpr (FORM == FORM_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = bf16_pair(__uint_as_float(in.words[2 * i]), __uint_as_float(in.words[2 * i + 1]));
    } else if constexpr (FORM == FORM_F16) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float low, high;
            asm("{ .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h; }"
                : "=f"(low), "=f"(high)
                : "r"(in.words[i]));
            out[i] = bf16_pair(low, high);
        }
    } else if constexpr (FORM == FORM_E4M3_TOKEN) {
        struct factor scale = factor_of(fminf(__uint_as_float(in.scale), 0x1p15f) * 0x1p112f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = factor_multiply(fp8_widen<FORM>(in.words[i] << 8), scale);
            out[2 * i + 1] = factor_multiply(fp8_widen<FORM>(in.words[i]), scale);
        }
    } else if constexpr (FORM == FORM_E4M3 || FORM == FORM_E5M2) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = bf16_multiply(fp8_widen<FORM>(in.words[i] << 8), BF16_2_POW_112);
            out[2 * i + 1] = bf16_multiply(fp8_widen<FORM>(in.words[i]), BF16_2_POW_112);
        }
    } else if constexpr (FORM == FORM_INT8) {
        struct factor scale = factor_of(__uint_as_float(in.scale));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = factor_multiply(int8_widen(in.words[i]), scale);
            out[2 * i + 1] = factor_multiply(int8_widen(in.words[i] >> 8), scale);
        }
    } else if constexpr (FORM == FORM_INT4) {
        struct factor scale = factor_of(__uint_as_float(in.scale & ~15u));
        uint32_t zero = 0xC300C300 | (in.scale & 15) * 0x00010001;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t codes = mask_or(in.words[i / 4] >> i % 4 * 4, 0x000F000F, 0x43004300);
            out[i] = factor_multiply(bf16_fma(codes, BF16_ONES, zero), scale);
        }
    } else {
        float scale = __uint_as_float(in.scale << 20) * 0x1p119f * 0x1p119f; // of 2^-120 and to 2^118: both are exact
        uint32_t pair = __byte_perm(__float_as_uint(scale), 0, 0x3232);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            e2m1_widen(in.words[i], out + 4 * i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                out[4 * i + j] = bf16_multiply(out[4 * i + j], pair);
        }
    }
}

#endif
