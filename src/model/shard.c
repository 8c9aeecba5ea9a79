// SPDX-License-Identifier: Apache-2.0
#include "model/shard.h"

#include <assert.h>

#include "base/strbuf.h"
#include "model/flow.h"
#include "model/shard_split.h"
#include "model/tensor_source_rows.h"

// Ranks replicate tensors of these kinds instead of dividing them; `replicas` gives the reasons.
enum replica {
    REPLICA_NORMS,
    REPLICA_ATTENTION,
    REPLICA_KV_HEADS,
    REPLICA_LATENTS,
    REPLICA_STATES,
    REPLICA_ROUTERS,
    REPLICA_EXPERT_LATENT,
    REPLICAS
};

static const struct model_replica replicas[REPLICAS] = {
    [REPLICA_NORMS] = { "norms", "they are small, and each rank has the whole stream" },
    [REPLICA_ATTENTION] = { "attention", "q and k are normed over all heads at once" },
    [REPLICA_KV_HEADS] = { "key/value heads", "the query heads of one are divided among ranks" },
    [REPLICA_LATENTS] = { "latents", "all heads share a token's one" },
    [REPLICA_STATES] = { "recurrent blocks", "each token moves the whole state on" },
    [REPLICA_ROUTERS] = { "routers", "all ranks must choose the same experts" },
    [REPLICA_EXPERT_LATENT] = { "latent inputs of experts", "they are read and given back whole" },
};

// One pass over the ops, in order.
struct pass {
    struct model *model;
    struct shard_split split;
    int index;      // of the op in the whole model
    struct op *ops; // the rewritten ones
    int count;
    struct shard_run held[BUFFER_COUNT]; // what this rank has of a row; of experts, of each slot's row
    int width[BUFFER_COUNT];             // the widest row that was written
    int64_t reduced;                     // values that ranks exchange for each token
    size_t replicated[REPLICAS];
};

static void append(struct pass *pass, const struct op *op) { pass->ops[pass->count++] = *op; }

static void note_width(struct pass *pass, enum buffer buffer, int width)
{
    if (pass->width[buffer] < width)
        pass->width[buffer] = width;
}

static struct shard_run whole_run(int count) { return (struct shard_run){ 0, count, count }; }

// ---- what is replicated ----

// Returns the kind of a matrix that every rank has, by the buffer that it writes or reads.
static enum replica replica_of(const struct pass *pass, const struct op *op, enum buffer out)
{
    bool latent = pass->model->config.latent;
    switch (out) {
    case BUFFER_ROUTER:
    case BUFFER_SHARED: return REPLICA_ROUTERS;
    case BUFFER_EXPERT_LATENT: return REPLICA_EXPERT_LATENT;
    case BUFFER_Q_RANK: return REPLICA_LATENTS;
    case BUFFER_MIX:
    case BUFFER_DT:
    case BUFFER_BETA:
    case BUFFER_GATE: return REPLICA_STATES;
    case BUFFER_K:
    case BUFFER_V: return latent ? REPLICA_LATENTS : pass->split.heads_together ? REPLICA_ATTENTION : REPLICA_KV_HEADS;
    case BUFFER_H:
        return op->in == BUFFER_A ? REPLICA_ATTENTION : op->in == BUFFER_MIX ? REPLICA_STATES : REPLICA_EXPERT_LATENT;
    default: return REPLICA_ATTENTION;
    }
}

static void count_replica(struct pass *pass, enum replica replica, const struct tensor *tensor)
{
    pass->replicated[replica] += tensor ? tensor->bytes : 0;
}

// Counts the vectors of an op that every rank has. Attention's are divided with the heads.
static void count_vectors(struct pass *pass, const struct op *op)
{
    bool is_norm = op->kind == OP_NORM && op->in != BUFFER_MIX;
    enum replica replica = is_norm ? REPLICA_NORMS : op->kind == OP_ROUTE ? REPLICA_ROUTERS : REPLICA_STATES;
    if (op->kind == OP_ATTENTION)
        return;
    count_replica(pass, replica, op->vector);
    for (int i = 0; i < OP_VECTORS_MAX; i++)
        count_replica(pass, replica, op->more[i]);
}

