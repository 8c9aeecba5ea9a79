// SPDX-License-Identifier: Apache-2.0
// sim/main.c: fleet-sim, a fleet of servers simulated: what the command line says, and the result as a line of JSON.
// bench/fleet measures how long steps take, runs it and draws what comes out.
#include <stdio.h>
#include <stdlib.h>

#include "cli/options.h"
#include "kv/layout.h"
#include "sim/fleet.h"

enum { TOKENS_MAX = 1 << 20, PAGES_MAX = 1 << 24 };

struct sim_command {
    struct traffic_options traffic;
    struct fleet_options fleet;
    const char *steps;
    bool print_traffic;
};

static const struct sim_command defaults = {
    .traffic = { .seed = 1,
                 .systems = 64,
                 .context = 8192,
                 .rate = 1,
                 .variation = 1,
                 .surge = 1,
                 .turns = 3.5,
                 .think = 10,
                 .skew = 1,
                 .system = { 300, 0.6 },
                 .user = { 80, 1 },
                 .answer = { 129, 0.8 } },
    .fleet = { .router = { .servers = 1, .pages = 32768 }, .scrape = 0.05, .batch_tokens = 512, .running_max = 128 },
    .steps = "1:0.01",
};

// As options_parse: -1, or the status to exit with.
static int read_line(struct sim_command *command, int argc, char **argv)
{
    struct traffic_options *t = &command->traffic;
    struct fleet_options *f = &command->fleet;
    const struct option_row rows[] = {
        { "traffic:", OPTION_HEADING },
        { "--seed", OPTION_LONG, &t->seed, "N", "of everything that is drawn (1)", 0, 1e15 },
        { "--sessions", OPTION_INT, &t->sessions_max, "N", "conversations (all that begin)", 0, TRAFFIC_SESSIONS_MAX },
        { "--rate", OPTION_REAL, &t->rate, "R", "that begin in a second (1)", 1e-6, 1e6 },
        { "--variation", OPTION_REAL, &t->variation, "V", "of the time between two; 1: Poisson (1)", 0.01, 100 },
        { "--surge", OPTION_REAL, &t->surge, "F", "times as many for 5 s after every 20 s (1)", 1, 1000 },
        { "--turns", OPTION_REAL, &t->turns, "N", "of a conversation, in the mean (3.5)", 1, TRAFFIC_TURNS_MAX },
        { "--think", OPTION_REAL, &t->think, "S", "seconds before the next turn, in the mean (10)", 0, 1e6 },
        { "--systems", OPTION_INT, &t->systems, "N", "system prompts (64)", 1, TRAFFIC_SYSTEMS_MAX },
        { "--greet", OPTION_REAL, &t->greet, "S", "at first each is asked by itself, S seconds apart", 0, 1e6 },
        { "--skew", OPTION_REAL, &t->skew, "S", "of their popularity: the n-th has n^-S (1)", 0, 10 },
        { "--system-tokens", OPTION_REAL, &t->system.median, "N", "of a system prompt, median (300)", 1, TOKENS_MAX },
        { "--user-tokens", OPTION_REAL, &t->user.median, "N", "of what is asked, median (80)", 1, TOKENS_MAX },
        { "--answer-tokens", OPTION_REAL, &t->answer.median, "N", "of an answer, median (129)", 1, TOKENS_MAX },
        { "--context", OPTION_INT, &t->context, "N", "tokens of the longest conversation (8192)", 2, TOKENS_MAX },
        { "servers:", OPTION_HEADING },
        { "--servers", OPTION_INT, &f->router.servers, "N", "how many (1)", 1, FLEET_SERVERS_MAX },
        { "--pages", OPTION_INT, &f->router.pages, "N", "of 16 tokens in a server's cache (32768)", 1, PAGES_MAX },
        { "--batch-tokens", OPTION_INT, &f->batch_tokens, "N", "read in one step (512)", 1, TOKENS_MAX },
        { "--running", OPTION_INT, &f->running_max, "N", "requests in one step (128)", 1, TOKENS_MAX },
        { "--step-seconds", OPTION_TEXT, &command->steps, "CURVE", "by a step's rows: \"1:0.004 128:0.007\" (1:0.01)" },
        { "--output-seconds", OPTION_REAL, &f->step_time.output, "S", "more for a row of logits (0)", 0, 1 },
        { "--context-seconds", OPTION_REAL, &f->step_time.context, "S", "for a token looked back at (0)", 0, 1 },
        { "--pair-seconds", OPTION_REAL, &f->step_time.pair, "S", "for a pair of a prompt's tokens (0)", 0, 1 },
        { "routing:", OPTION_HEADING },
        { "--policy", OPTION_WORD, &f->router.policy, "NAME", "round-robin, queue or prefix (round-robin)",
          .words = route_policies },
        { "--scrape", OPTION_REAL, &f->scrape, "S", "seconds between two readings of metrics (0.05)", 0, 3600 },
        { "--count-sent", OPTION_FLAG, &f->router.counts_sent, NULL, "add what was sent since the last reading" },
        { "what counts:", OPTION_HEADING },
        { "--warm-up", OPTION_REAL, &f->warm_up, "S", "seconds before requests count (0)", 0, 1e6 },
        { "--seconds", OPTION_REAL, &f->seconds, "S", "after which none comes; 0: all come (0)", 0, 1e6 },
        { "--print-traffic", OPTION_FLAG, &command->print_traffic, NULL, "print the conversations and end" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "fleet-sim [options]",
        .about = "Servers behind a router, simulated: schedulers and caches are real, steps take the time given.",
        .example = "fleet-sim --servers 16 --rate 40 --seconds 120 --warm-up 60 --policy prefix",
        .options = rows,
    };
    int positionals;
    return options_parse(&line, argc, argv, &positionals);
}

// Completes the options; returns an error text, or NULL.
static const char *complete(struct sim_command *command)
{
    if (!command->traffic.sessions_max && command->fleet.seconds <= 0)
        return "nothing says where it ends: --sessions or --seconds does";
    if (!step_time_read(&command->fleet.step_time, command->steps))
        return "--step-seconds takes rows and seconds by rising rows, such as \"1:0.004 128:0.007\"";
    if (command->traffic.context > command->fleet.router.pages * KV_PAGE_TOKENS)
        return "the longest conversation does not fit the cache: lower --context or raise --pages";
    command->fleet.router.seed = command->traffic.seed;
    command->traffic.seconds = command->fleet.seconds;
    return NULL;
}

static void print_distribution(const char *name, const struct distribution *distribution)
{
    printf("\"%s\": {\"mean\": %.9g, \"p50\": %.9g, \"p99\": %.9g}, ", name, distribution->mean, distribution->p50,
           distribution->p99);
}

static void print_result(const struct router_options *options, const struct fleet_result *result)
{
    printf("{\"servers\": %d, \"policy\": \"%s\", \"counts_sent\": %s, \"seed\": %llu, \"requests\": %d, "
           "\"seconds\": %.9g, ",
           options->servers, route_policies[options->policy], options->counts_sent ? "true" : "false",
           (unsigned long long)options->seed, result->requests, result->span);
    print_distribution("first_token_s", &result->first_token);
    print_distribution("token_s", &result->token);
    print_distribution("prompt_tokens", &result->prompt);
    printf("\"hit_rate\": %.9g, \"answer_tokens_per_s\": %.9g, \"requests_per_s\": %.9g, \"preemptions\": %llu, "
           "\"steps\": %llu, \"busiest\": %.6g}\n",
           result->cached_tokens / result->prompt_tokens, result->answer_tokens / result->span,
           result->requests / result->span, (unsigned long long)result->preemptions, (unsigned long long)result->steps,
           result->busiest);
}

static const char *simulate(const struct fleet_options *options, const struct traffic *traffic)
{
    struct fleet_result result;
    fleet_run(options, traffic, &result);
    bool any = result.requests > 0;
    if (any)
        print_result(&options->router, &result);
    fleet_result_free(&result);
    return any ? NULL : "no request came that counts; raise --seconds or --rate, or lower --warm-up";
}

int main(int argc, char **argv)
{
    struct sim_command command = defaults;
    int status = read_line(&command, argc, argv);
    if (status >= 0)
        return status;
    const char *trouble = complete(&command);
    struct traffic traffic = { 0 };
    if (!trouble)
        traffic_open(&traffic, &command.traffic);
    if (!trouble && command.print_traffic)
        traffic_print(&traffic, stdout);
    else if (!trouble)
        trouble = simulate(&command.fleet, &traffic);
    traffic_close(&traffic);
    if (trouble)
        fprintf(stderr, "fleet-sim: %s\n", trouble);
    return trouble ? 2 : 0;
}
