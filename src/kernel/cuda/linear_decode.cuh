// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_decode.cuh: from packed codes (kernel/cuda/linear_packed.h) to operands of tensor cores. Values
// are bfloat16, two in a word; nothing is converted: bits are moved to where they are a (subnormal) bfloat16 of the
// code, and one multiply-add makes the weight of it.
#ifndef KERNEL_CUDA_LINEAR_DECODE_CUH
#define KERNEL_CUDA_LINEAR_DECODE_CUH

#include "kernel/cuda/common.cuh"
#include "kernel/cuda/linear.h"

using cuda_linear_output = cuda_linear::cuda_linear_output; // C++ has it inside

// ---- instructions ----

DEVICE uint32_t bf16_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

// Bits of `a` where the mask has ones, else of `b`.
DEVICE uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(out) : "r"(mask), "r"(a), "r"(b));
    return out;
}

// sums (16 rows, 8 tokens) += a (16 rows, 16 k) b (16 k, 8 tokens), both bfloat16, or f16.
template <bool HALF = false> DEVICE void multiply(float sums[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#define MULTIPLY(type)                                                                                               \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
        "{%0, %1, %2, %3};"                                                                                          \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (HALF)
        MULTIPLY("f16");
    else
        MULTIPLY("bf16");
#undef MULTIPLY
}

// Sixteen bytes into shared memory, of which the first `bytes` are read and the rest are zeros.
DEVICE void copy_16(uint32_t to, const void *from, int bytes = 16)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same of weights (READ_ONCE).
DEVICE void copy_16_once(uint32_t to, const void *from, int bytes = 16)
{
#ifdef READ_ONCE
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
                 "r"(bytes), "l"(READ_ONCE)
                 : "memory");
#else
    copy_16(to, from, bytes);
#endif
}

// Sixteen bytes or none.
DEVICE void copy_16_if(bool there, uint32_t to, const void *from)
{
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.b32 there, %2, 0;\n"
                 "@there cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
                 "}" ::"r"(to),
                 "l"(from), "r"((int)there)
                 : "memory");
}

// ---- formats ----

#define MEMBER __device__ __forceinline__

