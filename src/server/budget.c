// SPDX-License-Identifier: Apache-2.0
#include "server/budget.h"

#include <assert.h>

void budget_open(struct budget *budget, size_t limit_bytes)
{
    budget->limit_bytes = limit_bytes;
    atomic_init(&budget->used_bytes, 0);
}

bool budget_take(struct budget *budget, size_t bytes)
{
    size_t used = atomic_load(&budget->used_bytes);
    do {
        if (bytes > budget->limit_bytes || used > budget->limit_bytes - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, used + bytes));
    return true;
}

void budget_give_back(struct budget *budget, size_t bytes)
{
    size_t before = atomic_fetch_sub(&budget->used_bytes, bytes);
    assert(before >= bytes);
    (void)before;
}

size_t budget_used(const struct budget *budget)
{
    return atomic_load(&budget->used_bytes);
}
