// SPDX-License-Identifier: Apache-2.0
// kv/pool.h: the pages of one class, who owns them, and which of them can be found again by what they hold. A page that
// nobody owns keeps its bytes and its key until it is handed out again, the longest unused first.
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { KV_PAGE_NONE = -1, KV_KEY_BYTES = 32 };

// What a page holds, as a hash of everything that has gone into its bytes.
struct kv_key {
    uint8_t bytes[KV_KEY_BYTES];
};

// What the pages of a class are: of which tokens, and how long they are kept (kv/table.h).
struct kv_class {
    int page_tokens; // that one page covers: KV_PAGE_TOKENS, or of states a multiple of it
    int window;      // positions a token sees, itself included; 0: all
    bool state;      // a page holds no tokens but the state after the last one that was read of them
    int begin, end;  // pages of a sequence that it has, from `begin` to before `end`; end 0: all the rest
};

struct kv_pool {
    uint8_t *bytes; // page_count * page_bytes, borrowed: of the host, or of a device, where only kernels go
    size_t page_bytes;
    struct kv_class class;
    int page_count, free_count;
    struct kv_page {
        int owners;           // tables that hold it; 0: it is free
        int32_t older, newer; // its neighbours among the free
        int32_t next;         // the next page of its bucket
        bool keyed;
        struct kv_key key;
    } *pages;
    int32_t oldest, newest; // of the free pages
    int32_t *buckets;       // the first page of each; a power of two of them
    uint32_t bucket_mask;
};

void kv_pool_open(struct kv_pool *pool, void *bytes, struct kv_class class, size_t page_bytes, int page_count);
void kv_pool_close(struct kv_pool *pool);

int32_t kv_pool_acquire(struct kv_pool *pool);            // one reference, the caller's; KV_PAGE_NONE: there is none
void kv_pool_share(struct kv_pool *pool, int32_t page);   // one more owner; a free page must have a key
void kv_pool_release(struct kv_pool *pool, int32_t page); // the last one frees

// The page can be found under this key from now on, unless another one can already.
void kv_pool_remember(struct kv_pool *pool, int32_t page, const struct kv_key *key);
int32_t kv_pool_find(const struct kv_pool *pool, const struct kv_key *key); // KV_PAGE_NONE: there is none
void kv_pool_forget(struct kv_pool *pool);                                  // every key

// Asserts what always holds (see pool.c); for tests and simulations.
void kv_pool_check(const struct kv_pool *pool);

#endif
