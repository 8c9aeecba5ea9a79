// SPDX-License-Identifier: Apache-2.0
// device/cuda_work.c: one GPU's context: memory, kernels, stream, graphs and events.
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/cuda_parts.h"

enum { JIT_LOG_BYTES = 1024, SM_WITH_OVERLAP = 90 };

struct cuda_function {
    char *name;
    struct cuda_entry *entry;
    size_t params_bytes;
    bool waits; // it calls griddepcontrol.wait: compiled for sm_90 or later
    int index;  // among all of the GPU
    unsigned long launches;
};

// ---- errors ----

// An asynchronous error: a running kernel failed, and the next call reports it.
static bool is_late(int status)
{
    static const int late[] = {
        CUDA_ILLEGAL_ADDRESS,       CUDA_LAUNCH_TIMEOUT,      CUDA_ASSERT,
        CUDA_HARDWARE_STACK_ERROR,  CUDA_ILLEGAL_INSTRUCTION, CUDA_MISALIGNED_ADDRESS,
        CUDA_INVALID_ADDRESS_SPACE, CUDA_INVALID_PC,          CUDA_LAUNCH_FAILED,
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (status == late[i])
            return true;
    return false;
}

bool cuda_check(const struct cuda *cuda, int status, const char *call, struct error *err, const char *purpose, ...)
{
    char text[256];
    va_list arguments;
    if (!status)
        return true;
    va_start(arguments, purpose);
    vsnprintf(text, sizeof text, purpose, arguments);
    va_end(arguments);
    struct cuda_status_text says = cuda_driver_status_text(&cuda->driver, status);
    if (is_late(status) && cuda->last)
        return fail(err,
                    "GPU %d: %s: %s reports that something queued before it has failed, the last of which was %s: "
                    "%s. The GPU cannot be used any more by this process",
                    cuda->ordinal, text, call, cuda->last, says.text);
    return fail(err, "GPU %d: %s: %s failed with %s", cuda->ordinal, text, call, says.text);
}

void cuda_enter(struct cuda *cuda)
{
    cuda->driver.context_use(cuda->context); // a failure shows in the next call
}

static double megabytes(size_t bytes) { return (double)bytes / (1 << 20); }

// ---- opening ----

static bool open_device(struct cuda *cuda, struct error *err)
{
    int count = 0;
    if (!cuda_check(cuda, cuda->driver.device_count(&count), "cuDeviceGetCount", err, "looking for it"))
        return false;
    if (cuda->ordinal < 0 || cuda->ordinal >= count)
        return fail(err, "there is no GPU %d: this machine has %d, counted from 0", cuda->ordinal, count);
    int status = cuda_driver_describe(&cuda->driver, cuda->ordinal, &cuda->device, &cuda->facts);
    cuda->sm = cuda->facts.major * 10 + cuda->facts.minor;
    cuda->driver.driver_version(&cuda->driver_version);
    return cuda_check(cuda, status, "cuDeviceGetAttribute", err, "asking what it can do");
}

static bool open_context(struct cuda *cuda, struct error *err)
{
    int status = cuda->driver.context_retain(&cuda->context, cuda->device);
    if (!cuda_check(cuda, status, "cuDevicePrimaryCtxRetain", err, "starting to use it"))
        return cuda->context = NULL, false;
    cuda_enter(cuda);
    status = cuda->driver.stream_new(&cuda->stream, CUDA_STREAM_NON_BLOCKING);
    return cuda_check(cuda, status, "cuStreamCreate", err, "making a queue");
}

struct cuda *cuda_open(int ordinal, struct error *err)
{
    struct cuda *cuda = memory_new(1, sizeof *cuda);
    cuda->ordinal = ordinal;
    if (cuda_driver_open(&cuda->driver, err) && open_device(cuda, err) && open_context(cuda, err))
        return cuda;
    cuda_close(cuda);
    return NULL;
}

// A switch for tests: NIBBLE_LAUNCHES=FILE gets the name of every function that was launched, or captured, and of every
// product, each with how often.
static void write_launches(const struct cuda *cuda)
{
    const char *path = getenv("NIBBLE_LAUNCHES");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    for (int i = 0; i < cuda->function_count; i++)
        if (cuda->functions[i]->launches)
            fprintf(file, "%s %lu\n", cuda->functions[i]->name, cuda->functions[i]->launches);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (cuda->product_count[i])
            fprintf(file, "%s %lu\n", cuda_product_name((enum dtype)i), cuda->product_count[i]);
    fclose(file);
}

void cuda_close(struct cuda *cuda)
{
    if (!cuda)
        return;
    write_launches(cuda);
    if (cuda->context) {
        cuda_enter(cuda);
        cuda_products_close(cuda);
        for (int i = 0; i < cuda->module_count; i++)
            cuda->driver.module_free(cuda->modules[i]);
        if (cuda->stream)
            cuda->driver.stream_free(cuda->stream);
        cuda->driver.context_use(NULL);
        cuda->driver.context_release(cuda->device);
    }
    for (int i = 0; i < cuda->function_count; i++) {
        free(cuda->functions[i]->name);
        free(cuda->functions[i]);
    }
    free(cuda->functions);
    map_free(&cuda->function_index);
    free(cuda->modules);
    free(cuda);
}

int cuda_sm(const struct cuda *cuda) { return cuda->sm; }

int cuda_multiprocessors(const struct cuda *cuda) { return cuda->facts.multiprocessors; }

int cuda_shared_bytes(const struct cuda *cuda) { return cuda->facts.shared_bytes; }

int cuda_driver_version(const struct cuda *cuda) { return cuda->driver_version; }

// ---- kernels ----

bool cuda_load_image(struct cuda *cuda, const void *image, size_t bytes, const char *name, struct error *err)
{
    static const int options[] = { CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES };
    char log[JIT_LOG_BYTES] = "";
    void *values[] = { log, (void *)(uintptr_t)sizeof log };
    struct cuda_module *module;
    char *text = memory_new(1, bytes + 1); // PTX must be NUL-terminated
    memcpy(text, image, bytes);
    cuda_enter(cuda);
    int status = cuda->driver.module_load(&module, text, sizeof options / sizeof *options, options, values);
    free(text);
    if (!cuda_check(cuda, status, "cuModuleLoadDataEx", err, "loading the kernels of %s for sm_%d%s%.*s", name,
                    cuda->sm, *log ? ": " : "", (int)strcspn(log, "\n"), log))
        return false;
    cuda->modules = memory_grow(cuda->modules, (size_t)cuda->module_count + 1, sizeof *cuda->modules);
    cuda->modules[cuda->module_count++] = module;
    return true;
}

static struct cuda_entry *find_entry(struct cuda *cuda, const char *name, struct error *err)
{
    struct cuda_entry *entry = NULL;
    int status = CUDA_NOT_FOUND;
    for (int i = cuda->module_count - 1; i >= 0 && status == CUDA_NOT_FOUND; i--) // newest first
        status = cuda->driver.module_entry(&entry, cuda->modules[i], name);
    if (status == CUDA_NOT_FOUND)
        return fail(err, "GPU %d: no kernel is called %s in what is loaded for sm_%d", cuda->ordinal, name, cuda->sm),
               NULL;
    return cuda_check(cuda, status, "cuModuleGetFunction", err, "looking for the kernel %s", name) ? entry : NULL;
}

// Opts in to the device's maximum of dynamic shared memory per block (beyond 48 KB).
static bool allow_shared_memory(struct cuda *cuda, const struct cuda_function *function, struct error *err)
{
    int fixed = 0;
    int status = cuda->driver.entry_attribute(&fixed, CUDA_ENTRY_STATIC_SHARED_BYTES, function->entry);
    if (!cuda_check(cuda, status, "cuFuncGetAttribute", err, "the shared memory of %s", function->name))
        return false;
    int rest = cuda->facts.shared_bytes - fixed;
    status = cuda->driver.entry_set(function->entry, CUDA_ENTRY_DYNAMIC_SHARED_BYTES, rest);
    return cuda_check(cuda, status, "cuFuncSetAttribute", err, "%d bytes of shared memory for %s", rest,
                      function->name);
}

struct cuda_function *cuda_find(struct cuda *cuda, const char *name, struct error *err)
{
    int64_t known;
    if (map_get(&cuda->function_index, bytes_of(name), &known))
        return cuda->functions[known];
    cuda_enter(cuda);
    struct cuda_function found = { .name = (char *)name, .entry = find_entry(cuda, name, err) };
    if (!found.entry || !allow_shared_memory(cuda, &found, err))
        return NULL;
    size_t offset;
    int compiled_for;
    if (cuda->driver.entry_parameter(found.entry, 0, &offset, &found.params_bytes))
        found.params_bytes = 0;
    found.waits = !cuda->driver.entry_attribute(&compiled_for, CUDA_ENTRY_COMPILED_FOR, found.entry)
        && compiled_for >= SM_WITH_OVERLAP;
    struct cuda_function *function = memory_new(1, sizeof *function);
    *function = found;
    function->name = memory_new(1, strlen(name) + 1);
    memcpy(function->name, name, strlen(name));
    map_put(&cuda->function_index, bytes_of(function->name), cuda->function_count);
    cuda->functions = memory_grow(cuda->functions, (size_t)cuda->function_count + 1, sizeof *cuda->functions);
    return cuda->functions[cuda->function_count++] = function;
}

bool cuda_launch(struct cuda *cuda, const struct cuda_launch *launch, struct error *err)
{
    const struct cuda_function *function = launch->function;
    const unsigned *grid = launch->grid;
    assert(launch->params_bytes == function->params_bytes); // gcc and nvcc agree on the struct
    assert(grid[0] && grid[1] && grid[2] && launch->block);
    struct cuda_launch_attribute programmatic = { .id = CUDA_LAUNCH_PROGRAMMATIC, .value.allowed = 1 };
    struct cuda_launch_config config = {
        .grid = { grid[0], grid[1], grid[2] },
        .block = { launch->block, 1, 1 },
        .shared_bytes = launch->shared_bytes,
        .stream = cuda->stream,
        .attributes = &programmatic,
        .attribute_count = launch->overlap && function->waits,
    };
    void *params[] = { (void *)launch->params };
    cuda_enter(cuda);
    int status = cuda->driver.launch(&config, function->entry, function->params_bytes ? params : NULL, NULL);
    if (!cuda_check(cuda, status, "cuLaunchKernelEx", err,
                    "starting %s with %u x %u x %u blocks of %u threads and %u bytes of shared memory", function->name,
                    grid[0], grid[1], grid[2], launch->block, launch->shared_bytes))
        return false;
    cuda->last = function->name;
    launch->function->launches++;
    return true;
}

// ---- memory ----

static void explain_no_room(struct cuda *cuda, size_t bytes, const char *what, struct error *err)
{
    size_t free = 0, total = 0;
    cuda->driver.memory_info(&free, &total);
    fail(err, "GPU %d has no room for %s: %.1f MB are needed, %.1f MB of its %.0f MB are free", cuda->ordinal, what,
         megabytes(bytes), megabytes(free), megabytes(total));
}

void *cuda_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err)
{
    void *memory = NULL;
    size_t at_least_one = bytes ? bytes : 1;
    assert(!cuda->capturing);
    cuda_enter(cuda);
    int status = cuda->driver.memory_new(&memory, at_least_one);
    if (status == CUDA_OUT_OF_MEMORY)
        return explain_no_room(cuda, bytes, what, err), NULL;
    if (!cuda_check(cuda, status, "cuMemAlloc", err, "%zu bytes for %s", bytes, what))
        return NULL;
    status = cuda->driver.memory_set(memory, 0, at_least_one, cuda->stream);
    if (cuda_check(cuda, status, "cuMemsetD8Async", err, "clearing %s", what))
        return memory;
    cuda->driver.memory_free(memory);
    return NULL;
}