template <int BITS, int BLOCK, int FLOATS, int SMALL, int MIN> struct packed_weights {
    static constexpr struct linear_layout LAYOUT = { BITS, BLOCK, FLOATS, SMALL, MIN };
    static constexpr int K = LINEAR_RECORD;
    static constexpr int BYTES = linear_record_bytes(LAYOUT);
    static constexpr int BLOCKS = LINEAR_LANE_VALUES / BLOCK; // of a lane's row in a record

    // Exponents of one-byte scales are lower than those of floats by this much.
    static constexpr uint32_t SMALL_EXPONENT = 127 + LINEAR_E2M1_EXPONENT - LINEAR_EXPONENT - LINEAR_SMALL_EXPONENT;

    // A lane has two of the record's eight products in a chunk.
    static constexpr int PLANE = linear_plane(BITS), REST = BITS - PLANE;

    uint32_t high[PLANE / 2 > 0 ? PLANE / 2 : 1], low[REST / 2 > 0 ? REST / 2 : 1];
    uint32_t scales[BLOCKS][2], mins[BLOCKS][2]; // of block and row, in both halves

    // The words of a plane for products 2 i and 2 i + 1.
    template <int WIDTH> static MEMBER void load_words(const uint8_t *plane, int lane, int i, uint32_t *out)
    {
        const uint8_t *at = plane + linear_word_at(WIDTH, lane, i * WIDTH / 2);
        if constexpr (WIDTH == 8) {
            uint4 four = *(const uint4 *)at;
            out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
        } else if constexpr (WIDTH == 4) {
            uint2 two = *(const uint2 *)at;
            out[0] = two.x, out[1] = two.y;
        } else {
            out[0] = *(const uint32_t *)at;
        }
    }

    MEMBER void load_chunk(const uint8_t *record, int lane, int i)
    {
        load_words<PLANE>(record, lane, i, high);
        if constexpr (REST > 0)
            load_words<REST>(record + linear_plane_bytes(PLANE), lane, i, low);
    }

    // Pairs of bfloat16, a row each, doubled into both halves.
    MEMBER void load_pairs(const uint8_t *at, int lane, uint32_t out[BLOCKS][2])
    {
        uint32_t pairs[2];
        if constexpr (BLOCKS == 2) {
            uint2 two = ((const uint2 *)at)[lane];
            pairs[0] = two.x, pairs[1] = two.y;
        } else {
            pairs[0] = ((const uint32_t *)at)[lane];
        }
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            out[i][0] = __byte_perm(pairs[i], 0, 0x1010);
            out[i][1] = __byte_perm(pairs[i], 0, 0x3232);
        }
    }

    // The bytes of block and row: exponent and mantissa go to where bfloat16 has them.
    MEMBER void load_small(const uint8_t *at, int lane)
    {
        uint32_t bytes = ((const uint32_t *)at)[lane];
#pragma unroll
        for (int i = 0; i < 4; i++)
            scales[i / 2][i % 2] = __byte_perm(bytes, 0, 0x4440 + i) * 0x00100010u
                + (SMALL_EXPONENT << 7) * 0x00010001u;
    }

    MEMBER void load_scales(const uint8_t *record, int lane)
    {
        if constexpr (SMALL)
            load_small(record + linear_scales_at(LAYOUT), lane);
        else
            load_pairs(record + linear_scales_at(LAYOUT), lane, scales);
        if constexpr (MIN)
            load_pairs(record + linear_mins_at(LAYOUT), lane, mins);
        else if constexpr (!FLOATS) // codes are about 128, once they are eight bits wide
#pragma unroll
            for (int i = 0; i < 2 * BLOCKS; i++)
                mins[i / 2][i % 2] = bf16_fma(scales[i / 2][i % 2], 0x80808080u /* -2^-126 */, 0x80008000u);
    }

    // A slot of a plane, of whose words `words` are those of a chunk, moved to bits [AT, AT + WIDTH) of both halves;
    // other bits are whatever they are.
    template <int WIDTH, int AT> static MEMBER uint32_t moved(const uint32_t *words, int slot)
    {
        constexpr int SLOTS = 16 / WIDTH;
        int from = slot % SLOTS * WIDTH;
        uint32_t word = words[slot % 8 / SLOTS];
        return from > AT ? word >> (from - AT) : word << (AT - from);
    }

    // A slot of eight of a chunk.
    static MEMBER uint32_t e2m1(const uint32_t words[2], int slot)
    {
        uint32_t word = slot < 3 ? words[0] : slot < 6 ? words[1] : select_bits(LINEAR_E2M1_FIRST, words[0], words[1]);
        int rotation = linear_e2m1_rotation(slot);
        return (rotation < 16 ? __funnelshift_r(word, word, rotation) : word << (32 - rotation)) & LINEAR_E2M1_BITS;
    }

    // The first of a word's two slots is in the low bytes.
    static MEMBER uint32_t e4m3(const uint32_t words[4], int slot)
    {
        uint32_t codes = slot % 2 ? words[slot / 2] : words[slot / 2] << 8;
        return (codes & 0x80008000u) | (codes >> 4 & 0x07F007F0u);
    }

    // Returns the two codes of a slot of a float format, without their scale.
    MEMBER uint32_t code(int slot) const { return BITS == 4 ? e2m1(high, slot % 8) : e4m3(high, slot % 8); }

    // The operand of product j of eight, whose chunk is loaded.
    MEMBER void operand(int j, uint32_t a[4]) const
    {
        constexpr uint32_t HIGH = ((1u << PLANE) - 1) << (8 - PLANE), LOW = ((1u << REST) - 1) << (8 - PLANE - REST);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int block = j * BLOCKS / 8, slot = 4 * j + r;
            if constexpr (FLOATS) {
                a[r] = bf16_fma(code(slot), scales[block][r % 2], 0x80008000u);
            } else {
                uint32_t codes = moved<PLANE, 8 - PLANE>(high, slot) & HIGH * 0x00010001u;
                if constexpr (REST > 0)
                    codes |= moved<REST, 8 - PLANE - REST>(low, slot) & LOW * 0x00010001u;
                a[r] = bf16_fma(codes, scales[block][r % 2], mins[block][r % 2]);
            }
        }
    }
};

// ---- results ----

DEVICE void linear_store(const struct cuda_linear &p, const cuda_linear_output &output, int token, int row, float value)
{
    size_t at = (size_t)token * (size_t)output.rows + (size_t)row;
    if (p.residual)
        ((float *)output.y)[at] += value;
    else if (p.f32_out)
        ((float *)output.y)[at] = value;
    else
        ((uint16_t *)output.y)[at] = bf16_round(value);
}

#endif
