// SPDX-License-Identifier: Apache-2.0
// kernel/x86/attention_segment.h: attention over one segment (KV split) of context, and combining segments
// (log-sum-exp). A query is one head of one row; queries that read the same K and V are processed together, so that a
// page is dequantised once.
//   (1) segments are cut at fixed positions, and a query's result is its segments combined from first to last. Within a
//       segment all scores are computed first, then the exponentials, then the sums over V. All pages of a segment have
//       one format: where sink pages end, there is a cut
//   (2) the order of every sum depends on the query's context alone (batch invariance), not on other queries, the
//       prefill chunk or the thread
#ifndef KERNEL_X86_ATTENTION_SEGMENT_H
#define KERNEL_X86_ATTENTION_SEGMENT_H

#include <math.h>

#include "kernel/x86/page_floats.h"
#include "kernel/x86/page_integers.h"
#include "kernel/x86/rotation.h"
#include "kernel/x86/vector_math.h"

enum { QUERIES_MAX = 64, ROWS_MAX = 32 }; // of one item

// Some rows of one sequence, with some of the heads that share a KV head.
struct item {
    const struct batch_sequence *sequence;
    int row, rows;   // in the batch
    int head, heads; // of q
    int kv_head;
};

// The online softmax of each query: the largest score, the sum of exponentials relative to it, and the sums over V.
struct sums {
    float largest[QUERIES_MAX], total[QUERIES_MAX];
    float out[QUERIES_MAX * HEAD_DIM_MAX]; // (query, v dim)
};

struct work {
    struct page_tile tile;
    float token_scale[KV_PAGE_TOKENS];
    float q[QUERIES_MAX * LATENT_DIM_MAX]; // (query, k dim), times the scales
    int16_t q16[QUERIES_MAX * LATENT_DIM_MAX];
    float q_scale[QUERIES_MAX * ROW_BLOCKS_MAX];
    float score[QUERIES_MAX * SEGMENT]; // (query, token), then the exponentials
    struct sums segment, whole;
} __attribute__((aligned(64)));

static const float log2_e = 1.44269504f; // scores are in base 2

static const struct page_format page_formats[DTYPE_COUNT] = {
    [DTYPE_F32] = FLOAT_FORMAT(f32, .unit = 1),
    [DTYPE_F16] = FLOAT_FORMAT(f16, .unit = 1),
    [DTYPE_BF16] = FLOAT_FORMAT(bf16, .unit = 1),
    [DTYPE_FP8_E4M3] = FLOAT_FORMAT(e4m3, .unit = 0x1p-8f),
    [DTYPE_FP8_E5M2] = FLOAT_FORMAT(e5m2, .unit = 1),
    [DTYPE_FP8_TOKEN] = FLOAT_FORMAT(e4m3, .unit = 0x1p-8f, .token_scales = token_scales_f32),
    [DTYPE_INT8_TOKEN] = INTEGER_FORMAT(int8, .unit = 1, .token_scales = token_scales_f32, .order = byte_order),
    [DTYPE_INT4_TOKEN] = INTEGER_FORMAT(int4, .unit = 256, .token_scales = token_scales_int4, .order = nibble_order,
                                        .transposed = true),
    [DTYPE_NVFP4] = INTEGER_FORMAT(nvfp4, .unit = 512, .order = nibble_order, .transposed = true),
    [DTYPE_FP8_DS_MLA] = FLOAT_FORMAT(ds_mla, .unit = 1),
    [DTYPE_NVFP4_4OVER6] = INTEGER_FORMAT(nvfp4, .unit = 512, .order = nibble_order, .transposed = true),
};

// ---- masks ----

// The positions that a row of the item sees.
static struct range seen_by(const struct attention_args *args, const struct item *item, int row)
{
    int position = args->batch->positions[item->row + row];
    int from = args->window && position >= args->window ? position - args->window + 1 : 0;
    return (struct range){ from, position + 1 };
}

static struct range overlap(struct range a, struct range b)
{
    return (struct range){ a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to };
}

// The rows that see any of `tokens`. They are contiguous, as both ends of what a row sees grow with the row.
static struct range rows_that_see(const struct attention_args *args, const struct item *item, struct range tokens)
{
    struct range rows = { 0, item->rows };
    while (rows.from < rows.to && seen_by(args, item, rows.from).to <= tokens.from)
        rows.from++;
    while (rows.to > rows.from && seen_by(args, item, rows.to - 1).from >= tokens.to)
        rows.to--;
    return rows;
}

// ---- pages ----

// The index of the segment that contains a position.
static int segment_of(const struct attention_args *args, int position)
{
    int cut = args->sink_pages * KV_PAGE_TOKENS;
    return position / SEGMENT + (cut % SEGMENT && position >= cut);
}

