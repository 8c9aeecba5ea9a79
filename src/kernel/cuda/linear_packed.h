// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_packed.h: how quantised weights lie on a GPU, the same in C and in CUDA C: in the order in which
// the lanes of a warp want them as operands of a tensor core (mma m16n8k16, weights being its 16 rows).
//   (1) sixteen rows form a group, their number filled up with zero rows. A group is a sequence of records along k,
//       each of 128 values, the last filled up with zeros
//   (2) lane l has rows l / 4 and l / 4 + 8 of the group and the values 32 (l % 4) to 32 (l % 4) + 31 of the record:
//       product j of eight takes 4 j to 4 j + 3 of these from each lane. Register r of product j holds two neighbours,
//       4 j + r / 2 * 2 and the next, of row r % 2: slot 4 j + r, a pair of codes
//   (3) a record is planes of codes, then scales, then minima. Codes of 3, 5 and 6 bits are cut into planes of 4, 2 and
//       1 bits, high bits first. A plane of w bits is 2 w words per lane; the halves of a word are the two codes of
//       16 / w slots in order, low bits first. Four words of a lane lie together, then those of the next lane
//   (4) E2M1 codes (s e e m) are a plane of 4 bits, but words 2 i and 2 i + 1 hold slots 8 i to 8 i + 7 together, so
//       that a rotation and a mask make bfloat16 of a slot (s at bit 15 of each half, eem at 8 to 6): it was rotated
//       left by linear_e2m1_rotation. Slots 0 to 2 lie in the first word, 3 to 5 in the second. 6 and 7 are where those
//       have left room, bits of LINEAR_E2M1_FIRST in the first, the others in the second
//       E4M3 codes are a plane of 8 bits like any other
//   (5) scales of a lane: for each block of its 32 values, that of its first and that of its second row. They are
//       bfloat16, or, where a scale is a positive E4M3, one byte: three bits of mantissa, above them an exponent that
//       is 1 for 2^-9, so that there are no subnormals. Minima are likewise, bfloat16
//   (6) decoded weights are 2^-28 of what they stand for: codes are decoded as the small or subnormal bfloat16 that
//       their bits are, and scales make up for that as far as the widest scale of a file allows
#ifndef KERNEL_CUDA_LINEAR_PACKED_H
#define KERNEL_CUDA_LINEAR_PACKED_H

#include <stdint.h>

enum {
    LINEAR_ROWS = 16,
    LINEAR_RECORD = 128,
    LINEAR_LANES = 32,
    LINEAR_LANE_VALUES = 32,
    LINEAR_EXPONENT = 28,      // (6)
    LINEAR_INT_EXPONENT = 133, // an integer at the lowest bits of a bfloat16 is 2^-133 of itself
    LINEAR_E2M1_EXPONENT = 126,
    LINEAR_E4M3_EXPONENT = 120,
    LINEAR_SMALL_EXPONENT = 10, // of the scales of one byte
};
#define LINEAR_E2M1_BITS 0x81C081C0u // of a bfloat16, in both halves
#define LINEAR_E2M1_FIRST 0x60306030u

//    kind      bits block floats small min    floats: codes are E2M1 or E4M3, by their bits; small: scales are bytes
// clang-format off
#define LINEAR_KINDS(X)                \
    X(e2m1_16,   4,  16,   1,   1,   0) \
    X(e2m1_32,   4,  32,   1,   0,   0) \
    X(int2_16m,  2,  16,   0,   0,   1) \
    X(int3_16,   3,  16,   0,   0,   0) \
    X(int4_32,   4,  32,   0,   0,   0) \
    X(int4_32m,  4,  32,   0,   0,   1) \
    X(int5_32m,  5,  32,   0,   0,   1) \
    X(int6_16,   6,  16,   0,   0,   0) \
    X(int8_32,   8,  32,   0,   0,   0) \
    X(e4m3_32,   8,  32,   1,   0,   0)
// clang-format on

enum linear_kind {
#define X(kind, ...) LINEAR_##kind,
    LINEAR_KINDS(X)
#undef X
        LINEAR_KIND_COUNT
};

struct linear_layout {
    int bits, block, floats, small, min;
};

#ifdef __CUDACC__
#define LINEAR_FUNCTION static constexpr __host__ __device__
#else
#define LINEAR_FUNCTION static inline
#endif

// From 16 on it is undone by a shift left, by what is missing to 32.
LINEAR_FUNCTION int linear_e2m1_rotation(int slot)
{
    const int rotations[8] = { 0, 4, 26, 2, 8, 30, 6, 28 };
    return rotations[slot];
}

// The widest plane that codes of so many bits have left.
LINEAR_FUNCTION int linear_plane(int bits) { return bits >= 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1; }

// Bytes of a record, and where its parts begin.
LINEAR_FUNCTION int linear_plane_bytes(int plane) { return LINEAR_LANES * plane * 8; }

LINEAR_FUNCTION int linear_scale_bytes(struct linear_layout f)
{
    return LINEAR_LANES * 2 * (LINEAR_LANE_VALUES / f.block) * (f.small ? 1 : 2);
}

LINEAR_FUNCTION int linear_scales_at(struct linear_layout f) { return linear_plane_bytes(f.bits); }

LINEAR_FUNCTION int linear_mins_at(struct linear_layout f) { return linear_scales_at(f) + linear_scale_bytes(f); }

LINEAR_FUNCTION int linear_record_bytes(struct linear_layout f)
{
    return linear_mins_at(f) + (f.min ? linear_scale_bytes(f) : 0);
}

// The same for tables.
#define LINEAR_RECORD_BYTES(bits, block, small, min) \
    (LINEAR_LANES * ((bits) * 8 + 2 * (LINEAR_LANE_VALUES / (block)) * ((small) ? 1 : 2) * ((min) ? 2 : 1)))

// Where word i of a lane is in a plane.
LINEAR_FUNCTION int linear_word_at(int plane, int lane, int i)
{
    int together = plane > 1 ? 4 : 2;
    return 4 * (i / together * together * LINEAR_LANES + lane * together + i % together);
}

#endif
