// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/common.cuh: what all kernels share: programmatic dependent launch, cp.async, bfloat16, reductions.
//   (1) every block of every kernel waits for the launch before it (kernel_begin, or its two halves apart), even a
//       block that has nothing to do: so a launch may begin while the one before it ends. Before the wait it may read
//       only what no kernel writes: its parameters, weights, and all of the step's batch but the ids
//   (2) blocks are one-dimensional and whole warps
//   (3) the order of a sum depends only on the size of its block, never on other rows
//   (4) buffers, vectors and pools begin at multiples of 16 bytes
#ifndef KERNEL_CUDA_COMMON_CUH
#define KERNEL_CUDA_COMMON_CUH

#include <math.h>
#include <stdint.h>

#include "kernel/cuda/params.h"
#include "kernel/minifloat.h"
#include "kernel/op.h"

#define DEVICE static __device__ __forceinline__

enum { WARP = 32, WARPS_MAX = 32 };
#define WARP_ALL 0xFFFFFFFFu

// ---- programmatic dependent launch ----

// The next kernel may launch once all blocks of this one have called this.
DEVICE void launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until everything that earlier kernels wrote is visible.
DEVICE void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void kernel_begin()
{
    launch_next();
    wait_for_previous();
}

// ---- L2 cache ----

// The L2 policy of copies of weights and pages, evict_first: a step reads each of these bytes once, many times the size
// of L2, and code, tables and activations should stay there. It is the result of
// createpolicy.fractional.L2::evict_first with fraction 1; as a constant it takes no registers. The encoding is not
// documented, so it is defined only for architectures on which it was tested.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define READ_ONCE 0x12F0000000000000ull
#endif

// ---- indices ----

DEVICE int lane_index() { return (int)(threadIdx.x % WARP); }
DEVICE int warp_index() { return (int)(threadIdx.x / WARP); }
DEVICE int block_warps() { return (int)(blockDim.x / WARP); }

// ---- shared memory and cp.async ----

DEVICE uint32_t shared_address(const void *memory) { return (uint32_t)__cvta_generic_to_shared(memory); }

// Waits until all but the last LEFT groups of the thread's copies are complete.
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
DEVICE void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- bfloat16 ----

// Pairs: the lower half is the value at the lower address.
DEVICE float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

DEVICE uint32_t bf16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE uint16_t bf16_round(float value) { return (uint16_t)bf16_pair(value, 0); }

// Eight values are 16 bytes. `from` and `to` must be multiples of that.
DEVICE void bf16_dequantise(uint4 packed, float x[8])
{
    const uint32_t pairs[4] = { packed.x, packed.y, packed.z, packed.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = bf16_low(pairs[i]);
        x[2 * i + 1] = bf16_high(pairs[i]);
    }
}

DEVICE void bf16_load(const uint16_t *from, float x[8]) { bf16_dequantise(*(const uint4 *)from, x); }

DEVICE void bf16_store(uint16_t *to, const float x[8])
{
    *(uint4 *)to = make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]),
                              bf16_pair(x[6], x[7]));
}

DEVICE void f32_load(const float *from, float x[8])
{
    float4 a = *(const float4 *)from, b = *(const float4 *)(from + 4);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

DEVICE void f32_store(float *to, const float x[8])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
    *(float4 *)(to + 4) = make_float4(x[4], x[5], x[6], x[7]);
}

// ---- sums and maxima ----
// Over `lanes` neighbouring lanes, a power of two; all of them get the same bits. Every lane of the warp takes part.

DEVICE float lanes_sum(float value, int lanes = WARP)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(WARP_ALL, value, step);
    return value;
}

DEVICE float lanes_max(float value, int lanes = WARP)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(WARP_ALL, value, step));
    return value;
}

// Over the block; every thread gets the result.
DEVICE float block_sum(float value)
{
    __shared__ float parts[WARPS_MAX];
    value = lanes_sum(value);
    if (lane_index() == 0)
        parts[warp_index()] = value;
    __syncthreads();
    value = lanes_sum(lane_index() < block_warps() ? parts[lane_index()] : 0.0f);
    __syncthreads(); // before `parts` is used again
    return value;
}

DEVICE float block_max(float value)
{
    __shared__ float parts[WARPS_MAX];
    value = lanes_max(value);
    if (lane_index() == 0)
        parts[warp_index()] = value;
    __syncthreads();
    value = lanes_max(lane_index() < block_warps() ? parts[lane_index()] : -INFINITY);
    __syncthreads();
    return value;
}

// ---- arithmetic that must have the same bits in several kernels ----

// The factor of RMSNorm for a row with this sum of squares.
DEVICE float norm_factor(float squares, int width, float epsilon)
{
    return 1 / sqrtf(squares / (float)width + epsilon);
}

// tanh(u) = 2 sigmoid(2u) - 1 makes most activations x times a sigmoid; the fast exponential and division are good to
// 2^-20, far below bfloat16.
DEVICE float activate(int act, float x)
{
    if (act == ACT_RELU)
        return fmaxf(x, 0);
    x = act == ACT_CLAMPED ? fminf(x, ACT_CLAMPED_LIMIT) : x;
    float u = act == ACT_CLAMPED ? ACT_CLAMPED_SLOPE * x
        : act == ACT_GELU_TANH   ? 2 * 0.7978845608f * (x + 0.044715f * x * x * x)
                                 : x;
    return __fdividef(act == ACT_SIGMOID ? 1 : x, 1 + __expf(-u));
}

// The factor of an activated gate.
DEVICE float activated_factor(int act, float up)
{
    return act == ACT_CLAMPED ? fminf(fmaxf(up, -ACT_CLAMPED_LIMIT), ACT_CLAMPED_LIMIT) + 1 : up;
}

#endif
