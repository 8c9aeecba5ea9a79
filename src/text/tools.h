// SPDX-License-Identifier: Apache-2.0
// text/tools.h: tool calling (function calling): tools in the prompt, a grammar for calls, and a streaming parser of
// calls. The format is the model's own, found in its chat template.
#ifndef TEXT_TOOLS_H
#define TEXT_TOOLS_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "text/grammar.h"

enum {
    TOOLS_MAX = 128,
    TOOL_NAME_BYTES_MAX = 256,
    TOOL_HELD_BYTES_MAX = 64 * 1024, // of text that may still become a call; longer, it is content
};

// A family's syntax of calls (text/tools/table.c has them all).
struct tool_form;

// The form that a template's source asks for. *supports_tools: the template puts `tools` into the prompt itself.
const struct tool_form *tools_form(struct bytes template_source, bool *supports_tools);
const struct tool_form *tools_form_default(void); // Hermes: that of templates which ask for none
// The form of this name, which may be one of vLLM's parsers; `found` is preferred where a name has several. NULL with a
// sentence.
const struct tool_form *tools_form_named(const char *name, const struct tool_form *found, struct error *err);
const char *tools_form_name(const struct tool_form *form);
const char *const *tools_form_stops(const struct tool_form *form); // tokens that end a turn with calls, up to a NULL
// Has text that is no call to be read as well? Its markers are then taken out of content, or it has reasoning in it.
bool tools_form_reads_always(const struct tool_form *form);
bool tools_form_has_short_ids(const struct tool_form *form); // 9 letters and digits
// The literal texts that calls are written with; some of them are special tokens.
void tools_form_markers(const struct tool_form *form, void (*add)(void *context, struct bytes text), void *context);

// Is this what OpenAI calls tools: a list of {"type": "function", "function": {"name", "description", "parameters"}}?
bool tools_check(const json_t *tools, struct error *err);

// For a template that knows no tools: the messages (new reference; text/messages.h has normalised them) with the tools
// and the form described in a system message, and earlier calls and results as text. No tools: NULL, or an empty list.
json_t *tools_as_text(const struct tool_form *form, const json_t *messages, const json_t *tools);

// The schema that the arguments of a call have to meet (new reference), and whether the tool asks for that strictly;
// NULL: there is no such tool.
json_t *tools_schema(const json_t *tools, struct bytes name, bool *strict);

// Constraints on an answer that is masked.
struct tools_choice {        // server/grammar_cache.c has each of these in its key
    const char *name;        // the tool that is called; NULL: any of them
    bool parallel;           // several calls, where the form has a way to write them
    const json_t *otherwise; // instead of calls, a JSON value of this schema; NULL: a call is required
};

// The tools are checked ones.
struct grammar *tools_grammar(const struct tool_form *form, const json_t *tools, const struct tools_choice *choice,
                              struct error *err);

// ---- reading ------------------------------------------------------------------------------------------------------

// Events of a streamed answer; a callback may be NULL. Names are checked against the tools that were given: text that
// only looks like a call stays content. Arguments are the model's own text; where it ended the call properly they are
// valid JSON (control bytes in strings are escaped, an object inside a string is taken out of it, none at all are {}).
struct tool_sink {
    void *context;
    void (*content)(void *context, struct bytes text);
    void (*reasoning)(void *context, struct bytes text); // of gpt-oss's analysis channel; other forms have none
    void (*call)(void *context, int index, struct bytes name, struct bytes id); // a call begins; an id may be empty
    void (*arguments)(void *context, int index, struct bytes fragment); // JSON text, in pieces, as the model wrote it
};

struct tool_reader;
// `tools` may be NULL: then nothing is a call.
struct tool_reader *tool_reader_open(const struct tool_form *form, const json_t *tools, const struct tool_sink *sink);
// The answer is over with its first call: what comes behind that is dropped. To be said before anything is added.
void tool_reader_end_with_call(struct tool_reader *reader);
bool tool_reader_is_over(const struct tool_reader *reader);
void tool_reader_add(struct tool_reader *reader, struct bytes text);
void tool_reader_finish(
    struct tool_reader *reader); // an unfinished call is emitted as the call or content that it most likely is
int tool_reader_calls(const struct tool_reader *reader);
int tool_reader_broken(
    const struct tool_reader *reader); // texts that began as a call and were not one, or not a whole one
void tool_reader_close(struct tool_reader *reader);

#endif
