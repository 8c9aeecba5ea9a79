// SPDX-License-Identifier: Apache-2.0
#include "kv/table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kv/layout.h"

// The number of entries for `positions` positions.
static int pages_for(const struct kv_class *class, int positions)
{
    int pages = (positions + class->page_tokens - 1) / class->page_tokens;
    return class->end && pages > class->end ? class->end : pages;
}

bool kv_table_has(const struct kv_class *class, int page)
{
    return page >= class->begin && (!class->end || page < class->end);
}

struct kv_class kv_table_states(int page_tokens)
{
    return (struct kv_class){ .page_tokens = page_tokens, .window = page_tokens + 1, .state = true };
}

int kv_table_first_visible(const struct kv_class *class, int position)
{
    int first = class->window && position >= class->window ? (position - class->window + 1) / class->page_tokens : 0;
    return first > class->begin ? first : class->begin;
}

void kv_table_open(struct kv_table *table, struct kv_pool *pool, int positions_max)
{
    int capacity = pages_for(&pool->class, positions_max);
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
    int count = pages_for(&table->pool->class, end);
    assert(count <= table->capacity);
    while (table->count < count) {
        bool has = kv_table_has(&table->pool->class, table->count);
        int32_t page = has ? kv_pool_acquire(table->pool) : KV_PAGE_NONE;
        if (has && page == KV_PAGE_NONE)
            return false;
        table->first += !has;
        table->pages[table->count++] = page;
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
    int keep = kv_table_first_visible(&table->pool->class, position);
    for (; table->first < keep && table->first < table->count; table->first++) {
        kv_pool_release(table->pool, table->pages[table->first]);
        table->pages[table->first] = KV_PAGE_NONE;
    }
}

int kv_table_usable(const struct kv_table *table, int end)
{
    const struct kv_class *class = &table->pool->class;
    if (class->state)
        end -= end % class->page_tokens;
    int visible = kv_table_first_visible(class, end);
    return visible >= table->first || visible >= pages_for(class, end) ? end : 0;
}

void kv_table_truncate(struct kv_table *table, int end)
{
    int keep = pages_for(&table->pool->class, end);
    while (table->count > keep) {
        int32_t page = table->pages[--table->count];
        if (page != KV_PAGE_NONE)
            kv_pool_release(table->pool, page);
    }
    if (table->first > table->count)
        table->first = table->count;
}

int kv_table_pages_needed(const struct kv_class *class, int length, int batch)
{
    int all = pages_for(class, length) - class->begin;
    all = all > 0 ? all : 0;
    if (class->state)
        return all < 2 ? all : 2;
    if (!class->window || class->window >= length - batch) // avoids overflow: a window may be as large as INT_MAX
        return all;
    // The window before the batch's first token and the batch, at the worst offset within a page.
    int most = (class->window - 1 + batch + class->page_tokens - 1) / class->page_tokens + 1;
    return most < all ? most : all;
}

int kv_table_pages_missing(const struct kv_table *table, int length, int batch)
{
    const struct kv_class *class = &table->pool->class;
    int held = table->count - table->first;
    int entries = pages_for(class, length) - (table->count > class->begin ? table->count : class->begin);
    int missing = kv_table_pages_needed(class, length, batch) - held;
    if (missing > entries)
        missing = entries;
    return missing > 0 ? missing : 0;
}
