// SPDX-License-Identifier: Apache-2.0
// The health check of a server that makes progress, is stuck or is shutting down, on a simulated clock.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "server/health.h"

#include <cmocka.h>

enum { STALL_SECONDS = 60 };

static const struct health_facts well;

static void observe(struct health *health, double now, enum health_part part, bool busy, uint64_t count)
{
    struct health_sample samples[HEALTH_PARTS] = { 0 };
    samples[part] = (struct health_sample){ busy, count };
    health_observe(health, now, samples);
}

static void assert_trouble(const struct health *health, double now, const struct health_facts *facts, const char *words)
{
    char why[256] = "";
    assert_false(health_is_ready(health, now, facts, why, sizeof why));
    if (!strstr(why, words))
        fail_msg("\"%s\" does not say \"%s\"", why, words);
}

static void assert_well(const struct health *health, double now)
{
    char why[256] = "";
    if (!health_is_ready(health, now, &well, why, sizeof why))
        fail_msg("%s", why);
    assert_true(health_is_live(health, now, &well, why, sizeof why));
}

static void test_stall(void **state)
{
    static const char *const words[HEALTH_PARTS] = {
        [HEALTH_SMALL_READERS] = "small requests",
        [HEALTH_LARGE_READER] = "large requests",
        [HEALTH_ENGINE] = "the engine",
        [HEALTH_WRITER] = "the writer",
    };
    (void)state;
    for (int part = 0; part < HEALTH_PARTS; part++) {
        struct health health;
        char why[256];
        health_open(&health, STALL_SECONDS);
        observe(&health, 1000, (enum health_part)part, true, 7);
        assert_well(&health, 1000);
        observe(&health, 1059, (enum health_part)part, true, 7);
        assert_well(&health, 1059);
        observe(&health, 1061, (enum health_part)part, true, 7);
        assert_trouble(&health, 1061, &well, words[part]);
        assert_trouble(&health, 1061, &well, "61 s");
        assert_false(health_is_live(&health, 1061, &well, why, sizeof why));
        observe(&health, 1062, (enum health_part)part, true, 8); // it was only slow
        assert_well(&health, 1062);
    }
}

// A step of hours is no stall while its ops go by, nor is a day without requests.
static void test_progress(void **state)
{
    struct health health;
    (void)state;
    health_open(&health, STALL_SECONDS);
    for (int i = 0; i < 1000; i++) {
        observe(&health, 50.0 * i, HEALTH_ENGINE, true, (uint64_t)i);
        assert_well(&health, 50.0 * i);
    }
    observe(&health, 50000, HEALTH_ENGINE, false, 1000);
    assert_well(&health, 90000);
    observe(&health, 90000, HEALTH_ENGINE, true, 1000); // work comes after the rest
    assert_well(&health, 90059);
    assert_trouble(&health, 90061, &well, "the engine");
}

static void test_facts(void **state)
{
    struct health health;
    char why[256];
    (void)state;
    health_open(&health, STALL_SECONDS);
    assert_trouble(&health, 0, &(struct health_facts){ .device_failing = true }, "device");
    assert_trouble(&health, 0, &(struct health_facts){ .sockets_failing = true }, "connections");
    assert_trouble(&health, 0, &(struct health_facts){ .corrupted_in_a_row = HEALTH_CORRUPTED_MAX }, "not finite");
    const struct health_facts once = { .corrupted_in_a_row = 1 }, draining = { .draining = true };
    assert_true(health_is_ready(&health, 0, &once, why, sizeof why)); // one request's trouble is its own
    assert_trouble(&health, 0, &draining, "shutting down");
    assert_true(health_is_live(&health, 0, &draining, why, sizeof why)); // a restart would help nobody
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
