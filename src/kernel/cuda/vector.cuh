// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/vector.cuh: a head's vector in the registers of a few neighbouring lanes, VECTOR_PART values each: then a
// block of nvfp4 is one lane's, and the longest vector one warp's. Values past the vector's end are 0.
#ifndef KERNEL_CUDA_VECTOR_CUH
#define KERNEL_CUDA_VECTOR_CUH

#include "kernel/cuda/common.cuh"

enum { VECTOR_PART = 16 };
static_assert(HEAD_DIM_MAX <= VECTOR_PART * WARP, "a vector fits a warp");

// How many lanes hold a vector: a power of two, and its logarithm.
DEVICE int vector_lanes_log(int dim) { return 32 - __clz((dim - 1) / VECTOR_PART); }
DEVICE int vector_lanes(int dim) { return 1 << vector_lanes_log(dim); }

// Whether every lane has all of its part or none of it; then accesses are 16 bytes.
DEVICE bool vector_is_whole(int dim) { return dim % VECTOR_PART == 0; }

// Sixteen values that all exist.
DEVICE void vector_load_part(const uint16_t *from, float x[VECTOR_PART])
{
    bf16_load(from, x);
    bf16_load(from + 8, x + 8);
}

DEVICE void vector_load(const uint16_t *vector, int dim, int lane, float x[VECTOR_PART])
{
    int first = lane * VECTOR_PART;
    if (vector_is_whole(dim) && first < dim)
        return vector_load_part(vector + first, x);
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] = first + i < dim ? bf16_to_f32(vector[first + i]) : 0.0f;
}

DEVICE void vector_store(uint16_t *vector, int dim, int lane, const float x[VECTOR_PART])
{
    int first = lane * VECTOR_PART;
    if (vector_is_whole(dim) && first < dim) {
        bf16_store(vector + first, x);
        bf16_store(vector + first + 8, x + 8);
        return;
    }
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        if (first + i < dim)
            vector[first + i] = bf16_round(x[i]);
}

// The same of constants in f32.
DEVICE void vector_load_f32(const float *vector, int dim, int lane, float x[VECTOR_PART])
{
    int first = lane * VECTOR_PART;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i += 4)
        if (vector_is_whole(dim) && first < dim) {
            float4 four = *(const float4 *)(vector + first + i);
            x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
        } else {
            for (int j = i; j < i + 4; j++)
                x[j] = first + j < dim ? vector[first + j] : 0.0f;
        }
}

// Sums and differences of a Hadamard matrix on each block of a vector, without its factor: neighbours are combined
// first, then those two apart, and so on: within lanes, then across. All lanes of the warp must come.
DEVICE void vector_mix(int lane, int block, float x[VECTOR_PART])
{
#pragma unroll
    for (int stride = 1; stride < VECTOR_PART; stride *= 2) {
        if (stride >= block)
            break;
#pragma unroll
        for (int i = 0; i < VECTOR_PART; i++)
            if (!(i & stride)) {
                float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
    }
    for (int stride = 1; stride * VECTOR_PART < block; stride *= 2)
#pragma unroll
        for (int i = 0; i < VECTOR_PART; i++) {
            float other = __shfl_xor_sync(WARP_ALL, x[i], stride);
            x[i] = lane & stride ? other - x[i] : x[i] + other;
        }
}

// What keys are stored as; queries have a centre of zeros.
DEVICE void vector_transform(const struct cuda_transform &transform, const float centre[VECTOR_PART], int lane,
                             float x[VECTOR_PART])
{
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] -= centre[i];
    vector_mix(lane, transform.block, x);
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] *= transform.factor;
}

// ---- turning by a position ----

struct turn {
    float cosine[HEAD_DIM_MAX / 2], sine[HEAD_DIM_MAX / 2]; // of each pair, times the magnitude
};

// By the whole block, which must meet before it reads.
DEVICE void turn_prepare(struct turn *turn, const struct cuda_rope &rope, int position)
{
    for (int i = (int)threadIdx.x; i < rope.rotated / 2; i += (int)blockDim.x) {
        float sine, cosine;
        sincosf((float)position * rope.frequencies[i], &sine, &cosine);
        turn->cosine[i] = cosine * rope.magnitude;
        turn->sine[i] = sine * rope.magnitude;
    }
}

// One half of a turned pair. Spelled out, so that it has the same bits in every kernel.
DEVICE float turned_half(float a, float b, float cosine, float sine, bool second)
{
    return second ? fmaf(b, cosine, a * sine) : fmaf(a, cosine, -(b * sine));
}

// Channel `channel` after turning; the pairs of the result are halves apart.
DEVICE float turned_value(const struct turn *turn, const struct cuda_rope &rope, const uint16_t *vector, int channel)
{
    int pairs = rope.rotated / 2, i = channel < pairs ? channel : channel - pairs;
    float a = bf16_to_f32(vector[rope.interleaved ? 2 * i : i]);
    float b = bf16_to_f32(vector[rope.interleaved ? 2 * i + 1 : i + pairs]);
    return turned_half(a, b, turn->cosine[i], turn->sine[i], channel >= pairs);
}

// The same for a part that lies within one half.
DEVICE void turned_part(const struct turn *turn, const struct cuda_rope &rope, const uint16_t *vector, int first,
                        float x[VECTOR_PART])
{
    int pairs = rope.rotated / 2, i = first < pairs ? first : first - pairs;
    float in[2 * VECTOR_PART];
    vector_load_part(vector + (rope.interleaved ? 2 * i : i), in);
    vector_load_part(vector + (rope.interleaved ? 2 * i + VECTOR_PART : i + pairs), in + VECTOR_PART);
#pragma unroll
    for (int j = 0; j < VECTOR_PART; j++) {
        float a = rope.interleaved ? in[2 * j] : in[j];
        float b = rope.interleaved ? in[2 * j + 1] : in[VECTOR_PART + j];
        x[j] = turned_half(a, b, turn->cosine[i + j], turn->sine[i + j], first >= pairs);
    }
}

// Loads a lane's part of a turned vector, rounded to bfloat16 as if it had been stored in between. It reads what other
// lanes may overwrite: they meet (__syncwarp) before any stores.
DEVICE void vector_load_turned(const struct turn *turn, const struct cuda_rope &rope, const uint16_t *vector, int lane,
                               float x[VECTOR_PART])
{
    int first = lane * VECTOR_PART, dim = rope.head_dim;
    if (first >= rope.rotated)
        vector_load(vector, dim, lane, x);
    else if (vector_is_whole(dim) && vector_is_whole(rope.rotated / 2))
        turned_part(turn, rope, vector, first, x);
    else
#pragma unroll
        for (int i = 0; i < VECTOR_PART; i++) {
            int channel = first + i;
            x[i] = channel >= dim            ? 0.0f
                 : channel >= rope.rotated   ? bf16_to_f32(vector[channel])
                                             : turned_value(turn, rope, vector, channel);
        }
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] = bf16_to_f32(bf16_round(x[i]));
}

#endif
