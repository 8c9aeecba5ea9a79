// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/ceiling.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "kernel/kernel.h"

enum { REPEATS = 9, CHAINS = 12, ROUNDS = 4000000, READ_UNIT_BYTES = 256, PASSES_BYTES = 64 << 20 };

// ---- arithmetic ----

// Chains of multiply-adds that do not wait for each other; the result is returned so that the compiler keeps them.
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

static void run_arithmetic(void *context, int step, int chunk, int chunks)
{
    const struct arithmetic *arithmetic = context;
    (void)step, (void)chunk, (void)chunks;
    volatile float result = arithmetic->run();
    (void)result;
}

// ---- memory ----

// A thread's share of the working set, a multiple of 256 bytes, read several times over. Four independent sums, so that
// additions keep up with loads; the result is returned so that the compiler keeps them.
enum { LINE_BYTES = 64, AHEAD_BYTES = 2048 };

#define READ(vector, prefetch)                                                                \
    const vector *at = words;                                                                 \
    vector sums[4] = { 0 };                                                                   \
    for (size_t done = 0; done < bytes; done += 4 * sizeof(vector), at += 4) {                \
        for (size_t ahead = 0; (prefetch) && ahead < 4 * sizeof(vector); ahead += LINE_BYTES) \
            __builtin_prefetch((const char *)words + done + AHEAD_BYTES + ahead);             \
        for (int i = 0; i < 4; i++)                                                           \
            sums[i] += at[i];                                                                 \
    }                                                                                         \
    return (uint64_t)(sums[0] + sums[1] + sums[2] + sums[3])[0]

typedef uint64_t two_words __attribute__((vector_size(16)));
typedef uint64_t four_words __attribute__((vector_size(32)));
typedef uint64_t eight_words __attribute__((vector_size(64)));

static uint64_t read_plain(const void *words, size_t bytes) { READ(two_words, false); }
static uint64_t read_ahead(const void *words, size_t bytes) { READ(two_words, true); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(const void *words, size_t bytes) { READ(four_words, false); }
__attribute__((target("avx512f"))) static uint64_t read_avx512(const void *words, size_t bytes)
{
    READ(eight_words, false);
}
__attribute__((target("avx512f"))) static uint64_t read_ahead_avx512(const void *words, size_t bytes)
{
    READ(eight_words, true);
}
#endif

static const struct reader {
    uint32_t needs;
    uint64_t (*read)(const void *words, size_t bytes);
} readers[] = {
    { 0, read_plain },
    { 0, read_ahead },
#if defined(__x86_64__)
    { CPU_AVX2, read_avx2 },
    { CPU_AVX512F, read_avx512 },
    { CPU_AVX512F, read_ahead_avx512 },
#endif
};

struct reading {
    const struct reader *reader;
    const char *words;
    size_t bytes;
    int passes;
};

static void run_reading(void *context, int step, int chunk, int chunks)
{
    const struct reading *reading = context;
    size_t units = reading->bytes / READ_UNIT_BYTES;
    size_t first = units * (size_t)chunk / (size_t)chunks, end = units * (size_t)(chunk + 1) / (size_t)chunks;
    uint64_t sum = 0;
    (void)step;
    for (int pass = 0; pass < reading->passes; pass++)
        sum += reading->reader->read(reading->words + first * READ_UNIT_BYTES, (end - first) * READ_UNIT_BYTES);
    volatile uint64_t result = sum;
    (void)result;
}

// ---- both ----

// The shortest time of several runs on all threads.
static double best_time(struct thread_pool *pool, struct thread_pool_work work)
{
    double best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double start = clock_now();
        thread_pool_run(pool, &work);
        best = fmin(best, clock_now() - start);
    }
    return best;
}

static double measure_reading(const char *words, size_t bytes, struct thread_pool *pool, const struct device *device)
{
    double best = 0;
    int passes = bytes < PASSES_BYTES ? (int)(PASSES_BYTES / bytes) : 1;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        struct reading reading = { &readers[i], words, bytes, passes };
        if (readers[i].needs & ~device->features)
            continue;
        double seconds = best_time(pool, (struct thread_pool_work){ run_reading, &reading, .steps = 1 });
        best = fmax(best, (double)bytes * passes / seconds);
    }
    return best;
}

double nibble_ceiling_read(const struct nibble_ceiling *ceiling, double bytes)
{
    int size = 0;
    while (size + 1 < NIBBLE_CEILING_SIZES && bytes >= (double)((size_t)NIBBLE_CEILING_BYTES << 2 * (size + 1)))
        size++;
    return ceiling->read_bytes_per_s[size];
}

// Operations per second, two for each multiply-add.
static double measure_arithmetic(const struct arithmetic *best, struct thread_pool *pool, const struct device *device)
{
    while (best->needs & ~device->features)
        best++;
    struct arithmetic chosen = *best;
    struct thread_pool_work work = { run_arithmetic, &chosen, .steps = 1 };
    return 2.0 * CHAINS * ROUNDS * chosen.lanes * thread_pool_size(pool) / best_time(pool, work);
}

bool ceiling_measure(struct nibble_ceiling *ceiling, struct thread_pool *pool, const struct device *device,
                     struct error *err)
{
    size_t bytes = (size_t)NIBBLE_CEILING_BYTES << 2 * (NIBBLE_CEILING_SIZES - 1);
    char *words = memory_map_new(bytes);
    if (!words)
        return fail(err, "the system does not give the %zu MiB that measuring takes", bytes >> 20);
    memset(words, 1, bytes); // each page its own: unwritten ones would all be the same zeros
    double fastest = 0;
    for (int size = NIBBLE_CEILING_SIZES - 1; size >= 0; size--) { // a smaller working set is never read more slowly
        size_t part = (size_t)NIBBLE_CEILING_BYTES << 2 * size;
        fastest = fmax(fastest, measure_reading(words, part, pool, device));
        ceiling->read_bytes_per_s[size] = fastest;
    }
    ceiling->bytes_per_s = ceiling->read_bytes_per_s[NIBBLE_CEILING_SIZES - 1];
    memory_map_free(words, bytes);
    ceiling->flops_per_s = measure_arithmetic(with_floats, pool, device);
    ceiling->int8_ops_per_s = measure_arithmetic(with_bytes, pool, device);
    return true;
}
