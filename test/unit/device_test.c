// SPDX-License-Identifier: Apache-2.0
// The pool of threads, the processor's features under NIBBLE_FEATURES, and the probe for GPUs.
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "sanitized.h"

enum { THREADS_MAX = 8 };

static const int sizes[] = { 1, 2, 3, THREADS_MAX }; // more threads than the machine has cores, too

static struct thread_pool *open_thread_pool(int threads)
{
    struct error err;
    struct thread_pool *pool = thread_pool_open(threads, &err);
    if (!pool)
        fail_msg("%s", err.text);
    assert_int_equal(thread_pool_size(pool), threads);
    return pool;
}

// ---- pool ----

enum { CHUNKS_EACH_MAX = 8 };

struct tally {
    int size, runs[THREADS_MAX * CHUNKS_EACH_MAX];
    _Atomic int chunks, wrong;
};

static void count_run(void *context, int step, int chunk, int chunks)
{
    struct tally *tally = context;
    tally->chunks = chunks;
    if (step || chunk < 0 || chunk >= chunks || chunks % tally->size || chunks > tally->size * CHUNKS_EACH_MAX)
        tally->wrong++;
    else
        tally->runs[chunk]++;
}

static void test_every_part_runs_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT_OF(sizes); i++) {
        int size = sizes[i / 2];
        bool divisible = i % 2;
        struct thread_pool *pool = open_thread_pool(size);
        struct tally tally = { .size = size };
        for (int run = 1; run <= 300; run++) {
            thread_pool_run(pool, &(struct thread_pool_work){ count_run, &tally, .steps = 1, .divisible = divisible });
            for (int part = 0; part < tally.chunks; part++)
                assert_int_equal(tally.runs[part], run); // all have finished, none ran twice
        }
        assert_int_equal(tally.wrong, 0);
        assert_true(divisible && size > 1 ? tally.chunks > size : tally.chunks == size);
        thread_pool_close(pool);
    }
}

// Each chunk looks at the marks that all chunks of the step before it left, and leaves its own.
struct marks {
    int of_chunk[2][THREADS_MAX * CHUNKS_EACH_MAX];
    _Atomic int wrong;
    int late_chunk, late_every; // this one dawdles now and then, so that the others go to sleep
};

static void check_marks(void *context, int step, int chunk, int chunks)
{
    struct marks *marks = context;
    if (chunk == marks->late_chunk && marks->late_every && step % marks->late_every == 0)
        usleep(2000);
    for (int i = 0; i < chunks && step; i++)
        marks->wrong += marks->of_chunk[(step - 1) % 2][i] != step - 1;
    marks->of_chunk[step % 2][chunk] = step;
}

static void test_phases_do_not_overlap(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct thread_pool *pool = open_thread_pool(sizes[i]);
        struct marks marks = { .late_chunk = -1 };
        thread_pool_run(pool, &(struct thread_pool_work){ check_marks, &marks, 8000 / sizes[i], .divisible = true });
        assert_int_equal(marks.wrong, 0);
        thread_pool_close(pool);
    }
}

static void test_late_chunks_are_waited_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct thread_pool *pool = open_thread_pool(sizes[i]);
        for (int late = 0; late < sizes[i]; late++) {
            struct marks marks = { .late_chunk = late, .late_every = 10 };
            thread_pool_run(pool, &(struct thread_pool_work){ check_marks, &marks, 50, .divisible = true });
            assert_int_equal(marks.wrong, 0);
        }
        thread_pool_close(pool);
    }
}

// A worker that is kept from running in the middle of one part, while the others do everything else.
struct stall {
    _Atomic int done, chunks;
    _Atomic bool others_were_done;
};

static void stall_in_first(void *context, int step, int chunk, int chunks)
{
    struct stall *stall = context;
    (void)step;
    stall->chunks = chunks;
    for (int i = 0; chunk == 0 && i < 2000 && stall->done < chunks - 1; i++)
        usleep(1000);
    if (chunk == 0)
        stall->others_were_done = stall->done == chunks - 1;
    stall->done++;
}

