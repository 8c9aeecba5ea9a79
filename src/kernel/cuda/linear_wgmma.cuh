// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wgmma.cuh: sm_90a's products of whole tiles with weights in registers, its bulk copies, and the
// barriers in shared memory that both report to.
#ifndef KERNEL_CUDA_LINEAR_WGMMA_CUH
#define KERNEL_CUDA_LINEAR_WGMMA_CUH

#include "kernel/cuda/linear_decode.cuh"
#include "kernel/cuda/warpgroup.cuh"

// ---- barriers and copies ----

// Arrives and makes the phase last until so many bytes have been copied.
DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

DEVICE void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// ---- products ----

// A tile of x in shared memory: rows of 128 bytes, in which sixteen-byte chunk c of row r is at place c ^ r % 8. The
// part of its description that differs between tiles: for one that is so many bytes further, 1/16 of them more.
DEVICE uint32_t x_operand(uint32_t address) { return address >> 4 | 1 << 16; }

#define X_OPERAND_REST "0x40000040" // the swizzle, and 1024 bytes, over 16, from eight rows to the next

// Until all but the last LEFT groups of products are done.
template <int LEFT> DEVICE void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from computing an operand later than here: it must be there before products begin.
DEVICE void operand_hold(uint32_t a[4]) { asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory"); }

#define REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_32 REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                                                            \
    REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_128                                                                                           \
    REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
                 "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "   \
                 "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, "   \
                 "%115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_4(s, j) "+f"(s[j][0]), "+f"(s[j][1]), "+f"(s[j][2]), "+f"(s[j][3])
#define SUMS_16(s, j) SUMS_4(s, j), SUMS_4(s, j + 1), SUMS_4(s, j + 2), SUMS_4(s, j + 3)
#define SUMS_32(s, j) SUMS_16(s, j), SUMS_16(s, j + 4)
#define SUMS_64(s, j) SUMS_32(s, j), SUMS_32(s, j + 8)
#define SUMS_128(s, j) SUMS_64(s, j), SUMS_64(s, j + 16)
#define PRODUCT(shape, registers, sums, a0, a1, a2, a3, b, added)                                                     \
    asm volatile("{\n"                                                                                                \
                 ".reg .pred added;\n"                                                                                \
                 ".reg .b64 b;\n"                                                                                     \
                 "setp.ne.b32 added, " added ", 0;\n"                                                                 \
                 "mov.b64 b, {" b ", " X_OPERAND_REST "};\n"                                                          \
                 "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" registers "}, {" a0 ", " a1 ", " a2 ", " a3 \
                 "}, b, added, 1, 1, 0;\n"                                                                            \
                 "}"                                                                                                  \
                 : sums                                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(x), "r"((int)add))

// sums (64 rows, TOKENS) = a (64, 16) x (16, TOKENS), added to what they are or not; the four warps of a group have
// sixteen rows each.
template <int TOKENS> DEVICE void product(float sums[TOKENS / 8][4], const uint32_t a[4], uint32_t x, bool add)
{
    if constexpr (TOKENS == 32)
        PRODUCT("m64n32k16", REGISTERS_16, SUMS_16(sums, 0), "%16", "%17", "%18", "%19", "%20", "%21");
    else if constexpr (TOKENS == 64)
        PRODUCT("m64n64k16", REGISTERS_32, SUMS_32(sums, 0), "%32", "%33", "%34", "%35", "%36", "%37");
    else if constexpr (TOKENS == 128)
        PRODUCT("m64n128k16", REGISTERS_64, SUMS_64(sums, 0), "%64", "%65", "%66", "%67", "%68", "%69");
    else
        PRODUCT("m64n256k16", REGISTERS_128, SUMS_128(sums, 0), "%128", "%129", "%130", "%131", "%132", "%133");
}

#endif