static int segment_start(const struct attention_args *args, int number)
{
    int cut = args->sink_pages * KV_PAGE_TOKENS, start = number * SEGMENT;
    if (!(cut % SEGMENT) || start < cut)
        return start;
    return start - SEGMENT > cut ? start - SEGMENT : cut;
}

static struct page_side side_of(const struct kv_place *place, const struct item *item, const struct kv_side *side,
                                int page)
{
    int32_t number = item->sequence->pages[place->class_index][page];
    const uint8_t *layer = place->pool + (size_t)number * place->page_bytes + place->layer_offset;
    return (struct page_side){ layer + kv_data_at(side, item->kv_head, 0), layer + kv_scale_at(side, item->kv_head, 0),
                               side->data_bytes, side->scale_bytes, side->dim };
}

// Tokens that lie in one segment, and their pages.
struct segment {
    const struct kv_place *place;
    struct range tokens;
    int start, pages; // of the first page; how many
    struct page_side k[SEGMENT_PAGES], v[SEGMENT_PAGES];
};

// The part of `seen` that lies in this segment; no pages if that is empty, or the item has no heads.
static void find_segment(const struct attention_args *args, const struct item *item, struct range seen, int number,
                         struct segment *out)
{
    struct range whole = { segment_start(args, number), segment_start(args, number + 1) };
    out->tokens = overlap(seen, whole);
    int first = out->tokens.from / KV_PAGE_TOKENS;
    out->place = first < args->sink_pages ? &args->sink : &args->cache;
    out->start = first * KV_PAGE_TOKENS;
    bool asked = item->heads > 0 && out->tokens.from < out->tokens.to;
    out->pages = asked ? (out->tokens.to - 1) / KV_PAGE_TOKENS - first + 1 : 0;
    for (int i = 0; i < out->pages; i++) {
        out->k[i] = side_of(out->place, item, &out->place->layout.k, first + i);
        out->v[i] = side_of(out->place, item, &out->place->layout.v, first + i);
    }
}

// ---- scores ----

// One row with few heads: all queries see the same tokens, and values stay in registers.
static bool is_skinny(const struct item *item) { return item->rows == 1 && item->heads <= QUERIES_SKINNY; }

// Applies per-token scales and the soft cap to a page's scores.
static void finish_scores(const float *token_scale, float softcap, int queries, float *score)
{
    for (int i = 0; i < queries; i++)
        for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
            float *at = score + i * SEGMENT + token;
            vec x = vec_load(at);
            if (token_scale)
                x = x * vec_load(token_scale + token);
            if (softcap > 0)
                x = vec_set(softcap) * vec_tanh(x / vec_set(softcap));
            vec_store(at, x);
        }
}

static void score_segment(const struct attention_args *args, const struct item *item, const struct segment *segment,
                          struct work *work)
{
    struct page_run run = { segment->k, segment->v, segment->pages, segment->pages };
    const struct page_format *format = &page_formats[segment->place->layout.k.dtype];
    int dim = args->cache.layout.k.dim;
    bool skinny = is_skinny(item);
    if (skinny)
        format->score[item->heads - 1](run, (struct queries){ work->q, work->q16, work->q_scale, dim }, work->score);
    for (int i = 0; i < segment->pages; i++) {
        int start = segment->start + i * KV_PAGE_TOKENS;
        struct range rows = rows_that_see(args, item, (struct range){ start, start + KV_PAGE_TOKENS });
        int first = rows.from * item->heads, queries = (rows.to - rows.from) * item->heads;
        float *score = work->score + first * SEGMENT + i * KV_PAGE_TOKENS;
        if (!skinny) {
            prefetch_ahead(run, i);
            format->dequantise_k(&segment->k[i], &work->tile);
            format->score_tile(&work->tile,
                               (struct queries){ work->q + first * dim, work->q16 + first * dim,
                                                 work->q_scale + first * (dim / BLOCK), dim },
                               queries, score);
        }
        if (format->token_scales)
            format->token_scales(&segment->k[i], work->token_scale);
        if (format->token_scales || args->softcap > 0)
            finish_scores(format->token_scales ? work->token_scale : NULL, args->softcap * log2_e, queries, score);
    }
}

// ---- exponentials ----

