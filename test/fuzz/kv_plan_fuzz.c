// SPDX-License-Identifier: Apache-2.0
// Any file for --kv-plan.
#include "plan/kv_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_plan plan;
    struct arena arena = { 0 };
    struct error err;
    kv_plan_read((struct bytes){ (const char *)data, size }, &arena, &plan, &err);
    arena_free(&arena);
    return 0;
}
