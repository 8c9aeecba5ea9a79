// SPDX-License-Identifier: Apache-2.0
#include "server/observe.h"

// The time between tokens, as they come.
static void observe_tokens(struct metrics *metrics, struct choice *choice)
{
    const struct output *delivered = &choice->delivered;
    for (int i = delivered->prompt_tokens; i < delivered->token_count; i++) {
        if (choice->token_at > 0)
            metrics_observe(metrics, METRIC_INTER_TOKEN_LATENCY, delivered->tokens[i].at - choice->token_at);
        choice->token_at = delivered->tokens[i].at;
    }
}

static enum metric_finish finish_of(enum nibble_finish reason)
{
    static const enum metric_finish finishes[] = {
        [NIBBLE_FINISH_STOP] = METRIC_STOP,
        [NIBBLE_FINISH_LENGTH] = METRIC_LENGTH,
        [NIBBLE_FINISH_CANCELLED] = METRIC_ABORT,
        [NIBBLE_FINISH_FAILED] = METRIC_ERROR,
    };
    return finishes[reason];
}

static void observe_choice(struct metrics *metrics, const struct choice *choice)
{
    const struct nibble_usage *usage = &choice->delivered.usage;
    const struct request_params *params = &choice->job->params;
    metrics_count_finish(metrics, finish_of(choice->delivered.reason));
    if (!usage->first_token)
        return;
    double decode = usage->finished - usage->first_token;
    const struct {
        enum metric_histogram which;
        double value;
    } rows[] = {
        { METRIC_TIME_TO_FIRST_TOKEN, usage->first_token - usage->arrived },
        { METRIC_E2E_LATENCY, usage->finished - usage->arrived },
        { METRIC_QUEUE_TIME, usage->admitted - usage->arrived },
        { METRIC_INFERENCE_TIME, usage->finished - usage->admitted },
        { METRIC_PREFILL_TIME, usage->first_token - usage->admitted },
        { METRIC_DECODE_TIME, decode },
        { METRIC_PROMPT_TOKENS, usage->prompt_tokens },
        { METRIC_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_MAX_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_PARAMS_N, (double)params->n },
        { METRIC_PARAMS_MAX_TOKENS, (double)params->request.max_tokens },
        { METRIC_PREFILL_COMPUTED_TOKENS, usage->prompt_tokens - usage->cached_tokens },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metrics_observe(metrics, rows[i].which, rows[i].value);
    if (usage->answer_tokens > 1)
        metrics_observe(metrics, METRIC_TIME_PER_OUTPUT_TOKEN, decode / (usage->answer_tokens - 1));
}

void observe_output(struct metrics *metrics, struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        observe_tokens(metrics, &job->choices[i]);
        if (job->choices[i].delivered.finished)
            observe_choice(metrics, &job->choices[i]);
    }
}
