// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_shapes.h: the tensor-core kernels of decode attention, one line each: attention_decode.cu
// compiles them, attention_decode.c makes a row of each.
#ifndef KERNEL_CUDA_ATTENTION_SHAPES_H
#define KERNEL_CUDA_ATTENTION_SHAPES_H

// How the bytes of a cache format are dequantised.
enum { FORM_F16, FORM_BF16, FORM_E4M3, FORM_E5M2, FORM_INT8, FORM_INT4, FORM_NVFP4 };

// Each kind has the warps of a CTA, a power of two; the stages of a warp's ring; the pages of a stage; the CTAs per SM;
// log2 of the KV splits that suit it (attention_split.h), and log2 of the most splits that one of its warps computes in
// a row, at most 2. Measured on an H200: formats of few bits want many warps, since dequantising takes most of the
// time; formats of many bits want many bytes in flight, and so do those of few bits if an SM has a single CTA.
#define SHAPE_FOUR_BITS 8, 2, 2, 2, 5, 2
#define SHAPE_FOUR_BITS_ONE_CTA 8, 3, 2, 1, 5, 1
#define SHAPE_EIGHT_BITS 8, 3, 2, 1, 4, 1
#define SHAPE_WIDE 8, 3, 1, 1, 5, 2
#define SHAPE_WIDE_SMALL 8, 3, 1, 2, 5, 2
#define SHAPE_FOUR_BITS_LARGE 2, 2, 1, 4, 5, 1
#define SHAPE_EIGHT_BITS_LARGE 2, 2, 1, 4, 5, 1
#define SHAPE_WIDE_LARGE 2, 2, 1, 3, 5, 1

// A CTA may have 227 KB of shared memory on devices of 9.0 and 10.x, 163 KB on 8.0 and 99 KB on the others: one that is
// to fill an SM has half its warps where it would not fit, and three stages only where there are 163 KB or more.
// PTX is compiled for devices that are not known yet, so it keeps to the least.
#define CUDA_PTX_SM 86
#define DECODE_LARGE(sm) ((sm) >= 90 && (sm) < 120)
#define DECODE_WARPS(warps, ctas, sm) ((ctas) == 1 && !DECODE_LARGE(sm) ? (warps) / 2 : (warps))
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

// The same with one CTA per SM, for steps of no more work tiles than SMs (KERNEL_DECODE_SMALL). Their rows are for the
// devices on which they have as many warps as those above (DECODE_LARGE), and so the same bits.
// clang-format off
#define DECODE_SMALL_KERNELS(X) \
    X(nvfp4_small, NVFP4, NVFP4,  64, SHAPE_FOUR_BITS_ONE_CTA) \
    X(nvfp4_small, NVFP4, NVFP4, 128, SHAPE_FOUR_BITS_ONE_CTA) \
    X(int4_small,  INT4,  INT4,   64, SHAPE_FOUR_BITS_ONE_CTA) \
    X(int4_small,  INT4,  INT4,  128, SHAPE_FOUR_BITS_ONE_CTA)
// clang-format on

#endif
