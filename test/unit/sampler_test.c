// SPDX-License-Identifier: Apache-2.0
// The tokens that can be drawn and their frequencies, against a plain definition; a draw depends on its key alone.
#include <float.h>
#include <limits.h>
#include <math.h>

#include "base/random.h"
#include "container.h"
#include "engine/sampling/sampler.h"

enum { VOCABULARY_MAX = 12, DRAWS = 3000, TEXT = 20 };

static const struct nibble_sampling plain = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };

// The token after `count` tokens of a prompt.
static int32_t draw_after(struct sampler *sampler, const float *logits, const struct nibble_sampling *sampling,
                          const int32_t *ids, int count)
{
    struct draw draw = { .sampling = sampling, .ids = ids, .prompt_count = count, .count = count };
    return sampler_draw(sampler, logits, &draw);
}

// ---- the definition ----

// Probabilities by id, 0 for what is not kept. `margin` is how near a decision was to going the other way.
struct definition {
    int vocabulary;
    double probability[VOCABULARY_MAX], margin;
};

static int nth_likely(const struct definition *of, int n) // ties to the lower id
{
    for (int id = 0; id < of->vocabulary; id++) {
        int before = 0;
        for (int other = 0; other < of->vocabulary; other++)
            before += of->probability[other] > of->probability[id]
                || (of->probability[other] == of->probability[id] && other < id);
        if (before == n)
            return id;
    }
    return -1;
}

static double sum_of(const struct definition *of)
{
    double sum = 0;
    for (int id = 0; id < of->vocabulary; id++)
        sum += of->probability[id];
    return sum;
}

static void keep_most_likely(struct definition *of, int count)
{
    int dropped[VOCABULARY_MAX];
    for (int n = count; n < of->vocabulary; n++)
        dropped[n] = nth_likely(of, n);
    for (int n = count; n < of->vocabulary; n++)
        of->probability[dropped[n]] = 0;
}

static void keep_top_p(struct definition *of, double top_p)
{
    double wanted = top_p * sum_of(of), sum = 0;
    int count = 0;
    while (count < of->vocabulary && (count == 0 || sum < wanted)) {
        sum += of->probability[nth_likely(of, count++)];
        of->margin = fmin(of->margin, fabs(sum - wanted));
    }
    keep_most_likely(of, count);
}

static struct definition define(const float *logits, int vocabulary, const struct nibble_sampling *sampling,
                                const int32_t *ids, int count)
{
    struct definition of = { .vocabulary = vocabulary, .margin = 1 };
    double highest = -INFINITY;
    for (int id = 0; id < vocabulary; id++) {
        double logit = logits[id];
        bool occurs = false;
        for (int i = 0; i < count; i++)
            occurs |= ids[i] == id;
        if (occurs)
            logit = logit > 0 ? logit / sampling->repetition_penalty : logit * sampling->repetition_penalty;
        of.probability[id] = logit / sampling->temperature;
        highest = fmax(highest, of.probability[id]);
    }
    for (int id = 0; id < vocabulary; id++) {
        of.probability[id] = exp(of.probability[id] - highest);
        of.margin = fmin(of.margin, fabs(of.probability[id] - sampling->min_p));
        if (of.probability[id] < sampling->min_p)
            of.probability[id] = 0;
    }
    if (sampling->top_k && sampling->top_k < vocabulary)
        keep_most_likely(&of, sampling->top_k);
    if (sampling->top_p < 1)
        keep_top_p(&of, sampling->top_p);
    double total = sum_of(&of);
    for (int id = 0; id < vocabulary; id++)
        of.probability[id] /= total;
    return of;
}

// ---- draws ----

// Draws with DRAWS different keys and compares what comes out with the definition.
static void check_draws(const float *logits, const struct definition *of, struct nibble_sampling sampling,
                        const int32_t *ids, int vary)
{
    struct sampler sampler;
    int seen[VOCABULARY_MAX] = { 0 };
    sampler_open(&sampler, of->vocabulary);
    for (int i = 0; i < DRAWS; i++) {
        sampling.seed = vary == 0 ? (uint64_t)i : 7;
        sampling.choice = vary == 1 ? i : 0;
        int32_t id = draw_after(&sampler, logits, &sampling, ids, vary == 2 ? i : TEXT);
        assert_in_range(id, 0, of->vocabulary - 1);
        seen[id]++;
    }
    for (int id = 0; id < of->vocabulary; id++) {
        double expected = of->probability[id], found = (double)seen[id] / DRAWS;
        double deviation = sqrt(expected * (1 - expected) / DRAWS);
        if ((expected == 0) != (seen[id] == 0) && (expected == 0 || expected > 0.005))
            fail_msg("token %d has probability %g and was drawn %d times", id, expected, seen[id]);
        if (fabs(found - expected) > 5 * deviation)
            fail_msg("token %d has probability %g and was drawn with %g", id, expected, found);
    }
    sampler_close(&sampler);
}

