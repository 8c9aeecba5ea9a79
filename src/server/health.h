// SPDX-License-Identifier: Apache-2.0
// server/health.h: liveness and readiness checks. Each stage of a request (readers, engine, writer) has a counter that
// advances with its work; a stage that has work and whose counter stands still for stall_seconds is
// stuck. The engine's counter moves with every op of a step, so a long step on a slow machine is no stall. The clock is
// the caller's.
#ifndef SERVER_HEALTH_H
#define SERVER_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEALTH_CORRUPTED_MAX = 3 }; // requests in a row whose logits were not finite, without a good token between

enum health_part { HEALTH_SMALL_READERS, HEALTH_LARGE_READER, HEALTH_ENGINE, HEALTH_WRITER, HEALTH_PARTS };

struct health_sample {
    bool busy;      // it has work
    uint64_t count; // of what it has done, modulo anything
};

struct health {
    double stall_seconds;
    struct health_watch {
        struct health_sample last;
        double since; // when it was last seen to advance, or to have no work
    } watches[HEALTH_PARTS];
};

// Facts beside the counters.
struct health_facts {
    bool draining;        // SIGTERM has come
    bool device_failing;  // in the latest step
    bool sockets_failing; // epoll refuses connections
    int corrupted_in_a_row;
};

void health_open(struct health *health, double stall_seconds);
void health_observe(struct health *health, double now, const struct health_sample samples[HEALTH_PARTS]);

// May it get requests? Does only a restart help? Where not all is well, a sentence says why, and false comes back.
bool health_is_ready(const struct health *health, double now, const struct health_facts *facts, char *why, size_t size);
bool health_is_live(const struct health *health, double now, const struct health_facts *facts, char *why, size_t size);

#endif
