// SPDX-License-Identifier: Apache-2.0
// device/cuda_driver.h: the part of the CUDA driver API that nibble uses. It is declared here and opened at run time,
// so that nibble builds and starts without NVIDIA's software. The driver's handles are opaque structs; device addresses
// are pointers that the host must not dereference.
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include <stddef.h>

#include "device/cuda.h"

struct cuda_context;
struct cuda_stream;
struct cuda_module;
struct cuda_entry;   // a kernel
struct cuda_capture; // CUgraph: as captured; struct cuda_graph is the instantiated CUgraphExec

enum cuda_status { // CUresult; only the values that nibble distinguishes
    CUDA_SUCCESS = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_FOUND = 500,
    CUDA_ILLEGAL_ADDRESS = 700, // this and the following: errors of a running kernel, reported by a later call
    CUDA_LAUNCH_TIMEOUT = 702,
    CUDA_ASSERT = 710,
    CUDA_HARDWARE_STACK_ERROR = 714,
    CUDA_ILLEGAL_INSTRUCTION = 715,
    CUDA_MISALIGNED_ADDRESS = 716,
    CUDA_INVALID_ADDRESS_SPACE = 717,
    CUDA_INVALID_PC = 718,
    CUDA_LAUNCH_FAILED = 719,
};

enum cuda_attribute {
    CUDA_DEVICE_MULTIPROCESSORS = 16,
    CUDA_DEVICE_CAPABILITY_MAJOR = 75,
    CUDA_DEVICE_CAPABILITY_MINOR = 76,
    CUDA_DEVICE_SHARED_BYTES = 97,
    CUDA_ENTRY_STATIC_SHARED_BYTES = 1,
    CUDA_ENTRY_COMPILED_FOR = 5, // PTX version: 90 for compute_90
    CUDA_ENTRY_DYNAMIC_SHARED_BYTES = 8,
};

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_CAPTURE_RELAXED = 2, // lets libraries load modules during capture
    CUDA_JIT_ERROR_LOG = 5,
    CUDA_JIT_ERROR_LOG_BYTES = 6,
    CUDA_LAUNCH_PROGRAMMATIC = 6, // programmatic dependent launch
};

struct cuda_launch_attribute {
    int id;
    int padding;
    union {
        int allowed;
        char bytes[64];
    } value;
};

struct cuda_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    struct cuda_stream *stream;
    struct cuda_launch_attribute *attributes;
    unsigned attribute_count;
};

