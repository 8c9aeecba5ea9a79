// SPDX-License-Identifier: Apache-2.0
// model/shard.h: the part of a model that one of several ranks computes. A described model is rewritten: heads, columns
// then rows of feed forwards and experts, and the vocabulary are divided in whole blocks, as evenly as they go; a
// matrix becomes the tensor of this rank's rows or columns of it. Where a rank has terms of sums, the op writes PARTIAL
// and `all_reduce` follows, which adds up all ranks'; `all_gather` brings the head's rows together. Each rank
// computes by itself the parts that cannot be divided, and says why.
#ifndef MODEL_SHARD_H
#define MODEL_SHARD_H

#include "model/model.h"

enum { SHARD_RANKS_MAX = 64 };

// Rewrites a whole model as one rank's part; for one rank it stays as it is. False: so many ranks cannot share it; the
// sentence says why, and which numbers can.
bool model_shard(struct model *model, int rank, int ranks, struct error *err);

// True if a whole model can be divided among so many ranks; the sentence says why not.
bool model_shard_fits(const struct model *model, int ranks, struct error *err);

#endif
