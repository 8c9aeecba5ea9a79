// SPDX-License-Identifier: Apache-2.0
// engine/ranks/group.h: a tensor-parallel group: one engine over several ranks (ranks/ranks.h). Each rank opens the
// checkpoint and computes its part of the model (model/shard.h). Rank 0 does everything that an engine is asked to do:
// it schedules, samples and answers. The worker ranks have a loop (engine/ranks/worker.h) that executes the messages of
// rank 0.
//   (1) all ranks open alike or none does: build, files and plan are compared before weights are read
//   (2) pages have the same numbers everywhere, so a pool has as many as the rank with the least room can have
//   (3) a rank that is lost is lost for good: what runs fails with a sentence, and so does all that comes after
#ifndef ENGINE_RANKS_GROUP_H
#define ENGINE_RANKS_GROUP_H

#include "ranks/ranks.h"
#include "plan/plan.h"

struct checkpoint;

struct group {
    struct ranks *ranks;
    int opened; // engines until now: each has a number
};

static inline int group_rank(const struct group *group) { return group ? ranks_rank(group->ranks) : 0; }
static inline int group_size(const struct group *group) { return group ? ranks_size(group->ranks) : 1; }

static inline int group_here(const struct group *group) { return group ? ranks_here(group->ranks) : 1; }

// Chooses the device of one of `here` ranks on this host. Where `word` names no GPU each rank takes the next one, and
// ranks on the same GPU, *sharers of them, divide its memory. An imagined device is not divided.
bool group_share_device(struct device *device, const char *word, int here, int *sharers, struct error *err);

// Whether all ranks are of the same build and were started with the same flags.
bool group_compare(struct group *group, const char *flags, struct error *err);

// `ok` of all ranks: where it is false, *err has the sentence of the first of them that failed.
bool group_agree(struct group *group, bool ok, struct error *err);

// Whether all have the same files and plan alike; then context and pools become the least of all ranks.
bool group_agree_plan(struct group *group, const struct checkpoint *checkpoint, struct plan *plan, struct error *err);

#endif
