// SPDX-License-Identifier: Apache-2.0
// plan/ranks.c: the plans of all ranks that would share a model, made by one process before any of them is started:
// rank 0's plan, with what each of the others holds. None has more pages, or longer sequences, than all can have.
#include <stdlib.h>

#include "model/shard.h"
#include "plan/decide.h"

enum { SIZES_TRIED = 4 }; // numbers of ranks that are offered in place of one that cannot be

static const char flag_name[] = "--tensor-parallel-size";

struct part {
    struct model model;
    struct plan plan;
};

// All parts have these in common.
struct whole {
    const struct checkpoint *checkpoint;
    const struct device *device;
    const struct plan_options *options;
};

static bool make_part(struct part *part, const struct whole *whole, int rank, int ranks, struct error *err)
{
    *part = (struct part){ 0 };
    return model_describe(&part->model, whole->checkpoint, err) && model_shard(&part->model, rank, ranks, err)
        && plan_make(&part->plan, &part->model, whole->device, whole->options, err);
}

static void free_part(struct part *part)
{
    plan_free(&part->plan);
    model_free(&part->model);
}

// ---- a number that cannot be ----

static void try_ranks(struct plan *plan, const struct whole *whole, int ranks)
{
    struct plan_refusal *refusal = &plan->refusal;
    struct part part;
    struct error ignored;
    if (ranks < 1 || ranks > SHARD_RANKS_MAX || refusal->alternative_count == SIZES_TRIED
        || !model_shard_fits(plan->model, ranks, &ignored))
        return;
    if (make_part(&part, whole, 0, ranks, &ignored))
        refusal->alternatives[refusal->alternative_count++] = (struct plan_alternative){
            flag_name, arena_format(&plan->arena, "%d", ranks), plan_token_bytes(&part.plan)
        };
    free_part(&part);
}

// The nearest numbers first.
static bool refuse_ranks(struct plan *plan, const struct model *model, const struct whole *whole, int ranks,
                         struct error *err)
{
    *plan = (struct plan){ .model = model, .device = *whole->device };
    refuse(plan, err, flag_name, arena_format(&plan->arena, "%d", ranks), arena_format(&plan->arena, "%s", err->text));
    for (int away = 1; away < SHARD_RANKS_MAX; away++) {
        try_ranks(plan, whole, ranks - away);
        try_ranks(plan, whole, ranks + away);
    }
    refuse_print_lists(plan, err);
    return false;
}

// ---- all of them ----

struct plan_rank plan_rank_of(const struct plan *plan)
{
    const struct model_shard *shard = &plan->model->shard;
    return (struct plan_rank){ .rank = shard->rank,
                               .first_head = shard->first_head,
                               .heads = shard->heads,
                               .first_kv_head = shard->first_kv_head,
                               .kv_heads = shard->kv_heads,
                               .weight_bytes = plan->weight_bytes,
                               .workspace_bytes = plan->workspace_bytes,
                               .scratch_bytes = plan->scratch_bytes,
                               .pool_bytes = plan->pool_bytes,
                               .replicated_count = shard->replicated_count,
                               .replicated = shard->replicated };
}

// Its words are constants.
static const struct model_replica *copy_replicas(struct arena *arena, const struct plan_rank *rank)
{
    struct model_replica *copies = ARENA_NEW(arena, struct model_replica, rank->replicated_count);
    for (int i = 0; i < rank->replicated_count; i++)
        copies[i] = rank->replicated[i];
    return copies;
}

// Rank 0's stays, and knows of all.
static void gather(struct part *parts, int ranks)
{
    struct plan *plan = &parts->plan;
    struct plan_rank *list = ARENA_NEW(&plan->arena, struct plan_rank, ranks);
    struct plan_share share = plan_share_of(plan);
    for (int i = 1; i < ranks; i++)
        share = plan_share_least(share, plan_share_of(&parts[i].plan));
    for (int i = 0; i < ranks; i++) {
        plan_take_share(&parts[i].plan, &share);
        list[i] = plan_rank_of(&parts[i].plan);
        list[i].replicated = copy_replicas(&plan->arena, &list[i]);
    }
    plan->ranks = list;
    plan->rank_count = ranks;
}

bool plan_make_ranks(struct plan *plan, struct model *model, const struct checkpoint *checkpoint, int ranks,
                     const struct device *device, const struct plan_options *options, struct error *err)
{
    struct whole whole = { checkpoint, device, options };
    *plan = (struct plan){ 0 };
    if (!model_describe(model, checkpoint, err))
        return false;
    if (!model_shard(model, 0, ranks, err))
        return refuse_ranks(plan, model, &whole, ranks, err);
    model_free(model);
    struct part *parts = memory_new((size_t)ranks, sizeof *parts);
    bool ok = true;
    int kept = 0; // or the first that was refused
    for (int i = 0; i < ranks && ok; i++) {
        kept = i;
        ok = make_part(&parts[i], &whole, i, ranks, err);
    }
    if (ok) {
        kept = 0;
        gather(parts, ranks);
    }
    *model = parts[kept].model;
    *plan = parts[kept].plan;
    plan->model = model;
    parts[kept] = (struct part){ 0 };
    for (int i = 0; i < ranks; i++)
        free_part(&parts[i]);
    free(parts);
    return ok;
}
