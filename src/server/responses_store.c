// SPDX-License-Identifier: Apache-2.0
#include "server/responses_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

static const char id_prefix[] = "resp_";

const char *const response_status_words[] = {
    [RESPONSE_IN_PROGRESS] = "in_progress", [RESPONSE_COMPLETED] = "completed", [RESPONSE_INCOMPLETE] = "incomplete",
    [RESPONSE_FAILED] = "failed",           [RESPONSE_CANCELLED] = "cancelled",
};

// ---- records ------------------------------------------------------------------------------------------------------

struct response_record *response_record_new(const char *digits, const unsigned char *owner, time_t created)
{
    struct response_record *record = memory_new(1, sizeof *record);
    atomic_init(&record->references, 1);
    snprintf(record->id, sizeof record->id, "%s%s", id_prefix, digits);
    record->owner = owner;
    record->created = created;
    return record;
}

// A chain of thousands is freed one by one, without recursion.
void response_record_release(struct response_record *record)
{
    while (record && atomic_fetch_sub(&record->references, 1) == 1) {
        struct response_record *previous = record->previous;
        strbuf_free(&record->echo);
        strbuf_free(&record->input);
        strbuf_free(&record->output);
        strbuf_free(&record->end);
        if (record->charged_bytes)
            budget_give_back(&record->store->budget, record->charged_bytes);
        free(record);
        record = previous;
    }
}

// ---- the list -----------------------------------------------------------------------------------------------------

// Ids are random digits, so their first ones are the hash.
static struct response_record **bucket_of(struct response_store *store, struct bytes id)
{
    size_t hash = 0;
    for (size_t i = sizeof id_prefix - 1; i < id.len && i < sizeof id_prefix + 2; i++)
        hash = hash * 16 + (size_t)(bytes_hex_digit(id.data[i]) & 15);
    return &store->buckets[hash % RESPONSE_STORE_BUCKETS];
}

static void unlink_use(struct response_store *store, struct response_record *record)
{
    *(record->newer ? &record->newer->older : &store->newest) = record->older;
    *(record->older ? &record->older->newer : &store->oldest) = record->newer;
    record->newer = record->older = NULL;
}

static void link_newest(struct response_store *store, struct response_record *record)
{
    record->older = store->newest;
    *(store->newest ? &store->newest->newer : &store->oldest) = record;
    store->newest = record;
}

// Forgets an id; the reference goes with it.
static void unlist(struct response_store *store, struct response_record *record)
{
    struct response_record **at = bucket_of(store, bytes_of(record->id));
    if (!record->listed)
        return;
    while (*at != record)
        at = &(*at)->next;
    *at = record->next;
    unlink_use(store, record);
    record->listed = false;
    store->count--;
    response_record_release(record);
}

static bool evict_one(struct response_store *store, const struct response_record *but)
{
    struct response_record *record = store->oldest;
    while (record && (record == but || atomic_load(&record->status) == RESPONSE_IN_PROGRESS))
        record = record->newer;
    if (record)
        unlist(store, record);
    return record;
}

static bool charge(struct response_store *store, struct response_record *record, size_t bytes)
{
    if (bytes > store->budget.limit_bytes)
        return false;
    while (!budget_take(&store->budget, bytes))
        if (!evict_one(store, record))
            return false;
    record->charged_bytes += bytes;
    return true;
}

// ---- the store ----------------------------------------------------------------------------------------------------

void response_store_open(struct response_store *store, size_t bytes, int count)
{
    *store = (struct response_store){ .count_max = count };
    pthread_mutex_init(&store->lock, NULL);
    budget_open(&store->budget, bytes);
}

void response_store_close(struct response_store *store)
{
    while (store->newest)
        unlist(store, store->newest);
    pthread_mutex_destroy(&store->lock);
}

bool response_store_add(struct response_store *store, struct response_record *record)
{
    pthread_mutex_lock(&store->lock);
    bool room = store->count_max > 0;
    while (room && store->count >= store->count_max)
        room = evict_one(store, record);
    if (room) {
        record->store = store;
        room = charge(store, record, sizeof *record + record->echo.cap + record->input.cap);
    }
    if (room) {
        struct response_record **bucket = bucket_of(store, bytes_of(record->id));
        atomic_fetch_add(&record->references, 1);
        record->next = *bucket;
        *bucket = record;
        link_newest(store, record);
        record->listed = true;
        store->count++;
    }
    pthread_mutex_unlock(&store->lock);
    return room;
}

bool response_store_grow(struct response_record *record, size_t bytes)
{
    struct response_store *store = record->store;
    pthread_mutex_lock(&store->lock);
    bool room = record->listed && charge(store, record, bytes);
    if (!room)
        unlist(store, record);
    pthread_mutex_unlock(&store->lock);
    return room;
}

void response_store_remove(struct response_record *record)
{
    struct response_store *store = record->store;
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    unlist(store, record);
    pthread_mutex_unlock(&store->lock);
}

struct response_record *response_store_find(struct response_store *store, struct bytes id, const unsigned char *owner)
{
    pthread_mutex_lock(&store->lock);
    struct response_record *record = *bucket_of(store, id);
    while (record && !(record->owner == owner && bytes_equal(bytes_of(record->id), id)))
        record = record->next;
    if (record) {
        atomic_fetch_add(&record->references, 1);
        unlink_use(store, record);
        link_newest(store, record);
    }
    pthread_mutex_unlock(&store->lock);
    return record;
}