void cuda_free(struct cuda *cuda, void *memory)
{
    if (!memory)
        return;
    cuda_enter(cuda);
    cuda->driver.memory_free(memory);
}

void *cuda_host_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err)
{
    void *memory = NULL;
    cuda_enter(cuda);
    int status = cuda->driver.host_new(&memory, bytes ? bytes : 1, 0);
    return cuda_check(cuda, status, "cuMemHostAlloc", err, "%zu bytes of the host's memory for %s", bytes, what)
        ? memory
        : NULL;
}

void cuda_host_free(struct cuda *cuda, void *memory)
{
    if (!memory)
        return;
    cuda_enter(cuda);
    cuda->driver.host_free(memory);
}

bool cuda_upload(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    cuda_enter(cuda);
    int status = bytes ? cuda->driver.upload(to, from, bytes, cuda->stream) : CUDA_SUCCESS;
    return cuda_check(cuda, status, "cuMemcpyHtoDAsync", err, "copying %zu bytes to it", bytes);
}

bool cuda_download(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    cuda_enter(cuda);
    int status = bytes ? cuda->driver.download(to, from, bytes, cuda->stream) : CUDA_SUCCESS;
    return cuda_check(cuda, status, "cuMemcpyDtoHAsync", err, "copying %zu bytes from it", bytes);
}

