// SPDX-License-Identifier: Apache-2.0
// kernel/ref/attention.c: paged attention, softmax(q K) V, with an online softmax; the reference. A work item is one KV
// head and a few rows of one sequence: each page is dequantised once for all rows and query heads that share it (GQA).
// A row's result depends on its own context alone, not on the batch, the prefill chunk or the number of threads.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"

enum { ITEM_ROWS = 16 };

struct page_values {
    float k[KV_PAGE_TOKENS * LATENT_DIM_MAX]; // (token, k dim)
    float v[KV_PAGE_TOKENS * HEAD_DIM_MAX];   // (token, v dim)
};

// The online softmax's state for one (row, head); the weighted sum of V accumulates in the output.
struct running {
    float maximum, sum;
};

static struct running start_of(const struct attention_args *args, int head)
{
    return args->sinks ? (struct running){ .maximum = args->sinks[head], .sum = 1 }
                       : (struct running){ .maximum = -INFINITY };
}

static void load_side(const struct kv_side *side, int head, int tokens, float layer_scale, const uint8_t *layer,
                      float *out)
{
    for (int token = 0; token < tokens; token++)
        kv_codecs[side->dtype].load(layer + kv_data_at(side, head, token), layer + kv_scale_at(side, head, token),
                                    side->dim, layer_scale, out + (size_t)token * (size_t)side->dim);
}

// Adds tokens [first, end) of a page to one head's result.
static void attend_page(const struct attention_args *args, const struct page_values *page, int first, int end,
                        const float *q, float *out, struct running *state)
{
    int k_dim = args->cache.layout.k.dim, v_dim = args->cache.layout.v.dim;
    float scores[KV_PAGE_TOKENS], maximum = state->maximum;
    for (int token = first; token < end; token++) {
        float score = dot(q, page->k + token * k_dim, k_dim) * args->scale;
        if (args->softcap > 0)
            score = args->softcap * tanhf(score / args->softcap);
        scores[token] = score;
        maximum = score > maximum ? score : maximum;
    }
    if (maximum > state->maximum) {
        float keep = expf(state->maximum - maximum);
        state->sum *= keep;
        for (int i = 0; i < v_dim; i++)
            out[i] *= keep;
        state->maximum = maximum;
    }
    for (int token = first; token < end; token++) {
        float share = expf(scores[token] - maximum);
        const float *v = page->v + token * v_dim;
        state->sum += share;
        for (int i = 0; i < v_dim; i++)
            out[i] += share * v[i];
    }
}

// Rows [first, first + count) of a sequence's rows, all heads of one KV head.
static void attend_rows(const struct attention_args *args, const struct batch_sequence *sequence, int first, int count,
                        int kv_head)
{
    int k_dim = args->cache.layout.k.dim, v_dim = args->cache.layout.v.dim;
    int head, end;
    attention_heads(args, kv_head, &head, &end);
    int group = end - head;
    const int32_t *positions = args->batch->positions + first;
    struct page_values page;
    struct running state[ITEM_ROWS * group];
    for (int i = 0; i < count * group; i++)
        state[i] = start_of(args, head + i % group);
    for (int row = 0; row < count; row++)
        memset(args->out + ((size_t)(first + row) * (size_t)args->heads + (size_t)head) * (size_t)v_dim, 0,
               (size_t)(group * v_dim) * sizeof(float));

    int last = positions[count - 1];
    int start = args->window && positions[0] >= args->window ? positions[0] - args->window + 1 : 0;
    for (int base = start - start % KV_PAGE_TOKENS; base <= last; base += KV_PAGE_TOKENS) {
        const struct kv_place *place = base / KV_PAGE_TOKENS < args->sink_pages ? &args->sink : &args->cache;
        int32_t number = sequence->pages[place->class_index][base / KV_PAGE_TOKENS];
        const uint8_t *layer = place->pool + (size_t)number * place->page_bytes + place->layer_offset;
        int tokens = last - base + 1 < KV_PAGE_TOKENS ? last - base + 1 : KV_PAGE_TOKENS;
        load_side(&place->layout.k, kv_head, tokens, place->k_scale, layer, page.k);
        load_side(&place->layout.v, kv_head, tokens, place->v_scale, layer, page.v);
        for (int row = 0; row < count; row++) {
            int sees_from = args->window ? positions[row] - args->window + 1 - base : 0;
            int sees_to = positions[row] - base + 1;
            int from = sees_from > 0 ? sees_from : 0, to = sees_to < KV_PAGE_TOKENS ? sees_to : KV_PAGE_TOKENS;
            for (int i = 0; i < group && from < to; i++) {
                size_t query = (size_t)(first + row) * (size_t)args->heads + (size_t)(head + i);
                attend_page(args, &page, from, to, args->q + query * (size_t)k_dim, args->out + query * (size_t)v_dim,
                            &state[row * group + i]);
            }
        }
    }
    for (int i = 0; i < count * group; i++) {
        size_t query = (size_t)(first + i / group) * (size_t)args->heads + (size_t)(head + i % group);
        float *out = args->out + query * (size_t)v_dim;
        for (int d = 0; d < v_dim; d++)
            out[d] /= state[i].sum;
    }
}

void attention_ref(const void *arguments, int chunk, int chunks)
{
    const struct attention_args *args = arguments;
    int kv_heads = args->cache.layout.k.heads;
    int item = 0; // round-robin, so that early (short) and late (long) rows are balanced
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        for (int row = 0; row < sequence->count; row += ITEM_ROWS) {
            int count = sequence->count - row < ITEM_ROWS ? sequence->count - row : ITEM_ROWS;
            for (int head = 0; head < kv_heads; head++)
                if (item++ % chunks == chunk)
                    attend_rows(args, sequence, sequence->first + row, count, head);
        }
    }
}
