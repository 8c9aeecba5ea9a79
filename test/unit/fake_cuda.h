// SPDX-License-Identifier: Apache-2.0
// test/unit/fake_cuda.h: what the stand-in for libcuda.so.1 can be told, and what it tells.
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include "device/cuda_driver.h"

struct fake_cuda {
    const char *failing;     // the symbol whose calls fail; NULL: none
    int status;              // with which
    int devices;
    size_t free_bytes;       // more is not given out
    int live;                // contexts, streams, events, graphs, modules and memory that nobody has given back
    bool capturing;
    int launches, replays;   // launches while capturing are not run
    struct cuda_launch_config last;
    size_t params_bytes;     // of every kernel
    int compiled_for;        // every kernel
    int dynamic_shared_bytes;
};

extern struct fake_cuda fake_cuda; // of the loaded library: dlsym

#endif