static void list_replicas(struct pass *pass)
{
    struct model_shard *shard = &pass->model->shard;
    struct model_replica *list = ARENA_NEW(&pass->model->arena, struct model_replica, REPLICAS);
    for (int i = 0; i < REPLICAS; i++)
        if (pass->replicated[i]) {
            list[shard->replicated_count] = replicas[i];
            list[shard->replicated_count++].bytes = pass->replicated[i];
        }
    shard->replicated = list;
}

// ---- sums ----

// Returns whether the next op adds them to something and no other op reads them.
static bool are_added(const struct pass *pass, enum buffer sums)
{
    int next = pass->index + 1;
    const struct op *add = &pass->model->ops[next];
    return next < pass->model->op_count && add->kind == OP_ADD && add->in == sums
        && !flow_is_read(pass->model, next, sums);
}

// The op's result is one term of each rank: all of them are added up to what it was to be, or straight to what that
// was to be added to.
static void append_reduced(struct pass *pass, struct op *op, enum buffer *out, int width)
{
    struct op reduce = {
        .kind = OP_ALL_REDUCE, .layer = op->layer, .in = BUFFER_PARTIAL, .out = *out, .width = width, .groups = 1
    };
    if (are_added(pass, *out)) {
        reduce.adds = true;
        reduce.out = pass->model->ops[++pass->index].out;
    }
    pass->held[reduce.out] = whole_run(width);
    *out = BUFFER_PARTIAL;
    append(pass, op);
    append(pass, &reduce);
    note_width(pass, BUFFER_PARTIAL, width);
    pass->reduced += width;
}

// ---- matrices ----

static const struct tensor *rows_of(struct pass *pass, const struct tensor *tensor, struct shard_run run)
{
    struct arena *arena = &pass->model->arena;
    if (!tensor || !shard_is_divided(run))
        return tensor;
    if (tensor->rank < 3)
        return tensor_source_rows(arena, tensor, run.first, run.count);
    return tensor_source_row_runs(arena, tensor, arena_format(arena, "row %d", run.first), run.whole,
                                  &(struct row_run){ run.first, run.count }, 1);
}

// Biases of experts are rows of one matrix.
static const struct tensor *biases_of(struct pass *pass, const struct tensor *bias, struct shard_run run)
{
    return bias && bias->rank > 1 && shard_is_divided(run)
        ? tensor_source_columns(&pass->model->arena, bias, run.first, run.count)
        : rows_of(pass, bias, run);
}

// Counts the rows of a matrix that this rank and others hold: all of them, or those of some key/value heads.
static void count_copies(struct pass *pass, const struct op *op, enum buffer out, struct shard_run run,
                         const struct tensor *tensor)
{
    const struct shard_split *split = &pass->split;
    bool is_kv = out == BUFFER_K || out == BUFFER_V;
    size_t bytes = tensor ? tensor->bytes : 0;
    if (shard_is_divided(run))
        bytes = is_kv ? bytes / (size_t)split->kv_heads.count * (size_t)split->kv_heads_shared : 0;
    pass->replicated[replica_of(pass, op, out)] += bytes;
}

// Whole rows are read, and each rank writes some of the results.
static void take_rows(struct pass *pass, struct op *op)
{
    for (int i = 0; i < op->matrices; i++) {
        struct op_matrix *matrix = &op->matrix[i];
        struct shard_run run = shard_split_rows(&pass->split, pass->index, i);
        matrix->tensor = rows_of(pass, matrix->tensor, run);
        matrix->bias = biases_of(pass, matrix->bias, run);
        pass->held[matrix->out] = run;
        note_width(pass, matrix->out, (op->kind == OP_EXPERTS ? op->groups : 1) * run.count);
        count_copies(pass, op, matrix->out, run, matrix->tensor);
        count_copies(pass, op, matrix->out, run, matrix->bias);
    }
}

