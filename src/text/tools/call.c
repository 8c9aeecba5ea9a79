// SPDX-License-Identifier: Apache-2.0
// text/tools/call.c: runs the pattern of a call over its text, and the slots for names, ids and JSON.
#include <stdio.h>

#include "format/json.h"
#include "text/tools/reader.h"

enum { NAME, HELD, STREAM }; // steps of %j: before the value; inside one that is held, or emitted as it comes

// ---- tools --------------------------------------------------------------------------------------------------------

int call_find_tool(const struct tool_reader *reader, struct bytes name)
{
    for (size_t i = 0; i < json_array_size(reader->tools); i++)
        if (bytes_equal(json_bytes(tool_name(reader->tools, i)), name))
            return (int)i;
    return -1;
}

void call_set_tool(struct tool_reader *reader, int index)
{
    bool strict;
    reader->call.name = tool_name(reader->tools, (size_t)index);
    json_decref(reader->call.schema);
    reader->call.schema = tools_schema(reader->tools, json_bytes(reader->call.name), &strict);
}

static void begin_slot(struct tool_reader *reader)
{
    reader->call.step = 0;
    reader->call.text.len = 0;
    reader->call.scan = (struct scan){ 0 };
}

void call_begin(struct tool_reader *reader, const char *at)
{
    reader->call.emitted = reader->call.closed = false;
    reader->call.name = NULL;
    reader->call.id[0] = '\0';
    reader->call.at = at;
    reader->call.back = NULL;
    reader->call.key.len = reader->call.arguments.len = 0;
    reader->call.members = reader->call.member = 0;
    reader->call.quotes = (struct scan_quotes){ 0 };
    reader->mark.len = 0;
    reader->step = STEP_CALL;
    begin_slot(reader);
}

void call_free(struct tool_reader *reader)
{
    json_decref(reader->call.schema);
    strbuf_free(&reader->call.text);
    strbuf_free(&reader->call.key);
    strbuf_free(&reader->call.close);
    strbuf_free(&reader->call.arguments);
}

// ---- name and id --------------------------------------------------------------------------------------------------

static bool begins_a_name(const struct tool_reader *reader, struct bytes text)
{
    for (size_t i = 0; i < json_array_size(reader->tools); i++)
        if (bytes_start_with(json_bytes(tool_name(reader->tools, i)), text))
            return true;
    return false;
}

// The longest tool's name that the text begins with; -1: none.
static int longest_name(const struct tool_reader *reader, struct bytes text, size_t *len)
{
    int found = -1;
    *len = 0;
    for (size_t i = 0; i < json_array_size(reader->tools); i++) {
        struct bytes name = json_bytes(tool_name(reader->tools, i));
        if (name.len > *len && bytes_start_with(text, name)) {
            found = (int)i;
            *len = name.len;
        }
    }
    return found;
}

// The name ends where no tool's goes on. Bytes beyond it belong to the next part of the pattern.
static enum slot add_to_name(struct tool_reader *reader, char byte)
{
    struct strbuf *text = &reader->call.text;
    size_t len;
    if (!text->len && bytes_is_space(byte))
        return SLOT_TAKES;
    strbuf_add_byte(text, byte);
    if (begins_a_name(reader, strbuf_bytes(text)))
        return SLOT_TAKES;
    text->len--;
    int index = longest_name(reader, strbuf_bytes(text), &len);
    if (index < 0)
        return SLOT_BAD;
    call_set_tool(reader, index);
    struct bytes rest = { text->data + len, text->len - len };
    if (!rest.len)
        return SLOT_ENDED;
    char again[TOOL_NAME_BYTES_MAX];
    memcpy(again, rest.data, rest.len);
    reader->call.at += 2;
    begin_slot(reader);
    for (size_t i = 0; i < rest.len; i++)
        if (!call_add(reader, again[i]))
            return SLOT_BAD;
    return call_add(reader, byte) ? SLOT_TAKES : SLOT_BAD;
}

