// SPDX-License-Identifier: Apache-2.0
// device/cuda.h: a wrapper of the CUDA driver API for one GPU: memory, kernels, one stream, graphs, events. The driver
// library is opened at run time. Errors name the call, its purpose and the driver's message. Device addresses are plain
// pointers that the host must not dereference. Everything is queued on one stream, in order; only functions that say so
// wait.
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h"

struct cuda;
struct cuda_function;
struct cuda_graph;

// Opens the GPU with this ordinal; loads no kernels.
struct cuda *cuda_open(int ordinal, struct error *err);
void cuda_close(struct cuda *cuda);

int cuda_sm(const struct cuda *cuda);
int cuda_multiprocessors(const struct cuda *cuda);
int cuda_shared_bytes(const struct cuda *cuda);   // per block, with opt-in
int cuda_driver_version(const struct cuda *cuda); // 13000 for CUDA 13.0

// Loads a cubin or PTX; the name is for error messages.
bool cuda_load_image(struct cuda *cuda, const void *image, size_t bytes, const char *name, struct error *err);
// A kernel of the loaded images; NULL if none has that name.
struct cuda_function *cuda_find(struct cuda *cuda, const char *name, struct error *err);

// Zeroed device memory, and pinned host memory. NULL if there is not enough.
void *cuda_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err);
void cuda_free(struct cuda *cuda, void *memory);
void *cuda_host_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err);
void cuda_host_free(struct cuda *cuda, void *memory);

// Asynchronous. Pageable host memory (not from cuda_host_new) is read before these return.
bool cuda_upload(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err);
bool cuda_download(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err);
bool cuda_copy(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err); // on the device
bool cuda_wait(struct cuda *cuda, struct error *err); // synchronises the stream; reports failures of queued work

struct cuda_launch {
    struct cuda_function *function;
    unsigned grid[3], block, shared_bytes;
    const void *params;
    size_t params_bytes;
    bool overlap; // programmatic dependent launch: may start while the previous kernel ends (sm_90 and later)
};
bool cuda_launch(struct cuda *cuda, const struct cuda_launch *launch, struct error *err);

// CUDA graphs: work queued between begin and end is captured instead of run, and replayed as one launch.
bool cuda_capture_begin(struct cuda *cuda, struct error *err);
struct cuda_graph *cuda_capture_end(struct cuda *cuda, struct error *err);
bool cuda_replay(struct cuda *cuda, struct cuda_graph *graph, struct error *err);
void cuda_graph_free(struct cuda *cuda, struct cuda_graph *graph);

// Events: timing, and waiting for a part of the queued work.
struct cuda_event;
struct cuda_event *cuda_event_new(struct cuda *cuda, struct error *err);
void cuda_event_free(struct cuda *cuda, struct cuda_event *event);
bool cuda_event_record(struct cuda *cuda, struct cuda_event *event, struct error *err);
bool cuda_event_wait(struct cuda *cuda, struct cuda_event *event, struct error *err);
bool cuda_event_seconds(struct cuda *cuda, struct cuda_event *from, struct cuda_event *to, double *seconds,
                        struct error *err);

// GEMM by cuBLASLt: y (rows, out) = factor * x (rows, in) w^T, all row-major. An error if cuBLASLt is not installed.
struct cuda_product {
    enum dtype dtype; // of x and w: BF16, F16 or NVFP4_GGUF
    int rows, in, out;
    const void *x, *w;               // these and y are 16-byte aligned
    const void *x_scales, *w_scales; // NVFP4's block scales, in the layout of kernel/nvfp4.h; 16-byte aligned
    float factor;                    // alpha; of NVFP4 its global scale
    void *y;
    bool f32_out;    // y is f32; otherwise y has the type of x, or bfloat16 for NVFP4
    bool accumulate; // y += x w^T (beta = 1)
};
const char *cuda_product_name(enum dtype dtype); // as rows list it: "cublaslt_bf16"
bool cuda_multiply(struct cuda *cuda, const struct cuda_product *product, struct error *err);

// Opens cuBLASLt and allocates its workspace; otherwise the first GEMM does.
bool cuda_prepare_products(struct cuda *cuda, struct error *err);

#endif
