// SPDX-License-Identifier: Apache-2.0
// text/tools/reader.c: a streaming parser of tool calls.
//   (1) Its events do not depend on where the text is cut into pieces, and time is linear in its length.
//   (2) Text that is no call is content, byte for byte; only white space around calls is dropped.
//   (3) A call is emitted once its name is known and its arguments begin. From then on it stays one, whatever follows.
//   (4) Until then it may still become content, so it is held, but never more than TOOL_HELD_BYTES_MAX.
#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"
#include "format/json.h"
#include "text/tools/form.h"
#include "text/tools/scan.h"

enum step {
    CONTENT,   // with tags: text, until one opens
    CLOSING,   // with tags: behind an object
    BETWEEN,   // without: before the first call, or behind one
    PLAIN,     // without: an answer that is no call, to its end
    OVER,      // behind the only call there may be: whatever comes is dropped
    BROKEN,    // arguments that turned out not to be JSON: emitted as written, until the tag closes
    OBJECT,    // a call's object is due; from here on: inside it
    FIRST_KEY, // a key is due, or }
    KEY,       // a key is due
    KEY_TEXT,
    COLON,      // is due
    FIRST_BYTE, // of a value, is due
    VALUE,
    ARGUMENTS, // a value that is emitted as it comes
    NEXT,      // a comma is due, or }
};

enum member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

// Keys of a call. Inside tags others do no harm; without them, they say that the object is no call.
static const struct {
    const char *key;
    enum member member;
} members[] = {
    { "name", MEMBER_NAME },
    { "arguments", MEMBER_ARGUMENTS },
    { "parameters", MEMBER_ARGUMENTS },
    { "type", MEMBER_OTHER },
    { "id", MEMBER_OTHER },
};

enum { KEY_BYTES_MAX = 16 }; // longer than any of them

struct tool_reader {
    const struct tool_form_text *form;
    struct tool_sink sink;
    json_t *tools;
    struct map names; // of the tools, with their index
    enum step step;
    struct strbuf held; // may become a call, or content
    size_t matched;     // bytes of a tag that end `held`
    int calls;
    bool behind_call; // nothing but white space since the last one
    bool ends_with_call;

    struct { // the call at hand
        bool emitted;
        struct bytes name; // .data is NULL until it is known
        char key[KEY_BYTES_MAX];
        size_t key_len;
        enum member member;              // what the key says of the value
        size_t start;                    // of the value in `held`
        size_t arguments, arguments_end; // where they are in `held`, when the name comes behind them
        struct scan scan;                // of the key or the value
        struct scan_quotes quotes;       // in the arguments that were emitted
    } call;

    struct strbuf out;  // not given to the sink yet
    bool out_arguments; // it is arguments of the last call, not content
};

static bool has_tags(const struct tool_reader *reader) { return *reader->form->open; }

// ---- events ------------------------------------------------------------------------------------------------------

static void flush(struct tool_reader *reader)
{
    struct bytes text = strbuf_bytes(&reader->out);
    if (text.len && reader->out_arguments && reader->sink.arguments)
        reader->sink.arguments(reader->sink.context, reader->calls - 1, text);
    else if (text.len && !reader->out_arguments && reader->sink.content)
        reader->sink.content(reader->sink.context, text);
    reader->out.len = 0;
}

static struct strbuf *out_of(struct tool_reader *reader, bool arguments)
{
    if (reader->out_arguments != arguments)
        flush(reader);
    reader->out_arguments = arguments;
    return &reader->out;
}

static void emit_content(struct tool_reader *reader, const char *text, size_t len)
{
    if (!len)
        return;
    strbuf_add(out_of(reader, false), text, len);
    reader->behind_call = false;
}

static void release(struct tool_reader *reader)
{
    reader->held.len = 0;
    reader->matched = 0;
}

static void emit_held(struct tool_reader *reader)
{
    emit_content(reader, reader->held.data, reader->held.len);
    release(reader);
}

static void emit_call(struct tool_reader *reader)
{
    flush(reader);
    if (reader->sink.call)
        reader->sink.call(reader->sink.context, reader->calls, reader->call.name);
    reader->calls++;
    reader->call.emitted = true;
}