// A part of each row is read, and the results are terms. One rank adds the bias.
static void take_columns(struct pass *pass, struct op *op, struct shard_run run)
{
    struct op_matrix *matrix = &op->matrix[0];
    assert(op->matrices == 1);
    op->width = run.count;
    matrix->tensor = tensor_source_columns(&pass->model->arena, matrix->tensor, run.first, run.count);
    if (pass->split.rank)
        matrix->bias = NULL;
}

static void shard_embed(struct pass *pass, struct op *op)
{
    struct shard_run run = shard_split_vocabulary(pass->model, pass->split.rank, pass->split.ranks);
    op->first = run.first;
    op->matrix[0].tensor = rows_of(pass, op->matrix[0].tensor, run);
    append_reduced(pass, op, &op->out, op->width);
}

static void append_joined(struct pass *pass, struct op *op)
{
    struct op join = { .kind = OP_ALL_GATHER,
                       .layer = op->layer,
                       .in = BUFFER_LOGITS_PART,
                       .out = BUFFER_LOGITS,
                       .width = pass->model->config.vocabulary,
                       .groups = 1,
                       .on_outputs = true };
    op->matrix[0].out = BUFFER_LOGITS_PART;
    append(pass, op);
    append(pass, &join);
}

static void shard_linear(struct pass *pass, struct op *op)
{
    if (shard_is_divided(pass->held[op->in])) {
        take_columns(pass, op, pass->held[op->in]);
        append_reduced(pass, op, &op->matrix[0].out, (int)tensor_rows(op->matrix[0].tensor));
        return;
    }
    take_rows(pass, op);
    if (op->matrix[0].out == BUFFER_LOGITS)
        append_joined(pass, op);
    else
        append(pass, op);
}

// Slots of terms are added up when they have been combined.
static void shard_experts(struct pass *pass, struct op *op)
{
    if (op->per_slot)
        take_columns(pass, op, pass->held[op->in]);
    else
        take_rows(pass, op);
    append(pass, op);
}

static void shard_combine(struct pass *pass, struct op *op) { append_reduced(pass, op, &op->out, op->width); }

static void shard_per_head_linear(struct pass *pass, struct op *op)
{
    struct op_matrix *matrix = &op->matrix[0];
    int rows = (int)tensor_rows(matrix->tensor);
    struct shard_run heads = shard_scale(pass->held[op->in], op->groups);
    pass->held[op->out] = shard_scale(heads, rows + op->groups * op->rest);
    note_width(pass, op->out, pass->held[op->out].count);
    matrix->tensor = rows_of(pass, matrix->tensor, shard_scale(heads, rows));
    op->groups = heads.count;
    append(pass, op);
}

// ---- the rest ----

static void shard_norm(struct pass *pass, struct op *op)
{
    op->groups = shard_scale(pass->held[op->in], op->groups).count;
    append(pass, op);
}

static void shard_attention(struct pass *pass, struct op *op)
{
    pass->held[op->out] = shard_scale(pass->split.heads, op->width);
    op->width = pass->held[op->out].count;
    op->vector = rows_of(pass, op->vector, pass->split.heads);
    note_width(pass, op->out, op->width);
    append(pass, op);
}

static void shard_act_mul(struct pass *pass, struct op *op)
{
    op->width = shard_scale(pass->held[op->out], op->width).count;
    append(pass, op);
}

static void keep(struct pass *pass, struct op *op) { append(pass, op); }

static void (*const rewrites[])(struct pass *pass, struct op *op) = {
    [DIVIDED_NOT] = keep,
    [DIVIDED_VOCABULARY] = shard_embed,
    [DIVIDED_GROUPS] = shard_norm,
    [DIVIDED_MATRICES] = shard_linear,
    [DIVIDED_EXPERTS] = shard_experts,
    [DIVIDED_HEADS] = shard_per_head_linear,
    [DIVIDED_ATTENTION] = shard_attention,
    [DIVIDED_WIDTH] = shard_act_mul,
    [DIVIDED_TERMS] = shard_combine,
};

