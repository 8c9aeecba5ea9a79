// SPDX-License-Identifier: Apache-2.0
// tools/bench_measure.c: times the cases of `nibble bench`. Tokens are random and the same in every run. Each sequence
// of a batch has its own, so that none reads another's pages. The depth is read once and then found in the prefix
// cache, so that rounds are short; no sample includes it.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "tools/bench.h"
#include "cli/cli.h"

enum { WARM_UP_TOKENS = 8 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

int bench_case_length(const struct bench_case *wanted)
{
    return wanted->depth + (wanted->kind == BENCH_PREFILL ? wanted->prompt + 1 : wanted->new + 2);
}

void bench_record_op(void *context, const struct nibble_op *op)
{
    const struct bench_subject *subject = context;
    if (subject->recorded)
        bench_ops_add(subject->recorded, op, &subject->ceiling);
}

// ---- requests -----------------------------------------------------------------------------------------------------

// A group of requests that run together.
struct request_group {
    struct bench_subject *subject;
    int32_t *ids; // of one prompt, filled for each request in turn
    int prompt_count;
    int max_tokens;
    uint64_t names[BENCH_BATCH_MAX];
    int count;
    int started;       // requests that have drawn their first token
    int cached_tokens; // of the request that ended last
    bool ok;
    struct error *err;
};

static bool on_token(void *context, const struct nibble_token *token)
{
    struct request_group *group = context;
    group->started += token->position == group->prompt_count;
    return true;
}

static void on_finished(void *context, enum nibble_finish reason, const struct nibble_usage *usage,
                        const char *sentence)
{
    struct request_group *group = context;
    group->cached_tokens = usage->cached_tokens;
    if (reason == NIBBLE_FINISH_FAILED)
        group->ok = fail(group->err, "%s", sentence);
}

static void fill(struct request_group *group, int first, int end, uint64_t seed)
{
    int vocabulary = nibble_engine_vocabulary(group->subject->engine);
    for (int i = first; i < end; i++)
        group->ids[i] = random_between(&seed, 0, vocabulary - 1);
}

static void group_open(struct request_group *group, const struct bench_case *wanted, int prompt_count, int max_tokens,
                       struct error *err)
{
    *group = (struct request_group){ .subject = wanted->subject,
                                     .ids = memory_new((size_t)prompt_count + 1, sizeof *group->ids),
                                     .prompt_count = prompt_count,
                                     .max_tokens = max_tokens,
                                     .ok = true,
                                     .err = err };
}

static void group_add(struct request_group *group)
{
    struct nibble_request request = {
        .prompt = group->ids,
        .prompt_count = (size_t)group->prompt_count,
        .max_tokens = group->max_tokens,
        .sampling = { .top_p = 1, .repetition_penalty = 1 },
        .top_logprobs = -1,
        .listener = { .context = group, .token = on_token, .finished = on_finished },
    };
    uint64_t name = group->ok ? nibble_scheduler_add(group->subject->scheduler, &request, group->err) : 0;
    group->ok = name != 0;
    if (name)
        group->names[group->count++] = name;
}

// Runs steps until nothing is left to do, or `started` requests have drawn a token. Returns how many tokens were drawn.
static int group_run(struct request_group *group, int started)
{
    struct nibble_step step;
    int answers = 0;
    while (group->ok && !interrupted && group->started < started
           && nibble_scheduler_step(group->subject->scheduler, &step))
        answers += step.answers;
    return answers;
}

// False: there is no sample, because something failed (the error says what) or Ctrl-C came.
static bool group_close(struct request_group *group)
{
    for (int i = 0; i < group->count; i++)
        nibble_scheduler_cancel(group->subject->scheduler, group->names[i]);
    free(group->ids);
    return group->ok && !interrupted;
}

// ---- cases --------------------------------------------------------------------------------------------------------

// Seeds: each sequence of a batch has its own, and each prompt that must not be found in the cache a new one.
static uint64_t sequence_seed(int index) { return (uint64_t)index + 1; }

static uint64_t fresh_seed(int sample) { return (uint64_t)BENCH_BATCH_MAX + 1 + (uint64_t)sample; }

// Reads the depth of each sequence into the cache.
static bool read_depths(const struct bench_case *wanted, struct error *err)
{
    struct request_group group;
    if (!wanted->depth)
        return true;
    group_open(&group, wanted, wanted->depth, 0, err);
    for (int i = 0; i < wanted->batch; i++) {
        fill(&group, 0, wanted->depth, sequence_seed(i));
        group_add(&group);
    }
    group_run(&group, INT32_MAX);
    return group_close(&group);
}

static bool measure_prefill(const struct bench_case *wanted, int sample, struct bench_ops *ops, double *rate,
                            struct error *err)
{
    struct request_group group;
    group_open(&group, wanted, wanted->depth + wanted->prompt, 1, err);
    fill(&group, 0, wanted->depth, sequence_seed(0));
    fill(&group, wanted->depth, group.prompt_count, fresh_seed(sample));
    double start = clock_now();
    group_add(&group);
    wanted->subject->recorded = ops;
    group_run(&group, INT32_MAX);
    wanted->subject->recorded = NULL;
    *rate = (group.prompt_count - group.cached_tokens) / (clock_now() - start);
    return group_close(&group);
}

// The first token of each sequence is drawn untimed, with what is left to read of its depth.
static bool measure_decode(const struct bench_case *wanted, int new, struct bench_ops *ops, double *rate,
                           struct error *err)
{
    struct request_group group;
    group_open(&group, wanted, wanted->depth + 1, new + 1, err);
    for (int i = 0; i < wanted->batch; i++) {
        fill(&group, 0, group.prompt_count, sequence_seed(i));
        group_add(&group);
    }
    group_run(&group, wanted->batch);
    double start = clock_now();
    wanted->subject->recorded = ops;
    int answers = group_run(&group, INT32_MAX);
    wanted->subject->recorded = NULL;
    *rate = answers / (clock_now() - start);
    return group_close(&group);
}

// Round 0 is not timed: it loads weights and code into memory and the depths into the cache.
static bool measure_case(struct bench_case *wanted, int round, int sample, struct error *err)
{
    double rate;
    int new = round || wanted->new < WARM_UP_TOKENS ? wanted->new : WARM_UP_TOKENS;
    struct bench_ops *ops = round ? wanted->ops : NULL;
    bool ok = read_depths(wanted, err)
        && (wanted->kind == BENCH_PREFILL ? measure_prefill(wanted, sample, ops, &rate, err)
                                          : measure_decode(wanted, new, ops, &rate, err));
    if (ok && round)
        wanted->samples[wanted->sample_count++] = rate;
    return ok || interrupted;
}

bool bench_measure(struct bench_run *bench, struct error *err)
{
    struct cli_progress progress = { .label = "measuring", .shown = -1 };
    struct sigaction before;
    bool ok = true;
    sigaction(SIGINT, &(struct sigaction){ .sa_handler = on_interrupt }, &before);
    cli_print("measuring %d figures in %d rounds; Ctrl-C ends it with what there is\n", bench->case_count,
              bench->repeats);
    for (int round = 0; round <= bench->repeats && ok && !interrupted; round++)
        for (int i = 0; i < bench->case_count && ok && !interrupted; i++) {
            int sample = round * bench->case_count + i;
            cli_progress_show(&progress, (double)sample / ((bench->repeats + 1) * bench->case_count));
            ok = measure_case(&bench->cases[i], round, sample, err);
        }
    cli_progress_show(&progress, 1);
    sigaction(SIGINT, &before, NULL);
    bench->stopped = interrupted;
    return ok;
}
