// SPDX-License-Identifier: Apache-2.0
// kernel/x86/table.h: the kernels for x86-64 and the instruction sets they are compiled for. A kernel is written once,
// as op.c: kernel/meson.build compiles it for each instruction set with that set's flags and ISA defined as its name,
// so that ISA_NAME(norm) is norm_avx2 in one object file and norm_avx512 in another.
#ifndef KERNEL_X86_TABLE_H
#define KERNEL_X86_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel x86_kernels[];
extern const int x86_kernel_count;

#define ISA_NAME(name) ISA_JOIN(name, ISA)
#define ISA_JOIN(name, isa) ISA_JOINED(name, isa)
#define ISA_JOINED(name, isa) name##_##isa

// The CPU features of each instruction set; kernel/meson.build's compiler flags match them.
#define X86_NEEDS_avx2 (CPU_AVX2 | CPU_FMA | CPU_F16C)
#define X86_NEEDS_avx512 (X86_NEEDS_avx2 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512VNNI)
#define X86_NEEDS_amx (X86_NEEDS_avx512 | CPU_AMXTILE | CPU_AMXINT8)

typedef void x86_kernel(const void *args, int chunk, int chunks);

// The most KV splits (kernel/x86/attention.c) over all rows, and the floats per query and split besides the sums over
// V.
enum { ATTENTION_PARTIALS = 1024, ATTENTION_PARTIAL_EXTRA = 2 };

#define X86_KERNELS_OF(isa)                                                                                 \
    x86_kernel linear_decode_##isa, linear_int8_decode_##isa;                                               \
    x86_kernel attention_##isa, attention_prepare_##isa, kv_write_##isa, per_head_linear_##isa, conv_##isa; \
    x86_kernel ssm_scan_##isa, gated_delta_##isa, norm_##isa, rope_##isa, transform_##isa, act_mul_##isa;   \
    x86_kernel add_##isa, all_reduce_##isa, softcap_##isa;
#define X86_MATRIX_KERNELS_OF(isa)                                                                               \
    x86_kernel linear_prefill_##isa, linear_prepare_##isa, linear_int8_prefill_##isa, linear_int8_prepare_##isa; \
    x86_kernel experts_##isa, experts_prepare_##isa, experts_int8_##isa, experts_int8_prepare_##isa;
X86_KERNELS_OF(avx2)
X86_KERNELS_OF(avx512)
X86_MATRIX_KERNELS_OF(avx2)
X86_MATRIX_KERNELS_OF(avx512)
X86_MATRIX_KERNELS_OF(amx)

#endif
