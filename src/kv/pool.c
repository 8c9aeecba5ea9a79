// SPDX-License-Identifier: Apache-2.0
// kv/pool.c: who owns which page.
//   (1) a page is free, or its count is the number of tables that hold it
//   (2) every free page is on the stack exactly once, and nothing else is
#include "kv/pool.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"

bool kv_pool_open(struct kv_pool *pool, size_t page_bytes, int page_count, struct error *err)
{
    *pool = (struct kv_pool){ .page_bytes = page_bytes, .page_count = page_count, .free_count = page_count };
    pool->bytes = memory_map_new(page_bytes * (size_t)page_count);
    if (!pool->bytes)
        return fail(err, "the system does not give %zu MiB for the KV cache; ask for less with --max-model-len",
                    page_bytes * (size_t)page_count >> 20);
    pool->owners = memory_new((size_t)page_count, sizeof *pool->owners);
    pool->free_pages = memory_new((size_t)page_count, sizeof *pool->free_pages);
    for (int i = 0; i < page_count; i++)
        pool->free_pages[i] = page_count - 1 - i; // low pages go out first
    return true;
}

void kv_pool_close(struct kv_pool *pool)
{
    memory_map_free(pool->bytes, pool->page_bytes * (size_t)pool->page_count);
    free(pool->owners);
    free(pool->free_pages);
    *pool = (struct kv_pool){ 0 };
}

int32_t kv_pool_acquire(struct kv_pool *pool)
{
    if (!pool->free_count)
        return KV_PAGE_NONE;
    int32_t page = pool->free_pages[--pool->free_count];
    assert(pool->owners[page] == 0);
    pool->owners[page] = 1;
    return page;
}

void kv_pool_share(struct kv_pool *pool, int32_t page)
{
    assert(page >= 0 && page < pool->page_count && pool->owners[page] > 0);
    pool->owners[page]++;
}

void kv_pool_release(struct kv_pool *pool, int32_t page)
{
    assert(page >= 0 && page < pool->page_count && pool->owners[page] > 0);
    if (--pool->owners[page] == 0)
        pool->free_pages[pool->free_count++] = page;
}

void kv_pool_check(const struct kv_pool *pool)
{
    uint8_t *seen = memory_new((size_t)pool->page_count, 1);
    for (int i = 0; i < pool->free_count; i++) {
        int32_t page = pool->free_pages[i];
        assert(page >= 0 && page < pool->page_count && pool->owners[page] == 0 && !seen[page]);
        seen[page] = 1;
    }
    int owned = 0;
    for (int i = 0; i < pool->page_count; i++)
        owned += pool->owners[i] > 0;
    assert(owned + pool->free_count == pool->page_count);
    free(seen);
}
