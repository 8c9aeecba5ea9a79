// SPDX-License-Identifier: Apache-2.0
#include "cli/run_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "cli/cli.h"

volatile sig_atomic_t session_interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    session_interrupted = 1;
}

static bool override_double(double *value, double given)
{
    if (given >= 0)
        *value = given;
    return given >= 0;
}

void session_reseed(struct session *session)
{
    if (session->seeded)
        return;
    if (getrandom(&session->sampling.seed, sizeof session->sampling.seed, 0) < 0)
        session->sampling.seed = (uint64_t)time(NULL);
}

void session_print_sampling(const struct session *session)
{
    struct nibble_text line = { 0 };
    nibble_sampling_print(&session->sampling, &line);
    cli_print("sampling: %s (%s)\n", line.data, session->origin);
    free(line.data);
}

void session_print_start(const struct session *session)
{
    cli_print_plan(session->engine);
    session_print_sampling(session);
}

static bool choose_sampling(struct session *session, const struct run_options *options, struct error *err)
{
    struct nibble_sampling *sampling = &session->sampling;
    const struct nibble_sampling *given = &options->sampling;
    struct nibble_defaults defaults;
    if (!nibble_sampling_defaults(session->checkpoint, &options->defaults, &defaults, err))
        return false;
    *sampling = defaults.sampling;
    bool flags = override_double(&sampling->temperature, given->temperature);
    flags |= override_double(&sampling->top_p, given->top_p);
    flags |= override_double(&sampling->min_p, given->min_p);
    flags |= override_double(&sampling->repetition_penalty, given->repetition_penalty);
    flags |= given->top_k >= 0;
    sampling->top_k = given->top_k >= 0 ? given->top_k : sampling->top_k;
    session->max_tokens = options->max_tokens ? options->max_tokens : defaults.max_tokens;
    session->seeded = options->seed >= 0;
    sampling->seed = session->seeded ? (uint64_t)options->seed : 0;
    session_reseed(session);
    snprintf(session->origin, sizeof session->origin, "%s%s", defaults.origin, flags ? ", and flags" : "");
    return true;
}

static bool open_engine(struct session *session, const struct run_options *options, struct error *err)
{
    struct nibble_options engine = options->engine;
    engine.trace = cli_trace_open(&session->trace, (enum trace_word)options->trace);
    session->engine = cli_engine_open(session->checkpoint, &engine, err);
    if (!session->engine)
        return false;
    session->scheduler = nibble_scheduler_open(session->engine, &(struct nibble_scheduler_options){ 0 });
    session->stop_count = nibble_engine_stop_ids(session->engine, session->tokenizer, &session->stop_ids);
    return true;
}

bool session_open(struct session *session, const char *model, const struct run_options *options, struct error *err)
{
    *session = (struct session){ .model = model,
                                 .shortened = options->engine.max_model_len,
                                 .no_reasoning = options->no_reasoning,
                                 .figures = true };
    bool ok = (session->checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, err))
        && (session->tokenizer = nibble_tokenizer_open(session->checkpoint, err))
        && (options->raw || (session->chat = nibble_chat_open(session->checkpoint, options->template_file, err)))
        && choose_sampling(session, options, err) && open_engine(session, options, err);
    sigaction(SIGINT, &(struct sigaction){ .sa_handler = on_interrupt }, NULL);
    return ok;
}

void session_close(struct session *session)
{
    free(session->stop_ids);
    nibble_scheduler_close(session->scheduler);
    nibble_engine_close(session->engine);
    nibble_chat_close(session->chat);
    nibble_tokenizer_close(session->tokenizer);
    nibble_checkpoint_close(session->checkpoint);
}

long long session_room(const struct session *session, size_t count)
{
    return (long long)nibble_engine_max_model_len(session->engine) - (long long)count;
}
