// SPDX-License-Identifier: Apache-2.0
// text/tools/form.h: the syntax of a tool call, shared by the prompt that teaches it, the grammar that enforces it and
// the parser that reads it.
#ifndef TEXT_TOOLS_FORM_H
#define TEXT_TOOLS_FORM_H

#include "base/strbuf.h"
#include "text/tools.h"

#define TOOL_PYTHON_TAG "<|python_tag|>" // Llama 3 may begin a call with it

struct tool_form_text {
    const char *open, *close; // the tags around a call, each on its own line; "" where there are none
    const char *arguments;    // the key
    bool several;             // an answer may hold more than one call
};

extern const struct tool_form_text tool_forms[];

const json_t *tool_name(const json_t *tools, size_t index); // of one that was checked

// A call is this, its arguments' value, and that.
void tool_form_begin(enum tool_form form, const json_t *name, struct strbuf *out);
void tool_form_end(enum tool_form form, struct strbuf *out);

#endif
