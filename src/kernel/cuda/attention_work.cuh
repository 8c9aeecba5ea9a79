// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_work.cuh: the work list of split-KV decode attention (FlashDecoding). A work tile is one chunk
// of one sequence's context (attention_split.h), for one KV head and up to COLUMNS of the (row, query head) pairs that
// share it (GQA). The grid is persistent, with as many CTAs as the device holds at once, so that one captured graph
// serves every batch. Each CTA computes the list, and the size of chunks, from the lengths of the sequences.
#ifndef KERNEL_CUDA_ATTENTION_WORK_CUH
#define KERNEL_CUDA_ATTENTION_WORK_CUH

#include <limits.h>

#include "kernel/cuda/attention_split.h"
#include "kernel/cuda/common.cuh"

enum { COLUMNS = SPLIT_COLUMNS };

struct sequence_work {
    int end;               // of its work tiles in the list
    int first, rows, last; // its rows in the step, and the position of the last one
    int table_at;
    int log_splits, log_chunk;
};
static_assert(sizeof(struct sequence_work) == SPLIT_WORK_BYTES, "the launch asks for this much shared memory");

struct work {
    struct sequence_work *list;
    int sequences;
    bool is_dynamic; // tiles are taken from a counter (attention_schedule.cuh), else round-robin by CTA index
};

struct work_tile {
    int sequence, head, column_tile; // column_tile: which COLUMNS of the pairs
    int first, rows, last, table_at;
    int start;                     // the first token that any row sees outside of the sink pages
    int origin, blocks;            // the tokens that they see, in KV blocks of SPLIT_TOKENS: the first, and how many
    int log_splits, split, splits; // of the sequence; the first of this warp, and how many it has
    int chunk, chunks;
    bool is_half; // half of the columns hold all pairs: the other half belongs to another split of the warp
};

// The first token that a row at this position sees.
DEVICE int first_seen(const struct cuda_attention &p, int position)
{
    return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}

// Tokens of the sink pages, which are kept in 16 bits.
DEVICE int sink_tokens(const struct cuda_attention &p) { return p.sink_pages * KV_PAGE_TOKENS; }

// a / b for numbers below 2^20; adding a half keeps the quotient away from whole numbers, where rounding would matter.
DEVICE int divide(int a, int b) { return (int)__fdividef((float)a + 0.5f, (float)b); }

DEVICE int column_tiles_of(const struct cuda_attention &p, int rows)
{
    return (rows * p.group + COLUMNS - 1) / COLUMNS;
}

// How many KV blocks the rows of a sequence see.
DEVICE int blocks_of(const struct cuda_attention &p, int rows, int last)
{
    return last / SPLIT_TOKENS - first_seen(p, last - rows + 1) / SPLIT_TOKENS + 1;
}

DEVICE bool is_half_tile(const struct cuda_attention &p, int rows)
{
    return p.log_each_max > 0 && rows * p.group <= COLUMNS / 2;
}

// How the context of one sequence is divided.
struct cut {
    int blocks, log_splits, log_chunk;
};

DEVICE struct cut cut_of(const struct cuda_attention &p, int rows, int last, int log_each)
{
    int blocks = rows ? blocks_of(p, rows, last) : 0, some = max(rows, 1);
    int log_splits = split_log_splits(blocks, some, p.log_warps, p.log_splits);
    int log_chunk = p.log_warps + (is_half_tile(p, rows) ? log_each : min(log_each, 0));
    log_chunk = min(max(log_chunk, max(log_splits - split_log_results(some), 0)), log_splits);
    return { blocks, log_splits, log_splits == p.log_warps ? log_splits : log_chunk };
}

DEVICE int tiles_of(const struct cuda_attention &p, int rows, const struct cut &cut)
{
    return rows ? p.cache.heads * column_tiles_of(p, rows) << cut.log_splits - cut.log_chunk : 0;
}

// ---- the size of chunks ----

// Estimated time of a step with chunks of one size, in eighths of the time that a warp takes for a KV block while its
// SM has four warps; beside more warps it takes longer. The end of a work tile costs twelve, combining chunks twenty.
DEVICE int cost_of(const struct cuda_attention &p, int log_each, int tiles, int longest, bool several)
{
    int rounds = divide(tiles + p.ctas - 1, p.ctas), warps = 1 << max(p.log_warps + min(log_each, 0), 0);
    return rounds * (longest * (max(warps * p.ctas_per_sm, 4) + 4) + 12) + (several ? 20 : 0);
}

