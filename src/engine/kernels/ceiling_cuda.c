// SPDX-License-Identifier: Apache-2.0
// engine/kernels/ceiling_cuda.c: roofline ceilings of a GPU: its memory bandwidth when it copies its own memory, and
// its bfloat16 GEMM throughput with cuBLASLt. The matrices are random, because zeros would flatter the GPU.
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "engine/kernels/ceiling.h"
#include "kernel/minifloat.h"

enum { REPEATS = 5, SIDE = 8192, DISTINCT = 1 << 16 };
static const size_t copied_bytes = (size_t)1 << 29, matrix_bytes = (size_t)SIDE * SIDE * 2;

struct bounds {
    struct cuda *cuda;
    uint8_t *memory; // two times copied_bytes
    struct cuda_event *start, *end;
};

static bool copy(const struct bounds *bounds, struct error *err)
{
    return cuda_copy(bounds->cuda, bounds->memory + copied_bytes, bounds->memory, copied_bytes, err);
}

static bool multiply(const struct bounds *bounds, struct error *err)
{
    struct cuda_product product = { .dtype = DTYPE_BF16,
                                    .rows = SIDE,
                                    .in = SIDE,
                                    .out = SIDE,
                                    .x = bounds->memory,
                                    .w = bounds->memory + matrix_bytes,
                                    .factor = 1,
                                    .y = bounds->memory + 2 * matrix_bytes };
    return cuda_multiply(bounds->cuda, &product, err);
}

// The shortest time of several runs, after one that is not timed.
static bool best_time(const struct bounds *bounds, bool (*run)(const struct bounds *, struct error *), double *best,
                      struct error *err)
{
    *best = INFINITY;
    for (int i = 0; i <= REPEATS; i++) {
        double seconds;
        if (!cuda_event_record(bounds->cuda, bounds->start, err) || !run(bounds, err)
            || !cuda_event_record(bounds->cuda, bounds->end, err) || !cuda_wait(bounds->cuda, err)
            || !cuda_event_seconds(bounds->cuda, bounds->start, bounds->end, &seconds, err))
            return false;
        *best = i ? fmin(*best, seconds) : *best;
    }
    return true;
}

// Values around 0, uploaded once and doubled until both factors are full.
static bool fill(const struct bounds *bounds, struct error *err)
{
    uint64_t seed = 1;
    uint16_t *values = memory_new(DISTINCT, sizeof *values);
    for (int i = 0; i < DISTINCT; i++)
        values[i] = f32_to_bf16(random_real(&seed));
    size_t filled = DISTINCT * sizeof *values;
    bool ok = cuda_upload(bounds->cuda, bounds->memory, values, filled, err);
    for (; ok && filled < 2 * matrix_bytes; filled *= 2)
        ok = cuda_copy(bounds->cuda, bounds->memory + filled, bounds->memory, filled, err);
    free(values);
    return ok;
}

bool ceiling_measure_cuda(struct nibble_ceiling *ceiling, struct cuda *cuda, struct error *err)
{
    struct bounds bounds = { .cuda = cuda };
    double copying, multiplying;
    bool ok = (bounds.memory = cuda_new(cuda, 2 * copied_bytes, "measuring how fast it is", err))
        && (bounds.start = cuda_event_new(cuda, err)) && (bounds.end = cuda_event_new(cuda, err)) && fill(&bounds, err)
        && best_time(&bounds, copy, &copying, err) && best_time(&bounds, multiply, &multiplying, err);
    if (ok)
        *ceiling = (struct nibble_ceiling){ .bytes_per_s = 2.0 * (double)copied_bytes / copying,
                                            .flops_per_s = 2.0 * SIDE * SIDE * SIDE / multiplying,
                                            .int8_ops_per_s = 2.0 * SIDE * SIDE * SIDE / multiplying };
    for (int size = 0; size < NIBBLE_CEILING_SIZES; size++)
        ceiling->read_bytes_per_s[size] = ceiling->bytes_per_s;
    cuda_event_free(cuda, bounds.start);
    cuda_event_free(cuda, bounds.end);
    cuda_free(cuda, bounds.memory);
    return ok;
}
