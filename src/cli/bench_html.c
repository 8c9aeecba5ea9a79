// SPDX-License-Identifier: Apache-2.0
// cli/bench_html.c: what was measured as one page (cli/html.h): bars, lines over depth and batch, and the table.
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/bench.h"
#include "cli/html.h"

// In units of the drawings, which are as wide as the page.
enum {
    BAR_LEFT = 300, BAR_RIGHT = 740, BAR_HEIGHT = 14, BAR_PITCH = 26,
    PLOT_LEFT = 60, PLOT_RIGHT = 860, PLOT_TOP = 16, PLOT_BOTTOM = 260, LEGEND_PITCH = 20,
};

// ---- names --------------------------------------------------------------------------------------------------------

static bool threads_vary(const struct bench *bench)
{
    for (int i = 1; i < bench->subject_count; i++)
        if (bench->subjects[i].threads != bench->subjects[0].threads)
            return true;
    return false;
}

// What tells a case from the others of its kind.
static void add_case_name(struct strbuf *out, const struct bench *bench, const struct bench_case *measured)
{
    if (measured->kind == BENCH_PREFILL)
        strbuf_add_format(out, "%d tokens", measured->prompt);
    else
        strbuf_add_format(out, "%d x %d tokens", measured->batch, measured->new);
    if (measured->depth)
        strbuf_add_format(out, " at %d", measured->depth);
    strbuf_add_text(out, ", ");
    html_add_text(out, measured->subject->format);
    if (threads_vary(bench))
        strbuf_add_format(out, ", %d threads", measured->subject->threads);
}

static int colour_of(const struct bench *bench, const struct bench_case *measured)
{
    return (int)(measured->subject - bench->subjects) % HTML_COLOURS;
}

// ---- bars ---------------------------------------------------------------------------------------------------------

static bool is_shown(const struct bench_case *measured, enum bench_kind kind)
{
    return measured->kind == kind && measured->sample_count;
}

static void add_bar(struct strbuf *out, const struct bench *bench, const struct bench_case *measured, int y,
                    double scale)
{
    struct bench_summary summary = bench_summarise(measured);
    int middle = y + BAR_HEIGHT / 2;
    double low = BAR_LEFT + scale * summary.low, high = BAR_LEFT + scale * summary.high;
    double limit = BAR_LEFT + scale * summary.limit;
    strbuf_add_format(out, "<text x=\"0\" y=\"%d\">", y + 11);
    add_case_name(out, bench, measured);
    strbuf_add_format(out, "</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"var(--c%d)\"/>",
                      BAR_LEFT, y, scale * summary.median, BAR_HEIGHT, colour_of(bench, measured));
    strbuf_add_format(out, "<line class=\"mark\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", low, middle, high,
                      middle);
    strbuf_add_format(out, "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", limit, y - 2, limit,
                      y + BAR_HEIGHT + 2);
    strbuf_add_format(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.1f t/s, %.0f %%</text>\n", HTML_WIDTH, y + 11,
                      summary.median, 100 * summary.median / summary.limit);
}

static void add_bars(struct strbuf *out, const struct bench *bench, enum bench_kind kind, const char *title)
{
    int count = 0;
    double most = 0;
    for (int i = 0; i < bench->case_count; i++)
        if (is_shown(&bench->cases[i], kind)) {
            struct bench_summary summary = bench_summarise(&bench->cases[i]);
            most = fmax(most, fmax(summary.high, summary.limit));
            count++;
        }
    if (!count)
        return;
    html_open_plot(out, title, count * BAR_PITCH + 4);
    int y = 4;
    for (int i = 0; i < bench->case_count; i++)
        if (is_shown(&bench->cases[i], kind)) {
            add_bar(out, bench, &bench->cases[i], y, (BAR_RIGHT - BAR_LEFT) / most);
            y += BAR_PITCH;
        }
    html_close_plot(out);
}

// ---- lines --------------------------------------------------------------------------------------------------------

