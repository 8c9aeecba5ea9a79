// SPDX-License-Identifier: Apache-2.0
// text/tools/form.h: the syntax of tool calls, one row per family. The prompt that teaches a form, the grammar that
// enforces it and the parser that reads it are made from the same row.
#ifndef TEXT_TOOLS_FORM_H
#define TEXT_TOOLS_FORM_H

#include "base/strbuf.h"
#include "text/tools.h"

enum {
    FORM_SIGNS_MAX = 3,
    FORM_DROPS_MAX = 6,
    FORM_STOPS_MAX = 3,
    FORM_ID_BYTES_MAX = 64,
};

// `call` and `parameter` are patterns of literal text and slots:
//   \n  a line break; a model may write any white space there, or none
//   %n  the tool's name                %i  the call's id
//   %j  its arguments, as JSON         %o  a JSON object with name and arguments (name_key, arguments_key)
//   %p  its parameters, each in the form of `parameter`
//   %a  name=value, ... in Python's syntax
//   %g  name:value, ... in Gemma's
//   %k  a parameter's name             %v  its value: a string as it is, anything else as JSON
//   %t  the value's type               %x  text that says nothing
enum form_types { TYPES_UNWRITTEN, TYPES_IS_STRING, TYPES_NAMED }; // %t: none; true or false; JSON's name of the type

struct tool_form {
    const char *name;
    const char *aliases;                  // vLLM's names, a blank between them
    const char *signs[2][FORM_SIGNS_MAX]; // all texts of one of these stand in the template's source
    const char *open, *close;             // around all calls of an answer
    bool each;                            // around each call
    bool list;                            // the calls are members of a list in brackets
    const char *call, *parameter;
    const char *between;                           // calls; NULL: a line break
    const char *name_key, *arguments_key, *id_key; // of %o; NULL: name, arguments, and no id
    bool name_is_key;                              // of %o: the name is the key of the arguments
    const char *quote;                             // around Gemma's strings
    bool quotes_all;                               // and around values that are none
    bool cdata;                                    // strings may stand in <![CDATA[ ]]>
    bool nested;                                   // objects and lists may be tags within tags
    enum form_types types;
    const char *id_prefix;             // an id is this, the name, a colon and the number that was read
    bool short_id;                     // an id is 9 letters and digits
    bool single;                       // an answer holds at most one call
    bool bare;                         // the whole answer is a call, behind `open` or not
    bool channels;                     // gpt-oss's messages (text/tools/harmony.c)
    const char *drops[FORM_DROPS_MAX]; // markers around content, which are no part of it
    const char *stops[FORM_STOPS_MAX]; // special tokens that end a turn with calls
};

extern const struct tool_form tool_forms[];
extern const size_t tool_form_count;

const json_t *tool_name(const json_t *tools, size_t index); // of one that was checked

static inline const char *form_between(const struct tool_form *form) { return form->between ? form->between : "\n"; }
static inline const char *form_name_key(const struct tool_form *form)
{
    return form->name_key ? form->name_key : "name";
}
static inline const char *form_arguments_key(const struct tool_form *form)
{
    return form->arguments_key ? form->arguments_key : "arguments";
}

// The literal text that a pattern has at `at`, up to a slot or a line break.
static inline struct bytes form_literal(const char *at) { return (struct bytes){ at, strcspn(at, "%\n") }; }

// `open` or `close` without line breaks at its ends.
struct bytes form_tag(const char *tag);

// Appends calls as the model would write them: a list of {"name": ..., "arguments": {...}}.
void tool_form_write(const struct tool_form *form, const json_t *calls, struct strbuf *out);

#endif
