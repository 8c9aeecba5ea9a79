// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_any.cu: GEMV per token without tensor cores, for matrices that no other kernel of linear takes
// (float32, rows that do not begin at multiples of sixteen bytes), and the elementwise helpers of the others.
#include "kernel/cuda/linear.h"
#include "kernel/cuda/weight.cuh"

// One row of the matrix for one token after the other, by a warp. With an activation, y holds the gate.
template <class Block> DEVICE void any_row(const struct cuda_linear &p, int row)
{
    const cuda_linear::cuda_linear_output &output = p.output[0];
    const Block *weights = (const Block *)output.weight + (size_t)row * (size_t)p.in;
    int tokens = *p.rows;
    for (int token = (int)blockIdx.y; token < tokens; token += (int)gridDim.y) {
        const uint16_t *x = (const uint16_t *)p.x + (size_t)token * (size_t)p.in;
        float sum = 0;
        for (int i = lane_index(); i < p.in; i += WARP)
            sum += weight_value(weights + i, 0) * bf16_to_f32(x[i]);
        sum = lanes_sum(sum) * output.scale + (output.bias ? output.bias[row] : 0.0f);
        size_t at = (size_t)token * (size_t)output.rows + (size_t)row;
        if (lane_index() > 0)
            continue;
        if (p.act >= 0)
            sum = activate(p.act, bf16_to_f32(((const uint16_t *)output.y)[at])) * activated_factor(p.act, sum);
        if (p.residual)
            ((float *)output.y)[at] += sum;
        else if (p.f32_out)
            ((float *)output.y)[at] = sum;
        else
            ((uint16_t *)output.y)[at] = bf16_round(sum);
    }
}

template <class Block> DEVICE void any_rows(const struct cuda_linear &p)
{
    kernel_begin();
    int row = (int)blockIdx.x * block_warps() + warp_index();
    if (row < p.output[0].rows)
        any_row<Block>(p, row);
}

extern "C" __global__ void __launch_bounds__(256) linear_any_f32(const __grid_constant__ struct cuda_linear p)
{
    any_rows<struct F32>(p);
}

extern "C" __global__ void __launch_bounds__(256) linear_any_f16(const __grid_constant__ struct cuda_linear p)
{
    any_rows<struct F16>(p);
}

extern "C" __global__ void __launch_bounds__(256) linear_any_bf16(const __grid_constant__ struct cuda_linear p)
{
    any_rows<struct BF16>(p);
}

// RMSNorm of x into scratch, where a kernel cannot fuse it: a block per token.
extern "C" __global__ void __launch_bounds__(256) linear_norm(const __grid_constant__ struct cuda_linear p)
{
    kernel_begin();
    int token = (int)blockIdx.x;
    if (token >= *p.rows)
        return;
    const float *x = (const float *)p.x + (size_t)token * (size_t)p.in;
    uint16_t *out = (uint16_t *)p.scratch + (size_t)token * (size_t)p.in;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < p.in; i += (int)blockDim.x)
        squares += x[i] * x[i];
    float factor = norm_factor(block_sum(squares), p.in, p.epsilon);
    for (int i = (int)threadIdx.x; i < p.in; i += (int)blockDim.x)
        out[i] = bf16_round(x[i] * factor * p.norm_weight[i]);
}

// x as float16 into scratch, for products with matrices of that format. Values beyond its range are clamped to it.
extern "C" __global__ void __launch_bounds__(256) linear_x_f16(const __grid_constant__ struct cuda_linear p)
{
    kernel_begin();
    size_t count = (size_t)*p.rows * (size_t)p.in;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        ((uint16_t *)p.scratch)[i] = f32_to_f16(
            fminf(fmaxf(bf16_to_f32(((const uint16_t *)p.x)[i]), -65504.0f), 65504.0f));
}

// Epilogue of a cuBLASLt product: y = y * scale + bias. Products of float16 matrices leave float16 where bfloat16
// belongs.
template <bool F16> DEVICE void product_finish(const struct cuda_linear &p)
{
    kernel_begin();
    const cuda_linear::cuda_linear_output &output = p.output[0];
    size_t count = (size_t)*p.rows * (size_t)output.rows;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        float bias = output.bias ? output.bias[i % (size_t)output.rows] : 0.0f;
        float *wide = (float *)output.y + i;
        uint16_t *y = (uint16_t *)output.y + i;
        if (p.residual || p.f32_out)
            *wide = *wide * output.scale + bias;
        else
            *y = bf16_round((F16 ? f16_to_f32(*y) : bf16_to_f32(*y)) * output.scale + bias);
    }
}

extern "C" __global__ void __launch_bounds__(256) linear_finish_bf16(const __grid_constant__ struct cuda_linear p)
{
    product_finish<false>(p);
}

extern "C" __global__ void __launch_bounds__(256) linear_finish_f16(const __grid_constant__ struct cuda_linear p)
{
    product_finish<true>(p);
}
