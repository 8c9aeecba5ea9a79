// SPDX-License-Identifier: Apache-2.0
// kv/pool.c: a pool of reference-counted KV cache pages with a prefix cache index. Invariants:
//   (1) a page is free, or its reference count is the number of tables that hold it
//   (2) the free list holds every free page once, and no other page
//   (3) on the free list, pages without a key come before those with a key: they are reused first
//   (4) a page with a key is in the key's bucket, once; no two pages have the same key
#include "kv/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void kv_pool_open(struct kv_pool *pool, void *bytes, struct kv_class class, size_t page_bytes, int page_count)
{
    *pool = (struct kv_pool){ .bytes = bytes, .page_bytes = page_bytes, .class = class, .page_count = page_count };
    uint32_t buckets = 1;
    while (buckets < (uint32_t)page_count)
        buckets *= 2;
    pool->bucket_mask = buckets - 1;
    pool->buckets = memory_new(buckets, sizeof *pool->buckets);
    for (uint32_t i = 0; i < buckets; i++)
        pool->buckets[i] = KV_PAGE_NONE;
    pool->pages = memory_new((size_t)page_count, sizeof *pool->pages);
    for (int32_t i = 0; i < page_count; i++)
        pool->pages[i] = (struct kv_page){ .older = i - 1, .newer = i + 1 < page_count ? i + 1 : KV_PAGE_NONE };
    pool->oldest = page_count ? 0 : KV_PAGE_NONE;
    pool->newest = page_count - 1;
    pool->free_count = page_count;
}

void kv_pool_close(struct kv_pool *pool)
{
    free(pool->pages);
    free(pool->buckets);
    *pool = (struct kv_pool){ 0 };
}

// ---- free pages ----

// Inserts a page between two neighbours; KV_PAGE_NONE is the end of the list.
static void list_insert(struct kv_pool *pool, int32_t page, int32_t older, int32_t newer)
{
    pool->pages[page].older = older;
    pool->pages[page].newer = newer;
    *(older == KV_PAGE_NONE ? &pool->oldest : &pool->pages[older].newer) = page;
    *(newer == KV_PAGE_NONE ? &pool->newest : &pool->pages[newer].older) = page;
    pool->free_count++;
}

static void list_remove(struct kv_pool *pool, int32_t page)
{
    int32_t older = pool->pages[page].older, newer = pool->pages[page].newer;
    *(older == KV_PAGE_NONE ? &pool->oldest : &pool->pages[older].newer) = newer;
    *(newer == KV_PAGE_NONE ? &pool->newest : &pool->pages[newer].older) = older;
    pool->free_count--;
}

// ---- keys ----

static int32_t *bucket_of(const struct kv_pool *pool, const struct kv_key *key)
{
    uint32_t hash;
    memcpy(&hash, key->bytes, sizeof hash);
    return &pool->buckets[hash & pool->bucket_mask];
}

static void forget_page(struct kv_pool *pool, int32_t page)
{
    int32_t *link = bucket_of(pool, &pool->pages[page].key);
    while (*link != page)
        link = &pool->pages[*link].next;
    *link = pool->pages[page].next;
    pool->pages[page].keyed = false;
}

int32_t kv_pool_find(const struct kv_pool *pool, const struct kv_key *key)
{
    int32_t page = *bucket_of(pool, key);
    while (page != KV_PAGE_NONE && memcmp(pool->pages[page].key.bytes, key->bytes, KV_KEY_BYTES))
        page = pool->pages[page].next;
    return page;
}

void kv_pool_remember(struct kv_pool *pool, int32_t page, const struct kv_key *key)
{
    assert(page >= 0 && page < pool->page_count && pool->pages[page].owners > 0 && !pool->pages[page].keyed);
    if (kv_pool_find(pool, key) != KV_PAGE_NONE)
        return;
    int32_t *bucket = bucket_of(pool, key);
    pool->pages[page].key = *key;
    pool->pages[page].keyed = true;
    pool->pages[page].next = *bucket;
    *bucket = page;
}

void kv_pool_forget(struct kv_pool *pool)
{
    for (int32_t i = 0; i < pool->page_count; i++)
        if (pool->pages[i].keyed)
            forget_page(pool, i);
}

// ---- owners ----

int32_t kv_pool_acquire(struct kv_pool *pool)
{
    int32_t page = pool->oldest;
    if (page == KV_PAGE_NONE)
        return KV_PAGE_NONE;
    assert(pool->pages[page].owners == 0);
    list_remove(pool, page);
    if (pool->pages[page].keyed)
        forget_page(pool, page);
    pool->pages[page].owners = 1;
    return page;
}

void kv_pool_share(struct kv_pool *pool, int32_t page)
{
    assert(page >= 0 && page < pool->page_count && (pool->pages[page].owners > 0 || pool->pages[page].keyed));
    if (pool->pages[page].owners++ == 0)
        list_remove(pool, page);
}

void kv_pool_release(struct kv_pool *pool, int32_t page)
{
    assert(page >= 0 && page < pool->page_count && pool->pages[page].owners > 0);
    if (--pool->pages[page].owners > 0)
        return;
    if (pool->pages[page].keyed)
        list_insert(pool, page, pool->newest, KV_PAGE_NONE);
    else
        list_insert(pool, page, KV_PAGE_NONE, pool->oldest);
}

// ---- invariants ----

static void check_list(const struct kv_pool *pool)
{
    int listed = 0, owned = 0;
    bool keyed = false;
    int32_t older = KV_PAGE_NONE;
    for (int32_t page = pool->oldest; page != KV_PAGE_NONE; page = pool->pages[page].newer) {
        assert(page >= 0 && page < pool->page_count && listed < pool->page_count);
        const struct kv_page *free_page = &pool->pages[page];
        assert(free_page->owners == 0 && free_page->older == older);
        assert(free_page->keyed || !keyed);
        keyed = free_page->keyed;
        older = page;
        listed++;
    }
    assert(older == pool->newest && listed == pool->free_count);
    for (int i = 0; i < pool->page_count; i++) {
        assert(pool->pages[i].owners >= 0);
        owned += pool->pages[i].owners > 0;
    }
    assert(owned + listed == pool->page_count);
}

void kv_pool_check(const struct kv_pool *pool)
{
    int chained = 0, keyed = 0;
    check_list(pool);
    for (uint32_t bucket = 0; bucket <= pool->bucket_mask; bucket++)
        for (int32_t page = pool->buckets[bucket]; page != KV_PAGE_NONE; page = pool->pages[page].next) {
            assert(page >= 0 && page < pool->page_count && chained < pool->page_count);
            assert(pool->pages[page].keyed && bucket_of(pool, &pool->pages[page].key) == &pool->buckets[bucket]);
            assert(kv_pool_find(pool, &pool->pages[page].key) == page);
            chained++;
        }
    for (int i = 0; i < pool->page_count; i++)
        keyed += pool->pages[i].keyed;
    assert(chained == keyed);
}