bool cuda_copy(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    cuda_enter(cuda);
    int status = bytes ? cuda->driver.copy(to, from, bytes, cuda->stream) : CUDA_SUCCESS;
    return cuda_check(cuda, status, "cuMemcpyDtoDAsync", err, "copying %zu bytes within it", bytes);
}

bool cuda_wait(struct cuda *cuda, struct error *err)
{
    cuda_enter(cuda);
    return cuda_check(cuda, cuda->driver.stream_wait(cuda->stream), "cuStreamSynchronize", err, "waiting for it");
}

// ---- graphs ----

bool cuda_capture_begin(struct cuda *cuda, struct error *err)
{
    assert(!cuda->capturing);
    cuda_enter(cuda);
    int status = cuda->driver.capture_begin(cuda->stream, CUDA_CAPTURE_RELAXED);
    return cuda->capturing = cuda_check(cuda, status, "cuStreamBeginCapture", err, "capturing a step");
}

struct cuda_graph *cuda_capture_end(struct cuda *cuda, struct error *err)
{
    struct cuda_capture *capture = NULL;
    struct cuda_graph *graph = NULL;
    assert(cuda->capturing);
    cuda->capturing = false;
    cuda_enter(cuda);
    int status = cuda->driver.capture_end(cuda->stream, &capture);
    if (!cuda_check(cuda, status, "cuStreamEndCapture", err, "capturing a step"))
        return NULL;
    status = cuda->driver.graph_new(&graph, capture, 0);
    cuda->driver.capture_free(capture);
    if (!cuda_check(cuda, status, "cuGraphInstantiate", err, "making a captured step ready"))
        return NULL;
    status = cuda->driver.graph_upload(graph, cuda->stream);
    if (cuda_check(cuda, status, "cuGraphUpload", err, "making a captured step ready"))
        return graph;
    cuda->driver.graph_free(graph);
    return NULL;
}

