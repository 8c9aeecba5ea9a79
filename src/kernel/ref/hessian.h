// SPDX-License-Identifier: Apache-2.0
// kernel/ref/hessian.h: the Hessian of GPTQ, H = X' X with one token of a text in each row of X (up to a factor the
// second derivative of the layer's squared error by its weights), and its Cholesky factor.
//   (1) a Hessian is (size, size), where size is the number of columns rounded up to whole tiles; only the upper half
//       with the diagonal is used
//   (2) results do not depend on the number of threads
#ifndef KERNEL_REF_HESSIAN_H
#define KERNEL_REF_HESSIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/thread_pool.h"

size_t hessian_size(size_t columns);

// Adds rows of x, (any, columns), to the Hessian: the first `count`, or those listed in `rows`. Each chunk of the
// thread pool does its own share of the columns.
void hessian_add(float *hessian, size_t columns, const float *x, const int32_t *rows, int count, int chunk, int chunks);

// Damping of the diagonal: the text is short, and correlations in it may not hold elsewhere.
struct hessian_damping {
    float own;    // relative to each column's own diagonal element
    float common; // relative to the mean of the diagonal
};

// Replaces the Hessian by the upper triangular R with R R' = M / m, where M is the damped Hessian and m the mean of the
// undamped diagonal. False if the Hessian is zero.
bool hessian_cholesky(float *hessian, size_t columns, struct hessian_damping damping, struct thread_pool *pool);

#endif