// Finds the best size of chunks, by one warp: log2 of the splits that each warp has of a chunk; below 0, some have
// none.
DEVICE int work_log_each(const struct cuda_attention &p, const struct sequence_work *list, int sequences)
{
    enum { CHOICES = 6 };
    int tiles[CHOICES] = {}, longest[CHOICES] = {}, pairs = 0, best = 0, least = INT_MAX;
    for (int base = 0; base < sequences; base += WARP) {
        int s = base + lane_index(), rows = s < sequences ? list[s].rows : 0, last = rows ? list[s].last : 0;
        if (sequences <= WARP && !__any_sync(WARP_ALL, rows && cut_of(p, rows, last, 0).log_splits > p.log_warps))
            return 0; // no context can be divided
        pairs += __reduce_add_sync(WARP_ALL, rows ? p.cache.heads * column_tiles_of(p, rows) : 0);
#pragma unroll
        for (int i = 0; i < CHOICES; i++) {
            struct cut cut = cut_of(p, rows, last, p.log_each_max - i);
            int blocks = cut.blocks << max(cut.log_chunk - p.log_warps, 0), rounding = (1 << cut.log_splits) - 1;
            tiles[i] += __reduce_add_sync(WARP_ALL, tiles_of(p, rows, cut));
            longest[i] = max(longest[i], __reduce_max_sync(WARP_ALL, blocks + rounding >> cut.log_splits));
        }
    }
#pragma unroll
    for (int i = 0; i < CHOICES; i++) {
        int cost = cost_of(p, p.log_each_max - i, tiles[i], longest[i], tiles[i] > pairs);
        if (cost < least)
            best = p.log_each_max - i, least = cost;
    }
    return best;
}

// ---- the list ----

// Work tiles are long if every warp has some of each, and LONG_BLOCKS KV blocks on average. If there are many long
// ones, those behind the last whole wave are divided further, into 2^LAST_FINER each, where warps have as many splits
// in a row.
enum { LONG_BLOCKS = 24, LONG_ROUNDS = 3, LAST_FINER = 2 };

struct count {
    int tiles, blocks; // work tiles, and the KV blocks of all of them
    bool has_short;    // some split has no tokens
};

// Divides contexts and counts work tiles, by one warp. Sequences whose tiles, as counted before, end behind `last` are
// divided further.
DEVICE struct count work_count(const struct cuda_attention &p, struct sequence_work *list, int sequences, int log_each,
                               int last)
{
    struct count count = {};
    for (int base = 0; base < sequences; base += WARP) {
        int s = base + lane_index(), rows = s < sequences ? list[s].rows : 0;
        bool is_last = rows && list[s].end > last;
        struct cut cut = cut_of(p, rows, rows ? list[s].last : 0, is_last ? log_each - LAST_FINER : log_each);
        int end = tiles_of(p, rows, cut);
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(WARP_ALL, end, step);
            end += lane_index() >= step ? other : 0;
        }
        if (s < sequences)
            list[s].end = count.tiles + end, list[s].log_splits = cut.log_splits, list[s].log_chunk = cut.log_chunk;
        count.tiles += __shfl_sync(WARP_ALL, end, WARP - 1);
        count.blocks += __reduce_add_sync(WARP_ALL, p.cache.heads * column_tiles_of(p, rows) * cut.blocks);
        count.has_short |= __any_sync(WARP_ALL, rows && cut.blocks >> cut.log_splits == 0);
    }
    return count;
}

// True when work tiles are taken from an atomic counter (dynamic scheduling) instead of round-robin by CTA index.
DEVICE bool work_cut(const struct cuda_attention &p, struct sequence_work *list, int sequences)
{
    int log_each = work_log_each(p, list, sequences);
    struct count count = work_count(p, list, sequences, log_each, INT_MAX);
    bool is_long = !count.has_short && count.blocks >= count.tiles * LONG_BLOCKS << p.log_warps;
    if (log_each < LAST_FINER || !is_long || count.tiles < LONG_ROUNDS * p.ctas)
        return false;
    work_count(p, list, sequences, log_each, divide(count.tiles - 1, p.ctas) * p.ctas);
    return true;
}

// The number of work tiles in the list.
DEVICE int work_tiles(const struct work &work) { return work.sequences ? work.list[work.sequences - 1].end : 0; }

