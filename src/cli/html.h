// SPDX-License-Identifier: Apache-2.0
// cli/html.h: a report as one page: drawings in SVG and tables, for light and dark, with nothing from outside and no
// script. Pages are well-formed XML, too. Text that a page did not write itself goes through html_add_text.
#ifndef CLI_HTML_H
#define CLI_HTML_H

#include "base/strbuf.h"

// A drawing is as wide as the page, in units of its own; colours are var(--c0) and on.
enum { HTML_WIDTH = 880, HTML_COLOURS = 8 };

void html_begin(struct strbuf *out, const char *title, const char *heading);
void html_end(struct strbuf *out);
void html_add_text(struct strbuf *out, const char *text);

void html_open_plot(struct strbuf *out, const char *title, int height);
void html_close_plot(struct strbuf *out);

// Between the lines of a grid from 0 to `most`: about five steps of 1, 2 or 5 times a power of ten.
double html_tick_step(double most);

#endif
