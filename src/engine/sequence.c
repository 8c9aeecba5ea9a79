// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void sequence_open(struct sequence *sequence, struct kv_pool *pools, int classes, int capacity)
{
    *sequence = (struct sequence){ .capacity = capacity, .classes = classes };
    sequence->ids = memory_new((size_t)capacity, sizeof *sequence->ids);
    for (int i = 0; i < classes; i++)
        kv_table_open(&sequence->tables[i], &pools[i], capacity);
}

void sequence_close(struct sequence *sequence)
{
    for (int i = 0; i < sequence->classes; i++)
        kv_table_close(&sequence->tables[i]);
    free(sequence->ids);
    *sequence = (struct sequence){ 0 };
}

void sequence_append(struct sequence *sequence, const int32_t *ids, int count)
{
    assert(count >= 0 && count <= sequence->capacity - sequence->count);
    if (count)
        memcpy(sequence->ids + sequence->count, ids, (size_t)count * sizeof *ids);
    sequence->count += count;
}

bool sequence_take_pages(struct sequence *sequence, int count)
{
    assert(count <= sequence->count - sequence->cached);
    sequence_evict(sequence);
    for (int i = 0; i < sequence->classes; i++)
        if (!kv_table_extend(&sequence->tables[i], sequence->cached + count))
            return false;
    return true;
}

void sequence_evict(struct sequence *sequence)
{
    for (int i = 0; i < sequence->classes; i++)
        kv_table_evict(&sequence->tables[i], sequence->cached);
}

int sequence_readable(const struct sequence *sequence)
{
    int count = sequence->count - sequence->cached;
    for (int i = 0; i < sequence->classes; i++) {
        const struct kv_class *class = &sequence->tables[i].pool->class;
        int left = class->page_tokens - sequence->cached % class->page_tokens;
        count = class->state && left < count ? left : count;
    }
    return count;
}

void sequence_truncate(struct sequence *sequence, int length)
{
    if (length >= sequence->cached)
        return;
    for (int i = 0; i < sequence->classes; i++) {
        int usable = kv_table_usable(&sequence->tables[i], length);
        if (usable < length) { // then all are asked again
            length = usable;
            i = -1;
        }
    }
    for (int i = 0; i < sequence->classes; i++)
        kv_table_truncate(&sequence->tables[i], length);
    sequence->cached = length;
}

void sequence_give_up_pages(struct sequence *sequence)
{
    for (int i = 0; i < sequence->classes; i++)
        kv_table_truncate(&sequence->tables[i], 0);
    sequence->cached = 0;
}
