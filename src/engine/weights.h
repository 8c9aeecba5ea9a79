// SPDX-License-Identifier: Apache-2.0
// engine/weights.h: from tensors in the mapped file to what kernels read. Matrices stay where they are; norm weights
// and biases, a few kilobytes, are converted to f32 and checked.
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include "base/error.h"
#include "kernel/op.h"
#include "model/model.h"

// The matrix where it lies. An overall scale (NVFP4 has one) must be a positive number.
bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err);

// All values as f32 with `offset` added, each of them finite. A NULL tensor gives *out = NULL.
bool weights_vector(struct arena *arena, const struct tensor *tensor, float offset, const float **out,
                    struct error *err);

// Reads every matrix once, so that the first token does not wait for the disk.
void weights_read(const struct model *model, size_t total_bytes, void (*progress)(void *context, double done),
                  void *context);

#endif
