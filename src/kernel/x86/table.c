// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/table.h"

#include "kernel/x86/linear_x.h"

#define NEEDS_avx2 (CPU_AVX2 | CPU_FMA | CPU_F16C)
#define NEEDS_avx512 (NEEDS_avx2 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512VNNI)
#define NEEDS_amx (NEEDS_avx512 | CPU_AMXTILE | CPU_AMXINT8)

// Both orders of activations, where an op has weights that want one and weights that want the other.
static size_t tiled_bytes(const struct kernel_extent *extent)
{
    size_t token = 0;
    if (extent->weights & PACKED_INT8_SET)
        token += (size_t)(extent->width / INT8_BLOCK) * TILE_INT8_BYTES;
    if (extent->weights & PACKED_FLOAT_SET)
        token += (size_t)extent->width * TILE_FLOAT_BYTES;
    return (size_t)extent->rows * token;
}

static size_t float_tiled_bytes(const struct kernel_extent *extent)
{
    return (size_t)extent->rows * (size_t)extent->width * TILE_FLOAT_BYTES;
}

#define WEIGHTS(isa, rank)                                                                                          \
    .priority = rank, .needs = NEEDS_##isa, .weights = PACKED_INT8_SET | PACKED_FLOAT_SET, .int8 = PACKED_INT8_SET, \
    .packing = &x86_packing
#define LINEAR_FEW(isa, rank)        \
    { .name = "linear_" #isa "_few", \
      .op = OP_LINEAR,               \
      WEIGHTS(isa, rank),            \
      .load = KERNEL_DECODE,         \
      .run = linear_##isa##_few }
#define LINEAR_MANY(isa, rank)           \
    { .name = "linear_" #isa "_many",    \
      .op = OP_LINEAR,                   \
      WEIGHTS(isa, rank),                \
      .load = KERNEL_PREFILL,            \
      .run = linear_##isa##_many,        \
      .prepare = linear_##isa##_prepare, \
      .scratch_bytes = tiled_bytes }

// Activations are never rounded, and weights are decoded when they are loaded: for those who ask for it.
#define FLOAT_WEIGHTS(isa, rank) \
    .priority = rank, .needs = NEEDS_##isa, .weights = PACKED_INT8_SET | PACKED_FLOAT_SET, .packing = &x86_float_packing
#define LINEAR_FLOAT(isa, rank)                                                                                       \
    { .name = "linear_" #isa "_float_few",                                                                            \
      .op = OP_LINEAR,                                                                                                \
      FLOAT_WEIGHTS(isa, rank),                                                                                       \
      .load = KERNEL_DECODE,                                                                                          \
      .run = linear_##isa##_float_few },                                                                              \
    {                                                                                                                 \
        .name = "linear_" #isa "_float_many", .op = OP_LINEAR, FLOAT_WEIGHTS(isa, rank), .load = KERNEL_PREFILL,      \
        .run = linear_##isa##_float_many, .prepare = linear_##isa##_float_prepare, .scratch_bytes = float_tiled_bytes \
    }

#define EXPERTS(isa, rank)                \
    { .name = "experts_" #isa,            \
      .op = OP_EXPERTS,                   \
      WEIGHTS(isa, rank),                 \
      .load = KERNEL_ANY,                 \
      .run = experts_##isa,               \
      .prepare = experts_##isa##_prepare, \
      .scratch_bytes = tiled_bytes }

const struct kernel x86_kernels[] = {
    LINEAR_FEW(avx2, 10), LINEAR_MANY(avx2, 10), LINEAR_FEW(avx512, 20),  LINEAR_MANY(avx512, 20),
    LINEAR_MANY(amx, 30), LINEAR_FLOAT(avx2, 1), LINEAR_FLOAT(avx512, 2), EXPERTS(avx2, 10),
    EXPERTS(avx512, 20),  EXPERTS(amx, 30),
};
const int x86_kernel_count = sizeof x86_kernels / sizeof *x86_kernels;