static bool is_id_byte(char byte)
{
    char lower = (char)(byte | 0x20);
    return (lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') || (byte && strchr("_-.:", byte));
}

static enum slot add_to_id(struct tool_reader *reader, char byte)
{
    struct strbuf *text = &reader->call.text;
    const char *prefix = reader->form->id_prefix;
    if (!text->len && bytes_is_space(byte))
        return SLOT_TAKES;
    if (is_id_byte(byte) && text->len + 1 < FORM_ID_BYTES_MAX / 2) {
        strbuf_add_byte(text, byte);
        return SLOT_TAKES;
    }
    if (!text->len || is_id_byte(byte))
        return SLOT_BAD;
    snprintf(reader->call.id, sizeof reader->call.id, "%s%s%s%.*s", prefix ? prefix : "",
             prefix ? json_string_value(reader->call.name) : "", prefix ? ":" : "", (int)text->len, text->data);
    return SLOT_ENDED;
}

// ---- JSON arguments -----------------------------------------------------------------------------------------------

static bool begins_json(char byte) { return (byte >= '0' && byte <= '9') || (byte && strchr("\"[-tfn", byte)); }

static void emit_arguments(struct tool_reader *reader, struct bytes json)
{
    reader_emit_call(reader);
    scan_arguments(json, reader_arguments(reader));
    reader_release(reader);
}

static enum slot begin_json(struct tool_reader *reader, char byte)
{
    struct bytes next = form_literal(reader->call.at + 2 + (reader->call.at[2] == '\n'));
    if (bytes_is_space(byte))
        return SLOT_TAKES;
    reader->call.step = byte == '{' ? STREAM : HELD;
    if (byte == '{') {
        reader_emit_call(reader);
        reader_release(reader);
    } else if (!begins_json(byte)) {
        if (!next.len || byte != *next.data)
            return SLOT_BAD;
        emit_arguments(reader, bytes_of("{}"));
        strbuf_add_byte(&reader->held, byte);
        return SLOT_ENDED;
    }
    return SLOT_ENDS; // the slot's first byte is still to be read
}

static enum slot add_to_stream(struct tool_reader *reader, char byte)
{
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    reader_release(reader);
    if (answer == SCAN_BAD) {
        reader->step = STEP_BROKEN;
        reader->broken++;
        broken_add(reader, byte);
        return SLOT_TAKES;
    }
    scan_escape(&reader->call.quotes, byte, reader_arguments(reader));
    return answer == SCAN_WHOLE ? SLOT_ENDS : SLOT_TAKES;
}

static enum slot add_to_json(struct tool_reader *reader, char byte)
{
    if (reader->call.step == NAME) {
        enum slot begun = begin_json(reader, byte);
        if (begun != SLOT_ENDS)
            return begun;
    }
    if (reader->call.step == STREAM)
        return add_to_stream(reader, byte);
    enum scan_answer answer = scan_add(&reader->call.scan, byte);
    if (answer == SCAN_BAD)
        return SLOT_BAD;
    if (answer != SCAN_BEFORE)
        strbuf_add_byte(&reader->call.text, byte);
    if (answer == SCAN_MORE)
        return SLOT_TAKES;
    emit_arguments(reader, strbuf_bytes(&reader->call.text));
    if (answer == SCAN_BEFORE)
        strbuf_add_byte(&reader->held, byte);
    return answer == SCAN_WHOLE ? SLOT_ENDS : SLOT_ENDED;
}

// The text that ends arguments which are not JSON.
static struct bytes end_of_broken(const struct tool_reader *reader)
{
    const char *behind = reader->call.at + 2;
    struct bytes literal = form_literal(behind + (*behind == '\n'));
    if (reader->form->channels)
        return bytes_of("<|end|>");
    return literal.len ? literal : form_tag(reader->form->close);
}

void broken_add(struct tool_reader *reader, char byte)
{
    struct bytes end = end_of_broken(reader);
    struct strbuf *mark = &reader->mark;
    if (mark->len && byte != end.data[mark->len]) {
        strbuf_add(reader_arguments(reader), mark->data, mark->len);
        mark->len = 0;
    }
    if (!end.len || byte != end.data[mark->len]) {
        strbuf_add_byte(reader_arguments(reader), byte);
        return;
    }
    strbuf_add_byte(mark, byte);
    if (mark->len < end.len)
        return;
    reader_end_call(reader, reader->form->call[1] == 'o' ? STEP_CONTENT : STEP_SECTION);
}

// ---- the pattern --------------------------------------------------------------------------------------------------

static enum slot add_to_slot(struct tool_reader *reader, char byte)
{
    char slot = reader->call.at[1];
    switch (slot) {
    case 'n': return add_to_name(reader, byte);
    case 'i': return add_to_id(reader, byte);
    case 'j': return add_to_json(reader, byte);
    case 'o': return object_add(reader, byte);
    case 'p': return parameters_add(reader, byte);
    case 'a':
    case 'g': return arguments_add(reader, slot, byte);
    case 'v': return parameter_value_add(reader, byte);
    default: return parameter_key_add(reader, slot, byte);
    }
}

// True when the call is over: its pattern ends here.
static bool end_pattern(struct tool_reader *reader)
{
    if (*reader->call.at)
        return false;
    reader_end_call(reader, STEP_SECTION);
    return true;
}

static bool add_to_literal(struct tool_reader *reader, char byte)
{
    struct bytes literal = form_literal(reader->call.at);
    if (!reader->mark.len && byte != *literal.data && bytes_is_space(byte))
        return true;
    if (byte != literal.data[reader->mark.len])
        return false;
    strbuf_add_byte(&reader->mark, byte);
    if (reader->mark.len == literal.len) {
        reader->mark.len = 0;
        reader->call.at += literal.len;
        begin_slot(reader);
        end_pattern(reader);
    }
    return true;
}

// A line break of a pattern stands for any white space; before a value for itself, because more is the value's.
static bool takes_break(struct tool_reader *reader, char byte)
{
    bool value = reader->call.at[1] == '%' && reader->call.at[2] == 'v';
    bool takes = value ? byte == '\n' : bytes_is_space(byte);
    if (!takes || value)
        reader->call.at++;
    return takes;
}

bool call_add(struct tool_reader *reader, char byte)
{
    for (;;) {
        if (*reader->call.at == '\n') {
            if (takes_break(reader, byte))
                return true;
            continue;
        }
        if (*reader->call.at != '%')
            return add_to_literal(reader, byte);
        enum slot answer = add_to_slot(reader, byte);
        if (answer == SLOT_BAD || answer == SLOT_TAKES)
            return answer == SLOT_TAKES;
        reader->call.at += 2;
        begin_slot(reader);
        bool ends = end_pattern(reader);
        if (answer == SLOT_ENDS)
            return true;
        if (ends) {
            reader_add(reader, byte);
            return true;
        }
    }
}

void call_finish(struct tool_reader *reader)
{
    char slot = *reader->call.at == '%' ? reader->call.at[1] : 0;
    if (slot == 'n' && reader->call.text.len) { // the end of the answer ends a name, too
        int index = call_find_tool(reader, strbuf_bytes(&reader->call.text));
        if (index >= 0)
            call_set_tool(reader, index);
    }
    struct bytes partial = slot == 'j' ? strbuf_bytes(&reader->call.text)
        : slot == 'o'                  ? object_arguments(reader)
                                       : (struct bytes){ NULL, 0 };
    if (!reader->call.emitted && (!reader->call.name || (reader->form->bare && !partial.len))) {
        reader->broken += !reader->form->bare;
        reader_emit_held(reader);
        return;
    }
    if (!reader->call.emitted) {
        reader_emit_call(reader);
        if (partial.len)
            scan_arguments(partial, reader_arguments(reader));
    }
    if (slot == 'v')
        parameter_finish(reader);
    if (slot == 'a' || slot == 'g')
        arguments_finish(reader);
}
