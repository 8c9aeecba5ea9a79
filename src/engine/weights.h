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

// Packs a matrix on the whole team into host memory, slice by slice; pages of the file that were read are given back.
void weights_pack(const struct checkpoint *checkpoint, const struct tensor *tensor,
                  const struct kernel_packing *packing, void *out, struct team *team);

#endif
