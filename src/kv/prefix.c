// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix.h"

#include <assert.h>
#include <stdlib.h>

#define OPENSSL_SUPPRESS_DEPRECATED // the EVP interface allocates on every use
#include <openssl/sha.h>

#include "base/memory.h"
#include "kv/layout.h"

_Static_assert(KV_KEY_BYTES == SHA256_DIGEST_LENGTH, "a key is a whole hash");

// SHA-256 of two byte runs. A weaker hash would let one tenant forge a key of another tenant's pages.
static struct kv_key hash_two(const void *a, size_t a_len, const void *b, size_t b_len)
{
    struct kv_key key;
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, a, a_len);
    SHA256_Update(&context, b, b_len);
    SHA256_Final(key.bytes, &context);
    return key;
}

void kv_prefix_open(struct kv_prefix *prefix, struct bytes salt, int positions_max)
{
    static const char beginning[] = "nibble page";
    *prefix = (struct kv_prefix){ .capacity = positions_max / KV_PAGE_TOKENS };
    prefix->root = hash_two(beginning, sizeof beginning, salt.data, salt.len);
    prefix->keys = memory_new((size_t)prefix->capacity, sizeof *prefix->keys);
}

void kv_prefix_close(struct kv_prefix *prefix)
{
    free(prefix->keys);
    *prefix = (struct kv_prefix){ 0 };
}

void kv_prefix_extend(struct kv_prefix *prefix, const int32_t *ids, int pages)
{
    assert(pages <= prefix->capacity);
    for (int i = prefix->count; i < pages; i++)
        prefix->keys[i] = hash_two(i ? &prefix->keys[i - 1] : &prefix->root, KV_KEY_BYTES, ids + i * KV_PAGE_TOKENS,
                                   KV_PAGE_TOKENS * sizeof *ids);
    prefix->count = pages > prefix->count ? pages : prefix->count;
}

// Keys (of KV_PAGE_TOKENS tokens each) per page of this pool.
static int keys_each(const struct kv_pool *pool) { return pool->class.page_tokens / KV_PAGE_TOKENS; }

static int32_t find_page(const struct kv_prefix *prefix, const struct kv_pool *pool, int page)
{
    return kv_pool_find(pool, &prefix->keys[(page + 1) * keys_each(pool) - 1]);
}

// True if the pool has the page, or the page belongs to another class.
static bool is_there(const struct kv_prefix *prefix, const struct kv_pool *pool, int page)
{
    return !kv_table_has(&pool->class, page) || find_page(prefix, pool, page) != KV_PAGE_NONE;
}

// How many of the first `pages` pages a windowed pool can serve: all, if it has every page that the next token sees;
// otherwise those before the last missing one.
static int servable(const struct kv_prefix *prefix, const struct kv_pool *pool, int pages)
{
    int own = pages / keys_each(pool), at = own - 1;
    int first = kv_table_first_visible(&pool->class, own * pool->class.page_tokens);
    while (at >= first && is_there(prefix, pool, at))
        at--;
    return (at >= first ? at : own) * keys_each(pool);
}

// The length of the run of cached pages from the first on.
static int run_from_start(const struct kv_prefix *prefix, const struct kv_pool *pool, int pages)
{
    int count = 0;
    while (count < pages && is_there(prefix, pool, count))
        count++;
    return count;
}

int kv_prefix_find(const struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages)
{
    assert(pages <= prefix->count);
    for (int i = 0; i < classes; i++)
        if (!tables[i].pool->class.window)
            pages = run_from_start(prefix, tables[i].pool, pages);
    for (int i = 0; i < classes; i++) {
        int fewer = tables[i].pool->class.window ? servable(prefix, tables[i].pool, pages) : pages;
        if (fewer < pages) { // start over with all classes
            pages = fewer;
            i = -1;
        }
    }
    return pages;
}

void kv_prefix_take(struct kv_prefix *prefix, struct kv_table *tables, int classes, int pages)
{
    for (int i = 0; i < classes; i++) {
        const struct kv_pool *pool = tables[i].pool;
        int first = kv_table_first_visible(&pool->class, pages * KV_PAGE_TOKENS);
        for (int j = 0; j < pages / keys_each(pool) && j < tables[i].capacity; j++)
            kv_table_append(&tables[i], j < first ? KV_PAGE_NONE : find_page(prefix, pool, j));
    }
    prefix->remembered = pages;
}

void kv_prefix_remember(struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages)
{
    for (; prefix->remembered < pages; prefix->remembered++)
        for (int i = 0; i < classes; i++) {
            int each = keys_each(tables[i].pool), end = prefix->remembered + 1;
            bool has = end % each == 0 && kv_table_has(&tables[i].pool->class, end / each - 1);
            int32_t page = has ? tables[i].pages[end / each - 1] : KV_PAGE_NONE;
            if (page != KV_PAGE_NONE)
                kv_pool_remember(tables[i].pool, page, &prefix->keys[prefix->remembered]);
        }
}
