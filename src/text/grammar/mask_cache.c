// SPDX-License-Identifier: Apache-2.0
// An LRU cache of token masks, shared by threads; a mask under computation is waited for.
#include "text/grammar/mask_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum entry_state { ENTRY_EMPTY, ENTRY_COMPUTING, ENTRY_READY };

struct entry {
    enum entry_state is;
    struct strbuf state; // of a matcher, in full
    uint32_t *allowed;
    uint64_t used; // the tick of its last use
};

struct mask_cache {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    struct entry entries[MASK_CACHE_MAX];
    uint64_t tick, computed;
};

struct mask_cache *mask_cache_open(void)
{
    struct mask_cache *cache = memory_new(1, sizeof *cache);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->ready, NULL);
    return cache;
}

void mask_cache_close(struct mask_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < MASK_CACHE_MAX; i++) {
        strbuf_free(&cache->entries[i].state);
        free(cache->entries[i].allowed);
    }
    pthread_cond_destroy(&cache->ready);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static struct entry *find(struct mask_cache *cache, struct bytes state)
{
    for (int i = 0; i < MASK_CACHE_MAX; i++) {
        struct entry *entry = &cache->entries[i];
        if (entry->is != ENTRY_EMPTY && bytes_equal(strbuf_bytes(&entry->state), state))
            return entry;
    }
    return NULL;
}

// Makes room for a mask that the caller computes; -1: all of them are being computed.
static int reserve(struct mask_cache *cache, struct bytes state)
{
    struct entry *oldest = NULL;
    for (int i = 0; i < MASK_CACHE_MAX; i++) {
        struct entry *entry = &cache->entries[i];
        if (entry->is != ENTRY_COMPUTING && (!oldest || entry->used < oldest->used))
            oldest = entry;
    }
    cache->computed++;
    if (!oldest)
        return -1;
    oldest->is = ENTRY_COMPUTING;
    oldest->state.len = 0;
    strbuf_add(&oldest->state, state.data, state.len);
    return (int)(oldest - cache->entries);
}

bool mask_cache_apply(struct mask_cache *cache, struct bytes state, uint32_t *mask, size_t words, int *slot)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry;
    while ((entry = find(cache, state)) && entry->is == ENTRY_COMPUTING)
        pthread_cond_wait(&cache->ready, &cache->lock);
    *slot = entry ? -1 : reserve(cache, state);
    for (size_t i = 0; i < words && entry; i++)
        mask[i] &= entry->allowed[i];
    if (entry)
        entry->used = ++cache->tick;
    pthread_mutex_unlock(&cache->lock);
    return entry;
}

void mask_cache_put(struct mask_cache *cache, int slot, const uint32_t *allowed, size_t words)
{
    if (slot < 0)
        return;
    struct entry *entry = &cache->entries[slot];
    pthread_mutex_lock(&cache->lock);
    assert(entry->is == ENTRY_COMPUTING);
    if (!entry->allowed)
        entry->allowed = memory_new(words + 1, sizeof *entry->allowed);
    memcpy(entry->allowed, allowed, words * sizeof *allowed);
    entry->is = ENTRY_READY;
    entry->used = ++cache->tick;
    pthread_cond_broadcast(&cache->ready);
    pthread_mutex_unlock(&cache->lock);
}

uint64_t mask_cache_computed(struct mask_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t computed = cache->computed;
    pthread_mutex_unlock(&cache->lock);
    return computed;
}
