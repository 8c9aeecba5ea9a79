// SPDX-License-Identifier: Apache-2.0
// kernel/state.h: finds the recurrent state that a sequence reads before a step's rows, and the one it writes after
// them (kv/table.h). Within a page these are the same, and the kernel updates the state in place.
#ifndef KERNEL_STATE_H
#define KERNEL_STATE_H

#include "kernel/op.h"

static inline uint8_t *state_at(const struct state_place *place, const struct batch_sequence *sequence, int position)
{
    int32_t page = sequence->pages[place->class_index][position / place->page_tokens];
    return place->pool + (size_t)page * place->page_bytes + place->layer_offset;
}

// NULL at the sequence's start: the state is zero.
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

// The two parts of a state: the convolution's last inputs, and the matrix.
static inline float *state_inputs(uint8_t *state) { return (float *)(void *)state; }

static inline float *state_matrix(const struct state_place *place, uint8_t *state)
{
    return (float *)(void *)(state + place->layout.matrix_offset);
}

#endif