// Decoding speed over one of the numbers that were varied; a line joins cases that are alike but for it.
struct lines {
    const struct bench *bench;
    bool over_depth;         // else over the batch
    double x_most, y_most;
    struct point {
        double x, y;
    } *points;               // of one line
    int point_count;
};

static int place_of(const struct lines *lines, const struct bench_case *measured)
{
    return lines->over_depth ? measured->depth : measured->batch;
}

static bool are_joined(const struct lines *lines, const struct bench_case *a, const struct bench_case *b)
{
    return a->subject == b->subject && a->new == b->new
        && (lines->over_depth ? a->batch == b->batch : a->depth == b->depth);
}

static int compare_points(const void *a, const void *b)
{
    double x = ((const struct point *)a)->x, y = ((const struct point *)b)->x;
    return (x > y) - (x < y);
}

// The line that begins with a case; none when an earlier case is on it.
static void gather_points(struct lines *lines, int first)
{
    const struct bench *bench = lines->bench;
    lines->point_count = 0;
    for (int i = 0; i < bench->case_count; i++) {
        const struct bench_case *measured = &bench->cases[i];
        if (!is_shown(measured, BENCH_DECODE) || !are_joined(lines, measured, &bench->cases[first]))
            continue;
        if (i < first) {
            lines->point_count = 0;
            return;
        }
        struct point point = { place_of(lines, measured), bench_summarise(measured).median };
        lines->points[lines->point_count++] = point;
    }
    qsort(lines->points, (size_t)lines->point_count, sizeof *lines->points, compare_points);
}

static double plot_x(const struct lines *lines, double x)
{
    return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * x / lines->x_most;
}

static double plot_y(const struct lines *lines, double y)
{
    return PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * y / lines->y_most;
}

