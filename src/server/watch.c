// SPDX-License-Identifier: Apache-2.0
// server/watch.c: feeds the health check (health.h) with counters and facts of the running server.
#include "base/clock.h"
#include "server/serve.h"

void watch_observe(struct server *server)
{
    struct health_sample samples[HEALTH_PARTS] = { 0 };
    static const enum health_part readers[LANE_COUNT] = { [LANE_SMALL] = HEALTH_SMALL_READERS,
                                                          [LANE_LARGE] = HEALTH_LARGE_READER };
    struct nibble_scheduler_stats stats;
    struct histogram ignored;
    for (const struct job *job = server->jobs; job; job = job->next) {
        enum job_stage stage = (enum job_stage)atomic_load(&job->stage);
        if (stage == JOB_READING)
            samples[readers[readers_lane(job)]].busy = true;
        else if (stage != JOB_WRITING)
            samples[HEALTH_ENGINE].busy = true;
    }
    for (int i = 0; i < LANE_COUNT; i++)
        samples[readers[i]].count = atomic_load(&server->readers.lanes[i].read_count);
    mailbox_read(&server->mailbox, &stats, &ignored);
    samples[HEALTH_ENGINE].count = stats.steps + nibble_scheduler_progress(server->served.scheduler);
    samples[HEALTH_WRITER].busy = mailbox_is_waiting(&server->mailbox);
    samples[HEALTH_WRITER].count = atomic_load(&server->mailbox.taken_count);
    health_observe(&server->health, clock_now(), samples);
}

static struct health_facts facts_of(struct server *server)
{
    struct nibble_scheduler_stats stats;
    struct histogram ignored;
    mailbox_read(&server->mailbox, &stats, &ignored);
    return (struct health_facts){ .draining = server->draining,
                                  .device_failing = stats.failing,
                                  .sockets_failing = http_failing(server->http),
                                  .corrupted_in_a_row = stats.corrupted_in_a_row };
}

bool watch_ready(struct server *server, char *why, size_t size)
{
    struct health_facts facts = facts_of(server);
    return health_is_ready(&server->health, clock_now(), &facts, why, size);
}

bool watch_live(struct server *server, char *why, size_t size)
{
    struct health_facts facts = facts_of(server);
    return health_is_live(&server->health, clock_now(), &facts, why, size);
}
