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

enum tool_form {
    TOOLS_HERMES, // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number (Hermes, Qwen)
    TOOLS_LLAMA3, // {"name": ..., "parameters": {...}} as the whole answer, <|python_tag|> before it or not (Llama 3)
};

// The form that a template's source asks for. *supports_tools: the template puts `tools` into the prompt itself.
enum tool_form tools_form(struct bytes template_source, bool *supports_tools);

// Is this what OpenAI calls tools: a list of {"type": "function", "function": {"name", "description", "parameters"}}?
bool tools_check(const json_t *tools, struct error *err);

// For a template that knows no tools: the messages (new reference; text/messages.h has normalised them) with the tools
// and the form described in a system message, and earlier calls and results as text. No tools: NULL, or an empty list.
json_t *tools_as_text(enum tool_form form, const json_t *messages, const json_t *tools);

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
struct grammar *tools_grammar(enum tool_form form, const json_t *tools, const struct tools_choice *choice,
                              struct error *err);

// ---- reading ------------------------------------------------------------------------------------------------------

// Events of a streamed answer; a callback may be NULL. Names are checked against the tools that were given: text that
// only looks like a call stays content. Arguments are the model's own text; where it ended the call properly they are
// valid JSON (control bytes in strings are escaped, an object inside a string is taken out of it, none at all are {}).
struct tool_sink {
    void *context;
    void (*content)(void *context, struct bytes text);
    void (*call)(void *context, int index, struct bytes name);          // a call begins
    void (*arguments)(void *context, int index, struct bytes fragment); // JSON text, in pieces, as the model wrote it
};

struct tool_reader;
struct tool_reader *tool_reader_open(enum tool_form form, const json_t *tools, const struct tool_sink *sink);
// The answer is over with its first call: what comes behind that is dropped. To be said before anything is added.
void tool_reader_end_with_call(struct tool_reader *reader);
bool tool_reader_is_over(const struct tool_reader *reader);
void tool_reader_add(struct tool_reader *reader, struct bytes text);
void tool_reader_finish(
    struct tool_reader *reader); // an unfinished call is emitted as the call or content that it most likely is
int tool_reader_calls(const struct tool_reader *reader);
void tool_reader_close(struct tool_reader *reader);

#endif
