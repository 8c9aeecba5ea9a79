// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_work.cuh: decode attention's list of work. A piece is one chunk of one sequence's context
// (attention_split.h) for one KV head and up to COLUMNS of the (row, head) pairs that share it. As many blocks as a
// device holds at once take pieces in turn, so that a captured launch fits any batch. What is in the list, and how
// large chunks are, is known to every block from the lengths of the sequences.
#ifndef KERNEL_CUDA_ATTENTION_WORK_CUH
#define KERNEL_CUDA_ATTENTION_WORK_CUH

#include <limits.h>

#include "kernel/cuda/attention_split.h"
#include "kernel/cuda/common.cuh"

enum { COLUMNS = SPLIT_COLUMNS };

struct sequence_work {
    int end;               // of its pieces in the list
    int first, rows, last; // its rows, and the last one's position
    int table_at;
    int log_splits, log_chunk;
};
static_assert(sizeof(struct sequence_work) == SPLIT_WORK_BYTES, "what a launch asks for");

struct work {
    struct sequence_work *list;
    int sequences;
    bool is_dealt; // to whoever comes (attention_schedule.cuh), else in turn
};

struct piece {
    int sequence, head, tile; // tile: which COLUMNS of the pairs
    int first, rows, last, table_at;
    int start;                  // the first token that any row sees, those of first pages kept apart not counted
    int origin, blocks;         // what they see, in blocks of tokens
    int log_splits, part, parts; // of these, this warp's
    int chunk, chunks;
    bool narrow; // half of the columns are enough: the others are those of another part of the warp's
};

// The first token that a row at this position sees.
DEVICE int first_seen(const struct cuda_attention &p, int position)
{
    return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}

// Of first pages that are kept in 16 bit.
DEVICE int sink_tokens(const struct cuda_attention &p) { return p.sink_pages * KV_PAGE_TOKENS; }

// a / b for numbers below 2^20; the half keeps the quotient away from whole numbers.
DEVICE int divide(int a, int b) { return (int)__fdividef((float)a + 0.5f, (float)b); }

DEVICE int tiles_of(const struct cuda_attention &p, int rows) { return (rows * p.group + COLUMNS - 1) / COLUMNS; }

// The blocks of tokens that a sequence's rows see.
DEVICE int blocks_of(const struct cuda_attention &p, int rows, int last)
{
    return last / SPLIT_TOKENS - first_seen(p, last - rows + 1) / SPLIT_TOKENS + 1;
}

DEVICE bool is_narrow(const struct cuda_attention &p, int rows)
{
    return p.log_each_max > 0 && rows * p.group <= COLUMNS / 2;
}

// How the context of one sequence is cut.
struct split {
    int blocks, log_splits, log_chunk;
};

DEVICE struct split split_of(const struct cuda_attention &p, int rows, int last, int log_each)
{
    int blocks = rows ? blocks_of(p, rows, last) : 0, some = max(rows, 1);
    int log_splits = split_log_splits(blocks, some, p.log_warps, p.log_splits);
    int log_chunk = p.log_warps + (is_narrow(p, rows) ? log_each : min(log_each, 0));
    log_chunk = min(max(log_chunk, max(log_splits - split_log_results(some), 0)), log_splits);
    return { blocks, log_splits, log_splits == p.log_warps ? log_splits : log_chunk };
}

DEVICE int pieces_of(const struct cuda_attention &p, int rows, const struct split &split)
{
    return rows ? p.cache.heads * tiles_of(p, rows) << split.log_splits - split.log_chunk : 0;
}

// ---- how large chunks are ----

// What a step takes with chunks of one size, in eighths of the time that a warp takes for a block of tokens while its
// multiprocessor has four warps; beside more it takes longer. The end of a piece is twelve, adding up chunks twenty.
DEVICE int price_of(const struct cuda_attention &p, int log_each, int pieces, int longest, bool several)
{
    int rounds = divide(pieces + p.ctas - 1, p.ctas), warps = 1 << max(p.log_warps + min(log_each, 0), 0);
    return rounds * (longest * (max(warps * p.ctas_per_sm, 4) + 4) + 12) + (several ? 20 : 0);
}

