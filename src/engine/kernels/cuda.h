// SPDX-License-Identifier: Apache-2.0
// engine/kernels/cuda.h: the kernel test harness for GPUs: it uploads the arguments of a row, launches it and downloads
// the results.
#ifndef ENGINE_KERNELS_CUDA_H
#define ENGINE_KERNELS_CUDA_H

#include "engine/gpu/batch.h"
#include "kernel/check.h"

// Lets check_run run rows on a GPU.
struct kernels_cuda {
    struct check_device device; // first, so that it is also this
    struct cuda *cuda;          // borrowed, with the images of this build
};

struct kernels_cuda kernels_cuda_on(struct cuda *cuda);

// One test case there. Its operands are separate allocations, so that a memory checker sees their ends; those that are
// written lie between guard bytes.
struct gpu_testcase {
    struct cuda *cuda;
    struct testcase *testcase;
    union op_args *args; // with device addresses
    struct batch batch;
    struct cuda_batch view;
    void *batch_memory;
    struct gpu_buffer {
        const void *host;
        uint8_t *memory, *address; // the first byte, guards included, and what the arguments have
        size_t bytes;              // without guards
        size_t lead;               // bytes before the address that belong to it
        int output;                // of the test case; -1: it is only read
        struct testcase_operand operand;
    } buffers[TESTCASE_OPERANDS_MAX];
    int buffer_count;
    struct cuda_call calls[CUDA_CALLS_MAX];
    int call_count;
};

bool gpu_testcase_open(struct gpu_testcase *there, struct cuda *cuda, const struct kernel *kernel,
                       struct testcase *testcase, struct error *err);
// The same once more, in memory of its own; `from` is closed after it.
bool gpu_testcase_copy(struct gpu_testcase *there, const struct gpu_testcase *from, const struct kernel *kernel,
                       struct error *err);
void gpu_testcase_close(struct gpu_testcase *there);

bool gpu_testcase_launch(const struct gpu_testcase *there, struct error *err); // queues what the row describes

// Seconds that one launch takes, on operands that the device's cache does not hold.
bool gpu_testcase_time(struct cuda *cuda, const struct kernel *kernel, struct testcase *testcase, double *seconds,
                       struct error *err);

// Waits, and puts what was written into the test case's outputs.
bool gpu_testcase_read(const struct gpu_testcase *there, bool *strayed, struct error *err);

#endif
