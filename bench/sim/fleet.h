// SPDX-License-Identifier: Apache-2.0
// sim/fleet.h: many servers under one traffic. Each has the real scheduler with its own pages and prefix cache and no
// engine: a step takes as long as was measured, and the tokens are those of the traffic. Time is the simulation's own;
// what happens at the same moment happens in the order in which it came about, so that a run is its seed's.
#ifndef SIM_FLEET_H
#define SIM_FLEET_H

#include "sim/route.h"
#include "sim/step_time.h"
#include "sim/traffic.h"

enum { FLEET_SERVERS_MAX = 4096 };

struct fleet_options {
    struct router_options router;  // with the number of servers, their pages, and the seed
    double scrape;                 // seconds between two readings of the metrics; 0: always as they are
    int batch_tokens, running_max; // of a server
    struct step_time step_time;
    double warm_up, seconds; // requests that arrive in between count; none arrives later (0: all do)
};

struct distribution {
    double *values;
    int count;
    double mean, p50, p99; // once it is complete
};

struct fleet_result {
    int requests; // that count
    double span;  // seconds from the first of them to the last one's end, or that none arrives after
    double prompt_tokens, cached_tokens, answer_tokens; // of those that count; answers drawn within the span
    struct distribution first_token, token, prompt; // seconds to the first, from each to the next, tokens of a prompt
    uint64_t preemptions, steps;
    double busiest; // the most requests that a server got, over the mean
};

void fleet_run(const struct fleet_options *options, const struct traffic *traffic, struct fleet_result *result);
void fleet_result_free(struct fleet_result *result);

#endif
