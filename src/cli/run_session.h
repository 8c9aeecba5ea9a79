// SPDX-License-Identifier: Apache-2.0
// cli/run_session.h: what a `nibble run` has open: a model with its scheduler, and how it answers.
#ifndef CLI_RUN_SESSION_H
#define CLI_RUN_SESSION_H

#include <signal.h>

#include "cli/trace.h"
#include "nibble.h"

struct run_options {
    const char *system, *template_file;
    struct nibble_options engine;
    struct nibble_defaults_options defaults;
    struct nibble_sampling sampling; // below 0: the model's own default
    int64_t seed;                    // below 0: a random one
    int max_tokens;
    bool raw, no_reasoning;
    int trace; // enum trace_word
};

struct session {
    const char *model; // as it was given
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct nibble_chat *chat; // NULL with --raw
    struct cli_trace trace;
    struct nibble_engine *engine;
    struct nibble_scheduler *scheduler;
    int32_t *stop_ids;
    size_t stop_count;
    struct nibble_sampling sampling;
    char origin[560];  // of the sampling parameters, for people
    int max_tokens;    // 0: as many as the context holds
    bool shortened;    // --max-model-len was given
    bool no_reasoning; // thoughts stay in the answer
    bool seeded;       // a seed was given: answers repeat

    // How answers are printed.
    bool figures;       // tokens and their rate after each answer
    bool hide_thoughts; // a line for each says how long it took
    bool plain_text;    // Markdown is printed as it is
    bool no_wrap;       // the terminal breaks lines
};

// Ctrl-C sets it; the next answer clears it.
extern volatile sig_atomic_t session_interrupted;

bool session_open(struct session *session, const char *model, const struct run_options *options, struct error *err);
void session_close(struct session *session);

// Draws a seed where none was given.
void session_reseed(struct session *session);

// Prints the plan in short and the sampling parameters; these alone, with where they are from.
void session_print_start(const struct session *session);
void session_print_sampling(const struct session *session);

// Tokens that the context has left after a prompt of `count`.
long long session_room(const struct session *session, size_t count);

#endif
