// SPDX-License-Identifier: Apache-2.0
// cli/eval_html.c: a sweep as one page (cli/html.h): quality against bytes, and the table. Divergences span decades, so
// their axis is logarithmic; caches that nothing surpasses in both are joined by a line.
#include <math.h>

#include "cli/eval.h"
#include "cli/html.h"

enum { LEFT = 70, RIGHT = 690, TOP = 20, BOTTOM = 400, HEIGHT = 450 };

struct curve {
    double bits_most;      // the right end; the left one is 0
    double decade, bottom; // powers of ten at the top and at the bottom
};

static bool is_shown(const struct sweep_row *row)
{
    return !row->refused && row->score.mean > 0;
}

static double plot_x(const struct curve *curve, double bits)
{
    return LEFT + (RIGHT - LEFT) * bits / curve->bits_most;
}

static double plot_y(const struct curve *curve, double mean)
{
    return TOP + (BOTTOM - TOP) * (curve->decade - log10(mean)) / (curve->decade - curve->bottom);
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
    for (double power = curve->bottom; power <= curve->decade; power++) {
        double y = plot_y(curve, pow(10, power));
        strbuf_add_format(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                               "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                          LEFT, y, RIGHT, y, LEFT - 6, y + 4, pow(10, power));
    }
    double step = html_tick_step(curve->bits_most);
    for (double bits = 0; bits <= curve->bits_most; bits += step)
        strbuf_add_format(out, "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                          plot_x(curve, bits), BOTTOM + 18, bits);
    strbuf_add_format(out, "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">bits per value</text>\n",
                      (LEFT + RIGHT) / 2, BOTTOM + 40);
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
    strbuf_add_text(out, "<polyline stroke=\"var(--c7)\" points=\"");
    for (double from = -1;;) {
        const struct sweep_row *next = NULL;
        for (int i = 0; i < sweep->count; i++) {
            const struct sweep_row *row = &sweep->rows[i];
            if (is_shown(row) && row->size.bits > from && is_best(sweep, row)
                && (!next || row->size.bits < next->size.bits))
                next = row;
        }
        if (!next)
            break;
        from = next->size.bits;
        strbuf_add_format(out, "%.1f,%.1f ", plot_x(curve, from), plot_y(curve, next->score.mean));
    }
    strbuf_add_text(out, "\"/>\n");
}

static void add_points(struct strbuf *out, const struct sweep *sweep, const struct curve *curve)
{
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_row *row = &sweep->rows[i];
        if (!is_shown(row))
            continue;
        double x = plot_x(curve, row->size.bits), y = plot_y(curve, row->score.mean);
        strbuf_add_format(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"var(--c%d)\"/>"
                               "<text x=\"%.1f\" y=\"%.1f\">", x, y, row->plain ? 1 : 0, x + 8, y + 4);
        html_add_text(out, row->format);
        strbuf_add_format(out, "%s</text>\n", row->plain ? " (as is)" : "");
    }
}

static void add_table(struct strbuf *out, const struct sweep *sweep)
{
    strbuf_add_format(out, "<h2>All figures</h2>\n<div><table>\n<tr><th>cache</th><th>stored</th><th>bits</th>"
                           "<th>KLD</th><th>99 %%</th><th>top 1</th><th>perplexity</th><th>tokens / GiB</th>"
                           "<th>t/s</th>%s</tr>\n", sweep->needle ? "<th>recall</th>" : "");
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_row *row = &sweep->rows[i];
        strbuf_add_text(out, "<tr><td>");
        html_add_text(out, row->format);
        if (row->refused) {
            strbuf_add_format(out, "</td><td colspan=\"%d\">refused: ", sweep->needle ? 9 : 8);
            html_add_text(out, row->refused);
        } else {
            strbuf_add_format(out, "</td><td>%s</td><td>%.3f</td><td>%.6f</td><td>%.4f</td><td>%.2f %%</td>"
                                   "<td>%.4f</td><td>%.0f</td><td>%.1f", sweep_stored(row),
                              row->size.bits, row->score.mean, row->score.p99, 100 * row->score.top1,
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
    strbuf_add_format(out, "<p>%d x %d tokens; mean KL divergence from a cache of ", sweep->chunks,
                      sweep->context);
    html_add_text(out, sweep->against);
    strbuf_add_text(out, ", lower is better. The line joins caches that nothing surpasses in both.</p>\n");
    if (curve.bits_most > 0) {
        html_open_plot(out, "Quality against bytes", HEIGHT);
        add_axes(out, &curve);
        add_frontier(out, sweep, &curve);
        add_points(out, sweep, &curve);
        html_close_plot(out);
    }
    add_table(out, sweep);
    html_end(out);
}