static struct nibble_sampling random_sampling(uint64_t *seed)
{
    struct nibble_sampling sampling = plain;
    sampling.temperature = 0.2 + random_between(seed, 0, 180) / 100.0;
    if (random_between(seed, 0, 1))
        sampling.top_k = random_between(seed, 1, VOCABULARY_MAX + 3);
    if (random_between(seed, 0, 1))
        sampling.top_p = random_between(seed, 1, 100) / 100.0;
    if (random_between(seed, 0, 1))
        sampling.min_p = random_between(seed, 0, 50) / 100.0;
    if (random_between(seed, 0, 1))
        sampling.repetition_penalty = 0.5 + random_between(seed, 0, 150) / 100.0;
    return sampling;
}

static void test_what_is_drawn_and_how_often(void **state)
{
    (void)state;
    uint64_t seed = 1;
    int checked = 0;
    for (int round = 0; round < 240; round++) {
        float logits[VOCABULARY_MAX];
        static int32_t ids[DRAWS];
        int vocabulary = random_between(&seed, 1, VOCABULARY_MAX), vary = round % 3;
        struct nibble_sampling sampling = random_sampling(&seed);
        for (int id = 0; id < vocabulary; id++) {
            float logit = 3 * random_real(&seed);
            logits[id] = round % 2 ? logit : roundf(logit); // whole numbers make ties
        }
        for (int i = 0; i < DRAWS; i++) // a text that has some of the tokens, all of them from its start
            ids[i] = i < TEXT ? random_between(&seed, 0, vocabulary / 2) : ids[i % TEXT];
        if (vary == 2)
            sampling.repetition_penalty = 1; // it would change with the text
        struct definition of = define(logits, vocabulary, &sampling, ids, TEXT);
        if (of.margin < 1e-6)
            continue; // both sides of the decision are right
        check_draws(logits, &of, sampling, ids, vary);
        checked++;
    }
    assert_true(checked > 150);
}

static void test_order_of_the_steps(void **state)
{
    (void)state;
    const float logits[] = { 4, 3.8f, 2, 0, -2 };
    const int32_t ids[] = { 0, 0, 0, 4 };
    struct nibble_sampling sampling = plain;
    sampling.repetition_penalty = 2; // 0 falls behind 1, once and not three times
    sampling.top_k = 1;
    struct sampler sampler;
    sampler_open(&sampler, COUNT_OF(logits));
    assert_int_equal(draw_after(&sampler, logits, &sampling, ids, 4), 1);
    sampling.temperature = 0;
    assert_int_equal(draw_after(&sampler, logits, &sampling, ids, 4), 1);
    assert_int_equal(draw_after(&sampler, logits, &sampling, ids, 0), 0);
    for (size_t i = 0; i < COUNT_OF(logits); i++)
        assert_int_equal(sampler.seen[i], 0);

    // top_p looks at what top_k left: of two alike one makes up half.
    const float alike[] = { 1, 1, 0.9f, 0.9f, 0.9f };
    sampling = plain, sampling.top_k = 2, sampling.top_p = 0.5;
    for (sampling.seed = 0; sampling.seed < 100; sampling.seed++)
        assert_int_equal(draw_after(&sampler, alike, &sampling, ids, 1), 0);
    // min_p comes after the temperature: hot enough, and everything is near the most likely.
    sampling = plain, sampling.min_p = 0.9, sampling.temperature = 100;
    int least_likely = 0;
    for (sampling.seed = 0; sampling.seed < 200; sampling.seed++)
        least_likely += draw_after(&sampler, logits, &sampling, ids, 1) == 4;
    assert_true(least_likely > 10);
    sampler_close(&sampler);
}

