// SPDX-License-Identifier: Apache-2.0
// model/shard_split.h: how tensor parallelism divides heads, feed forwards and the vocabulary among ranks. All are
// divided in units: rank r has the units from units * r / ranks on, so that no rank has more than one unit more than
// another. A unit is all query heads of a key/value head, or a single query head, where there are more ranks than
// key/value heads or that is fairer (every rank that has query heads of a key/value head has that head, too); a block
// of columns of the matrix that reads a feed forward's width; some rows of the vocabulary. A matrix that reads a part
// of a row has whole blocks of its number format.
#ifndef MODEL_SHARD_SPLIT_H
#define MODEL_SHARD_SPLIT_H

#include "model/shard.h"

// A rank has `count` of `whole` values, from `first` on; all of them where nothing was divided.
struct shard_run {
    int first, count, whole;
};

static inline bool shard_is_divided(struct shard_run run) { return run.count < run.whole; }

// The same share of something else that is as many times as large, or as small.
static inline struct shard_run shard_scale(struct shard_run run, int whole)
{
    if (!shard_is_divided(run))
        return (struct shard_run){ 0, whole, whole };
    return (struct shard_run){ (int)((int64_t)run.first * whole / run.whole),
                               (int)((int64_t)run.count * whole / run.whole), whole };
}

struct shard_split {
    const struct model *model;
    int rank, ranks;
    int kv_heads_shared; // of its own, with ranks that have other query heads of theirs
    bool heads_together; // q and k are normed over all heads at once: attention is not divided
    struct shard_run heads, kv_heads;
};

// False: some rank would have nothing; the sentence says why.
bool shard_split_make(struct shard_split *split, const struct model *model, int rank, int ranks, struct error *err);

// Returns the rows of a matrix of the model's op number `op`, which reads whole rows.
struct shard_run shard_split_rows(const struct shard_split *split, int op, int matrix);

struct shard_run shard_split_vocabulary(const struct model *model, int rank, int ranks);

#endif
