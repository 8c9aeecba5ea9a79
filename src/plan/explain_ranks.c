// SPDX-License-Identifier: Apache-2.0
// plan/explain_ranks.c: what each of several ranks holds, what more than one of them does, and what they exchange.
#include <string.h>

#include "plan/explain_parts.h"

// Those that the plan knows: all of them, or the one whose plan it is.
struct known {
    const struct plan_rank *list;
    int count;
};

static void add_rank(const struct plan *plan, const struct plan_rank *held, struct strbuf *out)
{
    const struct model_config *config = &plan->model->config;
    strbuf_add_format(out, "rank %-4d query heads %s of %d, KV head%s %s of %d; weights %s, workspace %s, cache %s\n",
                      held->rank, explain_range(held->first_head, held->first_head + held->heads - 1).text,
                      config->heads, held->kv_heads > 1 ? "s" : "",
                      explain_range(held->first_kv_head, held->first_kv_head + held->kv_heads - 1).text,
                      config->kv_heads, explain_size(held->weight_bytes).text, explain_size(held->workspace_bytes).text,
                      explain_size(held->pool_bytes).text);
}

static const struct model_replica *find_replica(const struct plan_rank *held, const char *what)
{
    for (int i = 0; i < held->replicated_count; i++)
        if (!strcmp(held->replicated[i].what, what))
            return &held->replicated[i];
    return NULL;
}

// A line for what a rank is the first to have, with the bytes of one that has most of it.
static void add_copies(const struct known *known, int rank, struct strbuf *out)
{
    for (int i = 0; i < known->list[rank].replicated_count; i++) {
        const struct model_replica *replica = &known->list[rank].replicated[i];
        size_t most = replica->bytes;
        bool is_first = true;
        for (int j = 0; j < known->count; j++) {
            const struct model_replica *other = find_replica(&known->list[j], replica->what);
            is_first &= !other || j >= rank;
            most = other && other->bytes > most ? other->bytes : most;
        }
        if (is_first)
            strbuf_add_format(out, "copies    %s, %s: %s\n", replica->what, explain_size(most).text, replica->why);
    }
}

void explain_add_ranks(const struct plan *plan, struct strbuf *out)
{
    const struct model_shard *shard = &plan->model->shard;
    struct plan_rank own = plan_rank_of(plan);
    struct known known = plan->rank_count ? (struct known){ plan->ranks, plan->rank_count } : (struct known){ &own, 1 };
    if (!shard->ranks)
        return;
    strbuf_add_format(out, "ranks     %d; kernels, bytes per token and pools are rank %d's\n", shard->ranks,
                      shard->rank);
    for (int i = 0; i < known.count; i++)
        add_rank(plan, &known.list[i], out);
    for (int i = 0; i < known.count; i++)
        add_copies(&known, i, out);
    strbuf_add_format(
        out, "exchange  each rank sends %s per token and %s for the logits of one, %s\n",
        explain_size(shard->exchanged_bytes).text, explain_size(shard->exchanged_output_bytes).text,
        plan->device.kind == DEVICE_CUDA ? "by NCCL where it is there, else through pinned memory by MPI" : "by MPI");
}

static json_t *json_of_rank(const struct plan_rank *held)
{
    json_t *replicated = json_array();
    for (int i = 0; i < held->replicated_count; i++)
        json_array_append_new(replicated,
                              json_pack("{s:s, s:s, s:I}", "what", held->replicated[i].what, "why",
                                        held->replicated[i].why, "bytes", (json_int_t)held->replicated[i].bytes));
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:o}", "rank", held->rank, "first_head",
                     held->first_head, "heads", held->heads, "first_kv_head", held->first_kv_head, "kv_heads",
                     held->kv_heads, "weights", (json_int_t)held->weight_bytes, "workspace",
                     (json_int_t)held->workspace_bytes, "scratch", (json_int_t)held->scratch_bytes, "pools",
                     (json_int_t)held->pool_bytes, "replicated", replicated);
}

json_t *explain_json_ranks(const struct plan *plan)
{
    const struct model_shard *shard = &plan->model->shard;
    struct plan_rank own = plan_rank_of(plan);
    json_t *list = json_array();
    for (int i = 0; i < plan->rank_count; i++)
        json_array_append_new(list, json_of_rank(&plan->ranks[i]));
    if (!plan->rank_count)
        json_array_append_new(list, json_of_rank(&own));
    return json_pack("{s:i, s:o, s:I, s:I}", "count", shard->ranks, "list", list, "sent_per_token",
                     (json_int_t)shard->exchanged_bytes, "sent_per_output", (json_int_t)shard->exchanged_output_bytes);
}
