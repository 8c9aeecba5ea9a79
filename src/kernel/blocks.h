// SPDX-License-Identifier: Apache-2.0
// kernel/blocks.h: the block structs of weight formats (GGUF's Q4_0 ... MXFP4, and FP8 in blocks of 32), as bytes, for
// C and CUDA. Blocks are read in place from mapped files, at any alignment, little-endian. Where two 4-bit codes share
// a byte, low nibbles are the first half of their group and high nibbles the second.
#ifndef KERNEL_BLOCKS_H
#define KERNEL_BLOCKS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define BLOCKS static inline __host__ __device__
#else
#define BLOCKS static inline
#endif

struct F32 {
    uint8_t value[4];
};
struct F16 {
    uint8_t value[2];
};
struct BF16 {
    uint8_t value[2];
};

struct Q4_0 {
    uint8_t scale[2], codes[16];
};
struct Q4_1 {
    uint8_t scale[2], min[2], codes[16];
};
struct Q5_0 {
    uint8_t scale[2], high[4], codes[16];
};
struct Q5_1 {
    uint8_t scale[2], min[2], high[4], codes[16];
};
struct Q8_0 {
    uint8_t scale[2];
    int8_t codes[32];
};

// Super-blocks: an f16 scale for the small integer scales (and minima) of 16 or 32 values each.
struct Q2_K {
    uint8_t scales[16], codes[64], scale[2], min[2];
};
struct Q3_K {
    uint8_t high[32], codes[64], scales[12], scale[2];
};
struct Q4_K {
    uint8_t scale[2], min[2], scales[12], codes[128];
};
struct Q5_K {
    uint8_t scale[2], min[2], scales[12], high[32], codes[128];
};
struct Q6_K {
    uint8_t codes[128], high[64];
    int8_t scales[16];
    uint8_t scale[2];
};

struct IQ4_NL {
    uint8_t scale[2], codes[16];
};
struct IQ4_XS {
    uint8_t scale[2], scales_high[2], scales_low[4], codes[128];
};
struct MXFP4_GGUF {
    uint8_t scale, codes[16];
};
struct NVFP4_GGUF {
    uint8_t scales[4], codes[32];
};
struct FP8_32 {
    uint8_t scale[4], codes[32];
}; // E4M3 codes after one f32 scale; its NaN codes are NaN

// The values of IQ4_NL's and IQ4_XS's codes, and twice the values of E2M1's.
#define IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define E2M1_DOUBLED 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

BLOCKS uint16_t read_u16(const uint8_t bytes[2])
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

// Sixteen scales of six bits: low nibbles in bytes 0..7, high pairs in bytes 8..11.
BLOCKS int q3_scale(const uint8_t scales[12], int s)
{
    int low = scales[s % 8] >> s / 8 * 4 & 15;
    int high = scales[8 + s % 4] >> s / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

// Eight scales and eight minima of six bits: those of sub-blocks 0..3 are the low six bits of bytes 0..3 and 4..7;
// those of 4..7 have their low nibbles in bytes 8..11 and their high pairs on top of bytes 0..3 and 4..7.
BLOCKS int q4_scale(const uint8_t scales[12], int s)
{
    return s < 4 ? scales[s] & 63 : (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
}

BLOCKS int q4_min(const uint8_t scales[12], int s)
{
    return s < 4 ? scales[s + 4] & 63 : scales[s + 4] >> 4 | scales[s] >> 6 << 4;
}

BLOCKS int iq4_xs_scale(const struct IQ4_XS *block, int s)
{
    return ((block->scales_low[s / 2] >> s % 2 * 4 & 15) | (read_u16(block->scales_high) >> s * 2 & 3) << 4) - 32;
}

// An unsigned E4M3 (UE4M3): bit 7 is ignored, and the NaN code is 0.
BLOCKS uint8_t nvfp4_scale(const struct NVFP4_GGUF *block, int s)
{
    return block->scales[s] == 0x7F ? 0 : block->scales[s] & 0x7F;
}

// The block's scale, or NaN if any code is NaN: then a sum over the block is NaN without a test per code.
BLOCKS float fp8_scale(const struct FP8_32 *block)
{
    uint32_t bits;
    float scale;
    memcpy(&bits, block->scale, sizeof bits);
    for (int i = 0; i < 32; i++)
        bits = (block->codes[i] & 0x7F) == 0x7F ? 0x7FC00000 : bits;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

#endif
