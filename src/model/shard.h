// SPDX-License-Identifier: Apache-2.0
// model/shard.h: tensor parallelism (Megatron-LM): rewrites a model's graph, whose weights are not loaded yet, into the
// part that one rank computes. Attention is divided by heads, feed forwards and experts are column-parallel (gate, up)
// and then row-parallel (down), and the LM head by vocabulary, all in whole blocks and as evenly as possible. Each
// weight is replaced by this rank's slice of it. A row-parallel op yields partial sums in PARTIAL, and the `all_reduce`
// behind it adds up those of all ranks; `all_gather` joins the logits. Parts that cannot be divided are replicated, and
// the model keeps the reason for each.
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
