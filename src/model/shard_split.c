// SPDX-License-Identifier: Apache-2.0
#include "model/shard_split.h"

#include "model/tensor_source.h"

enum { WIDTH_UNIT_MIN = 8 }; // columns of a feed forward: what kernels load at once

static int count_units(int whole, int unit) { return (whole + unit - 1) / unit; }

// The last unit may be a short one.
static struct shard_run split_units(int whole, int unit, int rank, int ranks)
{
    int64_t units = count_units(whole, unit);
    int64_t first = units * rank / ranks * unit, end = units * (rank + 1) / ranks * unit;
    return (struct shard_run){ (int)first, (int)((end < whole ? end : whole) - first), whole };
}

static int greatest_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// ---- heads ----

static bool norms_all_heads(const struct model *model)
{
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        if (op->kind == OP_NORM && (op->in == BUFFER_Q || op->in == BUFFER_K) && op->width > model->config.head_dim)
            return true;
    }
    return false;
}

// As many query heads as fill whole blocks of every matrix that reads their results.
static int heads_of_blocks(const struct model *model)
{
    int most = 1, heads = model->config.heads;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        bool reads = op->kind == OP_LINEAR && op->in == (model->config.latent ? BUFFER_V : BUFFER_A);
        int block = reads ? dtype_table[op->matrix[0].tensor->dtype].block : 1;
        int needed = block / greatest_divisor(block, reads ? op->width / heads : 1);
        most = needed > most ? needed : most; // powers of two: the largest is a multiple of all others
    }
    return most;
}

// Sets the query heads that a rank has when they are divided in units, and the key/value heads that these share.
static void split_heads_in(struct shard_split *split, int unit, int rank)
{
    const struct model_config *config = &split->model->config;
    int group = config->heads / config->kv_heads;
    split->heads = split_units(config->heads, unit, rank, split->ranks);
    int first = split->heads.first / group, end = count_units(split->heads.first + split->heads.count, group);
    split->kv_heads = (struct shard_run){ first, end - first, config->kv_heads };
}

// Finds the most query heads, and the most key/value heads, that any rank then has.
static void find_most(struct shard_split split, int unit, int *heads, int *kv_heads)
{
    *heads = *kv_heads = 0;
    for (int rank = 0; rank < split.ranks; rank++) {
        split_heads_in(&split, unit, rank);
        *heads = split.heads.count > *heads ? split.heads.count : *heads;
        *kv_heads = split.kv_heads.count > *kv_heads ? split.kv_heads.count : *kv_heads;
    }
}

// Returns how many query heads stay together: all of a key/value head, if every rank gets one; but as few as fill
// blocks where then the rank that has most has fewer, as all ranks wait for it, and no rank has more key/value heads,
// which take cache.
static int head_unit(const struct shard_split *split, int blocks)
{
    const struct model_config *config = &split->model->config;
    int group = config->heads / config->kv_heads, whole = group / greatest_divisor(group, blocks) * blocks;
    int heads, kv_heads, heads_cut, kv_heads_cut;
    if (count_units(config->heads, whole) < split->ranks)
        return blocks;
    find_most(*split, whole, &heads, &kv_heads);
    find_most(*split, blocks, &heads_cut, &kv_heads_cut);
    return heads_cut < heads && kv_heads_cut <= kv_heads ? blocks : whole;
}

// Key/value heads of which other query heads are another rank's: one at either end, perhaps the same.
static int count_shared(const struct shard_split *split)
{
    int group = split->heads.whole / split->kv_heads.whole;
    int shared = (split->heads.first % group > 0) + ((split->heads.first + split->heads.count) % group > 0);
    return shared < split->kv_heads.count ? shared : split->kv_heads.count;
}

static bool split_heads(struct shard_split *split, struct error *err)
{
    const struct model_config *config = &split->model->config;
    split->heads_together = norms_all_heads(split->model);
    split->heads = (struct shard_run){ 0, config->heads, config->heads };
    split->kv_heads = (struct shard_run){ 0, config->kv_heads, config->kv_heads };
    if (split->heads_together)
        return true;
    int blocks = heads_of_blocks(split->model);
    if (config->heads < split->ranks)
        return fail(err, "it has %d heads", config->heads);
    if (count_units(config->heads, blocks) < split->ranks)
        return fail(err, "of its %d heads only %d together fill blocks of the weights that read them", config->heads,
                    blocks);
    split_heads_in(split, head_unit(split, blocks), split->rank);
    split->kv_heads_shared = count_shared(split);
    return true;
}

