// SPDX-License-Identifier: Apache-2.0
// The samplers of the chain, each and together, against plain definitions on sorted lists; DRY against a search for
// every repetition; mirostat's state; and values that are off.
#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "container.h"
#include "engine/sampling/dry.h"

enum { VOCABULARY = 14, DRAWS = 3000 };

static const struct nibble_sampling plain = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };

// ---- the definition -------------------------------------------------------------------------------------------------

// The candidates that are left, the likeliest first. `margin` is how near a decision was to going the other way.
struct list {
    int count, ids[VOCABULARY];
    double logits[VOCABULARY], probabilities[VOCABULARY], margin;
};

static void swap(struct list *list, int a, int b)
{
    int id = list->ids[a];
    double logit = list->logits[a];
    list->ids[a] = list->ids[b], list->logits[a] = list->logits[b];
    list->ids[b] = id, list->logits[b] = logit;
}

static void sort(struct list *list)
{
    for (int i = 0; i < list->count; i++)
        for (int j = i + 1; j < list->count; j++)
            if (list->logits[j] > list->logits[i]
                || (list->logits[j] == list->logits[i] && list->ids[j] < list->ids[i]))
                swap(list, i, j);
}

static void softmax(struct list *list)
{
    double sum = 0;
    sort(list);
    for (int i = 0; i < list->count; i++)
        sum += list->probabilities[i] = exp(list->logits[i] - list->logits[0]);
    for (int i = 0; i < list->count; i++)
        list->probabilities[i] /= sum;
}

static void near(struct list *list, double a, double b) { list->margin = fmin(list->margin, fabs(a - b)); }

static double entropy(const struct list *list)
{
    double sum = 0;
    for (int i = 0; i < list->count; i++)
        sum -= list->probabilities[i] * log(list->probabilities[i]);
    return sum;
}

static int at_least(int count, const struct nibble_sampling *sampling, const struct list *list)
{
    count = count < sampling->min_keep ? sampling->min_keep : count;
    return count < list->count ? count : list->count;
}

static void define_top_n_sigma(struct list *list, const struct nibble_sampling *sampling)
{
    double mean = 0, variance = 0;
    if (sampling->top_n_sigma <= 0)
        return;
    sort(list);
    for (int i = 0; i < list->count; i++)
        mean += list->logits[i] / list->count;
    for (int i = 0; i < list->count; i++)
        variance += pow(list->logits[i] - mean, 2) / list->count;
    double least = list->logits[0] - sampling->top_n_sigma * sqrt(variance);
    int count = 0;
    while (count < list->count && (near(list, list->logits[count], least), list->logits[count] >= least))
        count++;
    list->count = count;
}

static void define_temperature(struct list *list, const struct nibble_sampling *sampling)
{
    double temperature = sampling->temperature;
    softmax(list);
    if (sampling->dynatemp_range > 0 && list->count > 1) {
        double low = fmax(0, temperature - sampling->dynatemp_range), high = temperature + sampling->dynatemp_range;
        temperature = low + (high - low) * pow(entropy(list) / log(list->count), sampling->dynatemp_exponent);
    }
    for (int i = 0; i < list->count; i++)
        list->logits[i] /= temperature;
}

static void define_min_p(struct list *list, const struct nibble_sampling *sampling)
{
    int count = 0;
    softmax(list);
    while (count < list->count && list->probabilities[count] >= sampling->min_p * list->probabilities[0])
        count++;
    for (int i = 0; i < list->count && sampling->min_p > 0; i++)
        near(list, list->probabilities[i], sampling->min_p * list->probabilities[0]);
    list->count = sampling->min_p > 0 ? at_least(count, sampling, list) : list->count;
}

static void define_top_k(struct list *list, const struct nibble_sampling *sampling)
{
    sort(list);
    list->count = sampling->top_k && sampling->top_k < list->count ? sampling->top_k : list->count;
}

