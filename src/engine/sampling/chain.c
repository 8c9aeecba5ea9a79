// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/chain.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "engine/sampling/adjust.h"
#include "engine/sampling/dry.h"

// sampler->logits are the logits as the samplers have left them, sampler->candidates the tokens that are left. The
// value of a candidate is what the sampler at work orders by.
struct chain {
    struct sampler *sampler;
    const struct draw *draw;
    const struct nibble_sampling *sampling;
    struct candidate *candidates; // the sampler's
    int count;
    float highest; // logit
    double total;  // of the candidates' probabilities, relative to the highest
};

enum { XTC_DRAW = 1 }; // the stream of its random numbers

static float highest_of(const struct chain *chain)
{
    float highest = -INFINITY;
    for (int i = 0; i < chain->count; i++)
        highest = fmaxf(highest, chain->sampler->logits[chain->candidates[i].id]);
    return highest;
}

// The probabilities relative to the highest, as values and in sampler->weights, and their sum.
static void weigh(struct chain *chain)
{
    struct sampler *sampler = chain->sampler;
    if (!sampler->weights)
        sampler->weights = memory_new((size_t)sampler->vocabulary, sizeof *sampler->weights);
    chain->highest = highest_of(chain);
    chain->total = 0;
    for (int i = 0; i < chain->count; i++) {
        struct candidate *candidate = &chain->candidates[i];
        candidate->value = sampler_probability(sampler->logits[candidate->id], chain->highest, 1);
        sampler->weights[i] = candidate->value;
        chain->total += candidate->value;
    }
}

static void keep_highest(struct chain *chain, int count)
{
    for (int i = 0; i < chain->count; i++)
        chain->candidates[i].value = chain->sampler->logits[chain->candidates[i].id];
    chain->count = candidates_top(chain->candidates, chain->count, chain->candidates, count);
}

// ---- what keeps min_keep candidates at least ------------------------------------------------------------------------

// The first by value, which are put back if a sampler leaves fewer.
static int save(struct chain *chain)
{
    struct sampler *sampler = chain->sampler;
    if (chain->sampling->min_keep <= 1)
        return 0;
    if (!sampler->saved)
        sampler->saved = memory_new((size_t)sampler->vocabulary, sizeof *sampler->saved);
    return candidates_top(chain->candidates, chain->count, sampler->saved, chain->sampling->min_keep);
}

static void restore(struct chain *chain, int saved)
{
    if (chain->count >= saved)
        return;
    memcpy(chain->candidates, chain->sampler->saved, (size_t)saved * sizeof *chain->candidates);
    chain->count = saved;
}

static void keep_from(struct chain *chain, double least)
{
    int saved = save(chain), kept = 0;
    for (int i = 0; i < chain->count; i++)
        if (chain->candidates[i].value >= least)
            chain->candidates[kept++] = chain->candidates[i];
    chain->count = kept;
    restore(chain, saved);
}

static void keep_mass(struct chain *chain, double part)
{
    int saved = save(chain);
    chain->count = sampler_keep_mass(chain->candidates, chain->sampler->weights, chain->count, part * chain->total);
    restore(chain, saved);
}

// ---- the samplers ---------------------------------------------------------------------------------------------------

static void use_penalties(struct chain *chain) { adjust_penalties(chain->sampler, chain->draw); }

static void use_dry(struct chain *chain) { dry_penalise(chain->sampler, chain->draw); }

// Candidates within so many standard deviations of the highest logit ("Top-n sigma", Tang et al. 2024).
static void use_top_n_sigma(struct chain *chain)
{
    double n = chain->sampling->top_n_sigma, sum = 0, squares = 0;
    if (n <= 0 || !chain->count)
        return;
    for (int i = 0; i < chain->count; i++) {
        chain->candidates[i].value = chain->sampler->logits[chain->candidates[i].id];
        sum += chain->candidates[i].value;
    }
    double mean = sum / chain->count;
    for (int i = 0; i < chain->count; i++)
        squares += (chain->candidates[i].value - mean) * (chain->candidates[i].value - mean);
    double least = highest_of(chain) - n * sqrt(squares / chain->count);
    int kept = 0;
    for (int i = 0; i < chain->count; i++)
        if (chain->candidates[i].value >= least)
            chain->candidates[kept++] = chain->candidates[i];
    chain->count = kept;
}

static double entropy_of(struct chain *chain)
{
    double entropy = 0;
    weigh(chain);
    for (int i = 0; i < chain->count; i++) {
        double probability = chain->candidates[i].value / chain->total;
        entropy -= probability > 0 ? probability * log(probability) : 0;
    }
    return entropy;
}