// The exponentials of one query's scores for tokens [from, to) of the segment. Whole pages are written, with 0 outside
// of that range.
static void exponentials(float *score, struct range tokens, float *largest, float *total)
{
    int start = tokens.from - tokens.from % KV_PAGE_TOKENS;
    int end = (tokens.to + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    vec most = vec_set(-INFINITY), sum = vec_set(0);
    for (int at = start; at < end; at += LANES) {
        vec x = vec_load(score + at);
        if (at < tokens.from || at + LANES > tokens.to) {
            x = vec_between(x, tokens.from - at, tokens.to - at, vec_set(-INFINITY));
            vec_store(score + at, x);
        }
        most = vec_max(x, most); // ignores NaN, which shows in the sum below
    }
    *largest = vec_largest(most);
    for (int at = start; at < end; at += LANES) {
        vec x = vec_exp2(vec_load(score + at) - vec_set(*largest));
        vec_store(score + at, x);
        sum = sum + x;
    }
    *total = vec_sum(sum);
}

// ---- sums over V ----

static void scale_probs(const float *token_scale, int queries, float *prob)
{
    for (int i = 0; i < queries; i++)
        for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
            float *at = prob + i * SEGMENT + token;
            vec_store(at, vec_load(at) * vec_load(token_scale + token));
        }
}

// Processes consecutive rows that see the same tokens of a page together.
static void mix_rows(const struct attention_args *args, const struct item *item, const struct page_format *format,
                     int start, struct range rows, struct work *work, const float *prob)
{
    int dim = args->cache.layout.v.dim;
    const struct range page = { start, start + KV_PAGE_TOKENS };
    for (int row = rows.from, end; row < rows.to; row = end) {
        struct range tokens = overlap(seen_by(args, item, row), page);
        for (end = row + 1; end < rows.to; end++) {
            struct range next = overlap(seen_by(args, item, end), page);
            if (next.from != tokens.from || next.to != tokens.to)
                break;
        }
        int first = row * item->heads;
        format->mix_tile(&work->tile, dim, (struct range){ tokens.from - start, tokens.to - start },
                         prob + first * SEGMENT, (end - row) * item->heads, work->segment.out + first * dim);
    }
}

static void accumulate_segment(const struct attention_args *args, const struct item *item,
                               const struct segment *segment, const struct segment *next, struct work *work)
{
    struct page_run run = { segment->v, next->k, segment->pages, next->pages };
    const struct page_format *format = &page_formats[segment->place->layout.v.dtype];
    bool skinny = is_skinny(item);
    for (int i = 0; i < segment->pages; i++) {
        int start = segment->start + i * KV_PAGE_TOKENS;
        struct range rows = rows_that_see(args, item, (struct range){ start, start + KV_PAGE_TOKENS });
        float *prob = work->score + i * KV_PAGE_TOKENS;
        if (format->token_scales) {
            format->token_scales(&segment->v[i], work->token_scale);
            scale_probs(work->token_scale, (rows.to - rows.from) * item->heads,
                        prob + rows.from * item->heads * SEGMENT);
        }
        if (skinny)
            continue;
        prefetch_ahead(run, i);
        format->dequantise_v(&segment->v[i], &work->tile);
        mix_rows(args, item, format, start, rows, work, prob);
    }
    struct range tokens = { segment->tokens.from - segment->start, segment->tokens.to - segment->start };
    if (skinny)
        format->mix[item->heads - 1](run, tokens, work->score, work->segment.out);
}

// ---- segments ----

// The factor of all values of a side.
static float layer_scale(const struct kv_side *side, float scale)
{
    enum dtype_scale kind = dtype_table[side->dtype].scale;
    float unit = page_formats[side->dtype].unit;
    if (side->dtype == DTYPE_INT4_TOKEN)
        unit *= (float)side->dim; // H H = dim, for the rotation
    return (kind == DTYPE_SCALE_LAYER || kind == DTYPE_SCALE_BLOCK ? scale : 1) / unit;
}

// Quantises a block of one query to 16 bits, in the format's channel order. Returns the scale.
static float round_block(const float *q, const int *order, int16_t *out)
{
    vec largest = vec_set(0);
    bool is_nan = false;
    for (int i = 0; i < BLOCK; i += LANES) {
        vec x = vec_load(q + i);
        largest = vec_max(vec_abs(x), largest);
        is_nan |= vec_any_nan(x);
    }
    float limit = vec_largest(largest), inverse = limit < integer_least ? 0 : INTEGER_MOST / limit;
    for (int i = 0; i < BLOCK; i += LANES) {
        ivec rounded = vec_to_int(vec_load(q + i) * vec_set(inverse));
        half_store(out + i, ivec_to_u16(ivec_reorder(rounded, order)));
    }
    return is_nan ? NAN : limit < integer_least ? 0 : limit / INTEGER_MOST;
}

