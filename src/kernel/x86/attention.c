// SPDX-License-Identifier: Apache-2.0
// kernel/x86/attention.c: paged attention with an online softmax; with few queries and a long context split over the
// context (FlashDecoding). A work item is some rows of a sequence with the heads that share a KV head (GQA). With too
// few items for all threads, KV splits (segments) are divided among threads in `prepare`, and `run` combines them.
#include "kernel/kernel.h"
#include "kernel/x86/attention_segment.h"
#include "kernel/x86/table.h"

static int item_heads(const struct attention_args *args)
{
    return args->group < QUERIES_MAX ? args->group : QUERIES_MAX;
}

static int item_rows(const struct attention_args *args)
{
    int rows = QUERIES_MAX / item_heads(args);
    return rows < ROWS_MAX ? rows : ROWS_MAX;
}

static int ceiling_of(int count, int by) { return (count + by - 1) / by; }

// Items of a sequence: blocks of rows, and for each of them the heads in slices.
static int slices_of(const struct attention_args *args)
{
    return args->cache.layout.k.heads * ceiling_of(args->group, item_heads(args));
}

// A group that is divided among ranks may have fewer heads here: slices at its ends then have fewer heads, or none.
static struct item item_at(const struct attention_args *args, const struct batch_sequence *sequence, int block,
                           int slice)
{
    int heads = item_heads(args), rows = item_rows(args), row = block * rows, first, end;
    int per_kv_head = ceiling_of(args->group, heads), kv_head = slice / per_kv_head;
    int begin = kv_head * args->group + slice % per_kv_head * heads - args->lead;
    attention_heads(args, kv_head, &first, &end);
    first = begin > first ? begin : first;
    end = begin + heads < end ? begin + heads : end;
    return (struct item){
        .sequence = sequence,
        .row = sequence->first + row,
        .rows = sequence->count - row < rows ? sequence->count - row : rows,
        .kv_head = kv_head,
        .head = first,
        .heads = end > first ? end - first : 0,
    };
}

// The positions that any of the item's rows sees.
static struct range seen_by_item(const struct attention_args *args, const struct item *item)
{
    return (struct range){ seen_by(args, item, 0).from, seen_by(args, item, item->rows - 1).to };
}

// Combines the item's next segment into the results of the queries that see it.
static void combine_segment(const struct item *item, struct range rows, int v_dim, int *begun, struct work *work)
{
    for (int i = rows.from * item->heads; i < rows.to * item->heads; i++) {
        float *out = work->whole.out + i * v_dim, *segment_out = work->segment.out + i * v_dim;
        if (i < *begun) {
            combine(&work->whole.largest[i], &work->whole.total[i], out, work->segment.largest[i],
                    work->segment.total[i], segment_out, v_dim);
            continue;
        }
        work->whole.largest[i] = work->segment.largest[i];
        work->whole.total[i] = work->segment.total[i];
        memcpy(out, segment_out, (size_t)v_dim * sizeof *out);
    }
    *begun = rows.to * item->heads;
}

static void attend_item(const struct attention_args *args, const struct item *item, struct work *work)
{
    int v_dim = args->cache.layout.v.dim, begun = 0; // queries that have seen a segment
    struct range seen = seen_by_item(args, item);
    int number = segment_of(args, seen.from);
    const struct kv_place *taken = NULL; // the place whose format the queries are loaded for
    struct segment segment, next;
    find_segment(args, item, seen, number, &next);
    while (next.pages) {
        segment = next;
        find_segment(args, item, seen, ++number, &next);
        if (segment.place != taken)
            load_queries(args, item, taken = segment.place, work);
        struct range rows = rows_that_see(args, item, segment.tokens);
        attend_segment(args, item, rows, &segment, &next, work);
        combine_segment(item, rows, v_dim, &begun, work);
    }
    for (int i = 0; i < item->rows * item->heads; i++)
        finish_query(args, item->row + i / item->heads, item->head + i % item->heads, work->whole.largest[i],
                     work->whole.total[i], work->whole.out + i * v_dim);
}

// ---- KV splits ----

// The number of segments per sequence to divide among threads: that of the sequence that sees most, counted from the
// first segment its first row sees. 0: do not split, because there are items enough for all threads, or the scratch is
// too small.
static int segments_to_split(const struct attention_args *args, int chunks)
{
    enum { ITEMS_PER_CHUNK = 4 };
    const struct batch *batch = args->batch;
    int items = 0, segments = 0;
    for (int s = 0; s < batch->sequences; s++) {
        struct item all = { .row = batch->sequence[s].first, .rows = batch->sequence[s].count };
        struct range seen = seen_by_item(args, &all);
        int count = segment_of(args, seen.to - 1) - segment_of(args, seen.from) + 1;
        items += ceiling_of(all.rows, item_rows(args)) * slices_of(args);
        segments = count > segments ? count : segments;
    }
    bool idle = chunks > 1 && items < ITEMS_PER_CHUNK * chunks && segments > 1;
    return idle && args->scratch && (int64_t)segments * batch->tokens <= ATTENTION_PARTIALS ? segments : 0;
}

static int first_segment(const struct attention_args *args, const struct batch_sequence *sequence)
{
    return segment_of(args, seen_by(args, &(struct item){ .row = sequence->first }, 0).from);
}

