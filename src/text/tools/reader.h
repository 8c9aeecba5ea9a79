// SPDX-License-Identifier: Apache-2.0
// text/tools/reader.h: the state of a streaming parser of tool calls, shared by the parts of it: text outside of calls
// (reader.c), the pattern of a call (call.c), JSON objects (object.c), tagged parameters (parameter.c), Python's and
// Gemma's arguments (arguments.c) and gpt-oss's channels (harmony.c).
//   (1) Events do not depend on where the text is cut into pieces, and time is linear in its length.
//   (2) Text that is no call is content, byte for byte; only white space around calls and the markers that the form
//       drops (form.h) are left out.
//   (3) A call is emitted once its name is known and its arguments begin. From then on it stays one, whatever follows.
//   (4) Until then it may still become content, so it is held, but never more than TOOL_HELD_BYTES_MAX.
#ifndef TEXT_TOOLS_READER_H
#define TEXT_TOOLS_READER_H

#include "base/map.h"
#include "text/tools/form.h"
#include "text/tools/scan.h"
#include "text/tools/typed.h"

enum step {
    STEP_CONTENT, // text, until a marker opens
    STEP_SECTION, // behind an opening marker or a call: another call, the closing marker, or neither
    STEP_PLAIN,   // an answer that is no call, to its end
    STEP_OVER,    // behind the only call there may be: whatever comes is dropped
    STEP_BROKEN,  // arguments that turned out not to be JSON: emitted as written, until their end marker
    STEP_CALL,    // inside a call
    STEP_HEADER,  // gpt-oss: before a message's text
    STEP_MESSAGE, // gpt-oss: inside it
};

enum slot {     // what a slot of a pattern does with a byte
    SLOT_TAKES, // the byte is the slot's, or the slot has moved on by itself
    SLOT_ENDS,  // with this byte
    SLOT_ENDED, // before this byte
    SLOT_BAD,   // this is no call, or not any more
};

enum channel { CHANNEL_CONTENT, CHANNEL_REASONING, CHANNEL_BEHIND_CALL }; // of gpt-oss: where a message's text goes

struct tool_reader {
    const struct tool_form *form;
    struct tool_sink sink;
    json_t *tools;
    enum step step;
    struct strbuf held; // text that may still become content: every byte that is not accounted for
    struct strbuf mark; // the end of `held` that may be the beginning of a marker
    int calls, broken;
    bool behind_call; // nothing but white space since the last one
    bool has_call;    // since the opening marker
    bool bracket;     // a list is open
    bool ends_with_call;
    enum channel channel;

    struct { // the call at hand
        bool emitted;
        const json_t *name; // NULL: not known yet
        json_t *schema;     // of its arguments
        char id[TOOL_NAME_BYTES_MAX + FORM_ID_BYTES_MAX];
        const char *at;      // in the pattern
        const char *back;    // where it goes on behind a parameter; NULL: this is no parameter's pattern
        int step;            // of the slot, which begins at 0
        struct strbuf text;  // of the slot
        struct strbuf key;   // of the member or parameter
        struct strbuf close; // what ends the parameter's value
        int members;         // emitted
        bool closed;         // the end of the arguments is emitted
        enum typed_kind kind;
        struct scan scan;
        struct scan_quotes quotes; // in the arguments that were emitted
        int member;                // of an object: what the key says of its value
        struct strbuf arguments;   // that come before the name
    } call;

    struct strbuf out; // not given to the sink yet
    enum { OUT_CONTENT, OUT_REASONING, OUT_ARGUMENTS } out_kind;
};

// ---- events (reader.c) ----

void reader_add(struct tool_reader *reader, char byte);
void reader_content(struct tool_reader *reader, const char *text, size_t len);
void reader_reasoning(struct tool_reader *reader, const char *text, size_t len);
struct strbuf *reader_arguments(struct tool_reader *reader); // to be added to
void reader_emit_call(struct tool_reader *reader);
void reader_release(struct tool_reader *reader);   // what is held is accounted for
void reader_emit_held(struct tool_reader *reader); // as content
void reader_end_call(struct tool_reader *reader, enum step step);
void reader_give_up(struct tool_reader *reader); // the last byte held shows that the rest is no call

// ---- markers ----

enum { MARKERS_MAX = 12 };

struct markers {
    struct bytes texts[MARKERS_MAX];
    int count;
};

void markers_add(struct markers *markers, struct bytes text);
enum { MARKER_NONE = -1, MARKER_PART = -2 };
// Which marker the text is, or whether it is the beginning of one.
int markers_match(const struct markers *markers, struct bytes text);

// ---- slots: each reads one byte ----

void call_begin(struct tool_reader *reader, const char *at);
bool call_add(struct tool_reader *reader, char byte); // false: this byte is no part of a call
void call_finish(struct tool_reader *reader);         // the answer ends inside the call
void call_free(struct tool_reader *reader);
void broken_add(struct tool_reader *reader, char byte);
enum slot object_add(struct tool_reader *reader, char byte);                   // %o
struct bytes object_arguments(const struct tool_reader *reader);               // that are held, whole or not
enum slot parameters_add(struct tool_reader *reader, char byte);               // %p
enum slot parameter_key_add(struct tool_reader *reader, char slot, char byte); // %k %t %x
enum slot parameter_value_add(struct tool_reader *reader, char byte);          // %v
void parameter_finish(struct tool_reader *reader);
enum slot arguments_add(struct tool_reader *reader, char slot, char byte); // %a %g
void arguments_finish(struct tool_reader *reader);

int call_find_tool(const struct tool_reader *reader, struct bytes name); // -1: there is none
void call_set_tool(struct tool_reader *reader, int index);
void call_begin_member(struct tool_reader *reader); // emits the key
void call_end_members(struct tool_reader *reader);  // emits the end of the arguments
void call_find_kind(struct tool_reader *reader);    // of the value of the key at hand

// ---- gpt-oss ----

void harmony_add(struct tool_reader *reader, char byte);
void harmony_finish(struct tool_reader *reader);

#endif