static void emit_argument(struct tool_reader *reader, char byte)
{
    scan_escape(&reader->call.quotes, byte, out_of(reader, true));
}

static void emit_held_arguments(struct tool_reader *reader)
{
    size_t begin = reader->call.arguments, end = reader->call.arguments_end;
    scan_arguments((struct bytes){ reader->held.data + begin, end - begin }, out_of(reader, true));
}

// ---- inside a call ------------------------------------------------------------------------------------------------

static void begin_call(struct tool_reader *reader, enum step step)
{
    memset(&reader->call, 0, sizeof reader->call);
    reader->matched = 0;
    reader->step = step;
}

static enum step behind_object(const struct tool_reader *reader) { return has_tags(reader) ? CLOSING : BETWEEN; }

static void leave_call(struct tool_reader *reader, enum step step)
{
    release(reader);
    reader->behind_call = true;
    reader->step = reader->ends_with_call ? OVER : step;
}

static bool end_key(struct tool_reader *reader)
{
    struct bytes key = { reader->call.key, reader->call.key_len };
    reader->step = COLON;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (bytes_equal(key, bytes_of(members[i].key))) {
            reader->call.member = members[i].member;
            return true;
        }
    }
    reader->call.member = MEMBER_OTHER;
    return has_tags(reader) || reader->call.emitted;
}

static bool add_to_key(struct tool_reader *reader, char byte)
{
    switch (scan_add(&reader->call.scan, byte)) {
    case SCAN_MORE:
        if (reader->call.key_len < KEY_BYTES_MAX)
            reader->call.key[reader->call.key_len++] = byte;
        return true;
    case SCAN_WHOLE: return end_key(reader);
    default: return false;
    }
}