static void test_a_stalled_thread_holds_up_one_chunk(void **state)
{
    (void)state;
    struct thread_pool *pool = open_thread_pool(2);
    struct stall stall = { 0 };
    thread_pool_run(pool, &(struct thread_pool_work){ stall_in_first, &stall, .steps = 1, .divisible = true });
    assert_true(stall.chunks > 2);
    assert_true(stall.others_were_done);
    thread_pool_close(pool);
}

static void test_a_team_wakes_up_after_a_rest(void **state)
{
    (void)state;
    struct thread_pool *pool = open_thread_pool(3);
    struct tally tally = { .size = 3 };
    for (int run = 1; run <= 5; run++) {
        usleep(10000);
        thread_pool_run(pool, &(struct thread_pool_work){ count_run, &tally, .steps = 1 });
        assert_int_equal(tally.runs[0] + tally.runs[1] + tally.runs[2], 3 * run);
    }
    thread_pool_close(pool);
}

static void test_teams_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        int threads = i % 4 + 1;
        struct thread_pool *pool = open_thread_pool(threads);
        struct tally tally = { .size = threads };
        if (i % 3)
            thread_pool_run(pool, &(struct thread_pool_work){ count_run, &tally, .steps = 1 });
        assert_int_equal(tally.runs[threads - 1], i % 3 != 0);
        thread_pool_close(pool);
    }
    thread_pool_close(open_thread_pool(THREAD_POOL_MAX));
    thread_pool_close(NULL);
}

static void test_impossible_sizes_are_refused(void **state)
{
    (void)state;
    static const int wrong[] = { 0, -1, INT_MIN, THREAD_POOL_MAX + 1, INT_MAX };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct error err;
        char number[32];
        assert_null(thread_pool_open(wrong[i], &err));
        snprintf(number, sizeof number, "%d threads", wrong[i]);
        assert_says(err, number);
        assert_says(err, "256");
    }
}

// In a process of its own, which may have no more memory than a few stacks take.
static int open_without_memory(void)
{
    struct error err = { .text = "" };
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 96 << 20;
    setrlimit(RLIMIT_AS, &limit);
    struct thread_pool *pool = thread_pool_open(200, &err);
    if (pool || !strstr(err.text, "no thread number") || !strstr(err.text, "try --threads "))
        return 1;
    int possible = atoi(strstr(err.text, "--threads ") + strlen("--threads "));
    pool = thread_pool_open(possible, &err);
    thread_pool_close(pool);
    return pool ? 0 : 2;
}

