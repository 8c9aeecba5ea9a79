// SPDX-License-Identifier: Apache-2.0
// server/serve.h: the state of the running server, internal to this room. It belongs to the event loop's thread, except
// for the parts that readers, worker and writer share.
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "server/access.h"
#include "server/budget.h"
#include "server/health.h"
#include "server/model.h"
#include "server/reader.h"
#include "server/responses_store.h"
#include "server/server.h"
#include "server/worker.h"
#include "server/writer.h"

struct event;

struct server {
    const struct server_options *options;
    struct served served; // the model
    struct mailbox mailbox;
    struct outbox outbox;
    struct readers readers;
    struct worker worker;
    struct writer writer;
    struct metrics metrics;
    json_t *plan;

    struct event_base *base;
    struct http_server *http;
    int port; // that is bound
    struct event *wake, *terminate, *interrupt, *tick;
    struct event *lost; // NULL: no other process computes the model
    struct access access;
    struct budget budget; // of all requests in flight
    struct response_store responses;
    struct job *jobs; // all of them
    int job_count, jobs_max;
    struct health health;
    bool draining;
    struct error model_error;             // "" until the model's files are no longer what was opened
    int flush_polls;                      // at the end, while clients still take what was written
    struct nibble_scheduler_stats logged; // at the last summary
    double logged_at;
};

// ---- route.c ------------------------------------------------------------------------------------------------------

bool route_admit(void *server, struct http_exchange *exchange);
void route_request(void *server, struct http_exchange *exchange);
void route_refuse(void *server, struct http_exchange *exchange, int status, const char *sentence);
void route_gone(void *server, struct http_exchange *exchange);

void route_count(struct server *server, const struct http_exchange *exchange, const char *path, int status,
                 double seconds); // in the metrics
// A whole answer, counted under the route's path. The log is the caller's.
void route_reply(struct server *server, struct http_exchange *exchange, const char *path, int status, const char *type,
                 struct bytes body, double seconds);
void route_reply_error(struct server *server, struct http_exchange *exchange, const char *path, enum api_style style,
                       const struct api_error *err, double seconds);

// ---- watch.c ------------------------------------------------------------------------------------------------------

void watch_observe(struct server *server); // now and then, and before it is asked
bool watch_ready(struct server *server, char *why, size_t size);
bool watch_live(struct server *server, char *why, size_t size);

// ---- deliver.c ----------------------------------------------------------------------------------------------------

void deliver_written(struct server *server);                     // what the writer has made
void deliver_sent(void *server, struct http_exchange *exchange); // a client's socket has taken what there was
void deliver_gone(struct server *server, struct job *job);       // the client has left
void deliver_abandon(struct server *server, struct job *job, const struct api_error *err); // it is given up

#endif