bool cuda_replay(struct cuda *cuda, struct cuda_graph *graph, struct error *err)
{
    cuda_enter(cuda);
    int status = cuda->driver.graph_run(graph, cuda->stream);
    if (!cuda_check(cuda, status, "cuGraphLaunch", err, "running a captured step"))
        return false;
    cuda->last = "a captured step";
    return true;
}

void cuda_graph_free(struct cuda *cuda, struct cuda_graph *graph)
{
    if (!graph)
        return;
    cuda_enter(cuda);
    cuda->driver.graph_free(graph);
}

// ---- events ----

struct cuda_event *cuda_event_new(struct cuda *cuda, struct error *err)
{
    struct cuda_event *event = NULL;
    cuda_enter(cuda);
    int status = cuda->driver.event_new(&event, 0);
    return cuda_check(cuda, status, "cuEventCreate", err, "making a marker") ? event : NULL;
}

void cuda_event_free(struct cuda *cuda, struct cuda_event *event)
{
    if (!event)
        return;
    cuda_enter(cuda);
    cuda->driver.event_free(event);
}

bool cuda_event_record(struct cuda *cuda, struct cuda_event *event, struct error *err)
{
    cuda_enter(cuda);
    return cuda_check(cuda, cuda->driver.event_record(event, cuda->stream), "cuEventRecord", err, "setting a marker");
}

bool cuda_event_wait(struct cuda *cuda, struct cuda_event *event, struct error *err)
{
    cuda_enter(cuda);
    return cuda_check(cuda, cuda->driver.event_wait(event), "cuEventSynchronize", err, "waiting for a marker");
}

bool cuda_event_seconds(struct cuda *cuda, struct cuda_event *from, struct cuda_event *to, double *seconds,
                        struct error *err)
{
    float milliseconds = 0;
    cuda_enter(cuda);
    int status = cuda->driver.event_elapsed(&milliseconds, from, to);
    *seconds = (double)milliseconds / 1000;
    return cuda_check(cuda, status, "cuEventElapsedTime", err, "reading the time between two markers");
}
