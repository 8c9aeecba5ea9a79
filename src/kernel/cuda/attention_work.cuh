// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_work.cuh: decode attention's list of work. A piece is one part of one sequence's context
// (attention_split.h) for one KV head and up to COLUMNS of the (row, head) pairs that share it. As many blocks as a
// device holds at once take pieces in turn, so that a captured launch fits any batch. What is in the list is known to
// every block from the lengths of the sequences.
#ifndef KERNEL_CUDA_ATTENTION_WORK_CUH
#define KERNEL_CUDA_ATTENTION_WORK_CUH

#include "kernel/cuda/attention_split.h"
#include "kernel/cuda/common.cuh"

enum { COLUMNS = 8 };

struct sequence_work {
    int end;               // of its pieces in the list
    int first, rows, last; // its rows, and the last one's position
    int table_at;
};

struct piece {
    int sequence, head, tile; // tile: which COLUMNS of the pairs
    int first, rows, last, table_at;
    int start;                // the first token that any row sees
    int begin, end;           // the part's tokens
    int part, parts;
};

// The first token that a row at this position sees.
DEVICE int first_seen(const struct cuda_attention &p, int position)
{
    return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}

// a / b for numbers below 2^20; the half keeps the quotient away from whole numbers.
DEVICE int divide(int a, int b) { return (int)__fdividef((float)a + 0.5f, (float)b); }

DEVICE int group_of(const struct cuda_attention &p) { return divide(p.heads, p.cache.heads); }

DEVICE int tiles_of(const struct cuda_attention &p, int rows)
{
    return (rows * group_of(p) + COLUMNS - 1) / COLUMNS;
}

// Fills list[0 .. sequences), by the whole block. What it reads was there before any kernel of the step.
DEVICE void work_list(const struct cuda_attention &p, struct sequence_work *list, int sequences)
{
    for (int s = (int)threadIdx.x; s < sequences; s += (int)blockDim.x) {
        struct sequence_work work = { .first = p.batch.first[s], .rows = p.batch.count[s] };
        work.table_at = p.batch.table_at[p.cache.class_index * p.batch.sequences_max + s];
        if (work.rows >= p.rows_min && work.rows <= p.rows_max && work.rows > 0) {
            work.last = p.batch.positions[work.first + work.rows - 1];
            int start = first_seen(p, work.last - work.rows + 1);
            work.end = split_parts(start, work.last, work.rows, p.part_shift) * p.cache.heads * tiles_of(p, work.rows);
        }
        list[s] = work;
    }
    __syncthreads();
    if (warp_index() == 0) {
        int before = 0;
        for (int base = 0; base < sequences; base += WARP) {
            int s = base + lane_index(), end = s < sequences ? list[s].end : 0;
            for (int step = 1; step < WARP; step *= 2) {
                int other = __shfl_up_sync(WARP_ALL, end, step);
                end += lane_index() >= step ? other : 0;
            }
            if (s < sequences)
                list[s].end = before + end;
            before += __shfl_sync(WARP_ALL, end, WARP - 1);
        }
    }
    __syncthreads();
}

// Piece `index` of the list, by all lanes of a warp; false behind the last one.
DEVICE bool work_piece(const struct cuda_attention &p, const struct sequence_work *list, int sequences, int index,
                       struct piece *out)
{
    if (index >= list[sequences - 1].end)
        return false;
    int s = 0;
    for (int base = 0; base < sequences; base += WARP) {
        int i = base + lane_index();
        int before = __popc(__ballot_sync(WARP_ALL, i < sequences && list[i].end <= index));
        s += before;
        if (before < WARP)
            break;
    }
    const struct sequence_work *work = &list[s];
    int heads = p.cache.heads, tiles = tiles_of(p, work->rows);
    int rest = index - (s ? list[s - 1].end : 0);
    out->sequence = s;
    out->first = work->first, out->rows = work->rows, out->last = work->last, out->table_at = work->table_at;
    out->start = first_seen(p, work->last - work->rows + 1);
    int without_tile = divide(rest, tiles);
    out->part = divide(without_tile, heads);
    out->head = without_tile - out->part * heads;
    out->tile = rest - without_tile * tiles;
    int shift = split_shift(work->last - out->start + 1, work->rows, p.part_shift);
    int part = (out->start >> shift) + out->part;
    out->parts = (work->last >> shift) - (out->start >> shift) + 1;
    out->begin = max(part << shift, out->start);
    out->end = min((part + 1) << shift, work->last + 1);
    return true;
}

// The row of a sequence that a column belongs to, and its head.
struct column {
    int row, head;
};

DEVICE struct column column_of(const struct cuda_attention &p, const struct piece &piece, int index)
{
    int group = group_of(p), column = piece.tile * COLUMNS + index, row = divide(column, group);
    return { row, piece.head * group + column - row * group };
}

// Where the parts' results for one row and head of a sequence are.
DEVICE float *work_partials(const struct cuda_attention &p, int sequence, int row, int head, int parts)
{
    size_t at = ((size_t)sequence * (size_t)p.heads + (size_t)head) * (size_t)p.partials_each + (size_t)(row * parts);
    return p.partials + at * (size_t)(p.cache.v_dim + SPLIT_TAIL);
}

#endif
