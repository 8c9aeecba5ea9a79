// SPDX-License-Identifier: Apache-2.0
// The choice of formats against trying every one there is.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/random.h"
#include "tools/tune_solve.h"

enum { ITEMS = 6, FORMATS = 3, ALL = 729 /* FORMATS ^ ITEMS */, SEEDS = 200 };

static const double bits[FORMATS] = { 4.5, 8, 16 };

static double draw(uint64_t *state) { return 0.5 + 0.5 * random_real(state); }

static void make_items(struct tune_item *items, uint64_t seed)
{
    for (int i = 0; i < ITEMS; i++) {
        double cost = pow(10, -4 * draw(&seed));
        for (int format = 0; format < FORMATS; format++) {
            items[i].bits[format] = bits[format];
            items[i].kld[format] = cost;
            cost *= 0.3 * draw(&seed);
        }
    }
}

static void choose_nth(struct tune_item *items, int nth)
{
    for (int i = 0; i < ITEMS; i++, nth /= FORMATS)
        items[i].chosen = nth % FORMATS;
}

// The best within the bits; a step that no longer fits is left out, so a little may be lost against trying all.
static void test_bits_are_kept_and_well_spent(void **state)
{
    (void)state;
    double lost = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct tune_item items[ITEMS] = { 0 }, tried[ITEMS] = { 0 };
        double budget = 4.5 + 11.5 * (double)seed / SEEDS, best = INFINITY;
        make_items(items, seed);
        make_items(tried, seed);
        assert_true(tune_solve(items, ITEMS, FORMATS, budget, 0));
        assert_true(tune_bits(items, ITEMS) <= budget + 1e-6);
        for (int i = 0; i < ALL; i++) {
            choose_nth(tried, i);
            if (tune_bits(tried, ITEMS) <= budget + 1e-6)
                best = fmin(best, tune_kld(tried, ITEMS));
        }
        assert_true(tune_kld(items, ITEMS) >= best - 1e-12);
        lost += log(tune_kld(items, ITEMS) / best) / SEEDS;
    }
    assert_true(lost < 0.1);
}

static void test_divergence_is_reached(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct tune_item items[ITEMS] = { 0 };
        make_items(items, seed);
        double all_small = 0;
        for (int i = 0; i < ITEMS; i++)
            all_small += items[i].kld[0];
        assert_true(tune_solve(items, ITEMS, FORMATS, 0, all_small / 5));
        assert_true(tune_kld(items, ITEMS) <= all_small / 5);
        assert_true(tune_solve(items, ITEMS, FORMATS, 0, all_small));
        assert_true(tune_bits(items, ITEMS) == bits[0]);
    }
}

static void test_what_cannot_be_had(void **state)
{
    (void)state;
    struct tune_item items[ITEMS] = { 0 };
    make_items(items, 1);
    assert_false(tune_solve(items, ITEMS, FORMATS, 4, 0));
    assert_true(tune_bits(items, ITEMS) == bits[0]);
    assert_false(tune_solve(items, ITEMS, FORMATS, 0, 0));
    assert_true(tune_bits(items, ITEMS) == bits[FORMATS - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_kept_and_well_spent),
        cmocka_unit_test(test_divergence_is_reached),
        cmocka_unit_test(test_what_cannot_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
