// SPDX-License-Identifier: Apache-2.0
// kv/table.h: which pages hold one sequence's tokens in one class. Entry i covers positions [16 i, 16 i + 16).
// A windowed class gives back pages that no later token can see; their entries are KV_PAGE_NONE from then on.
// Pages are given back from the end, so that of a common beginning the deepest page is forgotten first.
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include <stdbool.h>

#include "kv/pool.h"

struct kv_table {
    struct kv_pool *pool; // borrowed
    int32_t *pages;       // capacity entries
    int count, capacity;
    int first;            // entries before it are KV_PAGE_NONE
};

void kv_table_open(struct kv_table *table, struct kv_pool *pool, int positions_max);
void kv_table_close(struct kv_table *table); // gives every page back

// Room for positions [0, end). False when the pool has no page left; what was acquired stays.
bool kv_table_extend(struct kv_table *table, int end);

// One more entry: a page of which the table becomes another owner, or KV_PAGE_NONE while it holds none yet.
void kv_table_append(struct kv_table *table, int32_t page);

// Gives back what the token at `position` and all later ones cannot see.
void kv_table_evict(struct kv_table *table, int position);

// Forgets positions from `end` on. False when a page that the next token needs was evicted: then start over with 0.
bool kv_table_truncate(struct kv_table *table, int end);

// The first entry that the token at `position` sees.
int kv_table_first_visible(int window, int position);

// The most pages that a sequence of `length` tokens, read `batch` at a time, ever holds in a class with this window.
int kv_table_pages_needed(int window, int length, int batch);

// The most pages that it will acquire on its way to `length` tokens.
int kv_table_pages_missing(const struct kv_table *table, int length, int batch);

#endif
