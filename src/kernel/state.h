// SPDX-License-Identifier: Apache-2.0
// kernel/state.h: where a sequence's state is found before the rows it has in a step, and where it is left after them
// (kv/table.h). Between two steps of one page that is the same place; then a kernel moves it on where it lies.
#ifndef KERNEL_STATE_H
#define KERNEL_STATE_H

#include "kernel/op.h"

static inline uint8_t *state_at(const struct state_place *place, const struct batch_sequence *sequence, int position)
{
    int32_t page = sequence->pages[place->class_index][position / place->page_tokens];
    return place->pool + (size_t)page * place->page_bytes + place->layer_offset;
}

// NULL: nothing has been read, and all of it is zero.
static inline const uint8_t *state_before(const struct state_place *place, const struct batch *batch,
                                          const struct batch_sequence *sequence)
{
    int first = batch->positions[sequence->first];
    return first ? state_at(place, sequence, first - 1) : NULL;
}

static inline uint8_t *state_after(const struct state_place *place, const struct batch *batch,
                                   const struct batch_sequence *sequence)
{
    return state_at(place, sequence, batch->positions[sequence->first]);
}

// The two parts of a state.
static inline float *state_inputs(uint8_t *state) { return (float *)(void *)state; }

static inline float *state_matrix(const struct state_place *place, uint8_t *state)
{
    return (float *)(void *)(state + place->layout.matrix_offset);
}

#endif
