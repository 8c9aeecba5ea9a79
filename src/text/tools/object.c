// SPDX-License-Identifier: Apache-2.0
// text/tools/object.c: a call that is a JSON object with name and arguments, in any order; or one whose only key is the
// name.
#include "format/json.h"
#include "text/tools/reader.h"

enum step_of_object {
    OBJECT,    // is due
    FIRST_KEY, // a key is due, or }
    KEY,       // a key is due
    KEY_TEXT,
    COLON,      // is due
    FIRST_BYTE, // of a value, is due
    VALUE,
    ARGUMENTS, // a value that is emitted as it comes
    NEXT,      // a comma is due, or }
};

enum member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_ID };

// Keys of a call. Behind a marker others do no harm; without one, they say that the object is no call.
static const struct {
    const char *key;
    enum member member;
} members[] = {
    { "name", MEMBER_NAME },           { "tool_name", MEMBER_NAME },
    { "arguments", MEMBER_ARGUMENTS }, { "parameters", MEMBER_ARGUMENTS },
    { "type", MEMBER_OTHER },          { "id", MEMBER_ID },
    { "tool_call_id", MEMBER_ID },
};

enum { KEY_BYTES_MAX = 6 * TOOL_NAME_BYTES_MAX + 2 }; // a name of nothing but escapes

static bool has_markers(const struct tool_reader *reader) { return !reader->form->bare; }

// ---- keys ---------------------------------------------------------------------------------------------------------

