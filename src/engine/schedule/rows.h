// SPDX-License-Identifier: Apache-2.0
// engine/schedule/rows.h: rows of logits of a step, private to engine/schedule: the mask that constrains each
// (constrained decoding) and the token that is sampled from it.
#ifndef ENGINE_SCHEDULE_ROWS_H
#define ENGINE_SCHEDULE_ROWS_H

#include "engine/schedule/generate.h"

// A request with its sampling parameters and its listener.
struct answer {
    struct request request; // first: the scheduler's chunks name it
    struct nibble_listener listener;
    struct sampling_params sampling;
    int max_tokens, min_tokens;
    int top_logprobs; // -1: nothing is scored
    bool score_prompt;
    int32_t *stop_ids;
    size_t stop_count;
    bool held;          // its last row waits for its mask
    float *held_logits; // that row; NULL: this never happened
};

// One row of logits: what is asked of it and what was found.
struct row {
    struct answer *answer; // NULL: it has ended in the meantime
    int position;          // of the token it comes after
    bool last;             // of its text
    bool on_device;        // it is drawn where its logits are; they do not come here
    bool held;             // of an earlier step
    bool late;             // its mask was not computed in this step: it is not drawn from
    const float *logits;
    uint32_t *mask; // NULL: every token may come
    bool finite;
    int32_t drawn; // only where something is
    double log_total;
    struct candidate *top;
    int top_count, rank;
};

// Whether a token is sampled from the row.
static inline bool row_is_drawn(const struct row *row) { return row->last && row->answer->max_tokens > 0; }

static inline int answer_tokens_left(const struct answer *answer)
{
    return answer->max_tokens - answer->request.usage.answer_tokens;
}

// Whether the answer has min_tokens, its placeholder included.
static inline bool answer_may_stop(const struct answer *answer)
{
    return answer->request.usage.answer_tokens + answer->request.has_placeholder >= answer->min_tokens;
}

static inline int rows_vocabulary(const struct generator *generator)
{
    return generator->engine->model.config.vocabulary;
}

// Computes the masks of tokens that listeners allow. A GPU computes the step at the same time.
void rows_mask(struct generator *generator, struct in_flight *in_flight);

// Takes the tokens that the device sampled. The thread pool samples the other rows from their logits.
void rows_draw(struct generator *generator, struct in_flight *in_flight, const struct engine_result *result);

// Keeps the logits of rows whose masks were not computed in time, for a later step.
void rows_hold(struct generator *generator, struct in_flight *in_flight);

#endif