// The tool that the current value names; .data is NULL where there is none.
static struct bytes find_name(const struct tool_reader *reader, size_t end)
{
    json_t *name = json_loadb(reader->held.data + reader->call.start, end - reader->call.start,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    int64_t index = -1;
    if (json_is_string(name))
        map_get(&reader->names, json_bytes(name), &index);
    json_decref(name);
    const json_t *known = index < 0 ? NULL : tool_name(reader->tools, (size_t)index);
    return json_bytes(known);
}

// The current value ends before held byte `end`. False: it belongs to no call.
static bool end_value(struct tool_reader *reader, size_t end)
{
    reader->step = NEXT;
    if (reader->call.emitted)
        return true;
    if (reader->call.member == MEMBER_NAME) {
        reader->call.name = find_name(reader, end);
        if (!reader->call.name.data)
            return false;
    }
    if (reader->call.member == MEMBER_ARGUMENTS) {
        reader->call.arguments = reader->call.start;
        reader->call.arguments_end = end;
    }
    if (reader->call.name.data && reader->call.arguments_end) {
        emit_call(reader);
        emit_held_arguments(reader);
        release(reader);
    }
    return true;
}

static bool end_object(struct tool_reader *reader)
{
    if (!reader->call.emitted && (!reader->call.name.data || !has_tags(reader)))
        return false;
    if (!reader->call.emitted) {
        emit_call(reader);
        strbuf_add_text(out_of(reader, true), "{}");
    }
    leave_call(reader, behind_object(reader));
    return true;
}

// From here on, arguments that are an object are emitted as they come.
static void begin_value(struct tool_reader *reader, char byte)
{
    reader->call.scan = (struct scan){ 0 };
    reader->call.start = reader->held.len - !reader->call.emitted;
    reader->step = VALUE;
    if (reader->call.member == MEMBER_ARGUMENTS && reader->call.name.data && !reader->call.emitted && byte == '{') {
        emit_call(reader);
        release(reader);
        reader->step = ARGUMENTS;
    }
}

static void add_broken(struct tool_reader *reader, char byte);

static void add_to_arguments(struct tool_reader *reader, char byte)
{
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    if (answer == SCAN_BAD) {
        reader->step = BROKEN;
        add_broken(reader, byte);
        return;
    }
    emit_argument(reader, byte);
    if (answer == SCAN_WHOLE)
        reader->step = NEXT;
}

static bool add_between(struct tool_reader *reader, char byte)
{
    if (scan_is_space(byte))
        return true;
    bool key_due = reader->step == KEY || reader->step == FIRST_KEY;
    if (reader->step == OBJECT && (byte == '{' || byte == '[')) {
        reader->step = byte == '{' ? FIRST_KEY : OBJECT; // some models write a list between the tags
    } else if (key_due && byte == '"') {
        reader->call.scan = (struct scan){ 0 };
        reader->call.key_len = 0;
        scan_add(&reader->call.scan, byte);
        reader->step = KEY_TEXT;
    } else if (reader->step == COLON && byte == ':') {
        reader->step = FIRST_BYTE;
    } else if (reader->step == NEXT && byte == ',') {
        reader->step = KEY;
    } else {
        return (reader->step == NEXT || reader->step == FIRST_KEY) && byte == '}' && end_object(reader);
    }
    return true;
}

static bool add_to_value(struct tool_reader *reader, char byte)
{
    switch (scan_add(&reader->call.scan, byte)) {
    case SCAN_MORE: return true;
    case SCAN_WHOLE: return end_value(reader, reader->held.len);
    case SCAN_BEFORE: return end_value(reader, reader->held.len - !reader->call.emitted) && add_between(reader, byte);
    default: return false;
    }
}

// False: with this byte, which is the last of `held` until the call is emitted, it is no call.
static bool add_to_object(struct tool_reader *reader, char byte)
{
    if (reader->step == FIRST_BYTE && !scan_is_space(byte))
        begin_value(reader, byte);
    switch (reader->step) {
    case KEY_TEXT: return add_to_key(reader, byte);
    case VALUE: return add_to_value(reader, byte);
    case ARGUMENTS: add_to_arguments(reader, byte); return true;
    default: return add_between(reader, byte);
    }
}

static void add(struct tool_reader *reader, char byte);

// The held text turns out to be content; white space at its end may still precede a call.
static void give_up_call(struct tool_reader *reader)
{
    size_t end = reader->held.len;
    while (has_tags(reader) && end && scan_is_space(reader->held.data[end - 1]))
        end--;
    emit_content(reader, reader->held.data, end);
    reader->held.len -= end;
    memmove(reader->held.data, reader->held.data + end, reader->held.len);
    reader->step = has_tags(reader) ? CONTENT : PLAIN;
}

static void add_to_call(struct tool_reader *reader, char byte)
{
    if (!reader->call.emitted)
        strbuf_add_byte(&reader->held, byte);
    if (add_to_object(reader, byte))
        return;
    if (reader->call.emitted) {
        leave_call(reader, behind_object(reader));
    } else {
        reader->held.len--;
        give_up_call(reader);
    }
    add(reader, byte);
}

// ---- outside ------------------------------------------------------------------------------------------------------

static bool extends_tag(struct tool_reader *reader, const char *tag, char byte)
{
    if (!byte || byte != tag[reader->matched])
        return false;
    strbuf_add_byte(&reader->held, byte);
    reader->matched++;
    return true;
}

static void add_to_content(struct tool_reader *reader, char byte)
{
    const char *tag = reader->form->open;
    if (reader->matched && byte != tag[reader->matched])
        emit_held(reader);
    if (extends_tag(reader, tag, byte)) {
        if (!tag[reader->matched])
            begin_call(reader, OBJECT);
    } else if (scan_is_space(byte)) {
        strbuf_add_byte(&reader->held, byte);
    } else {
        emit_held(reader);
        emit_content(reader, &byte, 1);
    }
}

static void add_broken(struct tool_reader *reader, char byte)
{
    const char *tag = reader->form->close;
    if (reader->matched && byte != tag[reader->matched]) {
        strbuf_add(out_of(reader, true), reader->held.data, reader->held.len);
        release(reader);
    }
    if (!extends_tag(reader, tag, byte))
        strbuf_add_byte(out_of(reader, true), byte);
    else if (!tag[reader->matched])
        leave_call(reader, CONTENT);
}

// Commas and brackets of a list, and surplus brackets, are dropped with the tag; another object is another call.
static void add_closing(struct tool_reader *reader, char byte)
{
    const char *tag = reader->form->close;
    if (extends_tag(reader, tag, byte)) {
        if (!tag[reader->matched])
            leave_call(reader, CONTENT);
    } else if (!reader->matched && (scan_is_space(byte) || byte == '}' || byte == ']' || byte == ',')) {
        strbuf_add_byte(&reader->held, byte);
    } else if (!reader->matched && byte == '{') {
        begin_call(reader, OBJECT);
        add_to_call(reader, byte);
    } else { // the tag was never closed
        struct strbuf again = reader->held;
        reader->held = (struct strbuf){ 0 };
        reader->matched = 0;
        reader->step = CONTENT;
        for (size_t i = 0; i < again.len; i++)
            add_to_content(reader, again.data[i]);
        strbuf_free(&again);
        add_to_content(reader, byte);
    }
}

static void add_bare(struct tool_reader *reader, char byte)
{
    const char *tag = TOOL_PYTHON_TAG, *separators = reader->calls ? ";,[]" : "[";
    if (extends_tag(reader, tag, byte)) {
        if (!tag[reader->matched])
            reader->matched = 0;
    } else if (!reader->matched && byte == '{') {
        begin_call(reader, OBJECT);
        add_to_call(reader, byte);
    } else if (!reader->matched && (scan_is_space(byte) || (byte && strchr(separators, byte)))) {
        strbuf_add_byte(&reader->held, byte);
    } else {
        emit_held(reader);
        emit_content(reader, &byte, 1);
        reader->step = PLAIN;
    }
}

static void add(struct tool_reader *reader, char byte)
{
    switch (reader->step) {
    case CONTENT: add_to_content(reader, byte); break;
    case BETWEEN: add_bare(reader, byte); break;
    case PLAIN: emit_content(reader, &byte, 1); break;
    case OVER: break;
    case BROKEN: add_broken(reader, byte); break;
    case CLOSING: add_closing(reader, byte); break;
    default: add_to_call(reader, byte); break;
    }
    if (reader->held.len > TOOL_HELD_BYTES_MAX) {
        emit_held(reader);
        reader->step = has_tags(reader) ? CONTENT : PLAIN;
    }
}

// ---- the reader ---------------------------------------------------------------------------------------------------

struct tool_reader *tool_reader_open(enum tool_form form, const json_t *tools, const struct tool_sink *sink)
{
    struct tool_reader *reader = memory_new(1, sizeof *reader);
    reader->form = &tool_forms[form];
    reader->sink = *sink;
    reader->tools = json_incref((json_t *)tools);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *name = tool_name(tools, i);
        map_put(&reader->names, json_bytes(name), (int64_t)i);
    }
    reader->step = has_tags(reader) ? CONTENT : BETWEEN;
    return reader;
}