// ---- the model ----

static void set_widths(struct pass *pass)
{
    static const enum buffer divided[] = { BUFFER_Q,       BUFFER_K,    BUFFER_V, BUFFER_A,
                                           BUFFER_Q_HEADS, BUFFER_GATE, BUFFER_UP };
    struct model *model = pass->model;
    int ranks = pass->split.ranks, part = 0;
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        model->buffer_width[divided[i]] = pass->width[divided[i]];
    for (int rank = 0; rank < ranks; rank++) {
        int count = shard_split_vocabulary(model, rank, ranks).count;
        part = count > part ? count : part;
    }
    part = (part + ALL_GATHER_UNIT - 1) / ALL_GATHER_UNIT * ALL_GATHER_UNIT;
    model->buffer_width[BUFFER_PARTIAL] = ranks * pass->width[BUFFER_PARTIAL];
    model->buffer_width[BUFFER_LOGITS_PART] = ranks * part;
    model->shard.exchanged_bytes = (size_t)pass->reduced * (size_t)(ranks - 1) * sizeof(float);
    model->shard.exchanged_output_bytes = (size_t)part * (size_t)(ranks - 1) * sizeof(float);
}

// Whatever is here of a single key/value head is a group.
static void take_heads(const struct shard_split *split, struct layer *layer)
{
    bool single = split->kv_heads.count == 1;
    layer->heads = split->heads.count;
    layer->kv_heads = split->kv_heads.count;
    layer->lead = single ? 0 : split->heads.first % layer->group;
    layer->group = single ? layer->heads : layer->group;
}

static void rewrite(struct pass *pass)
{
    struct model *model = pass->model;
    pass->ops = ARENA_NEW(&model->arena, struct op, 2 * model->op_count); // each may be followed by an exchange
    for (pass->index = 0; pass->index < model->op_count; pass->index++) {
        struct op op = model->ops[pass->index];
        count_vectors(pass, &op);
        rewrites[op_table[op.kind].division](pass, &op);
    }
    for (int i = 0; i < model->config.layers; i++)
        take_heads(&pass->split, &model->layer[i]);
    model->ops = pass->ops;
    model->op_count = pass->count;
    model->shard = (struct model_shard){ .rank = pass->split.rank,
                                         .ranks = pass->split.ranks,
                                         .first_head = pass->split.heads.first,
                                         .heads = pass->split.heads.count,
                                         .first_kv_head = pass->split.kv_heads.first,
                                         .kv_heads = pass->split.kv_heads.count };
    set_widths(pass);
    list_replicas(pass);
}

bool model_shard_fits(const struct model *model, int ranks, struct error *err)
{
    struct shard_split split;
    return shard_split_make(&split, model, 0, ranks, err);
}

// "1-4, 6"
static void add_sizes(const struct model *model, struct strbuf *out)
{
    struct error ignored;
    for (int first = 1, end; first <= SHARD_RANKS_MAX; first = end + 1) {
        for (end = first; model_shard_fits(model, end, &ignored);)
            end++;
        if (end > first)
            strbuf_add_format(out, end - first > 1 ? "%s%d-%d" : "%s%d", out->len ? ", " : "", first, end - 1);
    }
}

bool model_shard(struct model *model, int rank, int ranks, struct error *err)
{
    struct pass pass = { .model = model };
    struct error why;
    assert(rank >= 0 && rank < ranks && !model->shard.ranks);
    if (ranks == 1)
        return true;
    if (!shard_split_make(&pass.split, model, rank, ranks, &why)) {
        struct strbuf sizes = { 0 };
        add_sizes(model, &sizes);
        fail(err, "the model cannot be divided among %d ranks: %s; it can among %s", ranks, why.text, sizes.data);
        strbuf_free(&sizes);
        return false;
    }
    rewrite(&pass);
    return true;
}
