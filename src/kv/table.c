// SPDX-License-Identifier: Apache-2.0
#include "kv/table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kv/layout.h"

static int pages_for(int positions)
{
    return (positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

int kv_table_first_visible(int window, int position)
{
    return window && position >= window ? (position - window + 1) / KV_PAGE_TOKENS : 0;
}

void kv_table_open(struct kv_table *table, struct kv_pool *pool, int positions_max)
{
    int capacity = pages_for(positions_max);
    *table = (struct kv_table){ .pool = pool, .capacity = capacity };
    table->pages = memory_new((size_t)capacity, sizeof *table->pages);
}

void kv_table_close(struct kv_table *table)
{
    if (table->pages)
        kv_table_truncate(table, 0);
    free(table->pages);
    *table = (struct kv_table){ 0 };
}

bool kv_table_extend(struct kv_table *table, int end)
{
    int count = pages_for(end);
    assert(count <= table->capacity);
    for (; table->count < count; table->count++) {
        int32_t page = kv_pool_acquire(table->pool);
        if (page == KV_PAGE_NONE)
            return false;
        table->pages[table->count] = page;
    }
    return true;
}

void kv_table_append(struct kv_table *table, int32_t page)
{
    assert(table->count < table->capacity);
    assert(page != KV_PAGE_NONE || table->first == table->count);
    if (page == KV_PAGE_NONE)
        table->first++;
    else
        kv_pool_share(table->pool, page);
    table->pages[table->count++] = page;
}

void kv_table_evict(struct kv_table *table, int position)
{
    int keep = kv_table_first_visible(table->pool->window, position);
    for (; table->first < keep && table->first < table->count; table->first++) {
        kv_pool_release(table->pool, table->pages[table->first]);
        table->pages[table->first] = KV_PAGE_NONE;
    }
}

bool kv_table_truncate(struct kv_table *table, int end)
{
    int keep = pages_for(end);
    while (table->count > keep) {
        int32_t page = table->pages[--table->count];
        if (page != KV_PAGE_NONE)
            kv_pool_release(table->pool, page);
    }
    if (table->first > table->count)
        table->first = table->count;
    return kv_table_first_visible(table->pool->window, end) >= table->first;
}

int kv_table_pages_needed(int window, int length, int batch)
{
    if (!window || window >= length - batch) // a window may be as large as int
        return pages_for(length);
    // The window before the batch's first token and the batch itself, at any offset within a page.
    return pages_for(window - 1 + batch) + 1;
}

int kv_table_pages_missing(const struct kv_table *table, int length, int batch)
{
    int held = table->count - table->first, entries = pages_for(length) - table->count;
    int missing = kv_table_pages_needed(table->pool->window, length, batch) - held;
    if (missing > entries)
        missing = entries;
    return missing > 0 ? missing : 0;
}