// The fixed one, or where there is a range one that follows the entropy, relative to that of all being alike.
static double temperature_of(struct chain *chain)
{
    const struct nibble_sampling *sampling = chain->sampling;
    double temperature = sampling->temperature, range = sampling->dynatemp_range;
    if (range <= 0 || chain->count < 2)
        return temperature;
    double low = fmax(0, temperature - range), high = temperature + range;
    return low + (high - low) * pow(entropy_of(chain) / log(chain->count), sampling->dynatemp_exponent);
}

static void use_temperature(struct chain *chain)
{
    double temperature = temperature_of(chain);
    float highest = highest_of(chain);
    if (temperature <= 0) {
        keep_highest(chain, 1);
        return;
    }
    for (int i = 0; i < chain->count; i++) {
        float *logit = &chain->sampler->logits[chain->candidates[i].id];
        *logit = adjust_clamp(((double)*logit - highest) / temperature);
    }
}

static void use_top_k(struct chain *chain)
{
    if (chain->sampling->top_k && chain->sampling->top_k < chain->sampler->vocabulary)
        keep_highest(chain, chain->sampling->top_k); // in their order even where all stay, as in the usual sampler
}

static void use_min_p(struct chain *chain)
{
    if (chain->sampling->min_p <= 0)
        return;
    weigh(chain);
    keep_from(chain, chain->sampling->min_p);
}

static void use_top_p(struct chain *chain)
{
    if (chain->sampling->top_p >= 1)
        return;
    weigh(chain);
    keep_mass(chain, chain->sampling->top_p);
}

// At least top_a times the square of the highest probability.
static void use_top_a(struct chain *chain)
{
    if (chain->sampling->top_a <= 0)
        return;
    weigh(chain);
    keep_from(chain, fmin(1, chain->sampling->top_a / chain->total));
}

// Locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the entropy.
static void use_typical_p(struct chain *chain)
{
    double typical_p = chain->sampling->typical_p;
    if (typical_p <= 0 || typical_p >= 1)
        return;
    double entropy = entropy_of(chain);
    for (int i = 0; i < chain->count; i++) {
        double probability = chain->candidates[i].value / chain->total;
        double distance = probability > 0 ? fabs(-log(probability) - entropy) : FLT_MAX;
        chain->candidates[i].value = (float)(1 / (1 + distance)); // the nearest first
    }
    keep_mass(chain, typical_p);
}

// Now and then all choices that reach the threshold are excluded, but for the least likely of them.
static void use_xtc(struct chain *chain)
{
    const struct nibble_sampling *sampling = chain->sampling;
    int choices = 0, least = -1, kept = 0;
    if (sampling->xtc_probability <= 0 || sampling->xtc_threshold > 0.5 || chain->count < 2
        || sampler_uniform(sampling, chain->draw->count, XTC_DRAW) >= sampling->xtc_probability)
        return;
    weigh(chain);
    double threshold = sampling->xtc_threshold * chain->total;
    const struct candidate *candidates = chain->candidates;
    for (int i = 0; i < chain->count; i++) {
        if (candidates[i].value < threshold)
            continue;
        choices++;
        if (least < 0 || candidates[i].value < candidates[least].value
            || (candidates[i].value == candidates[least].value && candidates[i].id > candidates[least].id))
            least = i;
    }
    if (choices < 2 || chain->count - choices + 1 < sampling->min_keep)
        return;
    for (int i = 0; i < chain->count; i++)
        if (i == least || candidates[i].value < threshold)
            chain->candidates[kept++] = candidates[i];
    chain->count = kept;
}

static void (*const samplers[NIBBLE_SAMPLERS])(struct chain *chain) = {
    [NIBBLE_SAMPLER_PENALTIES] = use_penalties,
    [NIBBLE_SAMPLER_DRY] = use_dry,
    [NIBBLE_SAMPLER_TOP_N_SIGMA] = use_top_n_sigma,
    [NIBBLE_SAMPLER_TEMPERATURE] = use_temperature,
    [NIBBLE_SAMPLER_MIN_P] = use_min_p,
    [NIBBLE_SAMPLER_TOP_K] = use_top_k,
    [NIBBLE_SAMPLER_TYPICAL_P] = use_typical_p,
    [NIBBLE_SAMPLER_TOP_P] = use_top_p,
    [NIBBLE_SAMPLER_TOP_A] = use_top_a,
    [NIBBLE_SAMPLER_XTC] = use_xtc,
};

// ---- the draw -------------------------------------------------------------------------------------------------------

static int draw_one(struct chain *chain)
{
    weigh(chain);
    double target = sampler_uniform(chain->sampling, chain->draw->count, 0) * chain->total, sum = 0;
    for (int i = 0; i < chain->count; i++)
        if ((sum += chain->candidates[i].value) > target)
            return i;
    return chain->count - 1;
}

