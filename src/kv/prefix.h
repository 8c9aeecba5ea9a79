// SPDX-License-Identifier: Apache-2.0
// kv/prefix.h: a sequence's beginning that the cache still has. The key of a whole page is a hash of the key before it
// and of its tokens, so equal keys mean equal texts from the first token on. Pages here have KV_PAGE_TOKENS tokens.
// Every class remembers its pages under the same keys: one that covers more tokens, a state, under its last one's.
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "base/bytes.h"
#include "kv/table.h"

// The keys of one sequence's whole pages, made as they are asked for.
struct kv_prefix {
    struct kv_key root;  // stands before page 0: sequences with different ones never share
    struct kv_key *keys; // (capacity)
    int count, capacity;
    int remembered; // pages that their pools know by these keys
};

void kv_prefix_open(struct kv_prefix *prefix, struct bytes salt, int positions_max);
void kv_prefix_close(struct kv_prefix *prefix);

// Makes the keys of the first `pages` pages of these tokens, which must be the same ones every time.
void kv_prefix_extend(struct kv_prefix *prefix, const int32_t *ids, int pages);

// How many of the first `pages` pages can be had: the token behind them finds all that it sees in every class.
int kv_prefix_find(const struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages);

// Makes empty tables hold that many; their pools know them.
void kv_prefix_take(struct kv_prefix *prefix, struct kv_table *tables, int classes, int pages);

// Tells the pools about the first `pages` pages, whose tokens have all been read.
void kv_prefix_remember(struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages);

#endif
