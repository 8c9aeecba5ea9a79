// SPDX-License-Identifier: Apache-2.0
// cli/eval_html.c: a sweep as one page (cli/html.h): the curve of quality against bytes, its legend, and the table.
// Divergences span decades, so their axis is logarithmic; the Pareto frontier is a line. Points have numbers, since
// names would lie over each other; the legend says which is which.
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/eval.h"
#include "cli/html.h"

enum { HEIGHT = 380, LABEL_HEIGHT = 13, LABEL_GAP = 4, LABEL_TRIES = 4 * HEIGHT / LABEL_HEIGHT };
enum { COLOUR_PLANNED = 0, COLOUR_PLAIN = 1, COLOUR_FRONTIER = 7 };

struct curve {
    double bits_most;      // the right end; the left one is 0
    double decade, bottom; // powers of ten at the top and at the bottom
};

static bool is_shown(const struct sweep_row *row) { return !row->refused && row->score.mean > 0; }

static struct html_point point_of(const struct curve *curve, const struct sweep_row *row)
{
    double depth = (curve->decade - log10(row->score.mean)) / (curve->decade - curve->bottom);
    return (struct html_point){ row->size.bits / curve->bits_most, HEIGHT * depth };
}

static struct curve measure_curve(const struct sweep *sweep)
{
    double least = INFINITY, most = 0, bits = 0;
    for (int i = 0; i < sweep->count; i++)
        if (is_shown(&sweep->rows[i])) {
            least = fmin(least, sweep->rows[i].score.mean);
            most = fmax(most, sweep->rows[i].score.mean);
            bits = fmax(bits, sweep->rows[i].size.bits);
        }
    struct curve curve = { .bits_most = bits * 1.05, .decade = ceil(log10(most)), .bottom = floor(log10(least)) };
    curve.bottom -= curve.bottom == curve.decade;
    return curve;
}

static void add_axes(struct strbuf *out, const struct curve *curve)
{
    for (double power = curve->bottom; power <= curve->decade; power++)
        html_add_y_tick(out, HEIGHT * (curve->decade - power) / (curve->decade - curve->bottom), pow(10, power));
    double step = html_tick_step(curve->bits_most);
    for (double bits = 0; bits <= curve->bits_most; bits += step)
        html_add_x_tick(out, bits / curve->bits_most, HEIGHT, bits);
    html_add_x_title(out, HEIGHT, "bits per value");
    strbuf_add_text(out, "<text class=\"soft\" x=\"0\" y=\"-10\">mean KL divergence</text>\n");
}

// Nothing has fewer bits and less divergence.
static bool is_best(const struct sweep *sweep, const struct sweep_row *row)
{
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_row *other = &sweep->rows[i];
        bool equal = other->size.bits == row->size.bits && other->score.mean == row->score.mean;
        if (is_shown(other) && !equal && other->size.bits <= row->size.bits && other->score.mean <= row->score.mean)
            return false;
    }
    return true;
}

// The best ones from left to right: each time the next one in bits.
static void add_frontier(struct strbuf *out, const struct sweep *sweep, const struct curve *curve)
{
    const struct sweep_row *last = NULL;
    for (;;) {
        const struct sweep_row *next = NULL;
        for (int i = 0; i < sweep->count; i++) {
            const struct sweep_row *row = &sweep->rows[i];
            if (is_shown(row) && (!last || row->size.bits > last->size.bits) && is_best(sweep, row)
                && (!next || row->size.bits < next->size.bits))
                next = row;
        }
        if (!next)
            return;
        struct html_point to = point_of(curve, next), from = last ? point_of(curve, last) : to;
        if (last)
            html_add_segment(out, &from, &to, COLOUR_FRONTIER);
        last = next;
    }
}

// ---- labels -------------------------------------------------------------------------------------------------------

// Pixels around a point.
struct box {
    struct html_point at;
    double left, middle, width, height; // its left edge and the middle of its height, as seen from the point
};

// Apart on the narrowest screen, and on all wider ones, where boxes move away from each other as their points do.
static bool are_apart(const struct box *a, const struct box *b)
{
    bool in_order = a->at.share < b->at.share || (a->at.share == b->at.share && a->left <= b->left);
    const struct box *left = in_order ? a : b, *right = in_order ? b : a;
    double gap = (right->at.share - left->at.share) * HTML_PLOT_WIDTH_MIN + right->left - left->left - left->width;
    double distance = fabs(a->at.y + a->middle - b->at.y - b->middle);
    return gap >= 0 || distance >= (a->height + b->height) / 2;
}

static struct box box_of_dot(struct html_point point)
{
    return (struct box){ point, -HTML_DOT_RADIUS, 0, 2 * HTML_DOT_RADIUS, 2 * HTML_DOT_RADIUS };
}

static bool is_free(const struct box *label, const struct html_point *points, int count, int index,
                    const struct box *placed)
{
    double y = label->at.y + label->middle;
    bool free = y >= LABEL_HEIGHT / 2.0 && y <= HEIGHT - LABEL_HEIGHT / 2.0;
    for (int i = 0; i < count && free; i++) {
        struct box dot = box_of_dot(points[i]);
        free = i == index || are_apart(label, &dot);
    }
    for (int i = 0; i < index && free; i++)
        free = are_apart(label, &placed[i]);
    return free;
}

