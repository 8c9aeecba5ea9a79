// SPDX-License-Identifier: Apache-2.0
#include "server/budget.h"

#include <assert.h>

#include "device/device.h"

static const size_t default_share = 8, default_bytes_min = (size_t)64 << 20, default_bytes_max = (size_t)2 << 30;

size_t budget_default_bytes(void)
{
    struct device machine;
    struct error ignored;
    size_t bytes = device_open_cpu(&machine, &ignored) ? machine.memory_free_bytes / default_share : 0;
    return bytes < default_bytes_min ? default_bytes_min : bytes > default_bytes_max ? default_bytes_max : bytes;
}

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

void budget_force(struct budget *budget, size_t bytes) { atomic_fetch_add(&budget->used_bytes, bytes); }

void budget_give_back(struct budget *budget, size_t bytes)
{
    size_t before = atomic_fetch_sub(&budget->used_bytes, bytes);
    assert(before >= bytes);
    (void)before;
}

size_t budget_used(const struct budget *budget) { return atomic_load(&budget->used_bytes); }
