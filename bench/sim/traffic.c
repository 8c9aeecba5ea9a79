// SPDX-License-Identifier: Apache-2.0
#include "sim/traffic.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"

// ---- numbers ----

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static double uniform(uint64_t *seed) // in (0, 1)
{
    return (random_next(seed) + 0.5) * 0x1p-32;
}

static double exponential(uint64_t *seed, double mean) { return -mean * log(uniform(seed)); }

static double normal(uint64_t *seed)
{
    double radius = sqrt(-2 * log(uniform(seed)));
    return radius * cos(2 * M_PI * uniform(seed));
}

// With mean 1. Marsaglia and Tsang's way, which needs a shape of at least 1; a smaller one is led back to it.
static double gamma_of_shape(uint64_t *seed, double shape)
{
    double large = shape < 1 ? shape + 1 : shape, d = large - 1.0 / 3, c = 1 / sqrt(9 * d), v, x;
    do {
        x = normal(seed);
        v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    } while (v <= 0 || log(uniform(seed)) >= x * x / 2 + d - d * v + d * log(v));
    double lowered = shape < 1 ? pow(uniform(seed), 1 / shape) : 1;
    return d * v * lowered / shape;
}

static int draw_length(uint64_t *seed, const struct lengths *lengths, int most)
{
    double length = lengths->median * exp(lengths->spread * normal(seed));
    return length < 1 ? 1 : length < most ? (int)length : most;
}

static int draw_turns(uint64_t *seed, double mean)
{
    double more = mean > 1 ? log(uniform(seed)) / log(1 - 1 / mean) : 0;
    return more < TRAFFIC_TURNS_MAX - 1 ? 1 + (int)more : TRAFFIC_TURNS_MAX;
}

// ---- arrivals ----

struct arrivals {
    const struct traffic_options *options;
    uint64_t gaps, phases; // seeds
    bool surges;
    double left; // seconds of this phase
};

// The gap to the next arrival: so many of the mean's seconds, which pass faster in a surge and slower in calm.
static double next_gap(struct arrivals *arrivals)
{
    const struct traffic_options *options = arrivals->options;
    double due = gamma_of_shape(&arrivals->gaps, 1 / (options->variation * options->variation)) / options->rate;
    double cycle = TRAFFIC_CALM_SECONDS + TRAFFIC_SURGE_SECONDS, gap = 0;
    double calm_speed = cycle / (TRAFFIC_CALM_SECONDS + TRAFFIC_SURGE_SECONDS * options->surge);
    if (options->surge == 1)
        return due;
    for (;;) {
        double speed = arrivals->surges ? calm_speed * options->surge : calm_speed;
        double here = fmin(arrivals->left, due / speed);
        gap += here;
        due -= here * speed;
        arrivals->left -= here;
        if (arrivals->left > 0)
            return gap;
        arrivals->surges = !arrivals->surges;
        arrivals->left = exponential(&arrivals->phases,
                                     arrivals->surges ? TRAFFIC_SURGE_SECONDS : TRAFFIC_CALM_SECONDS);
    }
}

// ---- sessions ----

// Which share of the sessions has one of the first n + 1 system prompts.
static double *popularity(const struct traffic_options *options)
{
    double *shares = memory_new((size_t)options->systems, sizeof *shares), sum = 0;
    for (int i = 0; i < options->systems; i++)
        shares[i] = sum += pow(i + 1, -options->skew);
    for (int i = 0; i < options->systems; i++)
        shares[i] /= sum;
    return shares;
}

