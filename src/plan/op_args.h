// SPDX-License-Identifier: Apache-2.0
// plan/op_args.h: an op's arguments as far as a plan knows them: all numbers and the shapes of its matrices, no
// addresses. Shapes, costs and binding read them.
#ifndef PLAN_OP_ARGS_H
#define PLAN_OP_ARGS_H

#include "plan/plan.h"

void plan_op_args(const struct plan *plan, int op, union op_args *out);

// Values from one rank's part of a buffer of parts to the next one's; buffers are of equal parts for each rank.
size_t plan_rank_stride(const struct plan *plan, enum buffer buffer);

#endif
