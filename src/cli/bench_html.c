// SPDX-License-Identifier: Apache-2.0
// cli/bench_html.c: what was measured as one page (cli/html.h): bars, lines over depth and batch, and the table.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/bench.h"
#include "cli/html.h"

enum { BAR_HEIGHT = 14, BAR_ROOM = 18, HEIGHT = 244 }; // pixels

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

// The case, its bar, and the figure; on a phone the case stands above the other two.
static void add_bar(struct strbuf *out, const struct bench *bench, const struct bench_case *measured, double most)
{
    struct bench_summary summary = bench_summarise(measured);
    int top = (BAR_ROOM - BAR_HEIGHT) / 2, middle = BAR_ROOM / 2;
    double limit = 100 * summary.limit / most;
    strbuf_add_text(out, "<div class=\"bar\"><span>");
    add_case_name(out, bench, measured);
    strbuf_add_format(out,
                      "</span><svg xmlns=\"http://www.w3.org/2000/svg\" height=\"%d\">"
                      "<rect x=\"0\" y=\"%d\" width=\"%.2f%%\" height=\"%d\" rx=\"2\" fill=\"var(--c%d)\"/>",
                      BAR_ROOM, top, 100 * summary.median / most, BAR_HEIGHT, colour_of(bench, measured));
    strbuf_add_format(out, "<line class=\"mark\" x1=\"%.2f%%\" y1=\"%d\" x2=\"%.2f%%\" y2=\"%d\"/>",
                      100 * summary.low / most, middle, 100 * summary.high / most, middle);
    strbuf_add_format(out, "<line class=\"limit\" x1=\"%.2f%%\" y1=\"0\" x2=\"%.2f%%\" y2=\"%d\"/></svg>", limit, limit,
                      BAR_ROOM);
    strbuf_add_format(out, "<span>%.1f t/s, %.0f %%</span></div>\n", summary.median,
                      100 * summary.median / summary.limit);
}

static void add_bars(struct strbuf *out, const struct bench *bench, enum bench_kind kind, const char *title)
{
    double most = 0;
    for (int i = 0; i < bench->case_count; i++)
        if (is_shown(&bench->cases[i], kind)) {
            struct bench_summary summary = bench_summarise(&bench->cases[i]);
            most = fmax(most, fmax(summary.high, summary.limit));
        }
    if (!most)
        return;
    html_open_figure(out, title);
    for (int i = 0; i < bench->case_count; i++)
        if (is_shown(&bench->cases[i], kind))
            add_bar(out, bench, &bench->cases[i], most);
    html_close_figure(out);
}

// ---- lines --------------------------------------------------------------------------------------------------------

// Decoding speed over one of the numbers that were varied; a line joins cases that are alike but for it.
struct lines {
    const struct bench *bench;
    bool over_depth; // else over the batch
    double x_most, y_most;
    struct point {
        double x, y;
    } *points; // of one line
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

static struct html_point drawn_at(const struct lines *lines, const struct point *point)
{
    return (struct html_point){ point->x / lines->x_most, HEIGHT * (1 - point->y / lines->y_most) };
}

// The next larger number that was measured at; below 0: there is none.
static int next_place(const struct lines *lines, int last)
{
    int next = -1;
    for (int i = 0; i < lines->bench->case_count; i++) {
        const struct bench_case *measured = &lines->bench->cases[i];
        int place = place_of(lines, measured);
        if (is_shown(measured, BENCH_DECODE) && place > last && (next < 0 || place < next))
            next = place;
    }
    return next;
}

// Numbers that were measured at, but for those that would lie over the one before.
static void add_axes(struct strbuf *out, const struct lines *lines)
{
    double step = html_tick_step(lines->y_most), end = -INFINITY; // of the last label, in pixels of a narrow screen
    for (double y = 0; y <= lines->y_most; y += step)
        html_add_y_tick(out, HEIGHT * (1 - y / lines->y_most), y);
    for (int place = next_place(lines, -1); place >= 0; place = next_place(lines, place)) {
        char text[16];
        double width = html_text_width(snprintf(text, sizeof text, "%d", place)) + 6;
        double middle = HTML_PLOT_WIDTH_MIN * place / lines->x_most;
        if (middle - width / 2 < end)
            continue;
        html_add_x_tick(out, place / lines->x_most, HEIGHT, place);
        end = middle + width / 2;
    }
    html_add_x_title(out, HEIGHT, lines->over_depth ? "tokens in the cache before" : "sequences at once");
}

static void add_line(struct strbuf *out, const struct lines *lines, int index)
{
    for (int i = 0; i < lines->point_count; i++) {
        struct html_point at = drawn_at(lines, &lines->points[i]);
        struct html_point from = i ? drawn_at(lines, &lines->points[i - 1]) : at;
        if (i)
            html_add_segment(out, &from, &at, index);
        html_open_point(out, &at);
        html_add_dot(out, index);
        html_close_point(out);
    }
}

static void add_line_name(struct strbuf *out, const struct lines *lines, const struct bench_case *named, int index)
{
    strbuf_add_text(out, "<li>");
    html_add_line_key(out, index);
    html_add_text(out, named->subject->format);
    strbuf_add_format(out, ", %s %d, %d new tokens", lines->over_depth ? "batch" : "depth",
                      lines->over_depth ? named->batch : named->depth, named->new);
    if (named->subject->threads)
        strbuf_add_format(out, ", %d threads", named->subject->threads);
    strbuf_add_text(out, "</li>\n");
}

// Whether there are lines, and how far they reach.
static bool measure_lines(struct lines *lines)
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
    struct strbuf key = { 0 };
    lines.points = memory_new((size_t)bench->case_count, sizeof *lines.points);
    if (measure_lines(&lines)) {
        html_open_figure(out, title);
        html_open_plot(out, HEIGHT);
        add_axes(out, &lines);
        for (int i = 0, index = 0; i < bench->case_count; i++) {
            gather_points(&lines, i);
            if (lines.point_count < 2)
                continue;
            add_line(out, &lines, index);
            add_line_name(&key, &lines, &bench->cases[i], index++);
        }
        html_close_plot(out);
        strbuf_add_format(out, "<ul class=\"key\">\n%s</ul>\n", key.data);
        html_close_figure(out);
    }
    strbuf_free(&key);
    free(lines.points);
}

// ---- the page -----------------------------------------------------------------------------------------------------

static void add_table(struct strbuf *out, const struct bench *bench)
{
    strbuf_add_format(out,
                      "<h2>All figures</h2>\n<div class=\"table\"><table>\n<tr><th>kind</th><th>prompt</th>"
                      "<th>new</th><th>depth</th><th>batch</th><th>format</th>%s<th>t/s</th><th>lowest</th>"
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
        strbuf_add_format(out, "</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f (%s)</td><td>%.0f %%</td></tr>\n",
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
    strbuf_add_text(out,
                    "Bars are medians; the line across a bar's end goes from the lowest to the highest figure, "
                    "and the dashed one is what the machine's memory or arithmetic would allow.</p>\n");
    add_bars(out, bench, BENCH_PREFILL, "Prefill, tokens per second");
    add_bars(out, bench, BENCH_DECODE, "Decode, tokens per second of all sequences");
    add_lines(out, bench, true, "Decode over depth, tokens per second");
    add_lines(out, bench, false, "Decode over batch, tokens per second");
    add_table(out, bench);
    html_end(out);
    strbuf_free(&machine);
}
