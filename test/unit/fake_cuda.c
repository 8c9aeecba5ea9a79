// SPDX-License-Identifier: Apache-2.0
// test/unit/fake_cuda.c: a library that stands in for libcuda.so.1: two GPUs whose memory is the host's. Kernels do
// nothing. Any call can be told to fail, and it counts what is not given back.
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_cuda fake_cuda = FAKE_CUDA_WELL;

enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, FIXED_SHARED_BYTES = 1024 };

static _Thread_local struct cuda_context *context;

// The beginning of every call: it may be made to fail.
#define BEGIN(symbol)                                            \
    if (fake_cuda.failing && !strcmp(fake_cuda.failing, symbol)) \
        return fake_cuda.status;

#define BEGIN_IN_CONTEXT(symbol) \
    BEGIN(symbol)                \
    if (!context)                \
        return INVALID_CONTEXT;

// The same for what goes into a stream's queue, or waits for it.
#define BEGIN_IN_QUEUE(symbol) \
    BEGIN_IN_CONTEXT(symbol)   \
    fake_cuda.queued[fake_cuda.queued_count++ % FAKE_CUDA_CALLS_MAX] = symbol;

static int make(void *out)
{
    *(void **)out = malloc(1);
    fake_cuda.live++;
    return 0;
}

static int give_back(void *handle)
{
    free(handle);
    fake_cuda.live--;
    return 0;
}

int cuInit(unsigned flags) { BEGIN("cuInit") return (int)flags; }
int cuDriverGetVersion(int *version)
{
    *version = fake_cuda.version;
    return 0;
}

int cuGetErrorName(int status, const char **name)
{
    BEGIN("cuGetErrorName")
    *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
    return 0;
}

int cuGetErrorString(int status, const char **text)
{
    BEGIN("cuGetErrorString")
    *text = status == 700 ? "an illegal memory access was encountered" : "a fake error";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    BEGIN("cuDeviceGetCount") *count = fake_cuda.devices;
    return 0;
}
int cuDeviceGet(int *device, int ordinal)
{
    BEGIN("cuDeviceGet") *device = 10 + ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int len, int device)
{
    BEGIN("cuDeviceGetName")
    snprintf(name, (size_t)len, "Fake GPU %d", device - 10);
    return 0;
}

int cuDeviceGetAttribute(int *value, enum cuda_attribute attribute, int device)
{
    BEGIN("cuDeviceGetAttribute")
    *value = attribute == CUDA_DEVICE_CAPABILITY_MAJOR ? fake_cuda.sm / 10
        : attribute == CUDA_DEVICE_CAPABILITY_MINOR    ? fake_cuda.sm % 10
        : attribute == CUDA_DEVICE_MULTIPROCESSORS     ? fake_cuda.multiprocessors
        : attribute == CUDA_DEVICE_SHARED_BYTES        ? fake_cuda.shared_bytes
                                                       : 0;
    return device < 10 || device >= 10 + fake_cuda.devices ? INVALID_VALUE : 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    BEGIN("cuDeviceTotalMem_v2")
    *bytes = (size_t)(device - 9) << 32;
    return 0;
}

int cuDevicePrimaryCtxRetain(struct cuda_context **out, int device)
{
    (void)device;
    BEGIN("cuDevicePrimaryCtxRetain")
    *out = (struct cuda_context *)&fake_cuda;
    fake_cuda.live++;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    fake_cuda.live--;
    return 0;
}

int cuCtxSetCurrent(struct cuda_context *wanted)
{
    BEGIN("cuCtxSetCurrent")
    context = wanted;
    return 0;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    BEGIN_IN_CONTEXT("cuMemGetInfo_v2")
    *free_bytes = fake_cuda.free_bytes;
    *total = (size_t)1 << 32;
    return 0;
}

int cuMemAlloc_v2(void **memory, size_t bytes)
{
    BEGIN_IN_CONTEXT("cuMemAlloc_v2")
    if (!bytes)
        return INVALID_VALUE;
    if (bytes > fake_cuda.free_bytes || !(*memory = aligned_alloc(256, (bytes + 255) / 256 * 256)))
        return CUDA_OUT_OF_MEMORY;
    memset(*memory, 0xA5, bytes);
    fake_cuda.live++;
    return 0;
}

int cuMemFree_v2(void *memory) { return give_back(memory); }

int cuMemsetD8Async(void *memory, unsigned char value, size_t bytes, struct cuda_stream *stream)
{
    BEGIN_IN_CONTEXT("cuMemsetD8Async")
    (void)stream;
    memset(memory, value, bytes);
    return 0;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuMemHostAlloc")
    (void)flags;
    *memory = calloc(1, bytes);
    fake_cuda.live++;
    return 0;
}

