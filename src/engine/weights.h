// SPDX-License-Identifier: Apache-2.0
// engine/weights.h: the weight loader: from tensors in the mapped file to operands of kernels. Matrices are packed in
// the order in which kernels read them, or stay where they are; norm weights and biases, a few kilobytes, become f32
// and are checked.
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include "device/thread_pool.h"
#include "plan/plan.h"

// The matrix where it lies, of experts that of the first. An overall scale (NVFP4 has one) must be a positive number;
// those of experts are their own (weights_scales), and the matrix then has 1.
bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err);

// All values as f32 with `offset` added, each of them finite. A NULL tensor gives *out = NULL.
bool weights_vector(struct arena *arena, const struct tensor *tensor, float offset, const float **out,
                    struct error *err);

// One scale for each expert, each a positive number; *out is NULL where they have none.
bool weights_scales(struct arena *arena, const struct op_matrix *matrix, const float **out, struct error *err);

// The number by which the cache divides a layer's keys or values: the largest, where each head has one. NULL: 1.
bool weights_cache_scale(const struct tensor *tensor, float *out, struct error *err);

// Takes one matrix to where the plan has placed it.
struct weights_target {
    bool (*put)(void *context, const struct tensor *tensor, const struct kernel_packing *packing, size_t at,
                struct error *err);
    void *context;
};

// Gives the target every matrix that the plan places, once each, and reads the others once, so that the first token
// does not wait for the disk.
bool weights_load(const struct plan *plan, const struct weights_target *target,
                  void (*progress)(void *context, double done), void *context, struct error *err);

// Makes one matrix in host memory by the whole pool of threads; of experts, the one of that number. The matrix is
// packed, or with NULL unchanged.
bool weights_make(const struct checkpoint *checkpoint, const struct tensor *tensor, int expert,
                  const struct kernel_packing *packing, void *out, struct thread_pool *pool, struct error *err);
int weights_count(const struct tensor *tensor); // of experts, 1: it is a matrix

// Rows [first, first + count), of experts counted through, as they are.
void weights_make_rows(const struct tensor *tensor, int64_t first, int64_t count, void *out, struct thread_pool *pool);

// The pages of the file behind a tensor are not going to be read again.
void weights_release(const struct checkpoint *checkpoint, const struct tensor *tensor);

#endif
