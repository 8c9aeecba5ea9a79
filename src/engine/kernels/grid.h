// SPDX-License-Identifier: Apache-2.0
// engine/kernels/grid.h: text and Markdown tables of a JSON list of objects, so that people read the same report as
// programs.
#ifndef ENGINE_KERNELS_GRID_H
#define ENGINE_KERNELS_GRID_H

#include <jansson.h>

#include "base/strbuf.h"

struct grid_column {
    const char *title, *key;
    void (*cell)(const json_t *row, const char *key, struct strbuf *out); // NULL: grid_cell
    bool below; // in text: after its title in lines under the row, and only where there is a value
};

// The value as it is: words of a list side by side, "-" for nothing.
void grid_cell(const json_t *row, const char *key, struct strbuf *out);

// Columns end in one without a title; those below a row come last. Lines below a row are wrapped to `width`.
void grid_text(const json_t *rows, const struct grid_column *columns, int width, struct strbuf *out);
void grid_markdown(const json_t *rows, const struct grid_column *columns, struct strbuf *out);

#endif
