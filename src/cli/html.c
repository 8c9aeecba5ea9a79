// SPDX-License-Identifier: Apache-2.0
#include "cli/html.h"

#include <math.h>
#include <string.h>

static const char head[] =
    "<!doctype html>\n"
    "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>";

static const char style[] =
    "</title>\n<style>\n"
    ":root { --paper: #f8f7f4; --ink: #22252a; --soft: #5f636b; --line: #e3dfd7;\n"
    "  --c0: #5b74c9; --c1: #e09a3a; --c2: #2f9c8f; --c3: #c9574f; --c4: #7db544; --c5: #8a63b8; --c6: #5a5f8f; "
    "--c7: #8b8f98; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --paper: #15171b; --ink: #e7e5e0; --soft: #a0a5ae; --line: #30353d; } }\n"
    "body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: var(--ink);\n"
    "  font: 15px/1.5 system-ui, sans-serif; }\n"
    "h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }\n"
    "p { color: var(--soft); white-space: pre-line; }\n"
    "figure { margin: 0; overflow-x: auto; } svg { width: 100%; min-width: 40rem; height: auto; }\n"
    "svg text { fill: var(--ink); font-size: 12px; } svg .soft { fill: var(--soft); }\n"
    "svg .grid { stroke: var(--line); } svg .mark { stroke: var(--ink); stroke-width: 1.5; }\n"
    "svg .limit { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 2; }\n"
    "svg polyline { fill: none; stroke-width: 2; }\n"
    "table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }\n"
    "th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }\n"
    "th:first-child, td:first-child { text-align: left; } div { overflow-x: auto; }\n"
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

void html_end(struct strbuf *out)
{
    strbuf_add_text(out, "</body>\n</html>\n");
}

void html_open_plot(struct strbuf *out, const char *title, int height)
{
    strbuf_add_format(out, "<h2>%s</h2>\n<figure><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                           "role=\"img\" aria-label=\"%s\">\n", title, HTML_WIDTH, height, title);
}

void html_close_plot(struct strbuf *out)
{
    strbuf_add_text(out, "</svg></figure>\n");
}

double html_tick_step(double most)
{
    double power = pow(10, floor(log10(most / 5))), steps = most / 5 / power;
    return power * (steps > 5 ? 10 : steps > 2 ? 5 : steps > 1 ? 2 : 1);
}
