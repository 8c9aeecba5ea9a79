// SPDX-License-Identifier: Apache-2.0
// engine/ranks/collectives.h: collectives of tensor parallelism. Before an all_reduce or all_gather op runs, each rank
// gets the parts of all ranks: they lie one after the other in one buffer, in which each rank has a place of its own.
#ifndef ENGINE_RANKS_COLLECTIVES_H
#define ENGINE_RANKS_COLLECTIVES_H

#include "base/error.h"
#include "model/model.h"

struct engine;

// In a group: what the parts travel through. Done by all ranks together, and proven.
bool exchange_open(struct engine *engine, struct error *err);
void exchange_close(struct engine *engine);

// Values from one rank's place in a buffer of parts to the next one's; and where an op of this rank writes: its own
// place there, or the buffer.
size_t exchange_stride(const struct engine *engine, enum buffer buffer);
float *exchange_place(const struct engine *engine, enum buffer buffer);

// Does the op read what all ranks have?
bool exchange_precedes(const struct op *op);

// On CPUs a step of the program, before the op: `arguments` is a struct program_op. Trouble is the group's.
void exchange_run(const void *arguments, int chunk, int chunks);

// On a GPU, before the op with so many rows: queued by NCCL where the engine has NCCL, else through memory of the host,
// which has to wait. Only a queued exchange can be captured in a graph and replayed.
bool exchange_is_queued(const struct engine *engine);
bool exchange_on_gpu(const struct engine *engine, int op, int rows, struct error *err);

#endif