static void define_top_p(struct list *list, const struct nibble_sampling *sampling)
{
    int count = 0;
    double sum = 0;
    softmax(list);
    while (count < list->count && sum < sampling->top_p) {
        sum += list->probabilities[count++];
        near(list, sampling->top_p < 1 ? sum : 2, sampling->top_p);
    }
    list->count = sampling->top_p < 1 ? at_least(count, sampling, list) : list->count;
}

static void define_top_a(struct list *list, const struct nibble_sampling *sampling)
{
    int count = 1;
    softmax(list);
    double least = sampling->top_a * pow(list->probabilities[0], 2);
    while (count < list->count && list->probabilities[count] >= least)
        count++;
    for (int i = 0; i < list->count && least > 0; i++)
        near(list, list->probabilities[i], least);
    list->count = sampling->top_a > 0 ? at_least(count, sampling, list) : list->count;
}

static void define_typical_p(struct list *list, const struct nibble_sampling *sampling)
{
    double distance[VOCABULARY], sum = 0;
    int count = 0;
    if (!sampling->typical_p)
        return;
    softmax(list);
    double typical = entropy(list);
    for (int i = 0; i < list->count; i++) // selection sort: the nearest first, of equals the lowest id
        distance[i] = fabs(-log(list->probabilities[i]) - typical);
    for (int i = 0; i < list->count; i++)
        for (int j = i + 1; j < list->count; j++) {
            near(list, distance[i] == distance[j] ? 1 : distance[i], distance[j]);
            if (distance[j] < distance[i] || (distance[j] == distance[i] && list->ids[j] < list->ids[i])) {
                double moved = distance[i], probability = list->probabilities[i];
                distance[i] = distance[j], list->probabilities[i] = list->probabilities[j];
                distance[j] = moved, list->probabilities[j] = probability;
                swap(list, i, j);
            }
        }
    while (count < list->count && sum < sampling->typical_p) {
        sum += list->probabilities[count++];
        near(list, sum, sampling->typical_p);
    }
    list->count = at_least(count, sampling, list);
}

static void define_xtc(struct list *list, const struct nibble_sampling *sampling)
{
    int choices = 0;
    if (sampling->xtc_probability == 0)
        return;
    softmax(list);
    for (int i = 0; i < list->count; i++) {
        choices += list->probabilities[i] >= sampling->xtc_threshold;
        near(list, list->probabilities[i], sampling->xtc_threshold);
    }
    if (choices < 2 || list->count - choices + 1 < sampling->min_keep)
        return;
    list->count -= choices - 1;
    memmove(list->ids, list->ids + choices - 1, (size_t)list->count * sizeof *list->ids);
    memmove(list->logits, list->logits + choices - 1, (size_t)list->count * sizeof *list->logits);
}

static void (*const definitions[NIBBLE_SAMPLERS])(struct list *list, const struct nibble_sampling *sampling) = {
    [NIBBLE_SAMPLER_TOP_N_SIGMA] = define_top_n_sigma,
    [NIBBLE_SAMPLER_TEMPERATURE] = define_temperature,
    [NIBBLE_SAMPLER_MIN_P] = define_min_p,
    [NIBBLE_SAMPLER_TOP_K] = define_top_k,
    [NIBBLE_SAMPLER_TYPICAL_P] = define_typical_p,
    [NIBBLE_SAMPLER_TOP_P] = define_top_p,
    [NIBBLE_SAMPLER_TOP_A] = define_top_a,
    [NIBBLE_SAMPLER_XTC] = define_xtc,
};

static struct list define(const float *logits, const struct nibble_sampling *sampling)
{
    struct list list = { .count = VOCABULARY, .margin = 1 };
    for (int id = 0; id < VOCABULARY; id++)
        list.ids[id] = id, list.logits[id] = logits[id];
    for (int i = 0; i < NIBBLE_SAMPLERS; i++) {
        int which = sampling->order[0] ? sampling->order[i] : i;
        if (which && definitions[which])
            definitions[which](&list, sampling);
        if (sampling->order[0] && !which)
            break;
    }
    softmax(&list);
    return list;
}