// Mirostat 2 (Basu et al. 2021): what is more surprising than mu is left out, and mu is moved so that the surprise of
// what is drawn comes near to tau.
static int draw_mirostat(struct chain *chain)
{
    const struct nibble_sampling *sampling = chain->sampling;
    double *mu = chain->draw->mirostat_mu;
    weigh(chain);
    keep_from(chain, fmin(1, exp2(-*mu) * chain->total)); // the highest has 1
    int drawn = draw_one(chain);
    double surprise = log2(chain->total / chain->candidates[drawn].value);
    *mu -= sampling->mirostat_eta * (surprise - sampling->mirostat_tau);
    return drawn;
}

static void list_candidates(struct chain *chain)
{
    for (int32_t id = 0; id < chain->sampler->vocabulary; id++)
        if (chain->sampler->logits[id] > -INFINITY)
            chain->candidates[chain->count++] = (struct candidate){ .id = id };
}

static bool is_used(const struct chain *chain, int which)
{
    return !chain->sampling->mirostat || which == NIBBLE_SAMPLER_PENALTIES || which == NIBBLE_SAMPLER_DRY
        || which == NIBBLE_SAMPLER_TEMPERATURE;
}

// The usual order has bias and bans behind the penalties; an order of the request's own begins after them.
static void use_usual_order(struct chain *chain)
{
    use_penalties(chain);
    use_dry(chain);
    adjust_limits(chain->sampler, chain->draw);
    list_candidates(chain);
    for (int which = NIBBLE_SAMPLER_DRY + 1; which < NIBBLE_SAMPLERS; which++)
        if (is_used(chain, which))
            samplers[which](chain);
}

static void use_own_order(struct chain *chain)
{
    adjust_limits(chain->sampler, chain->draw);
    list_candidates(chain);
    for (const unsigned char *which = chain->sampling->order; *which; which++)
        if (is_used(chain, *which))
            samplers[*which](chain);
    if (chain->sampling->temperature == 0 && chain->sampling->dynatemp_range == 0)
        keep_highest(chain, 1);
}

int32_t chain_draw(struct sampler *sampler, const struct draw *draw)
{
    struct chain chain = {
        .sampler = sampler, .draw = draw, .sampling = draw->sampling, .candidates = sampler->candidates
    };
    if (draw->sampling->order[0])
        use_own_order(&chain);
    else
        use_usual_order(&chain);
    int drawn = draw->sampling->mirostat ? draw_mirostat(&chain) : draw_one(&chain);
    return chain.candidates[drawn].id;
}

// ---- values ---------------------------------------------------------------------------------------------------------

#define AT(member) offsetof(struct nibble_sampling, member)

static const struct {
    const char *name;
    size_t offset;
    double low, high;
} reals[] = {
    { "dry-multiplier", AT(dry_multiplier), 0, 100 },
    { "dry-base", AT(dry_base), 0, 100 },
    { "top-n-sigma", AT(top_n_sigma), 0, 1000 },
    { "typical-p", AT(typical_p), 0, 1 },
    { "top-a", AT(top_a), 0, 1 },
    { "dynatemp-range", AT(dynatemp_range), 0, 100 },
    { "dynatemp-exponent", AT(dynatemp_exponent), 0, 100 },
    { "xtc-probability", AT(xtc_probability), 0, 1 },
    { "xtc-threshold", AT(xtc_threshold), 0, 1 },
    { "mirostat-tau", AT(mirostat_tau), 0, 100 },
    { "mirostat-eta", AT(mirostat_eta), 0, 1 },
};

static const struct {
    const char *name;
    size_t offset;
} integers[] = {
    { "penalty-last-n", AT(penalty_last_n) },
    { "dry-allowed-length", AT(dry_allowed_length) },
    { "dry-penalty-last-n", AT(dry_penalty_last_n) },
    { "min-keep", AT(min_keep) },
};

static bool check_order(const unsigned char *order, struct error *err)
{
    unsigned used = 0;
    for (int i = 0; i < NIBBLE_SAMPLERS; i++) {
        if (order[i] == NIBBLE_SAMPLERS_END)
            return true;
        if (order[i] >= NIBBLE_SAMPLERS || used >> order[i] & 1)
            break;
        used |= 1u << order[i];
    }
    return fail_usage(err, "the order of samplers has an unknown one, or one twice");
}

bool chain_check(const struct nibble_sampling *sampling, struct error *err)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double value = *(const double *)(const void *)((const char *)sampling + reals[i].offset);
        if (!(value >= reals[i].low && value <= reals[i].high))
            return fail_usage(err, "%s %g: %g to %g is possible", reals[i].name, value, reals[i].low, reals[i].high);
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int value = *(const int *)(const void *)((const char *)sampling + integers[i].offset);
        if (value < 0)
            return fail_usage(err, "%s %d: 0 or more is possible", integers[i].name, value);
    }
    if (sampling->mirostat != 0 && sampling->mirostat != 2)
        return fail_usage(err, "mirostat %d: 0 (off) and 2 are possible", sampling->mirostat);
    return check_order(sampling->order, err);
}
