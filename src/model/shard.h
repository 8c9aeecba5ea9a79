// SPDX-License-Identifier: Apache-2.0
// model/shard.h: the part of a model that one of several ranks computes. A described model is rewritten: heads, columns
// then rows of feed forwards and experts, and the vocabulary are dealt out in whole blocks, as evenly as they go; a
// matrix becomes the tensor of this rank's rows or columns of it. Where a rank has terms of sums, the op writes PARTIAL
// and `reduce` follows, which adds up all ranks'; the head's rows are brought together by `join`. What cannot be
// divided every rank does by itself, and says why.
#ifndef MODEL_SHARD_H
#define MODEL_SHARD_H

#include "model/model.h"

enum { SHARD_RANKS_MAX = 64 };

// Of a whole model, which stays as it is for one rank. False: so many ranks cannot share it; the sentence says why, and
// which numbers can.
bool model_shard(struct model *model, int rank, int ranks, struct error *err);

// Whether it can be done, of a whole model; the sentence says why not.
bool model_shard_fits(const struct model *model, int ranks, struct error *err);

#endif
