// SPDX-License-Identifier: Apache-2.0
// plan/share.c: what the plans of several ranks have in common: sequences as long, and pages with the same numbers.
#include "kv/table.h"
#include "plan/plan.h"

struct plan_share plan_share_of(const struct plan *plan)
{
    struct plan_share share = { .max_model_len = plan->max_model_len };
    for (int i = 0; i < plan->class_count; i++)
        share.pages[i] = plan->classes[i].pages;
    return share;
}

static int least(int a, int b) { return a < b ? a : b; }

struct plan_share plan_share_least(struct plan_share a, struct plan_share b)
{
    a.max_model_len = least(a.max_model_len, b.max_model_len);
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        a.pages[i] = least(a.pages[i], b.pages[i]);
    return a;
}

void plan_take_share(struct plan *plan, const struct plan_share *share)
{
    if (share->max_model_len < plan->max_model_len)
        plan->length_note = "another rank has no room for more";
    plan->max_model_len = share->max_model_len;
    plan->pool_bytes = 0;
    plan->concurrency = plan->max_num_seqs;
    for (int i = 0; i < plan->class_count; i++) {
        struct plan_class *class = &plan->classes[i];
        int needed = kv_table_pages_needed(&class->kind, plan->max_model_len, plan->batch_tokens);
        double held = (double)share->pages[i] / (needed > 0 ? needed : 1);
        class->pages = share->pages[i];
        plan->pool_bytes += class->page_bytes * (size_t)class->pages;
        plan->concurrency = held < plan->concurrency ? held : plan->concurrency;
    }
}
