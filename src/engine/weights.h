// SPDX-License-Identifier: Apache-2.0
// engine/weights.h: from tensors in the mapped file to what kernels read. Matrices are packed in the order in which
// kernels read them, or stay where they are; norm weights and biases, a few kilobytes, become f32 and are checked.
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include "device/team.h"
#include "plan/plan.h"

// The matrix where it lies. An overall scale (NVFP4 has one) must be a positive number.
bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err);

// All values as f32 with `offset` added, each of them finite. A NULL tensor gives *out = NULL.
bool weights_vector(struct arena *arena, const struct tensor *tensor, float offset, const float **out,
                    struct error *err);

// Packs what the plan says is packed, on the whole team, and reads the rest once, so that the first token does not wait
// for the disk. Pages of the file that are packed are given back as soon as they are.
void weights_load(const struct checkpoint *checkpoint, const struct plan *plan, uint8_t *packed, struct team *team,
                  void (*progress)(void *context, double done), void *context);

#endif
