// SPDX-License-Identifier: Apache-2.0
// base/random.h: a linear congruential generator (PCG's multiplier), for reproducible inputs of tests, self-tests and
// benchmarks.
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static inline int random_between(uint64_t *state, int low, int high) // both included
{
    return low + (int)((uint64_t)random_next(state) * (uint64_t)(high - low + 1) >> 32);
}

static inline float random_real(uint64_t *state) // in [-1, 1)
{
    return (float)(random_next(state) >> 8) * 0x1p-23f - 1;
}

static inline void random_fill(uint64_t *state, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = random_real(state);
}

static inline void random_shuffle(uint64_t *state, int32_t *x, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = random_between(state, 0, i);
        int32_t moved = x[i];
        x[i] = x[j];
        x[j] = moved;
    }
}

#endif
