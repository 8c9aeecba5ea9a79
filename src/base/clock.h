// SPDX-License-Identifier: Apache-2.0
// base/clock.h: seconds of a clock that only goes forward (CLOCK_MONOTONIC), from some moment on.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

static inline double clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
