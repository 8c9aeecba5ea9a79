// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/dequantise.cuh: dequantisation in registers, from the bytes of a page in shared memory to operands of
// m16n8k16.
//   (1) a unit is eight neighbouring channels of one token
//   (2) K: a unit becomes four pairs of channels, neighbours, or, of 4-bit codes, two or four apart (pair_channel):
//       queries are permuted to the same order. V: units of two tokens become eight pairs, one per channel
//   (3) 8-bit and 4-bit codes become float16 without error: E4M3, E5M2, E2M1 times its E4M3 scale over E2M1_UNIT,
//       integers of 4 bits, and those of 8 bits, plus 128, over INT8_UNIT. The remaining factors are the unit of
//       the format, and the scales of layers and tokens
#ifndef KERNEL_CUDA_DEQUANTISE_CUH
#define KERNEL_CUDA_DEQUANTISE_CUH

#include "kernel/cuda/attention_shapes.h"
#include "kernel/cuda/common.cuh"

enum { UNIT = 8, PAGE_TOKENS = KV_PAGE_TOKENS };

template <int FORM> struct form {
    static constexpr bool FOUR_BITS = FORM == FORM_INT4 || FORM == FORM_NVFP4;
    static constexpr bool WIDE = FORM == FORM_F16 || FORM == FORM_BF16;
    static constexpr int WORDS = FOUR_BITS ? 1 : WIDE ? 4 : 2; // of a unit
    // Whether every token has, or may have, an f32 scale, and whether every 16 channels have a byte.
    static constexpr bool BY_TOKEN = FORM == FORM_E4M3 || FORM == FORM_INT8 || FORM == FORM_INT4;
    static constexpr bool BY_BLOCK = FORM == FORM_NVFP4;
    static constexpr bool BIASED = FORM == FORM_INT8; // codes are dequantised with a bias of 128
};

// ---- two 16-bit floats at a time ----

DEVICE uint32_t f16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE uint32_t f16_multiply(uint32_t a, uint32_t b)
{
    uint32_t out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

DEVICE uint32_t f16_add(uint32_t a, uint32_t b)
{
    uint32_t out;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

DEVICE uint32_t f16_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

DEVICE uint32_t twice(uint32_t half) { return half * 0x00010001u; }

// ---- codes ----

// The E4M3 codes in the low and in the high half of a word.
DEVICE void e4m3_pairs(uint32_t codes, uint32_t *low, uint32_t *high)
{
#if __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.rn.f16x2.e4m3x2 %0, l;\n cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(*low), "=r"(*high)
        : "r"(codes));
#else
    uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424); // in the upper bytes of halves
    *low = f16_multiply((a & 0x80008000) | (a >> 1 & 0x3F803F80), 0x5C005C00 /* 256 */);
    *high = f16_multiply((b & 0x80008000) | (b >> 1 & 0x3F803F80), 0x5C005C00);
#endif
}

DEVICE void e5m2_pairs(uint32_t codes, uint32_t *low, uint32_t *high)
{
    *low = __byte_perm(codes, 0, 0x1404);
    *high = __byte_perm(codes, 0, 0x3424);
}

// The bits of a signed byte plus 128 are a subnormal float16 in units of 2^-24. Subtracting 128 would cost an
// instruction for each pair, so the bias is subtracted from sums instead (attention_step.cuh).
#define INT8_UNIT 0x1p24f
#define INT8_UNBIAS 0x80808080 // a pair of -128 in that unit
DEVICE void int8_pairs(uint32_t codes, uint32_t *low, uint32_t *high)
{
    codes ^= 0x80808080;
    *low = __byte_perm(codes, 0, 0x4140);
    *high = __byte_perm(codes, 0, 0x4342);
}

template <int FORM> DEVICE void byte_pairs(uint32_t codes, uint32_t *low, uint32_t *high)
{
    if (FORM == FORM_E4M3)
        e4m3_pairs(codes, low, high);
    else if (FORM == FORM_E5M2)
        e5m2_pairs(codes, low, high);
    else
        int8_pairs(codes, low, high);
}