static int find_quoted(const struct tool_reader *reader, struct bytes json)
{
    json_t *name = json_loadb(json.data, json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    int index = json_is_string(name) ? call_find_tool(reader, json_bytes(name)) : -1;
    json_decref(name);
    return index;
}

static bool end_key(struct tool_reader *reader)
{
    struct bytes key = strbuf_bytes(&reader->call.key);
    reader->call.step = COLON;
    reader->call.member = MEMBER_OTHER;
    if (reader->form->name_is_key) {
        int index = key.len < KEY_BYTES_MAX && !reader->call.name ? find_quoted(reader, key) : -1;
        if (index < 0)
            return reader->call.emitted;
        call_set_tool(reader, index);
        reader->call.member = MEMBER_ARGUMENTS;
        return true;
    }
    for (size_t i = 0; key.len > 2 && i < sizeof members / sizeof *members; i++) {
        if (bytes_equal((struct bytes){ key.data + 1, key.len - 2 }, bytes_of(members[i].key))) {
            reader->call.member = members[i].member;
            return true;
        }
    }
    return has_markers(reader) || reader->call.emitted;
}

static bool add_to_key(struct tool_reader *reader, char byte)
{
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    if (answer == SCAN_BAD)
        return false;
    if (reader->call.key.len < KEY_BYTES_MAX)
        strbuf_add_byte(&reader->call.key, byte);
    return answer == SCAN_MORE || end_key(reader);
}

// ---- values -------------------------------------------------------------------------------------------------------

static void set_id(struct tool_reader *reader)
{
    json_t *id = json_loadb(reader->call.text.data, reader->call.text.len, JSON_DECODE_ANY, NULL);
    size_t len = json_string_length(id);
    if (len && len < FORM_ID_BYTES_MAX)
        memcpy(reader->call.id, json_string_value(id), len + 1);
    json_decref(id);
}

static void emit_arguments(struct tool_reader *reader)
{
    reader_emit_call(reader);
    scan_arguments(strbuf_bytes(&reader->call.arguments), reader_arguments(reader));
    reader_release(reader);
}

// The current value is whole. False: it belongs to no call.
static bool end_value(struct tool_reader *reader)
{
    struct strbuf *text = &reader->call.text;
    reader->call.step = NEXT;
    if (reader->call.emitted)
        return true;
    if (reader->call.member == MEMBER_ID)
        set_id(reader);
    if (reader->call.member == MEMBER_NAME) {
        int index = find_quoted(reader, strbuf_bytes(text));
        if (index < 0)
            return false;
        call_set_tool(reader, index);
    }
    if (reader->call.member == MEMBER_ARGUMENTS) {
        reader->call.arguments.len = 0;
        strbuf_add(&reader->call.arguments, text->data, text->len);
    }
    if (reader->call.name && reader->call.arguments.len)
        emit_arguments(reader);
    return true;
}

// From here on, arguments that are an object are emitted as they come.
static void begin_value(struct tool_reader *reader, char byte)
{
    reader->call.scan = (struct scan){ 0 };
    reader->call.text.len = 0;
    reader->call.step = VALUE;
    if (reader->call.member == MEMBER_ARGUMENTS && reader->call.name && !reader->call.emitted && byte == '{') {
        reader_emit_call(reader);
        reader->call.step = ARGUMENTS;
    }
}

struct bytes object_arguments(const struct tool_reader *reader)
{
    bool inside = reader->call.step == VALUE && reader->call.member == MEMBER_ARGUMENTS;
    return inside ? strbuf_bytes(&reader->call.text) : (struct bytes){ NULL, 0 };
}

static bool end_object(struct tool_reader *reader)
{
    if (!reader->call.emitted && (!reader->call.name || !has_markers(reader)))
        return false;
    if (!reader->call.emitted) {
        reader_emit_call(reader);
        strbuf_add_text(reader_arguments(reader), "{}");
    }
    return true;
}

static enum slot add_between(struct tool_reader *reader, char byte)
{
    int step = reader->call.step;
    if (bytes_is_space(byte))
        return SLOT_TAKES;
    if (step == OBJECT && byte == '{') {
        reader->call.step = FIRST_KEY;
    } else if ((step == KEY || step == FIRST_KEY) && byte == '"') {
        reader->call.scan = (struct scan){ 0 };
        reader->call.key.len = 0;
        reader->call.step = KEY_TEXT;
        return add_to_key(reader, byte) ? SLOT_TAKES : SLOT_BAD;
    } else if (step == COLON && byte == ':') {
        reader->call.step = FIRST_BYTE;
    } else if (step == NEXT && byte == ',') {
        reader->call.step = KEY;
    } else {
        return (step == NEXT || step == FIRST_KEY) && byte == '}' && end_object(reader) ? SLOT_ENDS : SLOT_BAD;
    }
    return SLOT_TAKES;
}

static enum slot add_to_value(struct tool_reader *reader, char byte)
{
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    if (answer == SCAN_BAD)
        return SLOT_BAD;
    if (answer != SCAN_BEFORE && !reader->call.emitted)
        strbuf_add_byte(&reader->call.text, byte);
    if (answer == SCAN_MORE)
        return SLOT_TAKES;
    if (!end_value(reader))
        return SLOT_BAD;
    return answer == SCAN_BEFORE ? add_between(reader, byte) : SLOT_TAKES;
}

static enum slot add_to_arguments(struct tool_reader *reader, char byte)
{
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    if (answer == SCAN_BAD) {
        reader->step = STEP_BROKEN;
        reader->broken++;
        reader_release(reader);
        broken_add(reader, byte);
        return SLOT_TAKES;
    }
    scan_escape(&reader->call.quotes, byte, reader_arguments(reader));
    if (answer == SCAN_WHOLE)
        reader->call.step = NEXT;
    return SLOT_TAKES;
}

enum slot object_add(struct tool_reader *reader, char byte)
{
    enum slot answer;
    if (reader->call.step == FIRST_BYTE && !bytes_is_space(byte))
        begin_value(reader, byte);
    switch (reader->call.step) {
    case KEY_TEXT: answer = add_to_key(reader, byte) ? SLOT_TAKES : SLOT_BAD; break;
    case VALUE: answer = add_to_value(reader, byte); break;
    case ARGUMENTS: answer = add_to_arguments(reader, byte); break;
    default: answer = add_between(reader, byte);
    }
    if (reader->call.emitted && answer != SLOT_BAD && reader->step == STEP_CALL)
        reader_release(reader);
    return answer;
}
