// SPDX-License-Identifier: Apache-2.0
// cli/html.h: a report as one page: drawings in SVG and tables, for light and dark, for a phone and a wide screen, with
// nothing from outside and no script. Pages are well-formed XML, too. Text that a page did not write itself goes
// through html_add_text.
#ifndef CLI_HTML_H
#define CLI_HTML_H

#include "base/strbuf.h"

// Lines and dots are told apart by number: each has a colour, var(--c0) and on, and lines beyond those have dashes.
enum { HTML_COLOURS = 8, HTML_DASHES = 3 };

void html_begin(struct strbuf *out, const char *title, const char *heading);
void html_end(struct strbuf *out);
void html_add_text(struct strbuf *out, const char *text);

// A heading with drawings and their legends under it.
void html_open_figure(struct strbuf *out, const char *title);
void html_close_figure(struct strbuf *out);

// A plot with room for the labels of its axes around it. It is as wide as the page lets it be and has so many pixels in
// height: what is drawn has its x as a share of the width and its y in pixels, so that text has the same size
// everywhere. On the narrowest screen that pages are made for, of 360 pixels with a scroll bar, it has
// HTML_PLOT_WIDTH_MIN of them: labels that are apart there, and lie as their points do, are apart everywhere.
enum { HTML_PLOT_WIDTH_MIN = 232 };
#define HTML_DOT_RADIUS 4.5

struct html_point {
    double share, y; // of the width; pixels
};

void html_open_plot(struct strbuf *out, int height);
void html_close_plot(struct strbuf *out);
void html_add_y_tick(struct strbuf *out, double y, double value);                 // a line of the grid and its label
void html_add_x_tick(struct strbuf *out, double share, int height, double value); // a label
void html_add_x_title(struct strbuf *out, int height, const char *title);
void html_add_segment(struct strbuf *out, const struct html_point *from, const struct html_point *to, int line);

// What is drawn in between has its place in pixels, as seen from the point.
void html_open_point(struct strbuf *out, const struct html_point *at);
void html_close_point(struct strbuf *out);
void html_add_dot(struct strbuf *out, int line);

// In a legend, <ul class="key">: what a line or a dot looks like.
void html_add_line_key(struct strbuf *out, int line);
void html_add_dot_key(struct strbuf *out, int line);

// Pixels that so many characters of a label take, at most.
double html_text_width(int characters);

// Between the lines of a grid from 0 to `most`: about five steps of 1, 2 or 5 times a power of ten.
double html_tick_step(double most);

#endif
