// SPDX-License-Identifier: Apache-2.0
// test/unit/fake_blas.h: what the stand-in for libcublasLt.so.13 can be told, and what it tells.
#ifndef TEST_FAKE_BLAS_H
#define TEST_FAKE_BLAS_H

#include <stdbool.h>

struct fake_blas {
    const char *failing; // the symbol whose calls fail; NULL: none
    bool knows_nothing;  // it has no algorithm for anything
    int live;            // what nobody has given back
    int searches;        // for algorithms
    int searched_rows;   // what the last one was for
    bool in_parts;       // whether that one was for sums that may be split
};

extern struct fake_blas fake_blas; // of the loaded library: dlsym

#endif
