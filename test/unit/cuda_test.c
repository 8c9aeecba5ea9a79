// SPDX-License-Identifier: Apache-2.0
// The driver's calls, as nibble makes them, against a library that stands in for it (fake_cuda.c): whatever fails ends
// in a sentence and leaves nothing behind.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "container.h"
#include "fake_cuda.h"

static struct fake_cuda *fake;

static int set_up(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    if (!fake)
        fail_msg("libcuda.so.1 is not the one of this test: LD_LIBRARY_PATH names it in test/meson.build");
    *fake = (struct fake_cuda)FAKE_CUDA_WELL;
    return 0;
}

static struct cuda *open_gpu(void)
{
    struct error err;
    struct cuda *cuda = cuda_open(0, &err);
    if (!cuda)
        fail_msg("%s", err.text);
    return cuda;
}

static struct cuda_launch launch_of(struct cuda_function *function)
{
    static const char params[8];
    return (struct cuda_launch){ .function = function,
                                 .grid = { 3, 2, 1 },
                                 .block = 128,
                                 .shared_bytes = 512,
                                 .params = params,
                                 .params_bytes = sizeof params };
}

static void test_devices_are_listed(void **state)
{
    (void)state;
    struct cuda_report report;
    struct device device;
    struct error err;
    device_probe_cuda(&report);
    assert_string_equal(report.note, "");
    assert_int_equal(report.count, 2);
    assert_int_equal(report.driver_version, 13000);
    assert_string_equal(report.devices[1].name, "Fake GPU 1");
    assert_int_equal(report.devices[1].ordinal, 1);
    assert_int_equal(report.devices[1].memory_bytes, (size_t)2 << 32);

    assert_true(device_parse(&device, "cuda:1", &err));
    assert_int_equal(device.kind, DEVICE_CUDA);
    assert_int_equal(device.sm, 90);
    assert_int_equal(device.ordinal, 1);
    assert_int_equal(device.driver_version, 13000);
    assert_int_equal(device.multiprocessors, 132);
    assert_int_equal(device.shared_bytes, 227 << 10);
    assert_int_equal(device.memory_free_bytes, fake->free_bytes);
    assert_true(device_parse(&device, "cuda:2", &err));
    assert_int_equal(device.kind, DEVICE_NONE);
    assert_non_null(strstr(device.note, "cuda:0 to cuda:1"));
    fake->devices = 1;
    assert_true(device_parse(&device, "cuda:1", &err));
    assert_int_equal(device.kind, DEVICE_NONE);
    assert_non_null(strstr(device.note, "one GPU"));
    assert_int_equal(fake->live, 0);
}

static void test_a_driver_that_does_not_start(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        int status;
        const char *says;
    } troubles[] = {
        { "cuInit", 100, "finds no device" },
        { "cuInit", 803, "does not start: CUDA_ERROR_FAKE (a fake error)" },
        { "cuDeviceGetCount", 3, "finds no device" },
        { "cuDeviceGetAttribute", 3, "finds no device" },
    };
    for (size_t i = 0; i < COUNT_OF(troubles); i++) {
        struct cuda_report report;
        struct device device;
        struct error err;
        fake->failing = troubles[i].symbol;
        fake->status = troubles[i].status;
        device_probe_cuda(&report);
        assert_int_equal(report.count, 0);
        assert_non_null(strstr(report.note, troubles[i].says));
        assert_true(device_parse(&device, "cuda", &err));
        assert_int_equal(device.kind, DEVICE_NONE);
        assert_non_null(strstr(device.note, troubles[i].says));
        assert_null(cuda_open(0, &err));
        assert_true(strlen(err.text) > 10);
    }
    assert_int_equal(fake->live, 0);
}

static void test_a_gpu_that_is_not_there(void **state)
{
    (void)state;
    struct error err;
    assert_null(cuda_open(2, &err));
    assert_says(err, "no GPU 2");
    assert_says(err, "has 2");
}

