// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_avx512.c: linear with 512-bit vectors and VNNI.
#include <assert.h>

#include "kernel/x86/linear_vectors_avx512.h"

#include "kernel/x86/linear_tile.h"
#define any_int8_tile int8_tile
#include "kernel/x86/linear_walk.h"

#include "kernel/x86/experts_walk.h"

void linear_avx512_few(const void *args, int part, int parts) { run_few(args, part, parts); }

void linear_avx512_many(const void *args, int part, int parts) { run_many(args, part, parts); }

void linear_avx512_prepare(const void *args, int part, int parts) { prepare_many(args, part, parts); }

void linear_avx512_float_few(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    run_few(&floats, part, parts);
}

void linear_avx512_float_many(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    run_many(&floats, part, parts);
}

void linear_avx512_float_prepare(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    prepare_many(&floats, part, parts);
}

void experts_avx512(const void *args, int part, int parts) { run_experts(args, part, parts); }

void experts_avx512_prepare(const void *args, int part, int parts) { prepare_experts(args, part, parts); }
