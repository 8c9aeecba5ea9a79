// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/state.cuh: recurrent states: where a sequence's state is read and written (as kernel/state.h for CPUs),
// and how a warp keeps some columns of a head's matrix, (keys, values), in registers. A lane has a quarter of a
// column's keys, in runs of four that are interleaved with those of the other quarters, so that four values of a vector
// over keys are one load from shared memory. Columns are independent.
#ifndef KERNEL_CUDA_STATE_CUH
#define KERNEL_CUDA_STATE_CUH

#include "kernel/cuda/common.cuh"

// The state after the token at `position`.
DEVICE float *state_at(const struct cuda_batch &batch, const struct cuda_state &state, int sequence, int position)
{
    int run = batch.table_at[state.class_index * batch.sequences_max + sequence];
    int64_t page = batch.tables[run + position / state.page_tokens];
    return (float *)(state.pool + page * state.page_bytes);
}

enum { STATE_RUN = 4, STATE_QUARTERS = 4, STATE_WARP_COLUMNS = WARP / STATE_QUARTERS };

DEVICE int state_quarter() { return lane_index() / STATE_WARP_COLUMNS; }

// Four of a vector's bfloat16 values, those past its end as 0; `whole`: they lie at multiples of four.
DEVICE float4 state_load_run(const uint16_t *x, int at, int count, bool whole)
{
    if (whole && at + STATE_RUN <= count) {
        uint2 packed = *(const uint2 *)(x + at);
        return make_float4(bf16_low(packed.x), bf16_high(packed.x), bf16_low(packed.y), bf16_high(packed.y));
    }
    float out[STATE_RUN];
#pragma unroll
    for (int i = 0; i < STATE_RUN; i++)
        out[i] = at + i < count ? bf16_to_f32(x[at + i]) : 0.0f;
    return make_float4(out[0], out[1], out[2], out[3]);
}

// The sum over a column's quarters, in each of their lanes.
DEVICE float state_quarters_sum(float value)
{
    value += __shfl_xor_sync(WARP_ALL, value, STATE_WARP_COLUMNS);
    return value + __shfl_xor_sync(WARP_ALL, value, 2 * STATE_WARP_COLUMNS);
}

// Loads the keys that a lane has of its column; those past the end are 0, and all of them if `from` is NULL.
template <int HELD> DEVICE void state_load(const float *from, int keys, int values, int column, float4 matrix[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float x[STATE_RUN];
#pragma unroll
        for (int j = 0; j < STATE_RUN; j++) {
            int key = (i * STATE_QUARTERS + state_quarter()) * STATE_RUN + j;
            x[j] = from && key < keys && column < values ? from[(size_t)key * (size_t)values + (size_t)column] : 0.0f;
        }
        matrix[i] = make_float4(x[0], x[1], x[2], x[3]);
    }
}

template <int HELD> DEVICE void state_store(float *to, int keys, int values, int column, const float4 matrix[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const float x[STATE_RUN] = { matrix[i].x, matrix[i].y, matrix[i].z, matrix[i].w };
#pragma unroll
        for (int j = 0; j < STATE_RUN; j++) {
            int key = (i * STATE_QUARTERS + state_quarter()) * STATE_RUN + j;
            if (key < keys && column < values)
                to[(size_t)key * (size_t)values + (size_t)column] = x[j];
        }
    }
}

#endif