// Fills list[0 .. sequences), by the whole CTA. It reads only what was written before the step's first kernel.
DEVICE struct work work_list(const struct cuda_attention &p, struct sequence_work *list)
{
    __shared__ bool is_dynamic;
    int sequences = p.batch.counts[CUDA_SEQUENCES];
    for (int s = (int)threadIdx.x; s < p.batch.sequences_max; s += (int)blockDim.x) {
        // All loads are issued before it is known whether they are needed: in a step of one row per sequence, row s
        // belongs to sequence s.
        struct sequence_work own = { .first = p.batch.first[s], .rows = p.batch.count[s] };
        own.table_at = p.batch.table_at[p.cache.class_index * p.batch.sequences_max + s];
        own.last = p.batch.positions[s];
        if (s >= sequences)
            break;
        if (own.rows < p.rows_min || own.rows > p.rows_max)
            own.rows = own.last = 0;
        else if (own.first != s || own.rows > 1)
            own.last = p.batch.positions[own.first + own.rows - 1];
        list[s] = own;
    }
    __syncthreads();
    if (warp_index() == 0)
        is_dynamic = work_cut(p, list, sequences);
    __syncthreads();
    return { list, sequences, is_dynamic };
}

// Finds work tile `index` of the list and this warp's splits of it, by all lanes; false behind the last one.
DEVICE bool work_find(const struct cuda_attention &p, const struct work &work, int index, struct work_tile *out)
{
    const struct sequence_work *list = work.list;
    if (index >= work_tiles(work))
        return false;
    int s = 0;
    for (int base = 0; base < work.sequences; base += WARP) {
        int i = base + lane_index();
        int before = __popc(__ballot_sync(WARP_ALL, i < work.sequences && list[i].end <= index));
        s += before;
        if (before < WARP)
            break;
    }
    const struct sequence_work *own = &list[s];
    int heads = p.cache.heads, column_tiles = column_tiles_of(p, own->rows);
    int rest = index - (s ? list[s - 1].end : 0);
    out->sequence = s;
    out->first = own->first, out->rows = own->rows, out->last = own->last, out->table_at = own->table_at;
    int seen = first_seen(p, own->last - own->rows + 1);
    out->start = max(seen, sink_tokens(p));
    int pair = column_tiles > 1 ? divide(rest, column_tiles) : rest;
    out->chunk = divide(pair, heads);
    out->head = pair - out->chunk * heads;
    out->column_tile = rest - pair * column_tiles;
    out->origin = seen / SPLIT_TOKENS;
    int each = 1 << max(own->log_chunk - p.log_warps, 0), mine = warp_index() * each;
    out->blocks = out->start > own->last ? 0 : own->last / SPLIT_TOKENS - out->origin + 1;
    out->log_splits = own->log_splits;
    out->chunks = 1 << own->log_splits - own->log_chunk;
    out->split = (out->chunk << own->log_chunk) + mine;
    out->splits = mine < 1 << own->log_chunk ? each : 0;
    out->is_half = is_half_tile(p, own->rows);
    return true;
}

// The first KV block of a split.
DEVICE int split_begin(const struct work_tile &tile, int split)
{
    return tile.origin + (split * tile.blocks >> tile.log_splits);
}

// The row of its sequence that a column belongs to, and its query head.
struct column {
    int row, head;
};

DEVICE struct column column_of(const struct cuda_attention &p, const struct work_tile &tile, int index)
{
    int group = p.group, column = tile.is_half ? index % (COLUMNS / 2) : tile.column_tile * COLUMNS + index;
    int row = divide(column, group);
    return { row, tile.head * group - p.lead + column - row * group };
}

// Columns beyond the last row are empty, and so are those of query heads that belong to another rank.
DEVICE bool has_query(const struct cuda_attention &p, const struct work_tile &tile, const struct column &column)
{
    return column.row < tile.rows && (unsigned)column.head < (unsigned)p.heads;
}

// The results of all chunks for one row and query head of a sequence. Each row has room for the most chunks.
DEVICE float *work_partials(const struct cuda_attention &p, int sequence, int rows, int row, int head)
{
    size_t at = (size_t)sequence * (size_t)p.heads + (size_t)head << SPLIT_LOG_RESULTS;
    at += (size_t)(row << split_log_results(rows));
    return p.partials + at * (size_t)(p.cache.v_dim + SPLIT_TAIL);
}

#endif
