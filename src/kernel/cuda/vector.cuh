// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/vector.cuh: the vector of one head in the registers of neighbouring lanes, PART values each: loads,
// stores, RoPE and the Hadamard transform. Fewer values per lane have a lower latency; with VECTOR_PART the longest
// vector fits a warp. Results do not depend on PART. Values past the vector's end are 0.
#ifndef KERNEL_CUDA_VECTOR_CUH
#define KERNEL_CUDA_VECTOR_CUH

#include "kernel/cuda/common.cuh"

enum { VECTOR_PART = 16 };
static_assert(HEAD_DIM_MAX <= VECTOR_PART * WARP, "a vector fits a warp");

// How many lanes hold a vector: a power of two, and its logarithm.
template <int PART> DEVICE int vector_lanes_log(int dim) { return 32 - __clz((dim - 1) / PART); }
template <int PART> DEVICE int vector_lanes(int dim) { return 1 << vector_lanes_log<PART>(dim); }

// Whether every lane has PART values or none; then they are loaded and stored by 16 bytes.
template <int PART> DEVICE bool vector_is_whole(int dim) { return dim % PART == 0; }

// Words that lie at a multiple of their size, or of 16 bytes.
template <int COUNT> DEVICE void words_load(const void *from, uint32_t *words)
{
    if (COUNT == 2) {
        uint2 two = *(const uint2 *)from;
        words[0] = two.x, words[1] = two.y;
    }
#pragma unroll
    for (int i = 0; i + 4 <= COUNT; i += 4) {
        uint4 four = ((const uint4 *)from)[i / 4];
        words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
    }
}

template <int COUNT> DEVICE void words_store(void *to, const uint32_t *words)
{
    if (COUNT == 1)
        *(uint32_t *)to = words[0];
    if (COUNT == 2)
        *(uint2 *)to = make_uint2(words[0], words[1]);
#pragma unroll
    for (int i = 0; i + 4 <= COUNT; i += 4)
        ((uint4 *)to)[i / 4] = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
}

template <int PART> DEVICE void part_dequantise(const uint32_t *pairs, float (&x)[PART])
{
#pragma unroll
    for (int i = 0; i < PART; i += 2) {
        x[i] = bf16_low(pairs[i / 2]);
        x[i + 1] = bf16_high(pairs[i / 2]);
    }
}

// Deinterleaves pairs of neighbours: the values of the lane first, then their partners.
template <int PART> DEVICE void part_unzip(bool has_low, uint32_t pairs[PART])
{
    uint32_t own = has_low ? 0x5410 : 0x7632, zipped[PART];
#pragma unroll
    for (int i = 0; i < PART; i++)
        zipped[i] = pairs[i];
#pragma unroll
    for (int i = 0; i < PART / 2; i++) {
        pairs[i] = __byte_perm(zipped[2 * i], zipped[2 * i + 1], own);
        pairs[PART / 2 + i] = __byte_perm(zipped[2 * i], zipped[2 * i + 1], own ^ 0x2222);
    }
}

// Lanes without a vector pass a dim of 0.
template <int PART> DEVICE void vector_load(const uint16_t *vector, int dim, int lane, float (&x)[PART])
{
    int first = lane * PART;
    if (vector_is_whole<PART>(dim)) {
        uint32_t pairs[PART / 2] = {};
        if (first < dim)
            words_load<PART / 2>(vector + first, pairs);
        part_dequantise(pairs, x);
    } else {
#pragma unroll
        for (int i = 0; i < PART; i++)
            x[i] = first + i < dim ? bf16_to_f32(vector[first + i]) : 0.0f;
    }
}