int cuMemFreeHost(void *memory) { return give_back(memory); }

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, struct cuda_stream *stream)
{
    BEGIN_IN_QUEUE("cuMemcpyHtoDAsync_v2")
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, struct cuda_stream *stream)
{
    BEGIN_IN_QUEUE("cuMemcpyDtoHAsync_v2")
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, struct cuda_stream *stream)
{
    BEGIN_IN_CONTEXT("cuMemcpyDtoDAsync_v2")
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

int cuStreamCreate(struct cuda_stream **stream, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuStreamCreate")
    return flags == CUDA_STREAM_NON_BLOCKING ? make(stream) : INVALID_VALUE;
}

int cuStreamDestroy_v2(struct cuda_stream *stream) { return give_back(stream); }
int cuStreamSynchronize(struct cuda_stream *stream) { BEGIN_IN_CONTEXT("cuStreamSynchronize") return stream ? 0 : 1; }

int cuStreamBeginCapture_v2(struct cuda_stream *stream, int mode)
{
    BEGIN_IN_CONTEXT("cuStreamBeginCapture_v2")
    fake_cuda.capturing = true;
    return stream && mode == CUDA_CAPTURE_RELAXED ? 0 : INVALID_VALUE;
}

int cuStreamEndCapture(struct cuda_stream *stream, struct cuda_capture **capture)
{
    fake_cuda.capturing = false;
    BEGIN_IN_CONTEXT("cuStreamEndCapture")
    return stream ? make(capture) : INVALID_VALUE;
}

int cuGraphDestroy(struct cuda_capture *capture) { return give_back(capture); }

int cuGraphInstantiateWithFlags(struct cuda_graph **graph, struct cuda_capture *capture, unsigned long long flags)
{
    BEGIN_IN_CONTEXT("cuGraphInstantiateWithFlags")
    return capture && !flags ? make(graph) : INVALID_VALUE;
}

int cuGraphUpload(struct cuda_graph *graph, struct cuda_stream *stream)
{
    BEGIN_IN_CONTEXT("cuGraphUpload")
    return graph && stream ? 0 : INVALID_VALUE;
}

int cuGraphLaunch(struct cuda_graph *graph, struct cuda_stream *stream)
{
    BEGIN_IN_QUEUE("cuGraphLaunch")
    fake_cuda.replays++;
    return graph && stream ? 0 : INVALID_VALUE;
}

int cuGraphExecDestroy(struct cuda_graph *graph) { return give_back(graph); }
int cuEventCreate(struct cuda_event **event, unsigned flags) { BEGIN("cuEventCreate") return flags ? 1 : make(event); }
int cuEventDestroy_v2(struct cuda_event *event) { return give_back(event); }

int cuEventRecord(struct cuda_event *event, struct cuda_stream *stream)
{
    BEGIN_IN_QUEUE("cuEventRecord")
    return event && stream ? 0 : INVALID_VALUE;
}

int cuEventSynchronize(struct cuda_event *event)
{
    BEGIN_IN_QUEUE("cuEventSynchronize")
    fake_cuda.waited = event;
    return event ? 0 : 1;
}

int cuEventElapsedTime(float *milliseconds, struct cuda_event *from, struct cuda_event *to)
{
    BEGIN_IN_CONTEXT("cuEventElapsedTime")
    *milliseconds = 2.5f;
    return from && to ? 0 : INVALID_VALUE;
}

// An image is text: the names of its kernels, a space between them.
int cuModuleLoadDataEx(struct cuda_module **module, const void *image, unsigned count, const int *options,
                       void **values)
{
    if (fake_cuda.failing && !strcmp(fake_cuda.failing, "cuModuleLoadDataEx") && count == 2
        && options[0] == CUDA_JIT_ERROR_LOG && options[1] == CUDA_JIT_ERROR_LOG_BYTES)
        snprintf(values[0], (size_t)values[1], "line 7: no such instruction\nand more");
    BEGIN_IN_CONTEXT("cuModuleLoadDataEx")
    *module = (struct cuda_module *)strdup(image);
    fake_cuda.live++;
    return 0;
}

int cuModuleUnload(struct cuda_module *module) { return give_back(module); }

int cuModuleGetFunction(struct cuda_entry **entry, struct cuda_module *module, const char *name)
{
    BEGIN_IN_CONTEXT("cuModuleGetFunction")
    *entry = (struct cuda_entry *)strstr((const char *)module, name);
    return *entry ? 0 : CUDA_NOT_FOUND;
}

int cuFuncGetAttribute(int *value, enum cuda_attribute attribute, struct cuda_entry *entry)
{
    BEGIN_IN_CONTEXT("cuFuncGetAttribute")
    *value = attribute == CUDA_ENTRY_COMPILED_FOR ? fake_cuda.compiled_for : FIXED_SHARED_BYTES;
    return entry ? 0 : INVALID_VALUE;
}

int cuFuncSetAttribute(struct cuda_entry *entry, enum cuda_attribute attribute, int value)
{
    BEGIN_IN_CONTEXT("cuFuncSetAttribute")
    fake_cuda.dynamic_shared_bytes = value;
    return entry && attribute == CUDA_ENTRY_DYNAMIC_SHARED_BYTES ? 0 : INVALID_VALUE;
}

int cuFuncGetParamInfo(struct cuda_entry *entry, size_t index, size_t *offset, size_t *bytes)
{
    *offset = 0;
    *bytes = fake_cuda.params_bytes;
    return entry && !index && fake_cuda.params_bytes ? 0 : INVALID_VALUE;
}

int cuLaunchKernelEx(const struct cuda_launch_config *config, struct cuda_entry *entry, void **params, void **extra)
{
    BEGIN_IN_CONTEXT("cuLaunchKernelEx")
    fake_cuda.last = *config;
    fake_cuda.launches += !fake_cuda.capturing;
    return entry && !extra && (params != NULL) == (fake_cuda.params_bytes > 0) ? 0 : INVALID_VALUE;
}