// The partial result of a query's segment: (row, head, segment), each with the largest score, the sum of exponentials
// and the sums over V.
static float *partial_at(const struct attention_args *args, int segments, int row, int head, int segment)
{
    size_t size = (size_t)args->cache.layout.v.dim + ATTENTION_PARTIAL_EXTRA;
    size_t query = (size_t)row * (size_t)args->heads + (size_t)head;
    return (float *)args->scratch + (query * (size_t)segments + (size_t)segment) * size;
}

// A work unit: one segment of one item. The units of a sequence are numbered by (block of rows, segment, slice of
// heads), so that consecutive units read the same or adjacent pages.
struct unit {
    struct item item;
    int number; // of the segment
    struct segment segment;
};

static void find_unit(const struct attention_args *args, const struct batch_sequence *sequence, int segments, int index,
                      struct unit *out)
{
    int slices = slices_of(args);
    out->item = item_at(args, sequence, index / slices / segments, index % slices);
    out->number = index / slices % segments;
    find_segment(args, &out->item, seen_by_item(args, &out->item), first_segment(args, sequence) + out->number,
                 &out->segment);
}

static void attend_unit(const struct attention_args *args, const struct unit *unit, const struct unit *next,
                        int segments, struct work *work)
{
    const struct item *item = &unit->item;
    int v_dim = args->cache.layout.v.dim;
    if (!unit->segment.pages)
        return;
    struct range rows = rows_that_see(args, item, unit->segment.tokens);
    load_queries(args, item, unit->segment.place, work);
    attend_segment(args, item, rows, &unit->segment, &next->segment, work);
    for (int i = rows.from * item->heads; i < rows.to * item->heads; i++) {
        float *partial = partial_at(args, segments, item->row + i / item->heads, item->head + i % item->heads,
                                    unit->number);
        partial[0] = work->segment.largest[i];
        partial[1] = work->segment.total[i];
        memcpy(partial + ATTENTION_PARTIAL_EXTRA, work->segment.out + i * v_dim, (size_t)v_dim * sizeof *partial);
    }
}

static int units_of(const struct attention_args *args, const struct batch_sequence *sequence, int segments)
{
    return ceiling_of(sequence->count, item_rows(args)) * segments * slices_of(args);
}

void ISA_NAME(attention_prepare)(const void *arguments, int chunk, int chunks)
{
    const struct attention_args *args = arguments;
    int segments = segments_to_split(args, chunks), units = 0, first, end;
    if (!segments)
        return;
    for (int s = 0; s < args->batch->sequences; s++)
        units += units_of(args, &args->batch->sequence[s], segments);
    kernel_range(units, chunk, chunks, &first, &end);
    struct work work;
    for (int s = 0, before = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int count = units_of(args, sequence, segments), last = end - before < count ? end - before : count;
        struct unit unit, next;
        int i = first > before ? first - before : 0;
        if (i < last)
            find_unit(args, sequence, segments, i, &next);
        for (; i < last; i++) {
            unit = next;
            next.segment.pages = 0;
            if (i + 1 < last)
                find_unit(args, sequence, segments, i + 1, &next);
            attend_unit(args, &unit, &next, segments, &work);
        }
        before += count;
    }
}

static void combine_query(const struct attention_args *args, const struct batch_sequence *sequence, int row, int head,
                          int segments)
{
    struct range seen = seen_by(args, &(struct item){ .row = row }, 0);
    int first = first_segment(args, sequence), last = segment_of(args, seen.to - 1) - first;
    int segment = segment_of(args, seen.from) - first;
    float *whole = partial_at(args, segments, row, head, segment);
    while (++segment <= last) {
        const float *next = partial_at(args, segments, row, head, segment);
        combine(&whole[0], &whole[1], whole + ATTENTION_PARTIAL_EXTRA, next[0], next[1], next + ATTENTION_PARTIAL_EXTRA,
                args->cache.layout.v.dim);
    }
    finish_query(args, row, head, whole[0], whole[1], whole + ATTENTION_PARTIAL_EXTRA);
}

static void combine_queries(const struct attention_args *args, int chunk, int chunks, int segments)
{
    int first, end;
    kernel_range(args->batch->tokens * args->heads, chunk, chunks, &first, &end);
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int from = sequence->first * args->heads, to = from + sequence->count * args->heads;
        for (int i = from > first ? from : first; i < to && i < end; i++)
            combine_query(args, sequence, i / args->heads, i % args->heads, segments);
    }
}

void ISA_NAME(attention)(const void *arguments, int chunk, int chunks)
{
    const struct attention_args *args = arguments;
    int segments = segments_to_split(args, chunks), slices = slices_of(args);
    if (segments) {
        combine_queries(args, chunk, chunks, segments);
        return;
    }
    struct work work;
    int number = 0; // round-robin, so that early (short) and late (long) rows are balanced
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int items = ceiling_of(sequence->count, item_rows(args)) * slices;
        for (int i = 0; i < items; i++)
            if (number++ % chunks == chunk) {
                struct item item = item_at(args, sequence, i / slices, i % slices);
                attend_item(args, &item, &work);
            }
    }
}
