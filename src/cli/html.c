// SPDX-License-Identifier: Apache-2.0
#include "cli/html.h"

#include <math.h>
#include <string.h>

static const char head[] = "<!doctype html>\n"
                           "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta "
                           "charset=\"utf-8\"/>\n"
                           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                           "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>";

static const char style[] = "</title>\n<style>\n"
                            ":root { --paper: #f8f7f4; --ink: #22252a; --soft: #5f636b; --line: #e3dfd7;\n"
                            "  --c0: #5b74c9; --c1: #e09a3a; --c2: #2f9c8f; --c3: #c9574f; --c4: #7db544; --c5: "
                            "#8a63b8; --c6: #5a5f8f; "
                            "--c7: #8b8f98; }\n"
                            "@media (prefers-color-scheme: dark) {\n"
                            "  :root { --paper: #15171b; --ink: #e7e5e0; --soft: #a0a5ae; --line: #30353d; } }\n"
                            "body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); "
                            "color: var(--ink);\n"
                            "  font: 15px/1.5 system-ui, sans-serif; }\n"
                            "h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 "
                            ".5rem; }\n"
                            "p { color: var(--soft); white-space: pre-line; }\n"
                            "figure { margin: 0; } svg { display: block; width: 100%; overflow: visible; }\n"
                            "svg text { fill: var(--ink); font-size: 12px; } svg .soft { fill: var(--soft); }\n"
                            "svg svg { width: 1px; height: 1px; } svg .lead { stroke: var(--soft); stroke-width: .75; "
                            "}\n"
                            "svg .label { stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }\n"
                            "svg .grid { stroke: var(--line); } svg .mark { stroke: var(--ink); stroke-width: 1.5; }\n"
                            "svg .limit { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 2; } svg .line { "
                            "stroke-width: 2; }\n"
                            ".plot { padding: 24px 28px 44px 52px; }\n"
                            ".bar { display: grid; grid-template-columns: minmax(0, 18rem) minmax(0, 1fr) 9rem; gap: 0 "
                            ".8rem; padding: 4px 0;\n"
                            "  align-items: center; font-size: 13px; font-variant-numeric: tabular-nums; }\n"
                            ".bar span { overflow-wrap: anywhere; } .bar span:last-child { text-align: right; }\n"
                            ".key { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: 0; padding: 0; "
                            "list-style: none;\n"
                            "  font-size: 13px; } .key li { overflow-wrap: anywhere; }\n"
                            ".key + .key { margin-top: .8rem; }\n"
                            ".key i { display: inline-block; width: 10px; height: 10px; margin-right: 7px; "
                            "border-radius: 50%; }\n"
                            ".key svg { display: inline-block; width: 24px; margin-right: 7px; vertical-align: middle; "
                            "}\n"
                            "svg .d1 { stroke-dasharray: 7 3; } svg .d2 { stroke-dasharray: 2 3; }\n"
                            "@media (max-width: 40rem) { .bar { grid-template-columns: minmax(0, 1fr) auto; }\n"
                            "  .bar span:first-child { grid-column: 1 / -1; } }\n"
                            "table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }\n"
                            "th, td { padding: .25rem .5rem; text-align: right; white-space: nowrap; border-bottom: "
                            "1px solid var(--line); }\n"
                            "th:first-child, td:first-child { text-align: left; } td[colspan] { white-space: normal; "
                            "}\n"
                            ".table { overflow-x: auto; }\n"
                            "</style>\n</head>\n<body>\n";

void html_add_text(struct strbuf *out, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"", *text) || ((unsigned char)*text < ' ' && *text != '\n'))
            strbuf_add_format(out, "&#%d;", (unsigned char)*text < ' ' ? '?' : *text);
        else
            strbuf_add_byte(out, *text);
}

void html_begin(struct strbuf *out, const char *title, const char *heading)
{
    strbuf_add_text(out, head);
    html_add_text(out, title);
    strbuf_add_text(out, style);
    strbuf_add_text(out, "<h1>");
    html_add_text(out, heading);
    strbuf_add_text(out, "</h1>\n");
}

void html_end(struct strbuf *out) { strbuf_add_text(out, "</body>\n</html>\n"); }

void html_open_figure(struct strbuf *out, const char *title)
{
    strbuf_add_format(out, "<h2>%s</h2>\n<figure aria-label=\"%s\">\n", title, title);
}

void html_close_figure(struct strbuf *out) { strbuf_add_text(out, "</figure>\n"); }

void html_open_plot(struct strbuf *out, int height)
{
    strbuf_add_format(out,
                      "<div class=\"plot\"><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                      "height=\"%d\">\n",
                      height);
}

void html_close_plot(struct strbuf *out) { strbuf_add_text(out, "</svg></div>\n"); }

void html_add_y_tick(struct strbuf *out, double y, double value)
{
    strbuf_add_format(out,
                      "<line class=\"grid\" x1=\"0\" y1=\"%.1f\" x2=\"100%%\" y2=\"%.1f\"/>"
                      "<text class=\"soft\" x=\"0\" dx=\"-6\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                      y, y, y + 4, value);
}

void html_add_x_tick(struct strbuf *out, double share, int height, double value)
{
    strbuf_add_format(out, "<text class=\"soft\" x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", 100 * share,
                      height + 18, value);
}

void html_add_x_title(struct strbuf *out, int height, const char *title)
{
    strbuf_add_format(out, "<text class=\"soft\" x=\"50%%\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", height + 38,
                      title);
}

// A line's colour and, from the ninth line on, its dashes.
static void add_line_style(struct strbuf *out, int line)
{
    strbuf_add_format(out, "<line class=\"line d%d\" stroke=\"var(--c%d)\"", line / HTML_COLOURS % HTML_DASHES,
                      line % HTML_COLOURS);
}

void html_add_segment(struct strbuf *out, const struct html_point *from, const struct html_point *to, int line)
{
    add_line_style(out, line);
    strbuf_add_format(out, " x1=\"%.2f%%\" y1=\"%.1f\" x2=\"%.2f%%\" y2=\"%.1f\"/>\n", 100 * from->share, from->y,
                      100 * to->share, to->y);
}

void html_open_point(struct strbuf *out, const struct html_point *at)
{
    strbuf_add_format(out, "<svg x=\"%.2f%%\" y=\"%.1f\">", 100 * at->share, at->y);
}

void html_close_point(struct strbuf *out) { strbuf_add_text(out, "</svg>\n"); }

void html_add_dot(struct strbuf *out, int line)
{
    strbuf_add_format(out, "<circle r=\"%g\" fill=\"var(--c%d)\"/>", HTML_DOT_RADIUS, line % HTML_COLOURS);
}

void html_add_line_key(struct strbuf *out, int line)
{
    strbuf_add_text(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" height=\"8\">");
    add_line_style(out, line);
    strbuf_add_text(out, " x1=\"0\" y1=\"4\" x2=\"100%\" y2=\"4\"/></svg>");
}

void html_add_dot_key(struct strbuf *out, int line)
{
    strbuf_add_format(out, "<i style=\"background: var(--c%d)\"></i>", line % HTML_COLOURS);
}

double html_text_width(int characters) { return 7.8 * characters; }

double html_tick_step(double most)
{
    double power = pow(10, floor(log10(most / 5))), steps = most / 5 / power;
    return power * (steps > 5 ? 10 : steps > 2 ? 5 : steps > 1 ? 2 : 1);
}
