// SPDX-License-Identifier: Apache-2.0
// text/template.h: chat templates. Jinja as jinja2 3.1 behaves under Hugging Face's settings: trim_blocks,
// lstrip_blocks, loop controls, the `generation` tag, a tojson that keeps key order and escapes nothing,
// raise_exception, strftime_now. Templates come out of downloaded files: parsing and running them is bounded in depth,
// steps, memory and output (the limits are in text/template/tree.h, text/template/lex.h and text/template/value.h).
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include <jansson.h>
#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

struct template; // immutable once parsed

struct template *template_parse(struct bytes source, struct error *err); // NULL on failure; the sentence has the line
void template_free(struct template *template);

// Does the template look at the variable? It may be one that no request has to set.
bool template_reads(const struct template *template, const char *variable);

struct template_limits {
    time_t now;     // what strftime_now formats, in local time
    uint64_t steps; // that it may take at most; 0: RENDER_STEPS_MAX, about a second
};

// Appends the text to *out. `variables` is an object. raise_exception(message) fails with exactly that message.
bool template_render(const struct template *template, const json_t *variables, const struct template_limits *limits,
                     struct strbuf *out, struct error *err);

#endif
