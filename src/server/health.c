// SPDX-License-Identifier: Apache-2.0
#include "server/health.h"

#include <stdio.h>

static const char *const part_names[HEALTH_PARTS] = {
    [HEALTH_SMALL_READERS] = "the reader of small requests",
    [HEALTH_LARGE_READER] = "the reader of large requests",
    [HEALTH_ENGINE] = "the engine",
    [HEALTH_WRITER] = "the writer of answers",
};

void health_open(struct health *health, double stall_seconds)
{
    *health = (struct health){ .stall_seconds = stall_seconds };
}

void health_observe(struct health *health, double now, const struct health_sample samples[HEALTH_PARTS])
{
    for (int i = 0; i < HEALTH_PARTS; i++) {
        struct health_watch *watch = &health->watches[i];
        bool stands = watch->last.busy && samples[i].busy && watch->last.count == samples[i].count;
        if (!stands)
            watch->since = now;
        watch->last = samples[i];
    }
}

bool health_is_live(const struct health *health, double now, const struct health_facts *facts, char *why, size_t size)
{
    for (int i = 0; i < HEALTH_PARTS; i++) {
        const struct health_watch *watch = &health->watches[i];
        if (watch->last.busy && now - watch->since > health->stall_seconds) {
            snprintf(why, size, "%s has work and has not got ahead for %.0f s\n", part_names[i], now - watch->since);
            return false;
        }
    }
    const struct {
        bool trouble;
        const char *sentence;
    } rows[] = {
        { facts->device_failing, "the device failed in the latest step" },
        { facts->sockets_failing, "the system refuses to watch connections" },
        { facts->corrupted_in_a_row >= HEALTH_CORRUPTED_MAX, "the model's logits are not finite, request by request" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].trouble) {
            snprintf(why, size, "%s\n", rows[i].sentence);
            return false;
        }
    }
    return true;
}

bool health_is_ready(const struct health *health, double now, const struct health_facts *facts, char *why, size_t size)
{
    if (facts->draining)
        snprintf(why, size, "the server is shutting down\n");
    return !facts->draining && health_is_live(health, now, facts, why, size);
}