// Loads an item's queries, scaled, rotated and quantised as the K format of a place needs.
static void load_queries(const struct attention_args *args, const struct item *item, const struct kv_place *place,
                         struct work *work)
{
    const struct kv_side *k = &place->layout.k;
    float scale = args->scale * log2_e * layer_scale(k, place->k_scale);
    for (int row = 0; row < item->rows; row++) {
        size_t query = (size_t)(item->row + row) * (size_t)args->heads + (size_t)item->head;
        const float *q = args->q + query * (size_t)k->dim;
        float *out = work->q + row * item->heads * k->dim;
        for (int i = 0; i < item->heads * k->dim; i += LANES)
            vec_store(out + i, vec_load(q + i) * vec_set(scale));
    }
    if (k->dtype == DTYPE_INT4_TOKEN)
        for (int i = 0; i < item->rows * item->heads; i++)
            rotate(work->q + i * k->dim, k->dim);
    const struct page_format *format = &page_formats[k->dtype];
    for (int i = 0; i < item->rows * item->heads * k->dim && format->order; i += BLOCK)
        work->q_scale[i / BLOCK] = round_block(work->q + i, format->order, work->q16 + i);
}

// Transposes a block's channels from their order in the sums to the model's.
static void transpose_block(float *x)
{
    __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + 4), c = _mm_loadu_ps(x + 8), d = _mm_loadu_ps(x + 12);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(x, a);
    _mm_storeu_ps(x + 4, b);
    _mm_storeu_ps(x + 8, c);
    _mm_storeu_ps(x + 12, d);
}

// Converts sums over V of the sink pages, which are plain floats, to the units and order of the other pages' sums
// (finish_query).
static void rescale_sums(const struct attention_args *args, float *sums)
{
    const struct kv_side *v = &args->cache.layout.v;
    float factor = 1 / layer_scale(v, args->cache.v_scale);
    if (v->dtype == DTYPE_INT4_TOKEN) {
        rotate(sums, v->dim);
        factor /= (float)v->dim;
    }
    for (int i = 0; i < v->dim; i += LANES)
        vec_store(sums + i, vec_load(sums + i) * vec_set(factor));
    for (int i = 0; i < v->dim && page_formats[v->dtype].transposed; i += BLOCK)
        transpose_block(sums + i);
}

// Attention of some rows' queries over a segment; the result is in work->segment.
static void attend_segment(const struct attention_args *args, const struct item *item, struct range rows,
                           const struct segment *segment, const struct segment *next, struct work *work)
{
    int v_dim = args->cache.layout.v.dim;
    score_segment(args, item, segment, work);
    for (int row = rows.from; row < rows.to; row++) {
        struct range seen = overlap(seen_by(args, item, row), segment->tokens);
        struct range own = { seen.from - segment->start, seen.to - segment->start };
        for (int i = row * item->heads; i < (row + 1) * item->heads; i++)
            exponentials(work->score + i * SEGMENT, own, &work->segment.largest[i], &work->segment.total[i]);
    }
    memset(work->segment.out + rows.from * item->heads * v_dim, 0,
           (size_t)((rows.to - rows.from) * item->heads * v_dim) * sizeof(float));
    accumulate_segment(args, item, segment, next, work);
    for (int i = rows.from * item->heads; i < rows.to * item->heads && segment->place == &args->sink; i++)
        rescale_sums(args, work->segment.out + i * v_dim);
}

// Combines one query's segment with the result so far (log-sum-exp).
static void combine(float *largest, float *total, float *out, float segment_largest, float segment_total,
                    const float *segment_out, int dim)
{
    float most = segment_largest > *largest ? segment_largest : *largest;
    float scales[LANES] = { *largest - most, segment_largest - most };
    vec_store(scales, vec_exp2(vec_load(scales)));
    vec keep = vec_set(scales[0]), add = vec_set(scales[1]);
    *largest = most;
    *total = *total * scales[0] + segment_total * scales[1];
    for (int i = 0; i < dim; i += LANES)
        vec_store(out + i, vec_fma(vec_load(segment_out + i), add, vec_load(out + i) * keep));
}

// Normalises one query's sums. An attention sink adds to the denominator only.
static void finish_query(const struct attention_args *args, int row, int head, float largest, float total, float *sums)
{
    const struct kv_side *v = &args->cache.layout.v;
    float *out = args->out + ((size_t)row * (size_t)args->heads + (size_t)head) * (size_t)v->dim;
    float factor = layer_scale(v, args->cache.v_scale);
    if (args->sinks) {
        float sink = args->sinks[head] * log2_e, most = sink > largest ? sink : largest;
        float scales[LANES] = { largest - most, sink - most };
        vec_store(scales, vec_exp2(vec_load(scales)));
        factor *= scales[0];
        total = total * scales[0] + scales[1];
    }
    factor /= total;
    for (int i = 0; i < v->dim && page_formats[v->dtype].transposed; i += BLOCK)
        transpose_block(sums + i);
    if (v->dtype == DTYPE_INT4_TOKEN)
        rotate_back(sums, v->dim);
    for (int i = 0; i < v->dim; i += LANES)
        vec_store(out + i, vec_load(sums + i) * vec_set(factor));
}

#endif
