// SPDX-License-Identifier: Apache-2.0
// test/unit/fake_cuda.h: what the stand-in for libcuda.so.1 can be told, and what it tells.
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include "device/cuda_driver.h"

enum { FAKE_CUDA_CALLS_MAX = 64 };

struct fake_cuda {
    const char *failing; // the symbol whose calls fail; NULL: none
    int status;          // with which
    int version;         // of the driver
    int devices;
    int sm, multiprocessors, shared_bytes; // of them
    size_t free_bytes;                     // more is not given out
    int live; // contexts, streams, events, graphs, modules and memory that nobody has given back
    bool capturing;
    int launches, replays;                   // launches while capturing are not run
    const char *queued[FAKE_CUDA_CALLS_MAX]; // the symbols of copies, replays, records and waits, in order
    int queued_count;
    const void *waited; // the event that was waited for last
    struct cuda_launch_config last;
    size_t params_bytes; // of every kernel
    int compiled_for;    // every kernel
    int dynamic_shared_bytes;
};

#define FAKE_CUDA_WELL           \
    { .version = 13000,          \
      .devices = 2,              \
      .sm = 90,                  \
      .multiprocessors = 132,    \
      .shared_bytes = 227 << 10, \
      .free_bytes = 1 << 30,     \
      .params_bytes = 8,         \
      .compiled_for = 90 }

extern struct fake_cuda fake_cuda; // of the loaded library: dlsym

#endif
