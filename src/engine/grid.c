// SPDX-License-Identifier: Apache-2.0
#include "engine/grid.h"

enum { GAP = 2 };

static void add_value(const json_t *value, struct strbuf *out)
{
    size_t start = out->len, index;
    const json_t *member;
    switch (json_typeof(value)) {
    case JSON_STRING:
        strbuf_add_text(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        strbuf_add_format(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        strbuf_add_format(out, "%.3g", json_real_value(value));
        break;
    case JSON_ARRAY:
        json_array_foreach(value, index, member) {
            strbuf_add_text(out, index ? " " : "");
            add_value(member, out);
        }
        break;
    default:
        break;
    }
    if (out->len == start)
        strbuf_add_byte(out, '-');
}

void grid_cell(const json_t *row, const char *key, struct strbuf *out)
{
    add_value(json_object_get(row, key), out);
}

static void add_cell(const json_t *row, const struct grid_column *column, struct strbuf *out)
{
    (column->cell ? column->cell : grid_cell)(row, column->key, out);
}

static size_t column_width(const json_t *rows, const struct grid_column *column)
{
    size_t width = strlen(column->title), index;
    const json_t *row;
    json_array_foreach(rows, index, row) {
        struct strbuf cell = { 0 };
        add_cell(row, column, &cell);
        width = cell.len > width ? cell.len : width;
        strbuf_free(&cell);
    }
    return width;
}

// Blanks up to the next column's place; none after the last.
static void pad(struct strbuf *out, size_t start, size_t width, const struct grid_column *next)
{
    while (next->title && out->len - start < width + GAP)
        strbuf_add_byte(out, ' ');
}

void grid_text(const json_t *rows, const struct grid_column *columns, struct strbuf *out)
{
    size_t count = json_array_size(rows);
    for (size_t line = 0; line <= count; line++) {
        for (const struct grid_column *column = columns; column->title; column++) {
            size_t start = out->len;
            if (line == 0)
                strbuf_add_text(out, column->title);
            else
                add_cell(json_array_get(rows, line - 1), column, out);
            pad(out, start, column_width(rows, column), column + 1);
        }
        strbuf_add_byte(out, '\n');
    }
}

void grid_markdown(const json_t *rows, const struct grid_column *columns, struct strbuf *out)
{
    size_t index;
    const json_t *row;
    for (const struct grid_column *column = columns; column->title; column++)
        strbuf_add_format(out, "| %s ", column->title);
    strbuf_add_text(out, "|\n");
    for (const struct grid_column *column = columns; column->title; column++)
        strbuf_add_text(out, "|---");
    strbuf_add_text(out, "|\n");
    json_array_foreach(rows, index, row) {
        for (const struct grid_column *column = columns; column->title; column++) {
            strbuf_add_text(out, "| ");
            add_cell(row, column, out);
            strbuf_add_byte(out, ' ');
        }
        strbuf_add_text(out, "|\n");
    }
}
