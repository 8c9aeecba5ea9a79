// SPDX-License-Identifier: Apache-2.0
// kernel/x86/packed.h: the packed weight layout of all x86 kernels.
//   (1) sixteen rows form a group; their number is filled up with zero rows. A group is a sequence of records along k,
//       a record is as long as the file's block, with what the file's blocks of sixteen rows hold:
//       scales f16[16], minima f16[16], small scales [sub-blocks][16], small minima [sub-blocks][16], codes.
//       Each of the four is there where the format has it.
//   (2) the codes of 32 values are bits * 64 bytes. A vector of 64 bytes is four consecutive k of each of 16 rows.
//       With v_i the vector of k = 4 i to 4 i + 3, and the codes cut into planes of 8, 4, 2 or 1 bits, low bits first,
//       vector j of a plane of w bits holds v_j, v_(j+w), v_(j+2w) ... from its lowest bits to its highest.
//   (3) plain floats have no blocks: for each k sixteen values
//   (4) a record of FP8_32 is 256 times the scales, f32[16], then for each of sixteen k sixteen words: low bytes are
//       the codes of that k, high bytes those of the k sixteen further on. A block with a NaN has NaN for its scale
#ifndef KERNEL_X86_PACKED_H
#define KERNEL_X86_PACKED_H

#include "kernel/int8.h"
#include "kernel/kernel.h"
#include "kernel/split.h"

enum { PACKED_ROWS = 16, PACKED_VECTOR = 64, PACKED_QUADS = SPLIT_QUADS, PACKED_BLOCK_MAX = SPLIT_BLOCK_MAX };

// Formats that are multiplied as floats: plain floats, and all.
#define PACKED_PLAIN(X) X(F32) X(F16) X(BF16)
#define PACKED_FLOATS(X) PACKED_PLAIN(X) X(FP8_32)

#define PACKED_BIT(id, ...) | DTYPE_BIT(id)
#define PACKED_INT8_SET (0 PACKED_FORMATS(PACKED_BIT))
#define PACKED_FLOAT_SET (0 PACKED_FLOATS(PACKED_BIT))

enum {
    FP8_RUN = 16,
    FP8_SCALES_BYTES = PACKED_ROWS * 4,
    FP8_RECORD_BYTES = FP8_SCALES_BYTES + 2 * FP8_RUN * PACKED_ROWS,
};

// Where the parts of a record begin.
static inline size_t packed_min_at(struct packed_format f) { return f.scale <= PACKED_F16_I8 ? PACKED_ROWS * 2 : 0; }

static inline size_t packed_small_scales_at(struct packed_format f)
{
    return packed_min_at(f) + (f.min != PACKED_NO_MIN ? PACKED_ROWS * 2 : 0);
}

static inline size_t packed_small_bytes(struct packed_format f) { return (size_t)(PACKED_ROWS * f.block / f.sub); }

static inline size_t packed_small_mins_at(struct packed_format f)
{
    return packed_small_scales_at(f) + (f.scale != PACKED_F16 ? packed_small_bytes(f) : 0);
}

static inline size_t packed_codes_at(struct packed_format f)
{
    return packed_small_mins_at(f) + (f.min == PACKED_SUBTRACT_F16_U8 ? packed_small_bytes(f) : 0);
}

// Of 32 values of 16 rows.
static inline size_t packed_codes_bytes(struct packed_format f) { return (size_t)f.bits * PACKED_VECTOR; }

static inline size_t packed_record_bytes(struct packed_format f)
{
    return packed_codes_at(f) + (size_t)(f.block / INT8_BLOCK) * packed_codes_bytes(f);
}

// The widest plane that fits into the remaining bits: 8, 4, 2 or 1.
static inline int packed_plane(int bits) { return bits >= 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1; }

extern const struct kernel_packing x86_packing;

// Bytes of one group of rows.
size_t packed_group_bytes(enum dtype dtype, int cols);

#endif
