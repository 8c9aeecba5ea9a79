// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/vector.cuh: a head's vector in the registers of neighbouring lanes, PART values each, at most a warp's.
// The fewer values a lane has, the sooner a vector is done; with VECTOR_PART the longest vector fits a warp. What a
// vector becomes does not depend on it. Values past the vector's end are 0.
#ifndef KERNEL_CUDA_VECTOR_CUH
#define KERNEL_CUDA_VECTOR_CUH

#include "kernel/cuda/common.cuh"

enum { VECTOR_PART = 16 };
static_assert(HEAD_DIM_MAX <= VECTOR_PART * WARP, "a vector fits a warp");

// How many lanes hold a vector: a power of two, and its logarithm.
template <int PART> DEVICE int vector_lanes_log(int dim) { return 32 - __clz((dim - 1) / PART); }
template <int PART> DEVICE int vector_lanes(int dim) { return 1 << vector_lanes_log<PART>(dim); }

// Whether every lane has all of its part or none of it; then a part is read and written at once.
template <int PART> DEVICE bool vector_is_whole(int dim) { return dim % PART == 0; }

// A few words at a multiple of their size, or of 16 bytes.
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

// Pairs of neighbours: those that the lane has first, then the others.
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

// Lanes that have no vector come with a dim of 0.
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

// Sums and differences of a Hadamard matrix on each block of a vector, without its factor: neighbours are combined
// first, then those two apart, and so on: within lanes, then across. All lanes of the warp must come.
template <int PART> DEVICE void vector_mix(int lane, int block, float (&x)[PART])
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

// What keys are stored as; queries have a centre of zeros.
template <int PART>
DEVICE void vector_transform(const struct cuda_transform &transform, const float (&centre)[PART], int lane,
                             float (&x)[PART])
{
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] -= centre[i];
    vector_mix(lane, transform.block, x);
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] *= transform.factor;
}

// ---- turning by a position ----
// Of a pair (a, b) turned by an angle, a becomes a cos - b sin and b becomes b cos + a sin: each channel itself times
// the cosine, and the other one times the sine, whose sign is the channel's. The pairs of the result are halves apart.

struct alignas(16) turn {
    float cosine[HEAD_DIM_MAX], sine[HEAD_DIM_MAX]; // of each channel that turns, times the magnitude; by turn_slot
};

// What lanes read at once lies side by side.
template <int PART> DEVICE int turn_slot(int channel)
{
    return (channel % PART / 4 * WARP + channel / PART) * 4 + channel % 4;
}

// By the whole block, which must meet before it reads.
template <int PART> DEVICE void turn_prepare(struct turn *turn, const struct cuda_rope &rope, int position)
{
    int pairs = rope.rotated / 2;
    for (int i = (int)threadIdx.x; i < pairs; i += (int)blockDim.x) {
        int first = turn_slot<PART>(i), second = turn_slot<PART>(i + pairs);
        float sine, cosine;
        sincosf((float)position * rope.frequencies[i], &sine, &cosine);
        turn->cosine[first] = turn->cosine[second] = cosine * rope.magnitude;
        turn->sine[first] = -(sine * rope.magnitude);
        turn->sine[second] = sine * rope.magnitude;
    }
}

// Spelled out, so that it has the same bits in every kernel.
DEVICE float turned(float own, float other, float cosine, float sine) { return fmaf(own, cosine, other * sine); }

// Where a channel of the result comes from, and the other one of its pair.
DEVICE int turned_own(const struct cuda_rope &rope, int channel)
{
    int pairs = rope.rotated / 2, second = channel >= pairs;
    return !rope.interleaved || channel >= rope.rotated ? channel : 2 * (channel - second * pairs) + second;
}

DEVICE int turned_other(const struct cuda_rope &rope, int channel)
{
    int pairs = rope.rotated / 2;
    return rope.interleaved ? turned_own(rope, channel) ^ 1 : channel < pairs ? channel + pairs : channel - pairs;
}

template <int PART>
DEVICE float turned_value(const struct turn *turn, const struct cuda_rope &rope, const uint16_t *vector, int channel)
{
    int slot = turn_slot<PART>(channel);
    return turned(bf16_to_f32(vector[turned_own(rope, channel)]), bf16_to_f32(vector[turned_other(rope, channel)]),
                  turn->cosine[slot], turn->sine[slot]);
}

// Where a lane finds its part and the others of its pairs, if both are PART in a row (of neighbours, which lie zipped,
// the first and the second half of both).
struct turned_at {
    bool in_rows;
    int own, other;
};

template <int PART> DEVICE struct turned_at turned_at(const struct cuda_rope &rope, int lane)
{
    int own = turned_own(rope, lane * PART) & -2;
    return { vector_is_whole<PART>(rope.head_dim) && vector_is_whole<PART>(rope.rotated / 2), own,
             rope.interleaved ? own + PART : turned_other(rope, lane * PART) };
}

template <int PART>
DEVICE void part_load_turned(const struct turn *turn, const struct cuda_rope &rope, const struct turned_at &at,
                             const uint16_t *vector, int dim, int lane, float (&x)[PART])
{
    int first = lane * PART;
    bool turns = first < min(dim, rope.rotated);
    uint32_t pairs[PART] = {};
    if (first < dim)
        words_load<PART / 2>(vector + at.own, pairs);
    if (turns)
        words_load<PART / 2>(vector + at.other, pairs + PART / 2);
    if (turns && rope.interleaved)
        part_unzip<PART>(first < rope.rotated / 2, pairs);
    part_dequantise(pairs, x);
#pragma unroll
    for (int i = 0; i < PART && turns; i += 4) {
        float other[4], cosine[4], sine[4];
        part_dequantise(pairs + (PART + i) / 2, other);
        part_load(turn->cosine + turn_slot<PART>(first + i), cosine);
        part_load(turn->sine + turn_slot<PART>(first + i), sine);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[i + j] = turned(x[i + j], other[j], cosine[j], sine[j]);
    }
}

// Other sizes, which are rare, value by value. The loop stays one: written out, it would take registers from all.
template <int PART>
DEVICE void part_load_turned_singly(const struct turn *turn, const struct cuda_rope &rope, const uint16_t *vector,
                                    int dim, int lane, float (&x)[PART])
{
    float values[PART];
#pragma unroll 1
    for (int i = 0; i < PART; i++) {
        int channel = lane * PART + i;
        values[i] = channel >= dim    ? 0.0f
            : channel >= rope.rotated ? bf16_to_f32(vector[channel])
                                      : turned_value<PART>(turn, rope, vector, channel);
    }
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] = values[i];
}

// Loads a lane's part of a turned vector like vector_load, rounded to bfloat16 as if it had been stored in between. It
// reads what other lanes may overwrite: they meet (__syncwarp) before any stores.
template <int PART>
DEVICE void vector_load_turned(const struct turn *turn, const struct cuda_rope &rope, const struct turned_at &at,
                               const uint16_t *vector, int dim, int lane, float (&x)[PART])
{
    if (at.in_rows)
        part_load_turned(turn, rope, at, vector, dim, lane, x);
    else
        part_load_turned_singly(turn, rope, vector, dim, lane, x);
#pragma unroll
    for (int i = 0; i < PART; i += 2) {
        uint32_t pair = bf16_pair(x[i], x[i + 1]);
        x[i] = bf16_low(pair);
        x[i + 1] = bf16_high(pair);
    }
}

#endif
