// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_wgmma.cuh: wgmma products of whole tiles, and named barriers. A warpgroup is four
// warps; warp w has rows 16 w to 16 w + 15 of its 64.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_WGMMA_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_WGMMA_CUH

#include "kernel/cuda/attention_prefill_dequantise.cuh"
#include "kernel/cuda/warpgroup.cuh"

// Makes what this thread wrote to shared memory visible to wgmma.
DEVICE void fence_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- named barriers ----

DEVICE void group_sync(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

DEVICE void group_arrive(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- products ----

// Operands in shared memory are panels (attention_prefill_dequantise.cuh): eight rows of 128 bytes are a unit of 1024;
// `panel_bytes` apart are those of neighbouring panels.
//   tile of vectors whose channels are summed over: only the distance of units counts; 16 channels are 32 bytes on
//   tile of vectors whose tokens are summed over:   panels are `panel_bytes` apart; 16 tokens are 2048 bytes on
DEVICE uint64_t operand(uint32_t address, uint32_t panel_bytes)
{
    const uint64_t swizzle_128 = 1, unit_bytes = 1024;
    return (uint64_t)(address & 0x3FFFF) >> 4 | (uint64_t)(panel_bytes >> 4) << 16 | unit_bytes >> 4 << 32
        | swizzle_128 << 62;
}

template <int LEFT> DEVICE void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from moving uses of these registers across: it does not know when asynchronous products are done.
template <int N> DEVICE void products_hold(float d[N][4])
{
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(d[j][i])::"memory");
}

#define REGISTERS_32                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                                                            \
    REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define INOUT_4(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define INOUT_16(d, j) INOUT_4(d, j), INOUT_4(d, j + 1), INOUT_4(d, j + 2), INOUT_4(d, j + 3)
#define INOUT_32(d) INOUT_16(d, 0), INOUT_16(d, 4)
#define INOUT_64(d) INOUT_32(d), INOUT_16(d, 8), INOUT_16(d, 12)

#define PRODUCT_64 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_32 "}, "
#define PRODUCT_128 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_64 "}, "

// d (64, N * 8) = or += a (64, 16) b^T, both in shared memory, channels summed over.
template <int N> DEVICE void product_of_tiles(float d[N][4], uint64_t a, uint64_t b, bool add)
{
    if constexpr (N == 8)
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" PRODUCT_64 "%32, %33, add, 1, 1, 0, 0;\n}"
                     : INOUT_32(d)
                     : "l"(a), "l"(b), "r"((int)add));
    else
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n" PRODUCT_128 "%64, %65, add, 1, 1, 0, 0;\n}"
                     : INOUT_64(d)
                     : "l"(a), "l"(b), "r"((int)add));
}

// d (64, N * 8) += a (64, 16) b, a in registers, tokens summed over.
template <int N> DEVICE void product_with_tile(float d[N][4], const uint32_t a[4], uint64_t b)
{
    if constexpr (N == 8)
        asm volatile(PRODUCT_64 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                     : INOUT_32(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        asm volatile(PRODUCT_128 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                     : INOUT_64(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif
