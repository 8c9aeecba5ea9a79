// SPDX-License-Identifier: Apache-2.0
// sim/route.h: which server gets a request. A router knows of a server what its metrics said when they were last read,
// and what it sent there itself; never the server's inside.
//
// Routing by prefix follows the endpoint picker of the Gateway API Inference Extension: a prompt's blocks of 16 tokens
// are hashed in a chain, each server has a table of the hashes that were sent to it, as many as it has pages, the least
// recently used going out first, and a server's score is 3 times the share of blocks it knows, plus twice how short its
// queue is between the longest and the shortest, plus twice the share of its cache that nobody holds.
#ifndef SIM_ROUTE_H
#define SIM_ROUTE_H

#include "kv/prefix.h"

enum { ROUTE_BLOCKS_MAX = 256 }; // of a prompt that are looked at
enum { ROUTE_PREFIX_WEIGHT = 3, ROUTE_QUEUE_WEIGHT = 2, ROUTE_CACHE_WEIGHT = 2 };

// A server from outside.
struct view {
    int waiting, running;
    double cache_use; // 0 to 1
    int sent;         // requests since the metrics were read, where the router counts them
};

struct router {
    int policy, servers, next;
    bool counts_sent;
    uint64_t seed;
    struct view *views;    // (servers), filled in by who reads the metrics
    struct kv_pool *known; // (servers), by prefix alone: pages stand for blocks; there are no bytes behind them
    double *scores;        // (servers)
};

extern const char *const route_policies[]; // up to a NULL

struct router_options {
    int policy, servers;
    int pages;        // of each server
    bool counts_sent; // it adds what it has sent since the metrics were read
    uint64_t seed;    // of who is taken among equals
};

void router_open(struct router *router, const struct router_options *options);
void router_close(struct router *router);

int router_pick(struct router *router, const int32_t *prompt, int count);

#endif
