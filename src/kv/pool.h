// SPDX-License-Identifier: Apache-2.0
// kv/pool.h: the page allocator of one cache class, with automatic prefix caching: a free page keeps its bytes and its
// key until it is reused, least recently used first.
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { KV_PAGE_NONE = -1, KV_KEY_BYTES = 32 };

// A hash of everything that determines a page's bytes: the tokens from the sequence's start, and a salt.
struct kv_key {
    uint8_t bytes[KV_KEY_BYTES];
};

// A cache class: which tokens its pages cover, and how long they are kept (kv/table.h).
struct kv_class {
    int page_tokens; // tokens per page: KV_PAGE_TOKENS, or a multiple for recurrent states
    int window;      // sliding window: positions a token sees, itself included; 0: all
    bool state;      // recurrent: a page holds the state after its last token
    int begin, end;  // the pages [begin, end) of each sequence belong to this class; end 0: no end
};

struct kv_pool {
    uint8_t *bytes; // page_count * page_bytes, borrowed; host or device memory
    size_t page_bytes;
    struct kv_class class;
    int page_count, free_count;
    struct kv_page {
        int owners;           // reference count; 0: free
        int32_t older, newer; // neighbours on the free list
        int32_t next;         // hash chain
        bool keyed;
        struct kv_key key;
    } *pages;
    int32_t oldest, newest; // ends of the free list
    int32_t *buckets;       // first page of each hash chain; a power of two
    uint32_t bucket_mask;
};

void kv_pool_open(struct kv_pool *pool, void *bytes, struct kv_class class, size_t page_bytes, int page_count);
void kv_pool_close(struct kv_pool *pool);

int32_t kv_pool_acquire(struct kv_pool *pool);            // one reference; KV_PAGE_NONE if the pool is empty
void kv_pool_share(struct kv_pool *pool, int32_t page);   // adds a reference; a free page must have a key
void kv_pool_release(struct kv_pool *pool, int32_t page); // drops a reference; the last one frees the page

// Indexes the page by this key, unless another page has the key.
void kv_pool_remember(struct kv_pool *pool, int32_t page, const struct kv_key *key);
int32_t kv_pool_find(const struct kv_pool *pool, const struct kv_key *key); // KV_PAGE_NONE if no page has the key
void kv_pool_forget(struct kv_pool *pool);                                  // drops all keys

// Asserts the invariants of pool.c; for tests and simulations.
void kv_pool_check(const struct kv_pool *pool);

#endif