// ---- draws ----------------------------------------------------------------------------------------------------------

static int32_t draw_one(struct sampler *sampler, const float *logits, const struct nibble_sampling *sampling)
{
    int32_t ids[1] = { 0 };
    double mu = 2 * sampling->mirostat_tau;
    struct draw draw = { .sampling = sampling, .ids = ids, .prompt_count = 1, .count = 1, .mirostat_mu = &mu };
    return sampler_draw(sampler, logits, &draw);
}

static void check_draws(const float *logits, const struct list *list, struct nibble_sampling sampling)
{
    struct sampler sampler;
    int seen[VOCABULARY] = { 0 };
    double expected[VOCABULARY] = { 0 };
    for (int i = 0; i < list->count; i++)
        expected[list->ids[i]] = list->probabilities[i];
    sampler_open(&sampler, VOCABULARY);
    for (sampling.seed = 0; sampling.seed < DRAWS; sampling.seed++)
        seen[draw_one(&sampler, logits, &sampling)]++;
    for (int id = 0; id < VOCABULARY; id++) {
        double found = (double)seen[id] / DRAWS, deviation = sqrt(expected[id] * (1 - expected[id]) / DRAWS);
        if (fabs(found - expected[id]) > 5 * deviation + (expected[id] > 0 ? 2.0 / DRAWS : 0))
            fail_msg("token %d has probability %g and was drawn with %g", id, expected[id], found);
    }
    sampler_close(&sampler);
}

// One of them each round at first, then some.
static struct nibble_sampling random_sampling(uint64_t *seed, int round)
{
    struct nibble_sampling sampling = plain;
    int alone = round % 2 ? 0 : 1 + round / 2 % 8;
    sampling.temperature = 0.3 + random_between(seed, 0, 150) / 100.0;
#define CHOSEN(number) (alone == (number) || (!alone && random_between(seed, 0, 2) == 0))
    if (CHOSEN(1))
        sampling.top_n_sigma = random_between(seed, 1, 300) / 100.0;
    if (CHOSEN(2))
        sampling.min_p = random_between(seed, 1, 50) / 100.0;
    if (CHOSEN(3))
        sampling.typical_p = random_between(seed, 1, 99) / 100.0;
    if (CHOSEN(4))
        sampling.top_p = random_between(seed, 1, 99) / 100.0;
    if (CHOSEN(5))
        sampling.top_a = random_between(seed, 1, 100) / 100.0;
    if (CHOSEN(6))
        sampling.xtc_probability = 1, sampling.xtc_threshold = random_between(seed, 1, 40) / 100.0;
    if (CHOSEN(7))
        sampling.dynatemp_range = random_between(seed, 1, 150) / 100.0, sampling.dynatemp_exponent = 1.5;
    if (CHOSEN(8))
        sampling.top_k = random_between(seed, 1, VOCABULARY);
    if (random_between(seed, 0, 3) == 0)
        sampling.min_keep = random_between(seed, 0, VOCABULARY + 3);
#undef CHOSEN
    return sampling;
}

static void shuffle(uint64_t *seed, unsigned char *order)
{
    int count = 0;
    for (int which = 1; which < NIBBLE_SAMPLERS; which++)
        if (definitions[which] && random_between(seed, 0, 4))
            order[count++] = (unsigned char)which;
    for (int i = count - 1; i > 0; i--) {
        int other = random_between(seed, 0, i);
        unsigned char moved = order[i];
        order[i] = order[other], order[other] = moved;
    }
    order[count] = NIBBLE_SAMPLERS_END;
}

static void test_what_is_drawn_and_how_often(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int checked = 0;
    for (int round = 0; round < 320; round++) {
        float logits[VOCABULARY];
        struct nibble_sampling sampling = random_sampling(&seed, round);
        for (int id = 0; id < VOCABULARY; id++)
            logits[id] = 3 * random_real(&seed);
        if (round % 3 == 0)
            shuffle(&seed, sampling.order);
        struct list list = define(logits, &sampling);
        if (list.margin < 1e-5)
            continue; // both sides of the decision are right
        check_draws(logits, &list, sampling);
        checked++;
    }
    assert_true(checked > 250);
}

