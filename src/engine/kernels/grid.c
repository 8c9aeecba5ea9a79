// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/grid.h"

enum { GAP = 2, INDENT = 4 };

static void add_value(const json_t *value, struct strbuf *out)
{
    size_t start = out->len, index;
    const json_t *member;
    switch (json_typeof(value)) {
    case JSON_STRING: strbuf_add_text(out, json_string_value(value)); break;
    case JSON_INTEGER: strbuf_add_format(out, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: strbuf_add_format(out, "%.3g", json_real_value(value)); break;
    case JSON_ARRAY:
        json_array_foreach (value, index, member) {
            strbuf_add_text(out, index ? " " : "");
            add_value(member, out);
        }
        break;
    default: break;
    }
    if (out->len == start)
        strbuf_add_byte(out, '-');
}

void grid_cell(const json_t *row, const char *key, struct strbuf *out) { add_value(json_object_get(row, key), out); }

static void add_cell(const json_t *row, const struct grid_column *column, struct strbuf *out)
{
    (column->cell ? column->cell : grid_cell)(row, column->key, out);
}

static size_t column_width(const json_t *rows, const struct grid_column *column)
{
    size_t width = strlen(column->title), index;
    const json_t *row;
    json_array_foreach (rows, index, row) {
        struct strbuf cell = { 0 };
        add_cell(row, column, &cell);
        width = cell.len > width ? cell.len : width;
        strbuf_free(&cell);
    }
    return width;
}

static bool is_beside(const struct grid_column *column) { return column->title && !column->below; }

// Blanks up to the next column's place; none after the last.
static void pad(struct strbuf *out, size_t start, size_t width, const struct grid_column *next)
{
    while (is_beside(next) && out->len - start < width + GAP)
        strbuf_add_byte(out, ' ');
}

// One word of a line below a row, on a new line where it does not fit any more. *line_len is 0 before the first.
static void add_word(struct strbuf *out, struct bytes word, int width, size_t *line_len)
{
    if (!*line_len || *line_len + 1 + word.len > (size_t)width) {
        strbuf_add_format(out, "%s%*s", *line_len ? "\n" : "", INDENT, "");
        *line_len = INDENT;
    } else {
        strbuf_add_byte(out, ' ');
        ++*line_len;
    }
    strbuf_add(out, word.data, word.len);
    *line_len += word.len;
}

static void add_below(const json_t *row, const struct grid_column *columns, int width, struct strbuf *out)
{
    struct strbuf text = { 0 };
    size_t line_len = 0;
    for (const struct grid_column *column = columns; column->title; column++) {
        struct strbuf cell = { 0 };
        if (column->below)
            add_cell(row, column, &cell);
        if (cell.len && strcmp(cell.data, "-"))
            strbuf_add_format(&text, "%s%s: %s", text.len ? "; " : "", column->title, cell.data);
        strbuf_free(&cell);
    }
    for (const char *at = strbuf_text(&text); *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        add_word(out, (struct bytes){ at, len }, width, &line_len);
        at += len;
    }
    if (line_len)
        strbuf_add_byte(out, '\n');
    strbuf_free(&text);
}

void grid_text(const json_t *rows, const struct grid_column *columns, int width, struct strbuf *out)
{
    size_t count = json_array_size(rows);
    for (size_t line = 0; line <= count; line++) {
        const json_t *row = line ? json_array_get(rows, line - 1) : NULL;
        for (const struct grid_column *column = columns; is_beside(column); column++) {
            size_t start = out->len;
            if (row)
                add_cell(row, column, out);
            else
                strbuf_add_text(out, column->title);
            pad(out, start, column_width(rows, column), column + 1);
        }
        strbuf_add_byte(out, '\n');
        if (row)
            add_below(row, columns, width, out);
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
    json_array_foreach (rows, index, row) {
        for (const struct grid_column *column = columns; column->title; column++) {
            strbuf_add_text(out, "| ");
            add_cell(row, column, out);
            strbuf_add_byte(out, ' ');
        }
        strbuf_add_text(out, "|\n");
    }
}