// ---- four bits ----

#if __CUDA_ARCH__ >= 890
// E2M1 shifted so that its exponent takes the lowest exponent bits of E4M3 is 2^-6 of its value, subnormal or not; the
// hardware converts E4M3. Pairs (0,2) (4,6) (1,3) (5,7) of a word's nibbles.
#define E2M1_UNIT 0x1p6f
DEVICE void e2m1_pairs(uint32_t word, uint32_t scale, uint32_t out[4])
{
    e4m3_pairs((word << 4 & 0x80808080) | (word << 2 & 0x1C1C1C1C), &out[0], &out[1]);
    e4m3_pairs((word & 0x80808080) | (word >> 2 & 0x1C1C1C1C), &out[2], &out[3]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = f16_multiply(out[i], scale);
}
#else
// The same shifted into the bits of a float16, which gives 2^-14 of its value. Pairs (0,4) (1,5) (2,6) (3,7).
#define E2M1_UNIT 0x1p14f
DEVICE void e2m1_pairs(uint32_t word, uint32_t scale, uint32_t out[4])
{
    out[0] = f16_multiply((word << 12 & 0x80008000) | (word << 9 & 0x0E000E00), scale);
    out[1] = f16_multiply((word << 8 & 0x80008000) | (word << 5 & 0x0E000E00), scale);
    out[2] = f16_multiply((word << 4 & 0x80008000) | (word << 1 & 0x0E000E00), scale);
    out[3] = f16_multiply((word & 0x80008000) | (word >> 3 & 0x0E000E00), scale);
}
#endif

// With the exponent of 1024 a nibble in the mantissa has the unit 1 or, four bits higher, 16. Pairs (0,4) (1,5) (2,6)
// (3,7). low: -(1024 + zero point), high: -(64 + zero point).
DEVICE void int4_pairs(uint32_t word, uint32_t low, uint32_t high, uint32_t out[4])
{
    uint32_t upper = word >> 8;
    out[0] = f16_add((word & 0x000F000F) | 0x64006400, low);
    out[1] = f16_fma((word & 0x00F000F0) | 0x64006400, 0x2C002C00 /* 1/16 */, high);
    out[2] = f16_add((upper & 0x000F000F) | 0x64006400, low);
    out[3] = f16_fma((upper & 0x00F000F0) | 0x64006400, 0x2C002C00, high);
}

// ---- units ----

// The operands that dequantise a pair of codes: two E4M3 scales, or the summands of int4_pairs from two zero points.
struct unit_scale {
    uint32_t low, high;
};

// The words have the zero points in their lowest bits.
DEVICE struct unit_scale int4_scale(uint32_t a, uint32_t b)
{
    uint32_t zeros = (a & 15) | (b & 15) << 16;
    return { 0xE400E400 + zeros, 0xD400D400 + (zeros << 4) };
}

// Whether the nibbles of a pair are two apart, from neighbouring bytes, or four apart, from halves of a word.
template <int FORM> __host__ __device__ constexpr bool nibbles_by_bytes()
{
#if __CUDA_ARCH__ >= 890
    return FORM == FORM_NVFP4;
#else
    return false;
#endif
}

// The channel of a unit that is the lower (half 0) or upper one of a pair of K.
template <int FORM> __host__ __device__ constexpr int pair_channel(int pair, int half)
{
    return !form<FORM>::FOUR_BITS  ? 2 * pair + half
        : nibbles_by_bytes<FORM>() ? pair % 2 * 4 + pair / 2 + 2 * half
                                   : pair + 4 * half;
}

template <int FORM> DEVICE void dequantise_nibbles(uint32_t word, struct unit_scale scale, uint32_t out[4])
{
    if (FORM == FORM_NVFP4)
        e2m1_pairs(word, scale.low, out);
    else
        int4_pairs(word, scale.low, scale.high, out);
}

// One token's unit of K.
template <int FORM> DEVICE void dequantise_k(const uint32_t *unit, struct unit_scale scale, uint32_t out[4])
{
    if constexpr (form<FORM>::FOUR_BITS)
        dequantise_nibbles<FORM>(unit[0], scale, out);
    else if constexpr (form<FORM>::WIDE)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = unit[i];
    else
#pragma unroll
        for (int i = 0; i < 2; i++)
            byte_pairs<FORM>(unit[i], &out[2 * i], &out[2 * i + 1]);
}

// Two tokens' units of V: out[i] has channel i of both.
template <int FORM>
DEVICE void dequantise_v(const uint32_t *a, const uint32_t *b, struct unit_scale scale, uint32_t out[UNIT])
{
    if constexpr (nibbles_by_bytes<FORM>()) {
#pragma unroll
        for (int i = 0; i < UNIT; i += 4) {
            uint32_t pairs[4];
            dequantise_nibbles<FORM>(__byte_perm(a[0], b[0], i ? 0x7362 : 0x5140), scale, pairs);
            out[i] = pairs[0], out[i + 1] = pairs[2], out[i + 2] = pairs[1], out[i + 3] = pairs[3];
        }
    } else if constexpr (form<FORM>::FOUR_BITS) {
        dequantise_nibbles<FORM>(__byte_perm(a[0], b[0], 0x5410), scale, out);
        dequantise_nibbles<FORM>(__byte_perm(a[0], b[0], 0x7632), scale, out + 4);
    } else if constexpr (form<FORM>::WIDE) {
#pragma unroll
        for (int i = 0; i < UNIT; i++)
            out[i] = __byte_perm(a[i / 2], b[i / 2], i % 2 ? 0x7632 : 0x5410);
    } else {
#pragma unroll
        for (int i = 0; i < UNIT; i += 2)
            byte_pairs<FORM>(__byte_perm(a[i / 4], b[i / 4], i % 4 ? 0x7362 : 0x5140), &out[i], &out[i + 1]);
    }
}

// ---- shared memory ---- The rows of K or V of a page are contiguous. Their chunks of 16 bytes are swizzled within 128
// bytes, so that neither the reads of K nor those of V have bank conflicts.

// The swizzle of a chunk's place within 128 bytes: xor of bits of its row and of its place in the row.
template <int ROW_BYTES> DEVICE int chunk_swizzle(int row, int chunk)
{
    if (ROW_BYTES == 32)
        return row >> 1 & 2;
    if (ROW_BYTES == 64)
        return row & 6;
    if (ROW_BYTES % 256 == 0)
        return ((row ^ row >> 1) & 1) | (row & 4) | (chunk >> 2 & 2);
    return ROW_BYTES % 128 ? 0 : row & 7;
}

template <int ROW_BYTES> DEVICE int chunk_place(int row, int chunk)
{
    return row * (ROW_BYTES / 16) + chunk ^ chunk_swizzle<ROW_BYTES>(row, chunk);
}

// `WORDS` words of a row from word `at` on, a multiple of WORDS or of 4.
template <int ROW_BYTES, int WORDS> DEVICE void load_words(const uint8_t *side, int row, int at, uint32_t out[WORDS])
{
    if constexpr (WORDS % 4 == 0) {
#pragma unroll
        for (int i = 0; i < WORDS / 4; i++) {
            uint4 x = *(const uint4 *)(side + chunk_place<ROW_BYTES>(row, at / 4 + i) * 16);
            out[4 * i] = x.x, out[4 * i + 1] = x.y, out[4 * i + 2] = x.z, out[4 * i + 3] = x.w;
        }
    } else if constexpr (WORDS % 2 == 0) {
#pragma unroll
        for (int i = 0; i < WORDS; i += 2) {
            uint2 x = *(const uint2 *)(side + chunk_place<ROW_BYTES>(row, (at + i) / 4) * 16 + (at + i) % 4 * 4);
            out[i] = x.x, out[i + 1] = x.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            out[i] = *(const uint32_t *)(side + chunk_place<ROW_BYTES>(row, (at + i) / 4) * 16 + (at + i) % 4 * 4);
    }
}

#endif
