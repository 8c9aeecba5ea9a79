// SPDX-License-Identifier: Apache-2.0
// device/cuda.h: one NVIDIA GPU at work, through the driver library alone (opened at run time). Every failure is a
// sentence with the call, what it was for and what the driver said. Device addresses are plain pointers that the host
// never follows. Everything is queued on one stream, in order; what waits says so.
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h"

struct cuda;
struct cuda_function;
struct cuda_graph;

// The GPU of this number, with nothing loaded.
struct cuda *cuda_open(int ordinal, struct error *err);
void cuda_close(struct cuda *cuda);

int cuda_sm(const struct cuda *cuda);
int cuda_multiprocessors(const struct cuda *cuda);
int cuda_shared_bytes(const struct cuda *cuda);   // that one block may have, after opting in
int cuda_driver_version(const struct cuda *cuda); // 13000 for CUDA 13.0

// A cubin or PTX with kernels; the name is for sentences.
bool cuda_load_image(struct cuda *cuda, const void *image, size_t bytes, const char *name, struct error *err);
// A function of one of the loaded images. NULL: there is none of that name.
struct cuda_function *cuda_find(struct cuda *cuda, const char *name, struct error *err);

// Device memory, zeroed, and host memory that copies run from at the link's speed. NULL: there is not so much.
void *cuda_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err);
void cuda_free(struct cuda *cuda, void *memory);
void *cuda_host_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err);
void cuda_host_free(struct cuda *cuda, void *memory);

// Queued. Host memory that is not from cuda_host_new is read before these return.
bool cuda_upload(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err);
bool cuda_download(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err);
bool cuda_copy(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err); // on the device
bool cuda_wait(struct cuda *cuda, struct error *err); // until everything queued is done; tells what failed on the way

struct cuda_launch {
    struct cuda_function *function;
    unsigned grid[3], block, shared_bytes;
    const void *params;
    size_t params_bytes;
    bool overlap; // may be started while the one before it ends; it waits by itself, if compiled for sm_90 or later
};
bool cuda_launch(struct cuda *cuda, const struct cuda_launch *launch, struct error *err);

// What is queued between begin and end is not run but kept, to be run as a whole.
bool cuda_capture_begin(struct cuda *cuda, struct error *err);
struct cuda_graph *cuda_capture_end(struct cuda *cuda, struct error *err);
bool cuda_replay(struct cuda *cuda, struct cuda_graph *graph, struct error *err);
void cuda_graph_free(struct cuda *cuda, struct cuda_graph *graph);

// Markers in the stream, for times and for waiting on less than everything.
struct cuda_event;
struct cuda_event *cuda_event_new(struct cuda *cuda, struct error *err);
void cuda_event_free(struct cuda *cuda, struct cuda_event *event);
bool cuda_event_record(struct cuda *cuda, struct cuda_event *event, struct error *err);
bool cuda_event_wait(struct cuda *cuda, struct cuda_event *event, struct error *err);
bool cuda_event_seconds(struct cuda *cuda, struct cuda_event *from, struct cuda_event *to, double *seconds,
                        struct error *err);

// y (rows, out) = factor * x (rows, in) w^T, row by row, by cuBLASLt; a sentence where it is not installed.
struct cuda_product {
    enum dtype dtype; // of x and w: BF16, F16 or NVFP4_GGUF
    int rows, in, out;
    const void *x, *w;               // these and y are 16-byte aligned
    const void *x_scales, *w_scales; // of NVFP4, which lies as kernel/nvfp4.h says; aligned likewise
    float factor;
    void *y;
    bool f32_out;    // y is f32, else of the same type as x, and bfloat16 if that is NVFP4
    bool accumulate; // y is added to
};
const char *cuda_product_name(enum dtype dtype); // as rows list it: "cublaslt_bf16"
bool cuda_multiply(struct cuda *cuda, const struct cuda_product *product, struct error *err);

// Opens cuBLASLt and takes the memory it works in. The first product does it too.
bool cuda_prepare_products(struct cuda *cuda, struct error *err);

#endif
