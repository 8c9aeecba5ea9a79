// SPDX-License-Identifier: Apache-2.0
// engine/ranks/worker.h: what all ranks but the first do: whatever rank 0 tells them, until it tells them the end.
#ifndef ENGINE_RANKS_WORKER_H
#define ENGINE_RANKS_WORKER_H

#include "engine/ranks/group.h"

// True: rank 0 has ended in order. False: it is gone, or something failed here that it has heard of.
bool follow(struct group *group, struct error *err);

#endif
