// SPDX-License-Identifier: Apache-2.0
#include "model/shard_deal.h"

#include "model/stored.h"

enum { WIDTH_UNIT_MIN = 8 }; // columns of a feed forward: what kernels load at once

static int count_units(int whole, int unit)
{
    return (whole + unit - 1) / unit;
}

// The last unit may be a short one.
static struct shard_run deal_units(int whole, int unit, int rank, int ranks)
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

// Each rank has key/value heads of its own, with all query heads of theirs.
static bool deal_kv_heads(struct shard_deal *deal, int blocks, struct error *err)
{
    const struct model_config *config = &deal->model->config;
    int group = config->heads / config->kv_heads, unit = blocks / greatest_divisor(blocks, group);
    if (count_units(config->kv_heads, unit) < deal->ranks)
        return fail(err, "of its %d key/value heads only %d together fill blocks of the weights that read them",
                    config->kv_heads, unit);
    deal->kv_heads = deal_units(config->kv_heads, unit, deal->rank, deal->ranks);
    deal->heads = shard_scale(deal->kv_heads, config->heads);
    return true;
}

// Each rank has one key/value head, and shares its query heads with the others that have the same one.
static bool deal_query_heads(struct shard_deal *deal, int blocks, struct error *err)
{
    const struct model_config *config = &deal->model->config;
    int kv_heads = config->kv_heads, ranks = deal->ranks, group = config->heads / kv_heads;
    int kv_head = deal->rank * kv_heads / ranks;
    int first = count_units(kv_head * ranks, kv_heads), end = count_units((kv_head + 1) * ranks, kv_heads);
    if (config->heads < ranks)
        return fail(err, "it has %d heads", config->heads);
    if (group % blocks || group / blocks < count_units(ranks, kv_heads))
        return fail(err, "its %d heads share %d key/value heads, and %s", config->heads, kv_heads,
                    group % blocks ? "those of one do not fill whole blocks of the weights that read them"
                                   : "those of one are too few for the ranks that would share them");
    struct shard_run own = deal_units(group, blocks, deal->rank - first, end - first);
    deal->shares_kv_head = end - first > 1;
    deal->kv_heads = (struct shard_run){ kv_head, 1, kv_heads };
    deal->heads = (struct shard_run){ kv_head * group + own.first, own.count, config->heads };
    return true;
}

static bool deal_heads(struct shard_deal *deal, struct error *err)
{
    const struct model_config *config = &deal->model->config;
    deal->heads_together = norms_all_heads(deal->model);
    deal->heads = (struct shard_run){ 0, config->heads, config->heads };
    deal->kv_heads = (struct shard_run){ 0, config->kv_heads, config->kv_heads };
    if (deal->heads_together)
        return true;
    int blocks = heads_of_blocks(deal->model);
    return config->kv_heads < deal->ranks ? deal_query_heads(deal, blocks, err) : deal_kv_heads(deal, blocks, err);
}

// ---- feed forwards, experts ----

// What an op of this layer writes to GATE (and UP) is gated there, or gates something else.
static const struct op *use_of_gate(const struct model *model, int i)
{
    while (model->ops[i].kind != OP_ACT_MUL || model->ops[i].in != BUFFER_GATE)
        i++;
    return &model->ops[i];
}

// Whose columns then are the feed forward's width.
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

// All ranks the same, whoever has more heads: they meet between attention and feed forward, and nobody makes up in one
// for what he was late in the other.
static struct shard_run deal_width(const struct shard_deal *deal, const struct op *down)
{
    return deal_units((int)stored_cols(down->matrix[0].tensor), width_unit(down), deal->rank, deal->ranks);
}

// ---- what is dealt out as what ----

enum share { SHARE_NONE, SHARE_HEADS, SHARE_KV_HEADS, SHARE_WIDTH, SHARE_VOCABULARY };

static enum share share_of(const struct model *model, int i, enum buffer out)
{
    switch (out) {
    case BUFFER_Q:
    case BUFFER_Q_HEADS:
        return SHARE_HEADS;
    case BUFFER_K:
    case BUFFER_V:
        return SHARE_KV_HEADS;
    case BUFFER_LOGITS:
        return SHARE_VOCABULARY;
    case BUFFER_GATE:
    case BUFFER_UP: {
        enum buffer gated = use_of_gate(model, i)->second;
        return gated == BUFFER_A ? SHARE_HEADS : gated == BUFFER_MIX ? SHARE_NONE : SHARE_WIDTH;
    }
    default:
        return SHARE_NONE;
    }
}

struct shard_run shard_deal_vocabulary(const struct model *model, int rank, int ranks)
{
    return deal_units(model->config.vocabulary, JOIN_UNIT, rank, ranks);
}

struct shard_run shard_deal_rows(const struct shard_deal *deal, int op, int matrix)
{
    const struct op_matrix *written = &deal->model->ops[op].matrix[matrix];
    int rows = (int)stored_rows(written->tensor);
    switch (share_of(deal->model, op, written->out)) {
    case SHARE_HEADS:
        return shard_scale(deal->heads, rows);
    case SHARE_KV_HEADS:
        return shard_scale(deal->kv_heads, rows);
    case SHARE_WIDTH:
        return deal_width(deal, reader_of_gate(deal->model, op));
    case SHARE_VOCABULARY:
        return shard_deal_vocabulary(deal->model, deal->rank, deal->ranks);
    default:
        return (struct shard_run){ 0, rows, rows };
    }
}

// Has every rank a part of each feed forward?
static bool check_widths(const struct shard_deal *deal, struct error *err)
{
    const struct model *model = deal->model;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        bool multiplies = op->kind == OP_LINEAR || op->kind == OP_EXPERTS;
        if (!multiplies || share_of(model, i, op->matrix[0].out) != SHARE_WIDTH)
            continue;
        const struct op *down = reader_of_gate(model, i);
        int width = (int)stored_cols(down->matrix[0].tensor), unit = width_unit(down);
        if (count_units(width, unit) < deal->ranks)
            return fail(err, "%s of layer %d %s %d columns, in units of %d (%s)",
                        op->kind == OP_EXPERTS ? "the experts" : "the feed forward", op->layer,
                        op->kind == OP_EXPERTS ? "have" : "has", width, unit,
                        dtype_word(down->matrix[0].tensor->dtype));
    }
    return true;
}

bool shard_deal_make(struct shard_deal *deal, const struct model *model, int rank, int ranks, struct error *err)
{
    *deal = (struct shard_deal){ .model = model, .rank = rank, .ranks = ranks };
    if (ranks > SHARD_RANKS_MAX)
        return fail(err, "there may be %d at most", SHARD_RANKS_MAX);
    int units = count_units(model->config.vocabulary, JOIN_UNIT);
    return deal_heads(deal, err)
        && check_widths(deal, err)
        && (units >= ranks || fail(err, "its vocabulary of %d tokens is dealt out in units of %d",
                                   model->config.vocabulary, JOIN_UNIT));
}
