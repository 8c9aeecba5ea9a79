// SPDX-License-Identifier: Apache-2.0
// engine/sequence.h: a sequence of the paged KV cache: its tokens, and the pages that hold the ones that have been
// read.
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "kernel/op.h"
#include "kv/table.h"

struct sequence {
    int32_t *ids;        // (capacity)
    int count, capacity; // tokens it has and may have
    int cached;          // of them, how many the cache holds
    int classes;
    struct kv_table tables[KV_CLASSES_MAX];
};

void sequence_open(struct sequence *sequence, struct kv_pool *pools, int classes, int capacity); // borrows the pools
void sequence_close(struct sequence *sequence);

void sequence_append(struct sequence *sequence, const int32_t *ids, int count);

// Pages for the next `count` tokens. False when a pool has none left; what was acquired stays.
bool sequence_take_pages(struct sequence *sequence, int count);

// Gives back the pages that have left their windows: no token that is not cached sees them.
void sequence_evict(struct sequence *sequence);

// How many tokens can be read in one step, at most: a chunk does not cross the end of a page of states.
int sequence_readable(const struct sequence *sequence);

// Gives back the pages behind the first `length` tokens, and as many more as have to be read again: back to the last
// state that is there, or all when a window has let go of what the next token needs.
void sequence_truncate(struct sequence *sequence, int length);
void sequence_give_up_pages(struct sequence *sequence); // all of them

#endif
