// SPDX-License-Identifier: Apache-2.0
// kv/table.h: the page table (block table) of one sequence in one cache class. Entry i covers positions [n i, n i + n),
// where n is the class's page_tokens. A windowed class frees pages that no later token can see; their entries become
// KV_PAGE_NONE. Pages are freed from the end, so that of a shared prefix the deepest page is evicted first.
//
// In a class of recurrent states a page is one state: a token reads the state in the page of the token before it and
// writes the new state to its own page. A page whose tokens have all been computed is not written again: it is a
// snapshot that a sequence can go back to. The last snapshot is kept, and prefill chunks do not cross the end of a
// page.
//
// Sink pages are a class of their own that holds a sequence's first pages only: their entries are KV_PAGE_NONE in the
// main class's table, and the sink table ends with them.
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include <stdbool.h>

#include "kv/pool.h"

struct kv_table {
    struct kv_pool *pool; // borrowed
    int32_t *pages;       // capacity entries
    int count, capacity;
    int first; // entries before this one are KV_PAGE_NONE
};

void kv_table_open(struct kv_table *table, struct kv_pool *pool, int positions_max);
void kv_table_close(struct kv_table *table); // frees every page

// Acquires pages for positions [0, end). False if the pool is out of pages; pages acquired so far stay.
bool kv_table_extend(struct kv_table *table, int end);

// Appends a shared page, or KV_PAGE_NONE while the table holds no page yet.
void kv_table_append(struct kv_table *table, int32_t page);

// Frees the pages that the token at `position` and all later ones cannot see.
void kv_table_evict(struct kv_table *table, int position);

// The largest position <= `end` to which the sequence can be truncated with all pages that the next token needs.
int kv_table_usable(const struct kv_table *table, int end);

// Frees the pages of positions from `end` on.
void kv_table_truncate(struct kv_table *table, int end);

// A class of recurrent states, one page per `page_tokens` tokens. The page before a token's own stays visible.
struct kv_class kv_table_states(int page_tokens);

// True if this page of a sequence belongs to the class.
bool kv_table_has(const struct kv_class *class, int page);

// The first page that the token at `position` sees.
int kv_table_first_visible(const struct kv_class *class, int position);

// The most pages that a sequence of `length` tokens, computed `batch` at a time, ever holds in a class.
int kv_table_pages_needed(const struct kv_class *class, int length, int batch);

// The most pages that the sequence will acquire before it has `length` tokens.
int kv_table_pages_missing(const struct kv_table *table, int length, int batch);

#endif