template <int PART> DEVICE void vector_store(uint16_t *vector, int dim, int lane, const float (&x)[PART])
{
    int first = lane * PART;
    if (vector_is_whole<PART>(dim)) {
        uint32_t pairs[PART / 2];
#pragma unroll
        for (int i = 0; i < PART; i += 2)
            pairs[i / 2] = bf16_pair(x[i], x[i + 1]);
        if (first < dim)
            words_store<PART / 2>(vector + first, pairs);
    } else {
#pragma unroll
        for (int i = 0; i < PART; i++)
            if (first + i < dim)
                vector[first + i] = bf16_round(x[i]);
    }
}

// Constants in f32.
template <int COUNT> DEVICE void part_load(const float *from, float (&x)[COUNT])
{
    uint32_t bits[COUNT];
    words_load<COUNT>(from, bits);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        x[i] = __uint_as_float(bits[i]);
}

template <int PART> DEVICE void vector_load(const float *vector, int dim, int lane, float (&x)[PART])
{
    int first = lane * PART;
    if (vector_is_whole<PART>(dim) && first < dim)
        return part_load(vector + first, x);
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] = first + i < dim ? vector[first + i] : 0.0f;
}

// The fast Walsh-Hadamard transform of each block of a vector, without its factor: butterflies of neighbours first,
// then of values two apart, and so on, within lanes and then across. Called by all lanes of the warp.
template <int PART> DEVICE void vector_hadamard(int lane, int block, float (&x)[PART])
{
#pragma unroll
    for (int stride = 1; stride < PART; stride *= 2)
#pragma unroll
        for (int i = 0; i < PART; i++)
            if (stride < block && !(i & stride)) {
                float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
#pragma unroll
    for (int stride = 1; stride < WARP; stride *= 2)
        if (stride * PART < block) {
            float sign = lane & stride ? -1.0f : 1.0f;
#pragma unroll
            for (int i = 0; i < PART; i++)
                x[i] = fmaf(x[i], sign, __shfl_xor_sync(WARP_ALL, x[i], stride));
        }
}

// H (x - centre): the form in which keys are stored. Queries have a centre of zeros.
template <int PART>
DEVICE void vector_transform(const struct cuda_transform &transform, const float (&centre)[PART], int lane,
                             float (&x)[PART])
{
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] -= centre[i];
    vector_hadamard(lane, transform.block, x);
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] *= transform.factor;
}

// ---- RoPE ---- A pair (a, b) is rotated by an angle: a becomes a cos - b sin and b becomes b cos + a sin. Each
// channel is multiplied by the cosine, and its partner by the sine, whose sign depends on the channel. The pairs of the
// result are halves apart.

struct alignas(16) rotation {
    float cosine[HEAD_DIM_MAX], sine[HEAD_DIM_MAX]; // of each rotary dim, times the magnitude; by rotation_slot
};

// Lanes read neighbouring words: no bank conflicts.
template <int PART> DEVICE int rotation_slot(int channel)
{
    return (channel % PART / 4 * WARP + channel / PART) * 4 + channel % 4;
}

// By the whole block; a barrier must follow before it is read.
template <int PART> DEVICE void rotation_prepare(struct rotation *rotation, const struct cuda_rope &rope, int position)
{
    int pairs = rope.rotated / 2;
    for (int i = (int)threadIdx.x; i < pairs; i += (int)blockDim.x) {
        int first = rotation_slot<PART>(i), second = rotation_slot<PART>(i + pairs);
        float sine, cosine;
        sincosf((float)position * rope.frequencies[i], &sine, &cosine);
        rotation->cosine[first] = rotation->cosine[second] = cosine * rope.magnitude;
        rotation->sine[first] = -(sine * rope.magnitude);
        rotation->sine[second] = sine * rope.magnitude;
    }
}

// An explicit fma, so that the bits are the same in every kernel.
DEVICE float rope_rotate(float own, float other, float cosine, float sine) { return fmaf(own, cosine, other * sine); }

// The input channel of a channel of the result, and that of its partner.
DEVICE int rope_own(const struct cuda_rope &rope, int channel)
{
    int pairs = rope.rotated / 2, second = channel >= pairs;
    return !rope.interleaved || channel >= rope.rotated ? channel : 2 * (channel - second * pairs) + second;
}

