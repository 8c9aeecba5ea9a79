// SPDX-License-Identifier: Apache-2.0
// model/shard_deal.h: who of several ranks gets what. Things are dealt out in units: rank r has those from
// units * r / ranks on, so that nobody has more than one more than another. A unit is all query heads of a key/value
// head, or a single one, where ranks are more than those or that is fairer (every rank that has query heads of a
// key/value head has that, too); a block of columns of what reads a feed forward's width; some rows of the vocabulary.
// Whatever reads a part of a row has whole blocks of its number format.
#ifndef MODEL_SHARD_DEAL_H
#define MODEL_SHARD_DEAL_H

#include "model/shard.h"

// Of `whole` values these; all of them where nothing was divided.
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

struct shard_deal {
    const struct model *model;
    int rank, ranks;
    int kv_heads_shared; // of its own, with ranks that have other query heads of theirs
    bool heads_together; // q and k are normed over all heads at once: attention is not divided
    struct shard_run heads, kv_heads;
};

// False: somebody would have nothing, and why.
bool shard_deal_make(struct shard_deal *deal, const struct model *model, int rank, int ranks, struct error *err);

// Rows of a matrix of the model's op number `op`, which reads whole rows.
struct shard_run shard_deal_rows(const struct shard_deal *deal, int op, int matrix);

struct shard_run shard_deal_vocabulary(const struct model *model, int rank, int ranks);

#endif