// ---- feed forwards, experts ----

// Returns the op that reads the GATE (and UP) that an op of this layer writes: it gates UP, or another buffer.
static const struct op *use_of_gate(const struct model *model, int i)
{
    while (model->ops[i].kind != OP_ACT_MUL || model->ops[i].in != BUFFER_GATE)
        i++;
    return &model->ops[i];
}

// Returns the op (down) whose columns are the feed forward's width.
static const struct op *reader_of_gate(const struct model *model, int i)
{
    const struct op *op = use_of_gate(model, i) + 1;
    while (op->in != BUFFER_GATE)
        op++;
    return op;
}

static int width_unit(const struct op *down)
{
    int block = dtype_table[down->matrix[0].tensor->dtype].block;
    return block > WIDTH_UNIT_MIN ? block : WIDTH_UNIT_MIN;
}

// Divides the width evenly even where some ranks have more heads: ranks wait for each other between attention and feed
// forward, so that no rank can make up in one for the time it lost in the other.
static struct shard_run split_width(const struct shard_split *split, const struct op *down)
{
    return split_units((int)tensor_cols(down->matrix[0].tensor), width_unit(down), split->rank, split->ranks);
}

// ---- which rows are divided how ----

enum share { SHARE_NONE, SHARE_HEADS, SHARE_KV_HEADS, SHARE_WIDTH, SHARE_VOCABULARY };

static enum share share_of(const struct model *model, int i, enum buffer out)
{
    switch (out) {
    case BUFFER_Q:
    case BUFFER_Q_HEADS: return SHARE_HEADS;
    case BUFFER_K:
    case BUFFER_V: return SHARE_KV_HEADS;
    case BUFFER_LOGITS: return SHARE_VOCABULARY;
    case BUFFER_GATE:
    case BUFFER_UP: {
        enum buffer gated = use_of_gate(model, i)->second;
        return gated == BUFFER_A ? SHARE_HEADS : gated == BUFFER_MIX ? SHARE_NONE : SHARE_WIDTH;
    }
    default: return SHARE_NONE;
    }
}

struct shard_run shard_split_vocabulary(const struct model *model, int rank, int ranks)
{
    return split_units(model->config.vocabulary, ALL_GATHER_UNIT, rank, ranks);
}

struct shard_run shard_split_rows(const struct shard_split *split, int op, int matrix)
{
    const struct op_matrix *written = &split->model->ops[op].matrix[matrix];
    int rows = (int)tensor_rows(written->tensor);
    switch (share_of(split->model, op, written->out)) {
    case SHARE_HEADS: return shard_scale(split->heads, rows);
    case SHARE_KV_HEADS: return shard_scale(split->kv_heads, rows);
    case SHARE_WIDTH: return split_width(split, reader_of_gate(split->model, op));
    case SHARE_VOCABULARY: return shard_split_vocabulary(split->model, split->rank, split->ranks);
    default: return (struct shard_run){ 0, rows, rows };
    }
}

// Has every rank a part of each feed forward?
static bool check_widths(const struct shard_split *split, struct error *err)
{
    const struct model *model = split->model;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        bool multiplies = op->kind == OP_LINEAR || op->kind == OP_EXPERTS;
        if (!multiplies || share_of(model, i, op->matrix[0].out) != SHARE_WIDTH)
            continue;
        const struct op *down = reader_of_gate(model, i);
        int width = (int)tensor_cols(down->matrix[0].tensor), unit = width_unit(down);
        if (count_units(width, unit) < split->ranks)
            return fail(err, "%s of layer %d %s %d columns, in units of %d (%s)",
                        op->kind == OP_EXPERTS ? "the experts" : "the feed forward", op->layer,
                        op->kind == OP_EXPERTS ? "have" : "has", width, unit,
                        dtype_word(down->matrix[0].tensor->dtype));
    }
    return true;
}

bool shard_split_make(struct shard_split *split, const struct model *model, int rank, int ranks, struct error *err)
{
    *split = (struct shard_split){ .model = model, .rank = rank, .ranks = ranks };
    if (ranks > SHARD_RANKS_MAX)
        return fail(err, "there may be %d at most", SHARD_RANKS_MAX);
    int units = count_units(model->config.vocabulary, ALL_GATHER_UNIT);
    return split_heads(split, err) && check_widths(split, err)
        && (units >= ranks
            || fail(err, "its vocabulary of %d tokens is divided in units of %d", model->config.vocabulary,
                    ALL_GATHER_UNIT));
}
