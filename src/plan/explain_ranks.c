// SPDX-License-Identifier: Apache-2.0
// plan/explain_ranks.c: what each of several ranks holds, what more than one of them does, and what they exchange, as
// JSON.
#include "plan/explain_parts.h"

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
    const char *carrier = plan->device.kind == DEVICE_CUDA ? "by NCCL where it is there, else through pinned memory by "
                                                             "MPI"
                                                           : "by MPI";
    json_t *list = json_array();
    for (int i = 0; i < plan->rank_count; i++)
        json_array_append_new(list, json_of_rank(&plan->ranks[i]));
    if (!plan->rank_count)
        json_array_append_new(list, json_of_rank(&own));
    return json_pack("{s:i, s:i, s:o, s:I, s:I, s:s}", "count", shard->ranks, "rank", shard->rank, "list", list,
                     "sent_per_token", (json_int_t)shard->exchanged_bytes, "sent_per_output",
                     (json_int_t)shard->exchanged_output_bytes, "by", carrier);
}