void tool_reader_end_with_call(struct tool_reader *reader) { reader->ends_with_call = true; }

bool tool_reader_is_over(const struct tool_reader *reader) { return reader->step == OVER; }

void tool_reader_add(struct tool_reader *reader, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        add(reader, text.data[i]);
    flush(reader);
}

// A call that the end of the answer cut off before it was emitted: with a tag, its name is enough.
static void finish_call(struct tool_reader *reader)
{
    bool arguments = reader->step == VALUE && reader->call.member == MEMBER_ARGUMENTS;
    if (reader->call.emitted || !reader->call.name.data || !(arguments || has_tags(reader))) {
        emit_held(reader);
        return;
    }
    emit_call(reader);
    if (arguments) {
        reader->call.arguments = reader->call.start;
        reader->call.arguments_end = reader->held.len;
        emit_held_arguments(reader);
    }
}

void tool_reader_finish(struct tool_reader *reader)
{
    switch (reader->step) {
    case CONTENT:
    case BETWEEN:
        if (reader->matched || !reader->behind_call)
            emit_held(reader);
        break;
    case BROKEN: strbuf_add(out_of(reader, true), reader->held.data, reader->held.len); break;
    case PLAIN:
    case OVER:
    case CLOSING: break; // nothing is held, or nothing but what belongs to the tag
    default: finish_call(reader); break;
    }
    release(reader);
    flush(reader);
}

int tool_reader_calls(const struct tool_reader *reader) { return reader->calls; }

void tool_reader_close(struct tool_reader *reader)
{
    if (!reader)
        return;
    map_free(&reader->names);
    json_decref(reader->tools);
    strbuf_free(&reader->held);
    strbuf_free(&reader->out);
    free(reader);
}
