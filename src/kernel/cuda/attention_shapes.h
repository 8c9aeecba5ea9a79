// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_shapes.h: the tensor-core kernels of attention_decode.cu, one line each, read by the file that
// compiles them and by the one that launches them.
#ifndef KERNEL_CUDA_ATTENTION_SHAPES_H
#define KERNEL_CUDA_ATTENTION_SHAPES_H

// How the bytes of a format are dequantised.
enum { FORM_F16, FORM_BF16, FORM_E4M3, FORM_E5M2, FORM_INT8, FORM_INT4, FORM_NVFP4 };

// Of each kind: the warps of a block, a power of two; the stages of a warp's ring; the pages of a stage; the blocks
// that a multiprocessor is to hold; log2 of the parts that suit it (attention_split.h), and of the most that one of its
// warps does in a row, 2 at most. Measured on an H200: few bits want many warps, since dequantising is what takes the
// time; many bits want many bytes under way, and few want them, too, where a multiprocessor has but one block.
#define SHAPE_FOUR_BITS 8, 2, 2, 2, 5, 2
#define SHAPE_FOUR_BITS_ONE_CTA 8, 3, 2, 1, 5, 1
#define SHAPE_EIGHT_BITS 8, 3, 2, 1, 4, 1
#define SHAPE_WIDE 8, 3, 1, 1, 5, 2
#define SHAPE_WIDE_SMALL 8, 3, 1, 2, 5, 2
#define SHAPE_FOUR_BITS_LARGE 2, 2, 1, 4, 5, 1
#define SHAPE_EIGHT_BITS_LARGE 2, 2, 1, 4, 5, 1
#define SHAPE_WIDE_LARGE 2, 2, 1, 3, 5, 1

// Blocks may have 227 KB of shared memory on devices of 9.0 and 10.x, 163 KB on 8.0 and 99 KB on the others: one that
// is to fill a multiprocessor has half its warps where it would not fit, and more than two stages are for the larger.
#define DECODE_LARGE(sm) ((sm) >= 90 && (sm) < 120)
#define DECODE_WARPS(warps, blocks, sm) ((blocks) == 1 && !DECODE_LARGE(sm) ? (warps) / 2 : (warps))
#define DECODE_STAGES(stages, sm) (((sm) == 86 || (sm) == 89 || (sm) >= 120) && (stages) > 2 ? 2 : (stages))

//    name       K      V      dim  kind
// clang-format off
#define DECODE_KERNELS(X) \
    X(nvfp4,     NVFP4, NVFP4,  64, SHAPE_FOUR_BITS)        \
    X(nvfp4,     NVFP4, NVFP4, 128, SHAPE_FOUR_BITS)        \
    X(nvfp4,     NVFP4, NVFP4, 192, SHAPE_FOUR_BITS_LARGE)  \
    X(nvfp4,     NVFP4, NVFP4, 256, SHAPE_FOUR_BITS_LARGE)  \
    X(int4,      INT4,  INT4,   64, SHAPE_FOUR_BITS)        \
    X(int4,      INT4,  INT4,  128, SHAPE_FOUR_BITS)        \
    X(int4,      INT4,  INT4,  256, SHAPE_FOUR_BITS_LARGE)  \
    X(fp8,       E4M3,  E4M3,   64, SHAPE_EIGHT_BITS)       \
    X(fp8,       E4M3,  E4M3,  128, SHAPE_EIGHT_BITS)       \
    X(fp8,       E4M3,  E4M3,  192, SHAPE_EIGHT_BITS_LARGE) \
    X(fp8,       E4M3,  E4M3,  256, SHAPE_EIGHT_BITS_LARGE) \
    X(e5m2,      E5M2,  E5M2,   64, SHAPE_EIGHT_BITS)       \
    X(e5m2,      E5M2,  E5M2,  128, SHAPE_EIGHT_BITS)       \
    X(e5m2,      E5M2,  E5M2,  192, SHAPE_EIGHT_BITS_LARGE) \
    X(e5m2,      E5M2,  E5M2,  256, SHAPE_EIGHT_BITS_LARGE) \
    X(int8,      INT8,  INT8,   64, SHAPE_EIGHT_BITS)       \
    X(int8,      INT8,  INT8,  128, SHAPE_EIGHT_BITS)       \
    X(int8,      INT8,  INT8,  192, SHAPE_EIGHT_BITS_LARGE) \
    X(int8,      INT8,  INT8,  256, SHAPE_EIGHT_BITS_LARGE) \
    X(f16,       F16,   F16,    64, SHAPE_WIDE_SMALL)       \
    X(f16,       F16,   F16,   128, SHAPE_WIDE)             \
    X(f16,       F16,   F16,   192, SHAPE_WIDE_LARGE)       \
    X(f16,       F16,   F16,   256, SHAPE_WIDE_LARGE)       \
    X(bf16,      BF16,  BF16,   64, SHAPE_WIDE_SMALL)       \
    X(bf16,      BF16,  BF16,  128, SHAPE_WIDE)             \
    X(bf16,      BF16,  BF16,  192, SHAPE_WIDE_LARGE)       \
    X(bf16,      BF16,  BF16,  256, SHAPE_WIDE_LARGE)       \
    X(fp8_nvfp4, E4M3,  NVFP4,  64, SHAPE_EIGHT_BITS)       \
    X(fp8_nvfp4, E4M3,  NVFP4, 128, SHAPE_EIGHT_BITS)       \
    X(nvfp4_fp8, NVFP4, E4M3,   64, SHAPE_EIGHT_BITS)       \
    X(nvfp4_fp8, NVFP4, E4M3,  128, SHAPE_EIGHT_BITS)
// clang-format on

// The same with a multiprocessor for each block, for launches of no more blocks than that. They are launched where they
// have as many warps as those above (DECODE_LARGE), and so their bits.
// clang-format off
#define DECODE_SMALL_KERNELS(X) \
    X(nvfp4_small, NVFP4, NVFP4,  64, SHAPE_FOUR_BITS_ONE_CTA) \
    X(nvfp4_small, NVFP4, NVFP4, 128, SHAPE_FOUR_BITS_ONE_CTA) \
    X(int4_small,  INT4,  INT4,   64, SHAPE_FOUR_BITS_ONE_CTA) \
    X(int4_small,  INT4,  INT4,  128, SHAPE_FOUR_BITS_ONE_CTA)
// clang-format on

#endif