static void test_greedy_ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    struct sampler sampler;
    struct nibble_sampling sampling = { .top_p = 0.3, .top_k = 3, .min_p = 0.2, .repetition_penalty = 1 };
    uint64_t seed = 2;
    float logits[50];
    sampler_open(&sampler, COUNT_OF(logits));
    for (int round = 0; round < 500; round++) {
        int expected = 0;
        for (int id = 0; id < 50; id++)
            logits[id] = (float)random_between(&seed, -5, 5);
        for (int id = 49; id >= 0; id--)
            expected = logits[id] >= logits[expected] ? id : expected;
        sampling.seed = (uint64_t)round;
        assert_int_equal(draw_after(&sampler, logits, &sampling, NULL, 0), expected);
    }
    sampler_close(&sampler);
}

static void test_a_draw_depends_on_its_key_alone(void **state)
{
    (void)state;
    enum { KEYS = 300, TOKENS = 64 };
    struct sampler used, fresh;
    struct nibble_sampling sampling = plain;
    uint64_t seed = 3;
    float logits[TOKENS], others[TOKENS];
    int32_t zeros[KEYS] = { 0 }, text[KEYS], drawn[KEYS];
    random_fill(&seed, logits, TOKENS);
    random_fill(&seed, others, TOKENS);
    for (int i = 0; i < KEYS; i++)
        text[i] = random_between(&seed, 0, TOKENS - 1);
    sampler_open(&used, TOKENS);
    for (int i = 0; i < KEYS; i++) {
        sampling = plain, sampling.seed = (uint64_t)i * 0x123456789ABCDEFu, sampling.choice = i % 5;
        drawn[i] = draw_after(&used, logits, &sampling, text, i);
    }
    for (int i = KEYS - 1; i >= 0; i--) {
        struct nibble_sampling noise = random_sampling(&seed);
        draw_after(&used, others, &noise, text, KEYS);
        sampling = plain, sampling.seed = (uint64_t)i * 0x123456789ABCDEFu, sampling.choice = i % 5;
        sampler_open(&fresh, TOKENS);
        assert_int_equal(draw_after(&used, logits, &sampling, zeros, i), drawn[i]);
        assert_int_equal(draw_after(&fresh, logits, &sampling, text, i), drawn[i]);
        sampler_close(&fresh);
    }
    sampler_close(&used);
}

// Neighbouring seeds, choices and positions agree as often as chance has it, and no more.
static void test_neighbouring_keys_are_strangers(void **state)
{
    (void)state;
    enum { KEYS = 8000, TOKENS = 8 };
    const float logits[TOKENS] = { 0 };
    static int32_t ids[KEYS + 2];
    struct sampler sampler;
    int same[4] = { 0 };
    sampler_open(&sampler, TOKENS);
    for (int i = 0; i < KEYS; i++) {
        struct nibble_sampling base = plain, seed, choice;
        base.seed = (uint64_t)i / 100, base.choice = i % 10;
        seed = base, seed.seed++;
        choice = base, choice.choice++;
        int32_t drawn = draw_after(&sampler, logits, &base, ids, i);
        same[0] += drawn == draw_after(&sampler, logits, &seed, ids, i);
        same[1] += drawn == draw_after(&sampler, logits, &choice, ids, i);
        same[2] += drawn == draw_after(&sampler, logits, &base, ids, i + 1);
        same[3] += drawn == draw_after(&sampler, logits, &choice, ids, i + 1);
    }
    for (size_t i = 0; i < COUNT_OF(same); i++)
        assert_in_range(same[i], KEYS / TOKENS - 150, KEYS / TOKENS + 150); // five deviations
    sampler_close(&sampler);
}

// ---- what a request adds ----

static bool in_mask(const uint32_t *mask, int id) { return mask[id / 32] >> id % 32 & 1; }