// The best size of chunks, by one warp: log2 of the parts that each warp has of one; below 0, some have none.
DEVICE int work_log_each(const struct cuda_attention &p, const struct sequence_work *list, int sequences)
{
    enum { CHOICES = 6 };
    int pieces[CHOICES] = {}, longest[CHOICES] = {}, pairs = 0, best = 0, least = INT_MAX;
    for (int base = 0; base < sequences; base += WARP) {
        int s = base + lane_index(), rows = s < sequences ? list[s].rows : 0, last = rows ? list[s].last : 0;
        if (sequences <= WARP && !__any_sync(WARP_ALL, rows && split_of(p, rows, last, 0).log_splits > p.log_warps))
            return 0; // nothing can be cut
        pairs += __reduce_add_sync(WARP_ALL, rows ? p.cache.heads * tiles_of(p, rows) : 0);
#pragma unroll
        for (int i = 0; i < CHOICES; i++) {
            struct split split = split_of(p, rows, last, p.log_each_max - i);
            int blocks = split.blocks << max(split.log_chunk - p.log_warps, 0), rounding = (1 << split.log_splits) - 1;
            pieces[i] += __reduce_add_sync(WARP_ALL, pieces_of(p, rows, split));
            longest[i] = max(longest[i], __reduce_max_sync(WARP_ALL, blocks + rounding >> split.log_splits));
        }
    }
#pragma unroll
    for (int i = 0; i < CHOICES; i++) {
        int price = price_of(p, p.log_each_max - i, pieces[i], longest[i], pieces[i] > pairs);
        if (price < least)
            best = p.log_each_max - i, least = price;
    }
    return best;
}

// ---- the list ----

// Pieces are long if every warp has some of each, and LONG_BLOCKS blocks of tokens on average. Of long and many ones,
// those behind the last whole round are cut finer, into 2^LAST_FINER each, where warps have as many parts in a row.
enum { LONG_BLOCKS = 24, LONG_ROUNDS = 3, LAST_FINER = 2 };

struct count {
    int pieces, blocks; // of tokens, of all pieces
    bool has_short;     // parts without tokens
};

// Cuts contexts and counts pieces, by one warp. Sequences whose pieces, as counted before, end behind `last` are cut
// finer.
DEVICE struct count work_count(const struct cuda_attention &p, struct sequence_work *list, int sequences, int log_each,
                               int last)
{
    struct count count = {};
    for (int base = 0; base < sequences; base += WARP) {
        int s = base + lane_index(), rows = s < sequences ? list[s].rows : 0;
        bool is_last = rows && list[s].end > last;
        struct split split = split_of(p, rows, rows ? list[s].last : 0, is_last ? log_each - LAST_FINER : log_each);
        int end = pieces_of(p, rows, split);
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(WARP_ALL, end, step);
            end += lane_index() >= step ? other : 0;
        }
        if (s < sequences)
            list[s].end = count.pieces + end, list[s].log_splits = split.log_splits, list[s].log_chunk = split.log_chunk;
        count.pieces += __shfl_sync(WARP_ALL, end, WARP - 1);
        count.blocks += __reduce_add_sync(WARP_ALL, p.cache.heads * tiles_of(p, rows) * split.blocks);
        count.has_short |= __any_sync(WARP_ALL, rows && split.blocks >> split.log_splits == 0);
    }
    return count;
}