static void test_xtc_now_and_then(void **state)
{
    (void)state;
    const float logits[VOCABULARY] = { 4, 3.5f, 3, 0 };
    struct nibble_sampling sampling = plain;
    sampling.xtc_probability = 0.3, sampling.xtc_threshold = 0.1;
    struct sampler sampler;
    int first = 0;
    struct list list = define(logits, &plain);
    sampler_open(&sampler, VOCABULARY);
    for (sampling.seed = 0; sampling.seed < DRAWS; sampling.seed++)
        first += draw_one(&sampler, logits, &sampling) < 2; // both are excluded where it is used
    double expected = 0.7 * (list.probabilities[0] + list.probabilities[1]);
    assert_true(fabs((double)first / DRAWS - expected) < 5 * sqrt(expected * (1 - expected) / DRAWS));
    sampler_close(&sampler);
}

// ---- DRY ------------------------------------------------------------------------------------------------------------

static bool matches(const int32_t *text, int left, const int32_t *sequence, int count)
{
    return count <= left && !memcmp(text, sequence, (size_t)count * sizeof *text);
}

struct breaker {
    int count;
    int32_t ids[3];
};

// The longest repetition that each token would continue, by trying them all; -1: none. Some of the definition's turns:
// only the last breaker counts, which is the longest that begins where it begins.
static void search(const int32_t *text, int count, const struct breaker *breakers, int breaker_count, int *longest)
{
    int limit = count;
    for (int at = count - 1; at >= 0 && limit == count; at--) {
        int most = 0;
        for (int i = 0; i < breaker_count; i++)
            if (matches(text + at, count - at, breakers[i].ids, breakers[i].count) && breakers[i].count > most)
                most = breakers[i].count;
        limit = most ? count - at - most : limit;
    }
    for (int id = 0; id < VOCABULARY; id++)
        longest[id] = -1;
    for (int end = 1; end < count; end++) {
        int same = 0;
        while (same < end && same < limit && text[end - 1 - same] == text[count - 1 - same])
            same++;
        longest[text[end]] = same > longest[text[end]] ? same : longest[text[end]];
    }
    for (int i = 0; i < breaker_count; i++)
        if (breakers[i].count == 1)
            longest[breakers[i].ids[0]] = -1;
}

static void test_dry(void **state)
{
    enum { TEXT_MAX = 60, BREAKERS = 4 };
    (void)state;
    uint64_t seed = 12;
    int penalised = 0;
    struct sampler sampler;
    sampler_open(&sampler, VOCABULARY);
    for (int round = 0; round < 4000; round++) {
        int32_t text[TEXT_MAX], flat[4 * BREAKERS];
        struct breaker breakers[BREAKERS];
        struct nibble_token_sequences sequences = { flat, 0 };
        struct dry_breakers opened;
        int count = random_between(&seed, 1, TEXT_MAX), breaker_count = round % 2 ? random_between(&seed, 0, 4) : 0;
        int letters = random_between(&seed, 1, 5), longest[VOCABULARY];
        for (int i = 0; i < count; i++)
            text[i] = random_between(&seed, 0, letters);
        for (int i = 0; i < breaker_count; i++) {
            breakers[i].count = random_between(&seed, 1, 3);
            for (int j = 0; j < breakers[i].count; j++)
                flat[sequences.count++] = breakers[i].ids[j] = random_between(&seed, 0, letters + 1);
            flat[sequences.count++] = NIBBLE_SEQUENCE_END;
        }
        struct nibble_sampling sampling = plain;
        sampling.dry_multiplier = 0.8, sampling.dry_base = 1.75;
        sampling.dry_allowed_length = random_between(&seed, 0, 4);
        sampling.dry_penalty_last_n = random_between(&seed, 0, TEXT_MAX);
        int window = sampling.dry_penalty_last_n && sampling.dry_penalty_last_n < count ? sampling.dry_penalty_last_n
                                                                                        : count;
        memset(sampler.logits, 0, VOCABULARY * sizeof *sampler.logits);
        dry_breakers_open(&opened, sequences, VOCABULARY);
        struct draw draw = { .sampling = &sampling, .ids = text, .count = count, .breakers = &opened };
        dry_penalise(&sampler, &draw);
        dry_breakers_free(&opened);
        search(text + count - window, window, breakers, breaker_count, longest);
        for (int id = 0; id < VOCABULARY; id++) {
            int extra = longest[id] - sampling.dry_allowed_length;
            double expected = longest[id] >= 0 && extra >= 0 && window > sampling.dry_allowed_length
                ? -0.8 * pow(1.75, extra)
                : 0;
            if (fabs(sampler.logits[id] - expected) > 1e-5 * fabs(expected))
                fail_msg("round %d: token %d has %g, expected %g", round, id, (double)sampler.logits[id], expected);
            penalised += expected < 0;
            assert_int_equal(sampler.longest ? sampler.longest[id] : 0, 0);
        }
    }
    assert_true(penalised > 3000);
    sampler_close(&sampler);
}