static void add_axes(struct strbuf *out, const struct lines *lines)
{
    double step = html_tick_step(lines->y_most);
    for (double y = 0; y <= lines->y_most; y += step) {
        double at = plot_y(lines, y);
        strbuf_add_format(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                               "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                          PLOT_LEFT, at, PLOT_RIGHT, at, PLOT_LEFT - 6, at + 4, y);
    }
    for (int i = 0; i < lines->bench->case_count; i++) {
        const struct bench_case *measured = &lines->bench->cases[i];
        bool seen = !is_shown(measured, BENCH_DECODE);
        for (int j = 0; j < i && !seen; j++)
            seen = is_shown(&lines->bench->cases[j], BENCH_DECODE)
                && place_of(lines, &lines->bench->cases[j]) == place_of(lines, measured);
        if (!seen)
            strbuf_add_format(out, "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                              plot_x(lines, place_of(lines, measured)), PLOT_BOTTOM + 18, place_of(lines, measured));
    }
}

static void add_line(struct strbuf *out, const struct lines *lines, const struct bench_case *named, int index)
{
    int y = PLOT_BOTTOM + 24 + (index + 1) * LEGEND_PITCH;
    strbuf_add_format(out, "<g><polyline stroke=\"var(--c%d)\" points=\"", index % HTML_COLOURS);
    for (int i = 0; i < lines->point_count; i++)
        strbuf_add_format(out, "%s%.1f,%.1f", i ? " " : "", plot_x(lines, lines->points[i].x),
                          plot_y(lines, lines->points[i].y));
    strbuf_add_text(out, "\"/>");
    for (int i = 0; i < lines->point_count; i++)
        strbuf_add_format(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"var(--c%d)\"/>",
                          plot_x(lines, lines->points[i].x), plot_y(lines, lines->points[i].y), index % HTML_COLOURS);
    strbuf_add_format(out,
                      "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" fill=\"var(--c%d)\"/>"
                      "<text x=\"%d\" y=\"%d\">",
                      PLOT_LEFT, y - 6, index % HTML_COLOURS, PLOT_LEFT + 22, y);
    html_add_text(out, named->subject->format);
    strbuf_add_format(out, ", %s %d, %d new tokens", lines->over_depth ? "batch" : "depth",
                      lines->over_depth ? named->batch : named->depth, named->new);
    if (named->subject->threads)
        strbuf_add_format(out, ", %d threads", named->subject->threads);
    strbuf_add_text(out, "</text></g>\n");
}

// How many lines there are, and how far they reach.
static int measure_lines(struct lines *lines)
{
    int count = 0;
    for (int i = 0; i < lines->bench->case_count; i++) {
        gather_points(lines, i);
        count += lines->point_count > 1;
        for (int j = 0; j < lines->point_count; j++) {
            lines->x_most = fmax(lines->x_most, lines->points[j].x);
            lines->y_most = fmax(lines->y_most, lines->points[j].y);
        }
    }
    return count;
}

static void add_lines(struct strbuf *out, const struct bench *bench, bool over_depth, const char *title)
{
    struct lines lines = { .bench = bench, .over_depth = over_depth };
    lines.points = memory_new((size_t)bench->case_count, sizeof *lines.points);
    int count = measure_lines(&lines);
    if (count) {
        html_open_plot(out, title, PLOT_BOTTOM + 36 + count * LEGEND_PITCH);
        add_axes(out, &lines);
        for (int i = 0, index = 0; i < bench->case_count; i++) {
            gather_points(&lines, i);
            if (lines.point_count > 1)
                add_line(out, &lines, &bench->cases[i], index++);
        }
        html_close_plot(out);
    }
    free(lines.points);
}

// ---- the page -----------------------------------------------------------------------------------------------------

static void add_table(struct strbuf *out, const struct bench *bench)
{
    strbuf_add_format(out, "<h2>All figures</h2>\n<div><table>\n<tr><th>kind</th><th>prompt</th><th>new</th>"
                           "<th>depth</th><th>batch</th><th>format</th>%s<th>t/s</th><th>lowest</th>"
                           "<th>highest</th><th>ceiling</th><th>share</th></tr>\n",
                      bench->subjects->threads ? "<th>threads</th>" : "");
    for (int i = 0; i < bench->case_count; i++) {
        const struct bench_case *measured = &bench->cases[i];
        if (!measured->sample_count)
            continue;
        struct bench_summary summary = bench_summarise(measured);
        strbuf_add_format(out, "<tr><td>%s</td><td>%d</td><td>%d</td><td>%d</td><td>%d</td><td>",
                          bench_kind_word(measured->kind), measured->prompt, measured->new, measured->depth,
                          measured->batch);
        html_add_text(out, measured->subject->format);
        if (measured->subject->threads)
            strbuf_add_format(out, "</td><td>%d", measured->subject->threads);
        strbuf_add_format(out,
                          "</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f (%s)</td><td>%.0f %%</td></tr>\n",
                          summary.median, summary.low, summary.high, summary.limit,
                          summary.by_memory ? "memory" : "arithmetic", 100 * summary.median / summary.limit);
    }
    strbuf_add_text(out, "</table></div>\n");
}

void bench_print_html(const struct bench *bench, struct strbuf *out)
{
    struct strbuf machine = { 0 };
    bench_describe_machine(bench, &machine);
    html_begin(out, "nibble bench", bench->model);
    strbuf_add_text(out, "<p>");
    html_add_text(out, machine.data);
    strbuf_add_text(out, "Bars are medians; the line across a bar's end goes from the lowest to the highest figure, "
                         "and the dashed one is what the machine's memory or arithmetic would allow.</p>\n");
    add_bars(out, bench, BENCH_PREFILL, "Prefill, tokens per second");
    add_bars(out, bench, BENCH_DECODE, "Decode, tokens per second of all sequences");
    add_lines(out, bench, true, "Decode over depth, tokens per second");
    add_lines(out, bench, false, "Decode over batch, tokens per second");
    add_table(out, bench);
    html_end(out);
    strbuf_free(&machine);
}
