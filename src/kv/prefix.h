// SPDX-License-Identifier: Apache-2.0
// kv/prefix.h: automatic prefix caching. The key of a whole page is a hash of the previous page's key and of its
// tokens, so equal keys mean equal texts from the first token on. Pages here have KV_PAGE_TOKENS tokens. Every class
// indexes its pages by the same keys; a page of more tokens, such as a state, has the key of its last KV_PAGE_TOKENS.
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "base/bytes.h"
#include "kv/table.h"

// The keys of one sequence's whole pages, computed on demand.
struct kv_prefix {
    struct kv_key root;  // the key before page 0, from the salt: sequences with different salts never share pages
    struct kv_key *keys; // (capacity)
    int count, capacity;
    int remembered; // pages already indexed in the pools
};

void kv_prefix_open(struct kv_prefix *prefix, struct bytes salt, int positions_max);
void kv_prefix_close(struct kv_prefix *prefix);

// Computes the keys of the first `pages` pages. `ids` must hold the same tokens in every call.
void kv_prefix_extend(struct kv_prefix *prefix, const int32_t *ids, int pages);

// The cached prefix: how many of the first `pages` pages can be reused, so that the next token finds all the pages it
// sees, in every class.
int kv_prefix_find(const struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages);

// Adds the first `pages` cached pages to empty tables.
void kv_prefix_take(struct kv_prefix *prefix, struct kv_table *tables, int classes, int pages);

// Indexes the first `pages` pages in their pools; all of their tokens must have been computed.
void kv_prefix_remember(struct kv_prefix *prefix, const struct kv_table *tables, int classes, int pages);

#endif
