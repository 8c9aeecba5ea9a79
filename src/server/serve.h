// SPDX-License-Identifier: Apache-2.0
// server/serve.h: the running server, for the files of this room. All of it belongs to the loop's thread, but for what
// the post and the worker share.
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "server/model.h"
#include "server/server.h"
#include "server/worker.h"

struct event;

enum { KEY_DIGEST_BYTES = 32 };

struct server {
    const struct server_options *options;
    struct served served;                 // the model
    struct post post;
    struct worker worker;
    struct metrics metrics;
    json_t *plan;

    struct event_base *base;
    struct http_server *http;
    struct event *wake, *terminate, *interrupt, *tick;
    struct event *lost;                   // NULL: no other process computes the model
    unsigned char (*keys)[KEY_DIGEST_BYTES]; // SHA-256 of each
    struct job *jobs;                     // all of them
    int job_count, jobs_max;
    bool draining;
    struct nibble_error model_error;      // "" until the model's files are no longer what was opened
    int flush_polls;                      // at the end, while clients still take what was written
    struct nibble_scheduler_stats logged; // at the last summary
    double logged_at;
};

// ---- route.c ------------------------------------------------------------------------------------------------------

void route_request(void *server, struct http_exchange *exchange);
void route_refuse(void *server, struct http_exchange *exchange, int status, const char *sentence);
void route_gone(void *server, struct http_exchange *exchange);

// A whole answer, counted under the route's path.
void route_reply(struct server *server, struct http_exchange *exchange, const char *path, int status, const char *type,
                 struct bytes body, double seconds);
void route_reply_error(struct server *server, struct http_exchange *exchange, const char *path,
                       const struct api_error *err, double seconds);

// ---- deliver.c ----------------------------------------------------------------------------------------------------

void deliver_posted(struct server *server);   // what the threads have sent back
void deliver_abandon(struct server *server, struct job *job, const struct api_error *err); // it is given up

#endif