static void test_a_system_without_threads(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip(); // sanitizers need more address space than the limit leaves
#endif
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(open_without_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// ---- processor ----

static const char *const words[CPU_FEATURE_COUNT] = {
#define X(id, word, ...) word,
    CPU_FEATURES(X)
#undef X
};

static uint32_t features_with(const char *mask)
{
    struct device device;
    struct error err;
    if (mask)
        setenv("NIBBLE_FEATURES", mask, 1);
    else
        unsetenv("NIBBLE_FEATURES");
    bool ok = device_open_cpu(&device, &err);
    unsetenv("NIBBLE_FEATURES");
    if (!ok)
        fail_msg("NIBBLE_FEATURES=%s: %s", mask, err.text);
    return device.features;
}

static void test_the_machine(void **state)
{
    (void)state;
    struct device device;
    struct error err;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(device_open_cpu(&device, &err));
    assert_string_equal(device.word, "cpu");
    assert_true(device.name[0] > ' ' && strlen(device.name) < sizeof device.name);
    assert_int_equal(device.cores, CPU_COUNT(&before));
    assert_true(device.memory_bytes > 1 << 20 && device.memory_free_bytes > 0);
    assert_true(device.memory_free_bytes <= device.memory_bytes);

    CPU_ZERO(&one);
    for (int cpu = 0; !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_true(device_open_cpu(&device, &err));
    assert_int_equal(device.cores, 1);
    sched_setaffinity(0, sizeof before, &before);
}

static void test_features_are_masked(void **state)
{
    (void)state;
    uint32_t all = features_with(NULL);
    assert_int_equal(features_with(""), all);
    assert_int_equal(features_with("none"), 0);
    for (int i = 0; i < CPU_FEATURE_COUNT; i++)
        assert_int_equal(features_with(words[i]), all & ((2u << i) - 1));
    assert_int_equal(features_with("avx2,sse4.1"), features_with("avx2"));
    assert_int_equal(features_with(" , fma avx2,, "), features_with("avx2"));
    assert_int_equal(features_with("none,fma"), features_with("fma"));
}

static void test_unknown_features_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = { "avx3", "AVX2", "avx22", "av", "avx2,sse9", "avx2;fma", "nonesuch" };
    static const char *const named[] = { "\"avx3\"", "\"AVX2\"",     "\"avx22\"",   "\"av\"",
                                         "\"sse9\"", "\"avx2;fma\"", "\"nonesuch\"" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct device device;
        struct error err;
        setenv("NIBBLE_FEATURES", wrong[i], 1);
        assert_false(device_open_cpu(&device, &err));
        assert_says(err, "NIBBLE_FEATURES");
        assert_says(err, named[i]);
    }
    unsetenv("NIBBLE_FEATURES");
}

static void test_features_in_words(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    uint32_t all = features_with(NULL);
    assert_string_equal(device_feature_words(&arena, 0), "none");
    assert_string_equal(device_feature_words(&arena, CPU_AVX2), "avx2");
    assert_string_equal(device_feature_words(&arena, CPU_SSE41 | CPU_FMA | CPU_AMXINT8), "sse4.1 fma amx-int8");
    assert_int_equal(features_with(device_feature_words(&arena, all)), all); // what is printed can be typed
    arena_free(&arena);
}

// ---- GPUs ----

static void test_the_probe_always_answers(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cuda_report report;
        device_probe_cuda(&report);
        assert_in_range(report.count, 0, CUDA_DEVICES_MAX);
        assert_int_equal(report.note[0] == '\0', report.count > 0); // devices, or the reason why there are none
        for (int j = 0; j < report.count; j++)
            assert_true(report.devices[j].name[0] && report.devices[j].major > 0 && report.devices[j].memory_bytes > 0);
    }
}

static void test_imagined_gpus_have_their_shared_memory(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int sm, kilobytes;
    } gpus[] = {
        { "sm_80", 80, 163 },  { "sm_86", 86, 99 },    { "sm_89", 89, 99 },
        { "sm_90", 90, 227 },  { "sm_100", 100, 227 }, { "sm_103", 103, 227 },
        { "sm_120", 120, 99 }, { "sm_121", 121, 99 },  { "sm_70", 70, 0 }, // nobody's
    };
    for (size_t i = 0; i < COUNT_OF(gpus); i++) {
        struct device device;
        struct error err;
        assert_true(device_parse(&device, gpus[i].word, &err));
        assert_true(device.kind == DEVICE_CUDA && device.imagined);
        assert_int_equal(device.sm, gpus[i].sm);
        assert_int_equal(device.shared_bytes, gpus[i].kilobytes << 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_runs_once),
        cmocka_unit_test(test_phases_do_not_overlap),
        cmocka_unit_test(test_late_chunks_are_waited_for),
        cmocka_unit_test(test_a_stalled_thread_holds_up_one_chunk),
        cmocka_unit_test(test_a_team_wakes_up_after_a_rest),
        cmocka_unit_test(test_teams_come_and_go),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_a_system_without_threads),
        cmocka_unit_test(test_the_machine),
        cmocka_unit_test(test_features_are_masked),
        cmocka_unit_test(test_unknown_features_are_refused),
        cmocka_unit_test(test_features_in_words),
        cmocka_unit_test(test_the_probe_always_answers),
        cmocka_unit_test(test_imagined_gpus_have_their_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