// The label of a point is to its right or left, as near to its height as no dot and no earlier label is.
static struct box place_label(const struct html_point *points, int count, int index, const struct box *placed)
{
    const int digits = index + 1 < 10 ? 1 : index + 1 < 100 ? 2 : 3;
    const double away = HTML_DOT_RADIUS + LABEL_GAP, width = html_text_width(digits);
    struct box label = { points[index], away, 0, width, LABEL_HEIGHT };
    for (int i = 0; i < LABEL_TRIES; i++) {
        const int steps = (i + 1) / 2;
        label.middle = (i % 2 ? steps : -steps) * (LABEL_HEIGHT / 2.0);
        for (int side = 0; side < 2; side++) {
            label.left = side ? -away - width : away;
            if (is_free(&label, points, count, index, placed))
                return label;
        }
    }
    return label;
}

// A dot, its number and, where that is not beside it, a line between them.
static void add_point(struct strbuf *out, const struct box *label, int number, int colour)
{
    bool is_left = label->left < 0;
    double edge = label->left + (is_left ? label->width + 1 : -1);
    html_open_point(out, &label->at);
    if (label->middle != 0)
        strbuf_add_format(out, "<line class=\"lead\" x1=\"0\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\"/>", edge, label->middle);
    html_add_dot(out, colour);
    strbuf_add_format(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%d</text>",
                      is_left ? label->left + label->width : label->left, label->middle + 4, is_left ? "end" : "start",
                      number);
    html_close_point(out);
}

// The points in the order of the table, with the numbers that the legend has.
static void add_points(struct strbuf *out, const struct sweep *sweep, const struct curve *curve)
{
    struct html_point *points = memory_new((size_t)sweep->count, sizeof *points);
    struct box *labels = memory_new((size_t)sweep->count, sizeof *labels);
    int count = 0, drawn = 0;
    for (int i = 0; i < sweep->count; i++)
        if (is_shown(&sweep->rows[i]))
            points[count++] = point_of(curve, &sweep->rows[i]);
    for (int i = 0; i < count; i++)
        labels[i] = place_label(points, count, i, labels);
    for (int i = 0; i < sweep->count; i++)
        if (is_shown(&sweep->rows[i])) {
            add_point(out, &labels[drawn], drawn + 1, sweep->rows[i].plain ? COLOUR_PLAIN : COLOUR_PLANNED);
            drawn++;
        }
    free(points);
    free(labels);
}

static void add_legend(struct strbuf *out, const struct sweep *sweep)
{
    strbuf_add_text(out, "<ul class=\"key\"><li>");
    html_add_dot_key(out, COLOUR_PLANNED);
    strbuf_add_text(out, "as planned</li><li>");
    html_add_dot_key(out, COLOUR_PLAIN);
    strbuf_add_text(out, "stored as is</li><li>");
    html_add_line_key(out, COLOUR_FRONTIER);
    strbuf_add_text(out, "Pareto frontier: nothing has fewer bits and less divergence</li></ul>\n<ul class=\"key\">\n");
    for (int i = 0, number = 1; i < sweep->count; i++) {
        const struct sweep_row *row = &sweep->rows[i];
        if (!is_shown(row))
            continue;
        strbuf_add_format(out, "<li><b>%d</b> ", number++);
        html_add_text(out, row->format);
        strbuf_add_format(out, " %s</li>\n", sweep_stored(row));
    }
    strbuf_add_text(out, "</ul>\n");
}

static void add_table(struct strbuf *out, const struct sweep *sweep)
{
    strbuf_add_format(out,
                      "<h2>All figures</h2>\n<div class=\"table\"><table>\n<tr><th>cache</th><th>stored</th>"
                      "<th>bits</th><th>KLD</th><th>99 %%</th><th>top 1</th><th>perplexity</th>"
                      "<th>tokens / GiB</th><th>t/s</th>%s</tr>\n",
                      sweep->needle ? "<th>recall</th>" : "");
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_row *row = &sweep->rows[i];
        strbuf_add_text(out, "<tr><td>");
        html_add_text(out, row->format);
        if (row->refused) {
            strbuf_add_format(out, "</td><td colspan=\"%d\">refused: ", sweep->needle ? 9 : 8);
            html_add_text(out, row->refused);
        } else {
            strbuf_add_format(out,
                              "</td><td>%s</td><td>%.3f</td><td>%.6f</td><td>%.4f</td><td>%.2f %%</td>"
                              "<td>%.4f</td><td>%.0f</td><td>%.1f",
                              sweep_stored(row), row->size.bits, row->score.mean, row->score.p99, 100 * row->score.top1,
                              row->score.perplexity, sweep_tokens_per_gib(row), row->decode);
            if (sweep->needle)
                strbuf_add_format(out, "</td><td>%.4f", row->needle.mean);
        }
        strbuf_add_text(out, "</td></tr>\n");
    }
    strbuf_add_text(out, "</table></div>\n");
}

void sweep_print_html(const struct sweep *sweep, struct strbuf *out)
{
    struct curve curve = measure_curve(sweep);
    html_begin(out, "nibble eval", sweep->model);
    strbuf_add_format(out, "<p>%d x %d tokens; mean KL divergence from a cache of ", sweep->chunks, sweep->context);
    html_add_text(out, sweep->against);
    strbuf_add_text(out, ", lower is better.</p>\n");
    if (curve.bits_most > 0) {
        html_open_figure(out, "Quality against bytes");
        html_open_plot(out, HEIGHT);
        add_axes(out, &curve);
        add_frontier(out, sweep, &curve);
        add_points(out, sweep, &curve);
        html_close_plot(out);
        add_legend(out, sweep);
        html_close_figure(out);
    }
    add_table(out, sweep);
    html_end(out);
}
