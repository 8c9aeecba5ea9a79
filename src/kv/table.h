// SPDX-License-Identifier: Apache-2.0
// kv/table.h: which pages hold one sequence's tokens in one class. Entry i covers positions [n i, n i + n), n being the
// class's page_tokens. A windowed class gives back pages that no later token can see; their entries are KV_PAGE_NONE
// from then on. Pages are given back from the end, so that of a common beginning the deepest page is forgotten first.
//
// A page of states is one state of a recurrent layer: a token finds the state of the page of the token before it and
// leaves it, moved on, in its own. A page whose tokens have all been read is not written again: it is a snapshot, which
// is what a sequence can go back to. The last one is kept, and chunks do not cross the end of a page.
//
// A sequence's first pages may be another class's, which has nothing but those: in the table of the one their entries
// are KV_PAGE_NONE, and that of the other ends with them.
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include <stdbool.h>

#include "kv/pool.h"

struct kv_table {
    struct kv_pool *pool; // borrowed
    int32_t *pages;       // capacity entries
    int count, capacity;
    int first; // entries before it are KV_PAGE_NONE
};

void kv_table_open(struct kv_table *table, struct kv_pool *pool, int positions_max);
void kv_table_close(struct kv_table *table); // gives every page back

// Room for positions [0, end). False when the pool has no page left; what was acquired stays.
bool kv_table_extend(struct kv_table *table, int end);

// One more entry: a page of which the table becomes another owner, or KV_PAGE_NONE while it holds none yet.
void kv_table_append(struct kv_table *table, int32_t page);

// Gives back what the token at `position` and all later ones cannot see.
void kv_table_evict(struct kv_table *table, int position);

// The most positions, no more than `end`, after which everything is there that the next token needs.
int kv_table_usable(const struct kv_table *table, int end);

// Forgets positions from `end` on.
void kv_table_truncate(struct kv_table *table, int end);

// A class of states, a page for so many tokens each. The page before a token's own stays visible.
struct kv_class kv_table_states(int page_tokens);

// Whether a class has this page of a sequence at all.
bool kv_table_has(const struct kv_class *class, int page);

// The first entry that the token at `position` sees.
int kv_table_first_visible(const struct kv_class *class, int position);

// The most pages that a sequence of `length` tokens, read `batch` at a time, ever holds in a class.
int kv_table_pages_needed(const struct kv_class *class, int length, int batch);

// The most pages that it will acquire on its way to `length` tokens.
int kv_table_pages_missing(const struct kv_table *table, int length, int batch);

#endif