DEVICE int rope_other(const struct cuda_rope &rope, int channel)
{
    int pairs = rope.rotated / 2;
    return rope.interleaved ? rope_own(rope, channel) ^ 1 : channel < pairs ? channel + pairs : channel - pairs;
}

template <int PART>
DEVICE float rope_value(const struct rotation *rotation, const struct cuda_rope &rope, const uint16_t *vector,
                        int channel)
{
    int slot = rotation_slot<PART>(channel);
    return rope_rotate(bf16_to_f32(vector[rope_own(rope, channel)]), bf16_to_f32(vector[rope_other(rope, channel)]),
                       rotation->cosine[slot], rotation->sine[slot]);
}

// The channels at which a lane loads its values and their partners, if each are PART consecutive ones; of interleaved
// pairs, the first and the second half of both together.
struct rope_at {
    bool in_rows;
    int own, other;
};

template <int PART> DEVICE struct rope_at rope_at(const struct cuda_rope &rope, int lane)
{
    int own = rope_own(rope, lane * PART) & -2;
    return { vector_is_whole<PART>(rope.head_dim) && vector_is_whole<PART>(rope.rotated / 2), own,
             rope.interleaved ? own + PART : rope_other(rope, lane * PART) };
}

template <int PART>
DEVICE void part_load_rope(const struct rotation *rotation, const struct cuda_rope &rope, const struct rope_at &at,
                           const uint16_t *vector, int dim, int lane, float (&x)[PART])
{
    int first = lane * PART;
    bool rotates = first < min(dim, rope.rotated);
    uint32_t pairs[PART] = {};
    if (first < dim)
        words_load<PART / 2>(vector + at.own, pairs);
    if (rotates)
        words_load<PART / 2>(vector + at.other, pairs + PART / 2);
    if (rotates && rope.interleaved)
        part_unzip<PART>(first < rope.rotated / 2, pairs);
    part_dequantise(pairs, x);
#pragma unroll
    for (int i = 0; i < PART && rotates; i += 4) {
        float other[4], cosine[4], sine[4];
        part_dequantise(pairs + (PART + i) / 2, other);
        part_load(rotation->cosine + rotation_slot<PART>(first + i), cosine);
        part_load(rotation->sine + rotation_slot<PART>(first + i), sine);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[i + j] = rope_rotate(x[i + j], other[j], cosine[j], sine[j]);
    }
}

// Other sizes, which are rare, value by value. The loop is not unrolled, since that would cost registers in all
// kernels.
template <int PART>
DEVICE void part_load_rope_singly(const struct rotation *rotation, const struct cuda_rope &rope, const uint16_t *vector,
                                  int dim, int lane, float (&x)[PART])
{
    float values[PART];
#pragma unroll 1
    for (int i = 0; i < PART; i++) {
        int channel = lane * PART + i;
        values[i] = channel >= dim    ? 0.0f
            : channel >= rope.rotated ? bf16_to_f32(vector[channel])
                                      : rope_value<PART>(rotation, rope, vector, channel);
    }
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] = values[i];
}

// Loads a lane's part of the rotated vector like vector_load, rounded to bfloat16 as if it had been stored in between.
// It reads values of other lanes: __syncwarp before any lane stores.
template <int PART>
DEVICE void vector_load_rope(const struct rotation *rotation, const struct cuda_rope &rope, const struct rope_at &at,
                             const uint16_t *vector, int dim, int lane, float (&x)[PART])
{
    if (at.in_rows)
        part_load_rope(rotation, rope, at, vector, dim, lane, x);
    else
        part_load_rope_singly(rotation, rope, vector, dim, lane, x);
#pragma unroll
    for (int i = 0; i < PART; i += 2) {
        uint32_t pair = bf16_pair(x[i], x[i + 1]);
        x[i] = bf16_low(pair);
        x[i + 1] = bf16_high(pair);
    }
}

#endif