static void test_memory(void **state)
{
    (void)state;
    struct cuda *cuda = open_gpu();
    struct error err;
    unsigned char bytes[300], back[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    unsigned char *memory = cuda_new(cuda, sizeof bytes, "this test", &err);
    assert_true(cuda_download(cuda, back, memory, sizeof back, &err));
    for (size_t i = 0; i < sizeof back; i++)
        assert_int_equal(back[i], 0);
    assert_true(cuda_upload(cuda, memory, bytes, sizeof bytes, &err) && cuda_download(cuda, back, memory, 300, &err));
    assert_memory_equal(bytes, back, sizeof bytes);
    assert_true(cuda_upload(cuda, memory, NULL, 0, &err));
    void *nothing = cuda_new(cuda, 0, "nothing", &err); // is something that can be freed
    assert_non_null(nothing);

    assert_null(cuda_new(cuda, (size_t)3 << 30, "the weights", &err));
    assert_string_equal(err.text,
                        "GPU 0 has no room for the weights: 3072.0 MB are needed, 1024.0 MB of its 4096 MB "
                        "are free");
    cuda_free(cuda, memory);
    cuda_free(cuda, nothing);
    cuda_free(cuda, NULL);
    cuda_close(cuda);
    assert_int_equal(fake->live, 0);
}

static void test_kernels_are_found_and_started(void **state)
{
    (void)state;
    struct cuda *cuda = open_gpu();
    struct error err;
    assert_true(cuda_load_image(cuda, "norm rope", 9, "elementwise", &err));
    assert_true(cuda_load_image(cuda, "attend", 6, "attention", &err));
    struct cuda_function *attend = cuda_find(cuda, "attend", &err);
    assert_non_null(attend);
    assert_int_equal(fake->dynamic_shared_bytes, (227 << 10) - 1024);
    assert_ptr_equal(cuda_find(cuda, "attend", &err), attend);
    assert_null(cuda_find(cuda, "missing", &err));
    assert_says(err, "no kernel is called missing");

    struct cuda_launch launch = launch_of(attend);
    assert_true(cuda_launch(cuda, &launch, &err));
    assert_int_equal(fake->last.grid[0], 3);
    assert_int_equal(fake->last.grid[1], 2);
    assert_int_equal(fake->last.block[0], 128);
    assert_int_equal(fake->last.shared_bytes, 512);
    assert_int_equal(fake->last.attribute_count, 0);
    launch.overlap = true;
    assert_true(cuda_launch(cuda, &launch, &err));
    assert_int_equal(fake->last.attribute_count, 1);
    fake->compiled_for = 80; // it would not wait
    launch.function = cuda_find(cuda, "rope", &err);
    assert_true(cuda_launch(cuda, &launch, &err));
    assert_int_equal(fake->last.attribute_count, 0);
    assert_int_equal(fake->launches, 3);
    cuda_close(cuda);
    assert_int_equal(fake->live, 0);
}

static void test_a_failing_kernel_is_told_later(void **state)
{
    (void)state;
    struct cuda *cuda = open_gpu();
    struct error err;
    assert_true(cuda_load_image(cuda, "attend", 6, "attention", &err));
    struct cuda_launch launch = launch_of(cuda_find(cuda, "attend", &err));
    assert_true(cuda_launch(cuda, &launch, &err));
    fake->failing = "cuStreamSynchronize";
    fake->status = 700;
    assert_false(cuda_wait(cuda, &err));
    assert_says(err, "attend");
    assert_says(err, "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
    cuda_close(cuda);
    assert_int_equal(fake->live, 0);
}

static void *wait_here(void *cuda)
{
    struct error err;
    return cuda_wait(cuda, &err) ? cuda : NULL;
}

static void test_any_thread_may_ask(void **state)
{
    (void)state;
    struct cuda *cuda = open_gpu();
    pthread_t thread;
    void *answer = NULL;
    assert_int_equal(pthread_create(&thread, NULL, wait_here, cuda), 0);
    pthread_join(thread, &answer);
    assert_ptr_equal(answer, cuda);
    cuda_close(cuda);
    assert_int_equal(fake->live, 0);
}

// One of everything, until something fails.
static bool use_everything(struct cuda *cuda, struct error *err)
{
    struct cuda_event *from = NULL, *to = NULL;
    struct cuda_graph *graph = NULL;
    struct cuda_function *function = NULL;
    char bytes[16] = "";
    double seconds = 0;
    char *memory = cuda_new(cuda, 2 * sizeof bytes, "bytes", err), *host = NULL;
    bool ok = memory && (host = cuda_host_new(cuda, sizeof bytes, "bytes", err))
        && cuda_upload(cuda, memory, bytes, sizeof bytes, err)
        && cuda_copy(cuda, memory + sizeof bytes, memory, sizeof bytes, err)
        && cuda_load_image(cuda, "attend", 6, "attention", err) && (function = cuda_find(cuda, "attend", err))
        && (from = cuda_event_new(cuda, err)) && (to = cuda_event_new(cuda, err)) && cuda_event_record(cuda, from, err);
    struct cuda_launch launch = launch_of(function);
    ok = ok && cuda_launch(cuda, &launch, err);
    if (ok && (ok = cuda_capture_begin(cuda, err))) {
        struct error ignored;
        ok = cuda_launch(cuda, &launch, err);
        graph = cuda_capture_end(cuda, ok ? err : &ignored);
    }
    ok = ok && graph && cuda_replay(cuda, graph, err) && cuda_event_record(cuda, to, err)
        && cuda_event_wait(cuda, to, err) && cuda_event_seconds(cuda, from, to, &seconds, err)
        && cuda_download(cuda, bytes, memory, sizeof bytes, err) && cuda_wait(cuda, err);
    assert_true(!ok || (seconds > 0.0024 && seconds < 0.0026));
    cuda_event_free(cuda, from);
    cuda_event_free(cuda, to);
    cuda_graph_free(cuda, graph);
    cuda_host_free(cuda, host);
    cuda_free(cuda, memory);
    return ok;
}

// Functions that free, and functions that only describe.
static bool may_fail_quietly(const char *symbol)
{
    static const char *const quiet[] = { "Release",      "Destroy",           "Free",
                                         "Unload",       "cuGetError",        "cuDriverGetVersion",
                                         "cuMemGetInfo", "cuFuncGetParamInfo" };
    for (size_t i = 0; i < COUNT_OF(quiet); i++)
        if (strstr(symbol, quiet[i]))
            return true;
    return false;
}

static void test_whatever_fails_ends_in_a_sentence(void **state)
{
    (void)state;
    static const char *const symbols[] = {
#define X(name, symbol, ...) symbol,
        CUDA_DRIVER_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        struct error err = { 0 };
        fake->failing = symbols[i];
        fake->status = 999;
        struct cuda *cuda = cuda_open(1, &err);
        bool ok = cuda && use_everything(cuda, &err);
        cuda_close(cuda);
        assert_int_equal(fake->live, 0);
        if (ok != may_fail_quietly(symbols[i]))
            fail_msg("%s failed and nobody said so", symbols[i]);
        if (!ok && (!strstr(err.text, "CUDA_ERROR_FAKE (a fake error)") || strlen(err.text) < 40))
            fail_msg("%s: \"%s\"", symbols[i], err.text);
    }
}

static void test_a_compiler_in_the_driver_has_its_say(void **state)
{
    (void)state;
    struct cuda *cuda = open_gpu();
    struct error err;
    fake->failing = "cuModuleLoadDataEx";
    fake->status = 218;
    assert_false(cuda_load_image(cuda, "x", 1, "attention", &err));
    assert_says(err, "attention for sm_90: line 7: no such instruction: cuModuleLoadDataEx failed");
    cuda_close(cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_devices_are_listed, set_up),
        cmocka_unit_test_setup(test_a_driver_that_does_not_start, set_up),
        cmocka_unit_test_setup(test_a_gpu_that_is_not_there, set_up),
        cmocka_unit_test_setup(test_memory, set_up),
        cmocka_unit_test_setup(test_kernels_are_found_and_started, set_up),
        cmocka_unit_test_setup(test_a_failing_kernel_is_told_later, set_up),
        cmocka_unit_test_setup(test_any_thread_may_ask, set_up),
        cmocka_unit_test_setup(test_whatever_fails_ends_in_a_sentence, set_up),
        cmocka_unit_test_setup(test_a_compiler_in_the_driver_has_its_say, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
