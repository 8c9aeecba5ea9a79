// SPDX-License-Identifier: Apache-2.0
// engine/self_test.h: known-answer self-test: before a plan serves requests, each of its kernels is compared with its
// reference on known input.
#ifndef ENGINE_SELF_TEST_H
#define ENGINE_SELF_TEST_H

#include "device/cuda.h"
#include "plan/plan.h"

// Runs every kernel of the plan once per set of formats and head size that the plan gives it, on the same small input
// each time. Returns the first that is wrong, with the sentence in *err, or NULL. A few milliseconds. `cuda` is the
// plan's GPU, NULL for a plan on a CPU.
const struct kernel *self_test_failure(const struct plan *plan, struct cuda *cuda, struct error *err);

#endif