// Penalties over the answer, bias, mask and banned tokens, one by one as they are defined.
static int32_t expect_greedy(const float *logits, int vocabulary, const struct draw *draw)
{
    int best = -1;
    float highest = 0;
    for (int banned = 1; banned >= 0 && best < 0; banned--) // what is banned may come when nothing else may
        for (int id = 0; id < vocabulary; id++) {
            double logit = logits[id];
            bool occurs = false, out = !in_mask(draw->mask, id);
            for (int i = draw->prompt_count; i < draw->count; i++) {
                logit -= draw->ids[i] == id ? draw->sampling->frequency_penalty : 0;
                occurs |= draw->ids[i] == id;
            }
            logit -= occurs ? draw->sampling->presence_penalty : 0;
            for (size_t i = 0; i < draw->bias_count; i++)
                logit += draw->bias[i].id == id ? draw->bias[i].bias : 0;
            for (size_t i = 0; i < draw->banned_count && banned; i++)
                out |= draw->banned[i] == id;
            if (!out && (best < 0 || (float)logit > highest))
                best = id, highest = (float)logit;
        }
    return best;
}

static void test_penalties_bias_masks_and_bans(void **state)
{
    (void)state;
    enum { TOKENS = 70 };
    struct sampler sampler;
    uint64_t seed = 5;
    sampler_open(&sampler, TOKENS);
    for (int round = 0; round < 2000; round++) {
        float logits[TOKENS];
        int32_t ids[TEXT], banned[6];
        uint32_t mask[(TOKENS + 31) / 32] = { 0 };
        struct nibble_bias bias[4];
        struct nibble_sampling sampling = plain;
        sampling.temperature = 0;
        sampling.presence_penalty = random_between(&seed, -8, 8) / 4.0;
        sampling.frequency_penalty = random_between(&seed, -8, 8) / 4.0;
        for (int id = 0; id < TOKENS; id++)
            logits[id] = (float)random_between(&seed, -20, 20) / 4; // sums are exact
        for (int i = 0; i < TEXT; i++)
            ids[i] = random_between(&seed, 0, TOKENS - 1);
        for (int i = 0; i < 4; i++)
            bias[i] = (struct nibble_bias){ random_between(&seed, 0, TOKENS - 1), (float)random_between(&seed, -9, 9) };
        for (int i = 0; i < 6; i++)
            banned[i] = random_between(&seed, 0, i);
        for (int i = random_between(&seed, 1, 6); i; i--)
            mask[0] |= 1u << random_between(&seed, 0, round % 2 ? 31 : 3); // sometimes only what is banned
        struct draw draw = { .sampling = &sampling,
                             .ids = ids,
                             .count = TEXT,
                             .mask = mask,
                             .prompt_count = random_between(&seed, 0, TEXT),
                             .bias = bias,
                             .bias_count = 4,
                             .banned = banned,
                             .banned_count = (size_t)random_between(&seed, 0, 6) };
        int32_t expected = expect_greedy(logits, TOKENS, &draw);
        assert_int_equal(sampler_draw(&sampler, logits, &draw), expected);
        sampling.temperature = 1; // whatever is drawn may come
        sampling.seed = (uint64_t)round;
        assert_true(in_mask(mask, sampler_draw(&sampler, logits, &draw)));
    }
    for (int i = 0; i < TOKENS; i++)
        assert_int_equal(sampler.seen[i], 0);
    sampler_close(&sampler);
}

// Many alike.
static void test_top_p_of_a_flat_distribution(void **state)
{
    (void)state;
    enum { TOKENS = 3000 };
    static float logits[TOKENS];
    static bool drawn[TOKENS];
    struct sampler sampler;
    struct nibble_sampling sampling = plain;
    sampling.top_p = 0.5;
    int different = 0;
    sampler_open(&sampler, TOKENS);
    for (sampling.seed = 0; sampling.seed < 4000; sampling.seed++) {
        int32_t id = draw_after(&sampler, logits, &sampling, NULL, 0);
        assert_in_range(id, 0, TOKENS / 2 - 1); // ties to the lowest
        different += !drawn[id];
        drawn[id] = true;
    }
    assert_true(different > 1200);
    sampler_close(&sampler);
}

// ---- the likeliest ----

static void test_the_likeliest_are_found_in_order(void **state)
{
    (void)state;
    enum { TOKENS = 200 };
    uint64_t seed = 6;
    for (int round = 0; round < 500; round++) {
        float logits[TOKENS];
        struct candidate top[TOKENS];
        int present = 0, wanted = random_between(&seed, 0, TOKENS);
        for (int i = 0; i < TOKENS; i++) {
            logits[i] = random_between(&seed, 0, 9) ? (float)random_between(&seed, -9, 9) : -INFINITY;
            present += logits[i] > -INFINITY;
        }
        int found = logits_top(logits, TOKENS, top, wanted);
        assert_int_equal(found, wanted < present ? wanted : present);
        for (int i = 0; i < found; i++) {
            int before = 0;
            for (int id = 0; id < TOKENS; id++)
                before += logits[id] > top[i].value || (logits[id] == top[i].value && id < top[i].id);
            assert_int_equal(before, i);
            assert_true(logits[top[i].id] == top[i].value);
        }
    }
}

