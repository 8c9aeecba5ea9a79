// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/ceiling.h"

#include <math.h>
#include <time.h>

#include "base/memory.h"
#include "kernel/kernel.h"

enum { REPEATS = 15, BUFFER_BYTES = 256 << 20, CHAINS = 12, ROUNDS = 4000000 };

double ceiling_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- arithmetic ----

// Chains of multiply-adds that do not wait for each other; the result is returned so that nobody leaves them out.
#define MULTIPLY_ADDS(vector, splat, multiply_add)                   \
    vector sums[CHAINS], factor = splat(0.999f), term = splat(0.1f); \
    for (int i = 0; i < CHAINS; i++)                                 \
        sums[i] = splat((float)i);                                   \
    for (int round = 0; round < ROUNDS; round++)                     \
        for (int i = 0; i < CHAINS; i++)                             \
            sums[i] = multiply_add(sums[i], factor, term);           \
    for (int i = 1; i < CHAINS; i++)                                 \
        sums[0] += sums[i];                                          \
    return sums[0][0]

typedef float four_floats __attribute__((vector_size(16)));

#define SPLAT_FOUR(x) ((four_floats){ (x), (x), (x), (x) })
#define MULTIPLY_ADD_FOUR(a, b, c) ((a) * (b) + (c))

static float multiply_adds_plain(void) { MULTIPLY_ADDS(four_floats, SPLAT_FOUR, MULTIPLY_ADD_FOUR); }

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static float multiply_adds_avx2(void)
{
    MULTIPLY_ADDS(__m256, _mm256_set1_ps, _mm256_fmadd_ps);
}

__attribute__((target("avx512f"))) static float multiply_adds_avx512(void)
{
    MULTIPLY_ADDS(__m512, _mm512_set1_ps, _mm512_fmadd_ps);
}

// Bytes, whatever their values: pairs of products in 16 bits, or four of them in 32.
#define SPLAT_BYTES_256(x) _mm256_set1_epi8((char)(100 * (x)))
#define SPLAT_BYTES_512(x) _mm512_set1_epi8((char)(100 * (x)))
#define MULTIPLY_ADD_PAIRS(a, b, c) _mm256_add_epi16(_mm256_maddubs_epi16(a, b), c)

__attribute__((target("avx2"))) static float multiply_adds_int8_avx2(void)
{
    MULTIPLY_ADDS(__m256i, SPLAT_BYTES_256, MULTIPLY_ADD_PAIRS);
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static float multiply_adds_int8_avx512(void)
{
    MULTIPLY_ADDS(__m512i, SPLAT_BYTES_512, _mm512_dpbusd_epi32);
}
#endif

struct arithmetic {
    uint32_t needs;
    int lanes; // products of one multiply-add
    float (*run)(void);
};

// Best first; the last one runs anywhere.
static const struct arithmetic with_floats[] = {
#if defined(__x86_64__)
    { CPU_AVX512F, 16, multiply_adds_avx512 },
    { CPU_AVX2 | CPU_FMA, 8, multiply_adds_avx2 },
#endif
    { 0, 4, multiply_adds_plain },
};

static const struct arithmetic with_bytes[] = {
#if defined(__x86_64__)
    { CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VNNI, 64, multiply_adds_int8_avx512 },
    { CPU_AVX2, 32, multiply_adds_int8_avx2 },
#endif
    { 0, 4, multiply_adds_plain },
};

static void run_arithmetic(void *context, int phase, int part, int parts)
{
    const struct arithmetic *arithmetic = context;
    (void)phase, (void)part, (void)parts;
    volatile float result = arithmetic->run();
    (void)result;
}

// ---- memory ----

struct reading {
    const uint64_t *words;
    size_t count;
};

static void run_reading(void *context, int phase, int part, int parts)
{
    const struct reading *reading = context;
    (void)phase;
    size_t first = reading->count * (size_t)part / (size_t)parts;
    size_t end = reading->count * (size_t)(part + 1) / (size_t)parts;
    uint64_t sum = 0;
    for (size_t i = first; i < end; i++)
        sum += reading->words[i];
    volatile uint64_t result = sum;
    (void)result;
}

// ---- both ----

// The shortest time of several runs on all threads.
static double best_time(struct thread_pool *pool, struct thread_pool_work work)
{
    double best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double start = ceiling_now();
        thread_pool_run(pool, &work);
        best = fmin(best, ceiling_now() - start);
    }
    return best;
}

// Operations per second, two for each multiply-add.
static double measure_arithmetic(const struct arithmetic *best, struct thread_pool *pool, const struct device *device)
{
    while (best->needs & ~device->features)
        best++;
    struct arithmetic chosen = *best;
    struct thread_pool_work work = { run_arithmetic, &chosen, .phases = 1 };
    return 2.0 * CHAINS * ROUNDS * chosen.lanes * thread_pool_size(pool) / best_time(pool, work);
}

bool ceiling_measure(struct ceiling *ceiling, struct thread_pool *pool, const struct device *device, struct error *err)
{
    uint64_t *words = memory_map_new(BUFFER_BYTES);
    if (!words)
        return fail(err, "the system does not give the %d MiB that measuring takes", BUFFER_BYTES >> 20);
    struct reading reading = { words, BUFFER_BYTES / sizeof *words };
    for (size_t i = 0; i < reading.count; i++) // each page its own: unwritten ones would all be the same zeros
        words[i] = i;
    ceiling->bytes_per_s = BUFFER_BYTES
        / best_time(pool, (struct thread_pool_work){ run_reading, &reading, .phases = 1 });
    memory_map_free(words, BUFFER_BYTES);
    ceiling->flops_per_s = measure_arithmetic(with_floats, pool, device);
    ceiling->int8_ops_per_s = measure_arithmetic(with_bytes, pool, device);
    return true;
}
