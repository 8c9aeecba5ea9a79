// SPDX-License-Identifier: Apache-2.0
// kernel/ref/hessian.h: the second hessian of what a matrix is multiplied with: for every two of its columns the sum,
// over the tokens of a text, of the products of their inputs. They tell what a weight that is off costs, and by which
// other weights that can be made up for.
//   (1) a matrix of hessian is (size, size), where size is the columns' number rounded up to whole tiles; only its
//       upper half, the diagonal included, means anything
//   (2) the same bits come from any number of threads
#ifndef KERNEL_REF_HESSIAN_H
#define KERNEL_REF_HESSIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/thread_pool.h"

size_t hessian_size(size_t columns);

// Adds those of some rows of x, (any, columns): of the first `count`, or of those whose numbers are in `rows`. Each
// part of the team does its own share of the columns.
void hessian_add(float *hessian, size_t columns, const float *x, const int32_t *rows, int count, int part, int parts);

// How far hessian are believed. A text is short, and what two inputs have had in common in it they need not have
// elsewhere: the diagonal is raised.
struct hessian_damping {
    float own;    // by this share of each column's own moment
    float common; // and by this share of the mean over all columns
};

// Moments become the upper triangular R with R R' = M / m, where M are they with a raised diagonal and m is the mean of
// the diagonal before. False: there was nothing but zeros.
bool hessian_cholesky(float *hessian, size_t columns, struct hessian_damping damping, struct thread_pool *team);

#endif