// ---- extremes ----

static void test_extremes_still_give_a_token(void **state)
{
    (void)state;
    static const double penalties[] = { 1, 1e-300, 1e-3, 100 }, temperatures[] = { 0, 1e-300, 1e-9, 1, 100 };
    static const float scales[] = { 0, 1e-30f, 1, 1e30f, FLT_MAX };
    const int32_t ids[] = { 0, 1, 2 };
    struct sampler sampler;
    uint64_t seed = 4;
    sampler_open(&sampler, 6);
    for (size_t p = 0; p < COUNT_OF(penalties); p++)
        for (size_t t = 0; t < COUNT_OF(temperatures); t++)
            for (size_t s = 0; s < COUNT_OF(scales); s++)
                for (int kind = 0; kind < 8; kind++) {
                    float logits[6];
                    for (int id = 0; id < 6; id++)
                        logits[id] = random_real(&seed) * scales[s];
                    struct nibble_sampling sampling = { .temperature = temperatures[t],
                                                        .repetition_penalty = penalties[p],
                                                        .top_k = kind & 1 ? 3 : 0,
                                                        .top_p = kind & 2 ? 1e-300 : 1,
                                                        .min_p = kind & 4 ? 1 : 0,
                                                        .seed = (uint64_t)kind };
                    assert_in_range(draw_after(&sampler, logits, &sampling, ids, 3), 0, 5);
                }
    sampler_close(&sampler);
}

static void test_limits(void **state)
{
    (void)state;
    struct error err;
    const struct nibble_sampling widest[] = {
        { .temperature = 0, .top_p = 1e-300, .min_p = 0, .top_k = 0, .repetition_penalty = 1e-300, .choice = -1 },
        { .temperature = 100, .top_p = 1, .min_p = 1, .top_k = INT_MAX, .repetition_penalty = 100, .seed = UINT64_MAX },
    };
    for (size_t i = 0; i < COUNT_OF(widest); i++)
        assert_true(sampler_check(&widest[i], &err));
    const double wrong_temperature[] = { -1e-9, 100.1, NAN, INFINITY, -INFINITY };
    const double wrong_top_p[] = { 0, -0.5, 1.0001, NAN, INFINITY };
    const double wrong_min_p[] = { -1e-9, 1.0001, NAN, INFINITY };
    const double wrong_penalty[] = { 0, -1, 100.1, NAN, INFINITY }, wrong_answer_penalty[] = { -101, 100.1, NAN };
    struct nibble_sampling sampling;
#define REFUSED(values, member, says)                    \
    for (size_t i = 0; i < COUNT_OF(values); i++) {      \
        sampling = plain, sampling.member = (values)[i]; \
        assert_false(sampler_check(&sampling, &err));    \
        assert_says(err, says);                          \
        assert_true(err.usage);                          \
    }
    REFUSED(wrong_temperature, temperature, "temperature");
    REFUSED(wrong_top_p, top_p, "top-p");
    REFUSED(wrong_min_p, min_p, "min-p");
    REFUSED(wrong_penalty, repetition_penalty, "repetition-penalty");
    REFUSED(wrong_answer_penalty, presence_penalty, "presence-penalty");
    REFUSED(wrong_answer_penalty, frequency_penalty, "frequency-penalty");
    REFUSED(((const int[]){ -1, INT_MIN }), top_k, "top-k");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_drawn_and_how_often),     cmocka_unit_test(test_order_of_the_steps),
        cmocka_unit_test(test_greedy_ties_go_to_the_lowest_id), cmocka_unit_test(test_a_draw_depends_on_its_key_alone),
        cmocka_unit_test(test_neighbouring_keys_are_strangers), cmocka_unit_test(test_penalties_bias_masks_and_bans),
        cmocka_unit_test(test_top_p_of_a_flat_distribution),    cmocka_unit_test(test_the_likeliest_are_found_in_order),
        cmocka_unit_test(test_extremes_still_give_a_token),     cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
