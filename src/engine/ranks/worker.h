// SPDX-License-Identifier: Apache-2.0
// engine/ranks/worker.h: the loop of a worker rank: it executes the messages of rank 0 until the message that ends it.
#ifndef ENGINE_RANKS_WORKER_H
#define ENGINE_RANKS_WORKER_H

#include "engine/ranks/group.h"

// True: rank 0 has ended in order. False: it is gone, or something failed on this rank, which rank 0 has been sent.
bool worker_run(struct group *group, struct error *err);

#endif