// A text of one token repeated is the worst case of a search that is not linear.
static void test_dry_is_linear(void **state)
{
    enum { LONG = 400000 };
    (void)state;
    int32_t *text = calloc(LONG, sizeof *text);
    struct sampler sampler;
    struct nibble_sampling sampling = plain;
    sampling.dry_multiplier = 1, sampling.dry_base = 2, sampling.dry_allowed_length = 2;
    sampler_open(&sampler, 2);
    dry_penalise(&sampler, &(struct draw){ .sampling = &sampling, .ids = text, .count = LONG });
    assert_true(sampler.logits[0] < -1e29 && isfinite(sampler.logits[0]));
    sampler_close(&sampler);
    free(text);
}

// ---- mirostat -------------------------------------------------------------------------------------------------------

static void test_mirostat(void **state)
{
    (void)state;
    uint64_t seed = 13;
    int32_t ids[500] = { 0 };
    struct nibble_sampling sampling = plain;
    sampling.mirostat = 2, sampling.mirostat_tau = 2, sampling.mirostat_eta = 0.1, sampling.top_k = 1; // not used
    struct sampler sampler;
    double mu = 4, expected = 4, surprises = 0;
    sampler_open(&sampler, VOCABULARY);
    for (int i = 1; i < 500; i++) {
        float logits[VOCABULARY];
        for (int id = 0; id < VOCABULARY; id++)
            logits[id] = 2 * random_real(&seed);
        struct draw draw = { .sampling = &sampling, .ids = ids, .count = i, .mirostat_mu = &mu };
        int32_t drawn = sampler_draw(&sampler, logits, &draw);
        struct nibble_sampling untruncated = plain;
        struct list list = define(logits, &untruncated);
        int count = 0;
        while (count < list.count && -log2(list.probabilities[count]) <= expected)
            count++;
        list.count = count ? count : 1;
        softmax(&list);
        int at = 0;
        while (at < list.count && list.ids[at] != drawn)
            at++;
        assert_true(at < list.count);
        expected -= 0.1 * (-log2(list.probabilities[at]) - 2);
        surprises -= log2(list.probabilities[at]);
        assert_true(fabs(mu - expected) < 1e-4);
        mu = expected;
    }
    assert_true(fabs(surprises / 499 - 2) < 0.15); // that is what it is for
    sampler_close(&sampler);
}

// ---- windows, bad words, allowed tokens -----------------------------------------------------------------------------