static int draw_system(uint64_t *seed, const double *shares, int systems)
{
    double x = uniform(seed);
    int low = 0, high = systems - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (shares[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Turns for as long as its context has room for them.
static void add_turns(struct traffic *traffic, struct session *session, const struct traffic_options *options,
                      uint64_t *seed)
{
    int wanted = draw_turns(seed, options->turns), length = session->system_tokens;
    traffic->turns = memory_grow(traffic->turns, (size_t)(traffic->turn_count + wanted), sizeof *traffic->turns);
    while (session->turns < wanted) {
        struct turn turn = { draw_length(seed, &options->user, options->context),
                             draw_length(seed, &options->answer, options->context),
                             session->turns ? exponential(seed, options->think) : 0 };
        length += turn.user + turn.answer;
        if (length > options->context)
            return;
        traffic->turns[traffic->turn_count++] = turn;
        session->turns++;
    }
}

// Without turns yet. System prompts do not depend on the seed: they are the same every day.
static struct session *add_session(struct traffic *traffic, const struct traffic_options *options, double begin,
                                   int system, uint64_t name)
{
    uint64_t seed = mixed((uint64_t)system + 1);
    int count = traffic->session_count++;
    traffic->sessions = memory_grow(traffic->sessions, (size_t)count + 1, sizeof *traffic->sessions);
    traffic->sessions[count] = (struct session){
        .begin = begin,
        .name = name,
        .system = system,
        .first_turn = traffic->turn_count,
        .system_tokens = draw_length(&seed, &options->system, options->context / 2),
    };
    return &traffic->sessions[count];
}

// One token asked, one answered. Returns when they are all through.
static double greet(struct traffic *traffic, const struct traffic_options *options, uint64_t root)
{
    traffic->turns = memory_new((size_t)options->systems, sizeof *traffic->turns);
    for (int i = 0; i < options->systems; i++) {
        add_session(traffic, options, i * options->greet, i, mixed(root - (uint64_t)i))->turns = 1;
        traffic->turns[traffic->turn_count++] = (struct turn){ 1, 1, 0 };
    }
    return options->systems * options->greet;
}

void traffic_open(struct traffic *traffic, const struct traffic_options *options)
{
    *traffic = (struct traffic){ 0 };
    int most = options->sessions_max ? options->sessions_max : TRAFFIC_SESSIONS_MAX;
    uint64_t root = mixed(options->seed);
    struct arrivals arrivals = { .options = options, .gaps = root, .phases = mixed(~root), .surges = true };
    double *shares = popularity(options);
    double begin = options->greet > 0 ? greet(traffic, options, root) : 0;
    for (int i = 1; i <= most; i++) {
        begin += next_gap(&arrivals);
        if (options->seconds > 0 && begin >= options->seconds)
            break;
        uint64_t seed = mixed(root + (uint64_t)i);
        int system = draw_system(&seed, shares, options->systems);
        add_turns(traffic, add_session(traffic, options, begin, system, seed), options, &seed);
    }
    free(shares);
}

void traffic_close(struct traffic *traffic)
{
    free(traffic->sessions);
    free(traffic->turns);
    *traffic = (struct traffic){ 0 };
}

void traffic_text(const struct session *session, int first, int end, int32_t *ids)
{
    for (int i = first; i < end; i++) {
        uint64_t whose = i < session->system_tokens ? (uint64_t)session->system : session->name;
        ids[i - first] = (int32_t)(mixed(whose + (uint64_t)i * 0x9E3779B97F4A7C15u) % TRAFFIC_IDS);
    }
}

void traffic_print(const struct traffic *traffic, FILE *out)
{
    for (int i = 0; i < traffic->session_count; i++) {
        const struct session *session = &traffic->sessions[i];
        fprintf(out, "{\"begin\": %.6f, \"system\": %d, \"system_tokens\": %d, \"turns\": [", session->begin,
                session->system, session->system_tokens);
        for (int j = 0; j < session->turns; j++) {
            const struct turn *turn = &traffic->turns[session->first_turn + j];
            fprintf(out, "%s{\"user\": %d, \"answer\": %d, \"think\": %.6f}", j ? ", " : "", turn->user, turn->answer,
                    turn->think);
        }
        fprintf(out, "]}\n");
    }
}
