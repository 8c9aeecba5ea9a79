// SPDX-License-Identifier: Apache-2.0
#include "kernel/ref/hessian.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/ref/tile.h"

enum { TOKENS_EACH = 128 };

size_t hessian_size(size_t columns) { return (columns + TILE_LANES - 1) / TILE_LANES * TILE_LANES; }

// ---- adding ----

struct panel {
    float x[TOKENS_EACH][TILE_LANES];
};

static void read_panel(struct panel *panel, size_t first, size_t columns, const float *const *rows, int count)
{
    bool whole = first + TILE_LANES <= columns;
    for (int i = 0; i < count && whole; i++)
        memcpy(panel->x[i], rows[i] + first, sizeof panel->x[i]);
    for (int i = 0; i < count && !whole; i++)
        for (size_t lane = 0; lane < TILE_LANES; lane++)
            panel->x[i][lane] = first + lane < columns ? rows[i][first + lane] : 0;
}

FOR_EACH_ISA static void add_tile(float *out, size_t size, const struct panel *a, const struct panel *b, int rows)
{
    for (int row = 0; row < TILE_LANES; row += TILE_ROWS) {
        float sum[TILE_ROWS][TILE_LANES] = { 0 };
        tile_multiply(sum, &a->x[0][row], TILE_LANES, 1, b->x[0], TILE_LANES, (size_t)rows);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int lane = 0; lane < TILE_LANES; lane++)
                out[(size_t)(row + r) * size + (size_t)lane] += sum[r][lane];
    }
}

void hessian_add(float *hessian, size_t columns, const float *x, const int32_t *rows, int count, int chunk, int chunks)
{
    size_t size = hessian_size(columns);
    const float *own[TOKENS_EACH];
    struct panel a, b;
    for (int at = 0; at < count; at += TOKENS_EACH) {
        int some = count - at < TOKENS_EACH ? count - at : TOKENS_EACH;
        for (int i = 0; i < some; i++)
            own[i] = x + (size_t)(rows ? rows[at + i] : at + i) * columns;
        for (size_t column = (size_t)chunk * TILE_LANES; column < size; column += (size_t)chunks * TILE_LANES) {
            read_panel(&b, column, columns, own, some);
            for (size_t row = 0; row <= column; row += TILE_LANES) {
                read_panel(&a, row, columns, own, some);
                add_tile(hessian + row * size + column, size, &a, &b, some);
            }
        }
    }
}

// ---- factoring ----
// Reverse Cholesky decomposition (M = R R', R upper triangular), from the last column to the first, a panel of columns
// at a time. Each panel takes four steps of the thread pool: transpose its rows to be contiguous; subtract the columns
// behind it; factor the diagonal square; solve the rows above.

struct factoring {
    float *m;          // (size, size)
    float *transposed; // (size, TILE_LANES)
    size_t size;
};

static void transpose_panel(const struct factoring *f, size_t first, int chunk, int chunks)
{
    for (size_t column = first + TILE_LANES + (size_t)chunk; column < f->size; column += (size_t)chunks)
        for (size_t lane = 0; lane < TILE_LANES; lane++)
            f->transposed[column * TILE_LANES + lane] = f->m[(first + lane) * f->size + column];
}

FOR_EACH_ISA static void subtract_known(const struct factoring *f, size_t first, int chunk, int chunks)
{
    size_t behind = first + TILE_LANES;
    for (size_t row = (size_t)chunk * TILE_ROWS; row < behind; row += (size_t)chunks * TILE_ROWS) {
        float sum[TILE_ROWS][TILE_LANES] = { 0 };
        tile_multiply(sum, f->m + row * f->size + behind, 1, f->size, f->transposed + behind * TILE_LANES, TILE_LANES,
                      f->size - behind);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int lane = 0; lane < TILE_LANES; lane++)
                f->m[(row + (size_t)r) * f->size + first + (size_t)lane] -= sum[r][lane];
    }
}

// Back substitution for a row's columns [begin, end); the rows of those columns are done.
static void solve_row(const struct factoring *f, size_t row, size_t begin, size_t end)
{
    float *own = f->m + row * f->size;
    for (size_t column = end; column-- > begin;) {
        const float *other = f->m + column * f->size;
        float sum = own[column];
        for (size_t i = column + 1; i < end; i++)
            sum -= own[i] * other[i];
        own[column] = sum / other[column];
    }
}

// A pivot that rounding made too small or negative is raised to the least value.
static void factor_diagonal(const struct factoring *f, size_t first)
{
    const float least = 1e-6f;
    size_t end = first + TILE_LANES;
    for (size_t row = end; row-- > first;) {
        float *own = f->m + row * f->size;
        solve_row(f, row, row + 1, end);
        float rest = own[row];
        for (size_t i = row + 1; i < end; i++)
            rest -= own[i] * own[i];
        own[row] = sqrtf(rest > least ? rest : least);
    }
}

static void factor_step(void *context, int step, int chunk, int chunks)
{
    const struct factoring *f = context;
    size_t first = f->size - (size_t)(step / 4 + 1) * TILE_LANES;
    switch (step % 4) {
    case 0: transpose_panel(f, first, chunk, chunks); break;
    case 1: subtract_known(f, first, chunk, chunks); break;
    case 2:
        if (chunk == 0)
            factor_diagonal(f, first);
        break;
    default:
        for (size_t row = (size_t)chunk; row < first; row += (size_t)chunks)
            solve_row(f, row, first, first + TILE_LANES);
    }
}

// Padding columns have no inputs; the common damping makes them independent.
bool hessian_cholesky(float *hessian, size_t columns, struct hessian_damping damping, struct thread_pool *pool)
{
    size_t size = hessian_size(columns);
    double sum = 0;
    for (size_t i = 0; i < columns; i++)
        sum += hessian[i * size + i];
    double mean = sum / (double)columns;
    if (!(mean > 0) || !isfinite(mean))
        return false;
    for (size_t row = 0; row < size; row++) {
        for (size_t column = row; column < size; column++)
            hessian[row * size + column] = (float)(hessian[row * size + column] / mean);
        hessian[row * size + row] = hessian[row * size + row] * (1 + damping.own) + damping.common;
    }
    struct factoring f = { hessian, memory_new(size * TILE_LANES, sizeof(float)), size };
    thread_pool_run(
        pool, &(struct thread_pool_work){ factor_step, &f, .steps = (int)(size / TILE_LANES) * 4, .divisible = true });
    free(f.transposed);
    return true;
}
