// SPDX-License-Identifier: Apache-2.0
// kv/pool.h: the pages of one class and who owns them.
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { KV_PAGE_NONE = -1 };

struct kv_pool {
    uint8_t *bytes;      // page_count * page_bytes, touched by the system only as pages come into use
    size_t page_bytes;
    int page_count, free_count;
    int32_t *owners;     // per page: how many tables hold it; 0 is free
    int32_t *free_pages; // a stack
};

bool kv_pool_open(struct kv_pool *pool, size_t page_bytes, int page_count, struct error *err);
void kv_pool_close(struct kv_pool *pool);

int32_t kv_pool_acquire(struct kv_pool *pool);          // one reference, the caller's; KV_PAGE_NONE when there are none
void kv_pool_share(struct kv_pool *pool, int32_t page); // one more owner
void kv_pool_release(struct kv_pool *pool, int32_t page); // the last one frees

// Asserts what always holds (see pool.c); for tests and simulations.
void kv_pool_check(const struct kv_pool *pool);

#endif
