// SPDX-License-Identifier: Apache-2.0
// engine/ranks/group.h: one engine over several ranks (ranks/ranks.h). Each opens the checkpoint and computes its part
// of the model (model/shard.h). Rank 0 does whatever an engine is asked to do: it schedules, samples and answers. The
// others have a loop (engine/ranks/worker.h) that runs the messages of rank 0.
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

// The device of one of so many ranks on this host: each takes the next GPU, where `word` names none, and those that
// have the same one, *sharers, have their part of its memory. What is imagined everybody has for himself.
bool group_share_device(struct device *device, const char *word, int here, int *sharers, struct error *err);

// Whether all ranks are of the same build and were started with the same flags.
bool group_compare(struct group *group, const char *flags, struct error *err);

// `ok` of all ranks: where it is false, *err has the sentence of the first of them that failed.
bool group_agree(struct group *group, bool ok, struct error *err);

// Whether all have the same files and plan alike; then context and pools become the least of all ranks.
bool group_agree_plan(struct group *group, const struct checkpoint *checkpoint, struct plan *plan, struct error *err);

#endif