// Returns whether pieces are for whoever comes for them.
DEVICE bool work_cut(const struct cuda_attention &p, struct sequence_work *list, int sequences)
{
    int log_each = work_log_each(p, list, sequences);
    struct count count = work_count(p, list, sequences, log_each, INT_MAX);
    bool is_long = !count.has_short && count.blocks >= count.pieces * LONG_BLOCKS << p.log_warps;
    if (log_each < LAST_FINER || !is_long || count.pieces < LONG_ROUNDS * p.ctas)
        return false;
    work_count(p, list, sequences, log_each, divide(count.pieces - 1, p.ctas) * p.ctas);
    return true;
}

// How many pieces there are in the list.
DEVICE int work_pieces(const struct work &work) { return work.sequences ? work.list[work.sequences - 1].end : 0; }

// Fills list[0 .. sequences), by the whole block. What it reads was there before any kernel of the step.
DEVICE struct work work_list(const struct cuda_attention &p, struct sequence_work *list)
{
    __shared__ bool is_dealt;
    int sequences = p.batch.counts[CUDA_SEQUENCES];
    for (int s = (int)threadIdx.x; s < p.batch.sequences_max; s += (int)blockDim.x) {
        // All are on their way before it is known whether they are needed: row s is sequence s's when all have one.
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
        is_dealt = work_cut(p, list, sequences);
    __syncthreads();
    return { list, sequences, is_dealt };
}

// Piece `index` of the list and what this warp has of it, by all lanes; false behind the last one.
DEVICE bool work_piece(const struct cuda_attention &p, const struct work &work, int index, struct piece *out)
{
    const struct sequence_work *list = work.list;
    if (index >= work_pieces(work))
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
    int heads = p.cache.heads, tiles = tiles_of(p, own->rows);
    int rest = index - (s ? list[s - 1].end : 0);
    out->sequence = s;
    out->first = own->first, out->rows = own->rows, out->last = own->last, out->table_at = own->table_at;
    int seen = first_seen(p, own->last - own->rows + 1);
    out->start = max(seen, sink_tokens(p));
    int without_tile = tiles > 1 ? divide(rest, tiles) : rest;
    out->chunk = divide(without_tile, heads);
    out->head = without_tile - out->chunk * heads;
    out->tile = rest - without_tile * tiles;
    out->origin = seen / SPLIT_TOKENS;
    int each = 1 << max(own->log_chunk - p.log_warps, 0), mine = warp_index() * each;
    out->blocks = out->start > own->last ? 0 : own->last / SPLIT_TOKENS - out->origin + 1;
    out->log_splits = own->log_splits;
    out->chunks = 1 << own->log_splits - own->log_chunk;
    out->part = (out->chunk << own->log_chunk) + mine;
    out->parts = mine < 1 << own->log_chunk ? each : 0;
    out->narrow = is_narrow(p, own->rows);
    return true;
}

// The first block of a part.
DEVICE int part_begin(const struct piece &piece, int part)
{
    return piece.origin + (part * piece.blocks >> piece.log_splits);
}

// The row of a sequence that a column belongs to, and its head.
struct column {
    int row, head;
};

DEVICE struct column column_of(const struct cuda_attention &p, const struct piece &piece, int index)
{
    int group = p.group, column = piece.narrow ? index % (COLUMNS / 2) : piece.tile * COLUMNS + index;
    int row = divide(column, group);
    return { row, piece.head * group - p.lead + column - row * group };
}

// Columns may be of no row, and of a group that is not all here, of no head.
DEVICE bool has_query(const struct cuda_attention &p, const struct piece &piece, const struct column &column)
{
    return column.row < piece.rows && (unsigned)column.head < (unsigned)p.heads;
}

// Where the chunks' results for one row and head of a sequence are: each row has room for as many as there may be.
DEVICE float *work_partials(const struct cuda_attention &p, int sequence, int rows, int row, int head)
{
    size_t at = (size_t)sequence * (size_t)p.heads + (size_t)head << SPLIT_LOG_RESULTS;
    at += (size_t)(row << split_log_results(rows));
    return p.partials + at * (size_t)(p.cache.v_dim + SPLIT_TAIL);
}

#endif