// name, symbol, arguments. All return 0, or an enum cuda_status.
// clang-format off
#define CUDA_DRIVER_CALLS(X)                                                                                           \
    X(init, "cuInit", unsigned flags)                                                                                  \
    X(driver_version, "cuDriverGetVersion", int *version)                                                              \
    X(error_name, "cuGetErrorName", int status, const char **name)                                                     \
    X(error_text, "cuGetErrorString", int status, const char **text)                                                   \
    X(device_count, "cuDeviceGetCount", int *count)                                                                    \
    X(device_get, "cuDeviceGet", int *device, int ordinal)                                                             \
    X(device_name, "cuDeviceGetName", char *name, int len, int device)                                                 \
    X(device_attribute, "cuDeviceGetAttribute", int *value, enum cuda_attribute attribute, int device)                 \
    X(device_memory, "cuDeviceTotalMem_v2", size_t *bytes, int device)                                                 \
    X(context_retain, "cuDevicePrimaryCtxRetain", struct cuda_context **context, int device)                           \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", int device)                                                     \
    X(context_use, "cuCtxSetCurrent", struct cuda_context *context)                                                    \
    X(memory_info, "cuMemGetInfo_v2", size_t *free, size_t *total)                                                     \
    X(memory_new, "cuMemAlloc_v2", void **memory, size_t bytes)                                                        \
    X(memory_free, "cuMemFree_v2", void *memory)                                                                       \
    X(memory_set, "cuMemsetD8Async", void *memory, unsigned char value, size_t bytes, struct cuda_stream *stream)      \
    X(host_new, "cuMemHostAlloc", void **memory, size_t bytes, unsigned flags)                                         \
    X(host_free, "cuMemFreeHost", void *memory)                                                                        \
    X(upload, "cuMemcpyHtoDAsync_v2", void *to, const void *from, size_t bytes, struct cuda_stream *stream)            \
    X(download, "cuMemcpyDtoHAsync_v2", void *to, const void *from, size_t bytes, struct cuda_stream *stream)          \
    X(copy, "cuMemcpyDtoDAsync_v2", void *to, const void *from, size_t bytes, struct cuda_stream *stream)              \
    X(stream_new, "cuStreamCreate", struct cuda_stream **stream, unsigned flags)                                       \
    X(stream_free, "cuStreamDestroy_v2", struct cuda_stream *stream)                                                   \
    X(stream_wait, "cuStreamSynchronize", struct cuda_stream *stream)                                                  \
    X(capture_begin, "cuStreamBeginCapture_v2", struct cuda_stream *stream, int mode)                                  \
    X(capture_end, "cuStreamEndCapture", struct cuda_stream *stream, struct cuda_capture **capture)                    \
    X(capture_free, "cuGraphDestroy", struct cuda_capture *capture)                                                    \
    X(graph_new, "cuGraphInstantiateWithFlags", struct cuda_graph **graph, struct cuda_capture *capture,               \
      unsigned long long flags)                                                                                        \
    X(graph_upload, "cuGraphUpload", struct cuda_graph *graph, struct cuda_stream *stream)                             \
    X(graph_run, "cuGraphLaunch", struct cuda_graph *graph, struct cuda_stream *stream)                                \
    X(graph_free, "cuGraphExecDestroy", struct cuda_graph *graph)                                                      \
    X(event_new, "cuEventCreate", struct cuda_event **event, unsigned flags)                                           \
    X(event_free, "cuEventDestroy_v2", struct cuda_event *event)                                                       \
    X(event_record, "cuEventRecord", struct cuda_event *event, struct cuda_stream *stream)                             \
    X(event_wait, "cuEventSynchronize", struct cuda_event *event)                                                      \
    X(event_elapsed, "cuEventElapsedTime", float *milliseconds, struct cuda_event *from, struct cuda_event *to)        \
    X(module_load, "cuModuleLoadDataEx", struct cuda_module **module, const void *image, unsigned count,               \
      const int *options, void **values)                                                                               \
    X(module_free, "cuModuleUnload", struct cuda_module *module)                                                       \
    X(module_entry, "cuModuleGetFunction", struct cuda_entry **entry, struct cuda_module *module, const char *name)    \
    X(entry_attribute, "cuFuncGetAttribute", int *value, enum cuda_attribute attribute, struct cuda_entry *entry)      \
    X(entry_set, "cuFuncSetAttribute", struct cuda_entry *entry, enum cuda_attribute attribute, int value)             \
    X(entry_parameter, "cuFuncGetParamInfo", struct cuda_entry *entry, size_t index, size_t *offset, size_t *bytes)    \
    X(launch, "cuLaunchKernelEx", const struct cuda_launch_config *config, struct cuda_entry *entry, void **params,    \
      void **extra)
// clang-format on

struct cuda_driver {
#define X(name, symbol, ...) int (*name)(__VA_ARGS__);
    CUDA_DRIVER_CALLS(X)
#undef X
};

// Loads and initialises the driver; may be called again, and never unloads it. False if the driver is missing, too old
// or does not start.
bool cuda_driver_open(struct cuda_driver *driver, struct error *err);

// Reads a device's properties and handle; returns an enum cuda_status.
int cuda_driver_describe(const struct cuda_driver *driver, int ordinal, int *device, struct cuda_device *found);

// The driver's name and text of a status: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
struct cuda_status_text {
    char text[192];
};
struct cuda_status_text cuda_driver_status_text(const struct cuda_driver *driver, int status);

#endif
