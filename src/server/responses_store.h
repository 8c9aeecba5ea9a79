// SPDX-License-Identifier: Apache-2.0
// server/responses_store.h: what `store` of /v1/responses keeps: responses in memory, by id and API key, least recently
// used first out when a number of them or of bytes is reached.
//   (1) a record is shared: by the store while its id is known, by the job that makes it, and by the records that
//       continue it (previous_response_id). A conversation stays whole when the ids of its beginning are gone
//   (2) readers look at output and end only when the status is no longer RESPONSE_IN_PROGRESS; then nothing changes
//   (3) the bytes of a record are charged from when it is added until nobody has it any more
#ifndef SERVER_RESPONSES_STORE_H
#define SERVER_RESPONSES_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/strbuf.h"
#include "server/budget.h"

enum { RESPONSE_ID_BYTES = 48, RESPONSE_STORE_BUCKETS = 4096 };

enum response_status {
    RESPONSE_IN_PROGRESS,
    RESPONSE_COMPLETED,
    RESPONSE_INCOMPLETE,
    RESPONSE_FAILED,
    RESPONSE_CANCELLED,
};
extern const char *const response_status_words[];

struct response_record {
    atomic_int references;
    struct response_store *store; // that it was added to, or NULL
    char id[RESPONSE_ID_BYTES];   // "resp_..."
    const unsigned char *owner;   // digest of the API key; NULL: none was asked for
    time_t created;
    struct response_record *previous; // that it continues (a reference), or NULL
    struct strbuf echo;               // members of the response object that repeat the request, each after a comma
    struct strbuf input;              // its own input items, as a JSON list
    atomic_bool cancelled;            // by its id
    atomic_int status;                // enum response_status
    struct strbuf output;             // its output items, as a JSON list
    struct strbuf end;                // members of the response object behind "output", each after a comma

    // Under the store's lock.
    bool listed;
    size_t charged_bytes;
    struct response_record *newer, *older; // by use
    struct response_record *next;          // in its bucket
};

struct response_store {
    pthread_mutex_t lock;
    struct budget budget;
    int count, count_max;
    struct response_record *newest, *oldest;
    struct response_record *buckets[RESPONSE_STORE_BUCKETS];
};

void response_store_open(struct response_store *store, size_t bytes, int count); // 0 of either: nothing is kept
void response_store_close(struct response_store *store);

// A record with one reference. `digits` become the id.
struct response_record *response_record_new(const char *digits, const unsigned char *owner, time_t created);
void response_record_release(struct response_record *record); // NULL: nothing happens

// Makes a record known by its id, which takes a reference. False: there is no room, as it is too large or all others
// are in progress.
bool response_store_add(struct response_store *store, struct response_record *record);
// Charges a known record with `bytes` more. False: there is no room, and it is no longer known.
bool response_store_grow(struct response_record *record, size_t bytes);
void response_store_remove(struct response_record *record); // its id is forgotten
// A reference; NULL: no such id, or another key's.
struct response_record *response_store_find(struct response_store *store, struct bytes id, const unsigned char *owner);

#endif
