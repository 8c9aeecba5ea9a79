// SPDX-License-Identifier: Apache-2.0
#include "engine/gpu/batch.h"

#include <assert.h>
#include <string.h>

#include "kv/pool.h"

enum { PART_ALIGNMENT = 16 };

// The parts of a block, in order, each with its number of entries.
enum part { COUNTS, FIRST, COUNT, TABLE_AT, IDS, POSITIONS, SEQUENCE_OF, OUTPUT_ROWS, TABLES, PARTS };

// at[PARTS] is the end.
static void place_parts(const struct cuda_batch_block *block, size_t at[PARTS + 1])
{
    size_t tokens = (size_t)block->tokens, sequences = (size_t)block->sequences;
    const size_t entries[PARTS] = {
        [COUNTS] = CUDA_COUNTS,
        [FIRST] = sequences,
        [COUNT] = sequences,
        [IDS] = tokens,
        [POSITIONS] = tokens,
        [SEQUENCE_OF] = tokens,
        [TABLES] = block->pages,
        [OUTPUT_ROWS] = (size_t)block->outputs,
        [TABLE_AT] = (size_t)block->classes * sequences,
    };
    at[0] = 0;
    for (int i = 0; i < PARTS; i++)
        at[i + 1] = (at[i] + entries[i] * sizeof(int32_t) + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
}

void cuda_batch_measure(struct cuda_batch_block *block)
{
    size_t at[PARTS + 1];
    place_parts(block, at);
    block->bytes = at[PARTS];
}

struct cuda_batch cuda_batch_view(const struct cuda_batch_block *block, const void *device)
{
    size_t at[PARTS + 1];
    const int32_t *part[PARTS];
    place_parts(block, at);
    for (int i = 0; i < PARTS; i++)
        part[i] = (const int32_t *)(const void *)((const uint8_t *)device + at[i]);
    return (struct cuda_batch){
        .counts = part[COUNTS],
        .ids = part[IDS],
        .positions = part[POSITIONS],
        .sequence_of = part[SEQUENCE_OF],
        .first = part[FIRST],
        .count = part[COUNT],
        .output_rows = part[OUTPUT_ROWS],
        .tables = part[TABLES],
        .table_at = part[TABLE_AT],
        .sequences_max = block->sequences,
    };
}

// The pages that a sequence has after the batch, and the first of them that no window has given back.
static void find_run(const struct batch *batch, const struct batch_sequence *sequence, int class_index, int *first,
                     int *end)
{
    const int32_t *pages = sequence->pages[class_index];
    *end = batch->positions[sequence->first + sequence->count - 1] / batch->page_tokens[class_index] + 1;
    if (batch->pages_end[class_index] && *end > batch->pages_end[class_index])
        *end = batch->pages_end[class_index];
    for (*first = *end; *first > 0 && pages[*first - 1] != KV_PAGE_NONE; --*first)
        ;
}

size_t cuda_batch_pages(const struct batch *batch, int class_index)
{
    size_t count = 0;
    for (int i = 0; i < batch->sequences && batch->sequence[i].pages[class_index]; i++) {
        int first, end;
        find_run(batch, &batch->sequence[i], class_index, &first, &end);
        count += (size_t)(end - first);
    }
    return count;
}

// Returns the number of entries. A run begins where page 0 would be, which may be before the first entry.
static size_t fill_tables(const struct cuda_batch_block *block, const struct batch *batch, int32_t *table_at,
                          int32_t *tables)
{
    size_t used = 0;
    for (int class_index = 0; class_index < block->classes; class_index++)
        for (int i = 0; i < batch->sequences && batch->sequence[i].pages[class_index]; i++) {
            int first, end;
            find_run(batch, &batch->sequence[i], class_index, &first, &end);
            size_t count = (size_t)(end - first);
            assert(count <= block->pages - used);
            memcpy(tables + used, batch->sequence[i].pages[class_index] + first, count * sizeof *tables);
            table_at[class_index * block->sequences + i] = (int32_t)used - first;
            used += count;
        }
    return used;
}

static void copy_entries(int32_t *to, const int32_t *from, int count)
{
    if (from && count)
        memcpy(to, from, (size_t)count * sizeof *to);
}

size_t cuda_batch_fill(const struct cuda_batch_block *block, const struct batch *batch, void *host)
{
    size_t at[PARTS + 1];
    int32_t *part[PARTS];
    assert(batch->tokens <= block->tokens && batch->sequences <= block->sequences && batch->outputs <= block->outputs);
    place_parts(block, at);
    for (int i = 0; i < PARTS; i++)
        part[i] = (int32_t *)(void *)((uint8_t *)host + at[i]);
    part[COUNTS][CUDA_TOKENS] = batch->tokens;
    part[COUNTS][CUDA_SEQUENCES] = batch->sequences;
    part[COUNTS][CUDA_OUTPUTS] = batch->outputs;
    copy_entries(part[IDS], batch->ids, batch->tokens);
    copy_entries(part[POSITIONS], batch->positions, batch->tokens);
    copy_entries(part[OUTPUT_ROWS], batch->output_rows, batch->outputs);
    for (int i = 0; i < batch->sequences; i++) {
        const struct batch_sequence *sequence = &batch->sequence[i];
        part[FIRST][i] = sequence->first;
        part[COUNT][i] = sequence->count;
        for (int row = 0; row < sequence->count; row++)
            part[SEQUENCE_OF][sequence->first + row] = i;
    }
    return at[TABLES] + fill_tables(block, batch, part[TABLE_AT], part[TABLES]) * sizeof(int32_t);
}