static void test_a_window_of_penalties(void **state)
{
    (void)state;
    const float logits[] = { 3, 2.9f, 2.8f, 0 };
    const int32_t ids[] = { 0, 1, 2, 0, 3, 1 };
    struct sampler sampler;
    struct nibble_sampling sampling = plain;
    sampler_open(&sampler, COUNT_OF(logits));
    sampling.temperature = 0, sampling.repetition_penalty = 2;
    struct draw draw = { .sampling = &sampling, .ids = ids, .prompt_count = 4, .count = COUNT_OF(ids) };
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 0); // all have occurred
    sampling.penalty_last_n = 2;                                // 3 and 1
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 0);
    sampling.penalty_last_n = 3; // 0, too
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 2);
    sampling.repetition_penalty = 1, sampling.frequency_penalty = 2; // of these, 3 and 1 are the answer's
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 0);
    sampling.penalty_last_n = 0;
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 0);
    sampler_close(&sampler);
}

static void test_bad_words_and_allowed_tokens(void **state)
{
    (void)state;
    const float logits[] = { 5, 4, 3, 2 };
    const int32_t ids[] = { 0, 0, 3, 2 }, words[] = { 0, -1, 3, 2, 1, -1, -1 }, all[] = { 0, -1, 1, -1, 2, -1, 3, -1 };
    const uint32_t allowed = 1 << 1 | 1 << 2;
    struct sampler sampler;
    struct nibble_sampling sampling = plain;
    sampling.temperature = 0;
    sampler_open(&sampler, COUNT_OF(logits));
    struct draw draw = { .sampling = &sampling, .ids = ids, .prompt_count = 2, .count = 4, .bad_words = { words, 7 } };
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 2); // 0 is one, and 1 would complete the other
    draw.count = 3;
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 1);
    draw.count = 4, draw.prompt_count = 3; // its beginning is the prompt's
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 1);
    draw.bad_words = (struct nibble_token_sequences){ all, COUNT_OF(all) };
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 0); // nothing else may come
    draw.allowed = &allowed;
    assert_int_equal(sampler_draw(&sampler, logits, &draw), 1);
    sampler_close(&sampler);
}

static void test_off_is_as_if_absent(void **state)
{
    (void)state;
    uint64_t seed = 14;
    struct sampler sampler;
    sampler_open(&sampler, VOCABULARY);
    for (int round = 0; round < 2000; round++) {
        float logits[VOCABULARY];
        for (int id = 0; id < VOCABULARY; id++)
            logits[id] = 3 * random_real(&seed);
        struct nibble_sampling usual = plain, off;
        usual.seed = (uint64_t)round, usual.min_p = 0.05 * (round % 3), usual.top_k = round % 2 ? 7 : 0;
        usual.temperature = 0.5 + 0.1 * (round % 10), usual.top_p = round % 5 ? 1 : 0.8;
        off = usual;
        off.xtc_threshold = 0.1, off.dry_base = 1.75, off.dry_allowed_length = 2, off.dynatemp_exponent = 1;
        off.typical_p = 1, off.mirostat_tau = 5, off.mirostat_eta = 0.1, off.min_keep = 1;
        assert_true(sampler_is_usual(&off));
        int32_t expected = draw_one(&sampler, logits, &usual);
        assert_int_equal(draw_one(&sampler, logits, &off), expected);
        off.xtc_probability = 1e-12; // the chain, in which nothing is done
        assert_false(sampler_is_usual(&off));
        assert_int_equal(draw_one(&sampler, logits, &off), expected);
    }
    sampler_close(&sampler);
}

static void test_values(void **state)
{
    (void)state;
    struct error err;
    static const struct nibble_sampling wrong[] = {
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .mirostat = 1 },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .typical_p = 1.5 },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .xtc_probability = NAN },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .dry_allowed_length = -1 },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .order = { NIBBLE_SAMPLER_DRY, NIBBLE_SAMPLER_DRY } },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .order = { 99 } },
    };
    assert_true(sampler_check(&plain, &err));
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_false(sampler_check(&wrong[i], &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_drawn_and_how_often),
        cmocka_unit_test(test_xtc_now_and_then),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_dry_is_linear),
        cmocka_unit_test(test_mirostat),
        cmocka_unit_test(test_a_window_of_penalties),
        cmocka_unit_test(test_bad_words_and_allowed_tokens),
        cmocka_unit_test(test_off_is_as_if_absent),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
