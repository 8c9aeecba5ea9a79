// SPDX-License-Identifier: Apache-2.0
// text/tools/arguments.c: arguments in Python's syntax, name=value, or in Gemma's, name:value. Strings are emitted as
// they come, other values when they are whole.
#include "format/json.h"
#include "text/tools/reader.h"

enum { KEY_OR_END, KEY, EQUALS, VALUE, NEXT };

struct syntax {
    char equals, end;
};

static struct syntax syntax_of(char slot)
{
    return slot == 'a' ? (struct syntax){ '=', ')' } : (struct syntax){ ':', '}' };
}

static bool is_key_byte(char byte) { return byte && !bytes_is_space(byte) && !strchr("()[]{}\"',=:<>|", byte); }

static void begin_value(struct tool_reader *reader)
{
    reader->call.scan = (struct scan){ .literal = true, .quote = reader->form->quote };
    reader->call.text.len = 0;
    reader->call.step = VALUE;
    call_find_kind(reader);
}

static void end_key(struct tool_reader *reader)
{
    strbuf_add(&reader->call.key, reader->call.text.data, reader->call.text.len);
    begin_value(reader);
}

// Is the value a string that stays one? It is emitted as it comes.
static bool streams(const struct tool_reader *reader)
{
    struct bytes text = strbuf_bytes(&reader->call.text);
    return text.len && *text.data == '"' && (!reader->form->quotes_all || reader->call.kind == TYPED_TEXT);
}

// functiongemma quotes values of all types.
static void emit_quoted(struct tool_reader *reader)
{
    const json_t *arguments = reader->call.schema;
    const json_t *schema = typed_schema(arguments, strbuf_text(&reader->call.key));
    json_t *text = json_loadb(reader->call.text.data, reader->call.text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (json_is_string(text))
        typed_add(arguments, schema, reader->call.kind, json_bytes(text), reader_arguments(reader));
    else
        strbuf_add(reader_arguments(reader), reader->call.text.data, reader->call.text.len);
    json_decref(text);
}

static bool is_begun(const struct tool_reader *reader) { return reader->call.member; }

static void emit_value(struct tool_reader *reader, bool whole)
{
    struct strbuf *text = &reader->call.text;
    if (!is_begun(reader) && !whole && !streams(reader))
        return;
    if (!is_begun(reader))
        call_begin_member(reader);
    if (whole && reader->form->quotes_all && !is_begun(reader) && *text->data == '"' && !streams(reader))
        emit_quoted(reader);
    else
        strbuf_add(reader_arguments(reader), text->data, text->len);
    reader->call.member = !whole;
    text->len = 0;
    reader_release(reader);
}

static enum slot add_to_value(struct tool_reader *reader, char slot, char byte)
{
    enum scan_answer answer = scan_write(&reader->call.scan, byte, &reader->call.text);
    if (answer == SCAN_BAD)
        return SLOT_BAD;
    if (answer == SCAN_MORE) {
        if (is_begun(reader) || streams(reader))
            emit_value(reader, false);
        return SLOT_TAKES;
    }
    emit_value(reader, true);
    reader->call.step = NEXT;
    if (answer == SCAN_WHOLE)
        return SLOT_TAKES;
    strbuf_add_byte(&reader->held, byte);
    return arguments_add(reader, slot, byte);
}

static enum slot add_to_key(struct tool_reader *reader, char slot, char byte)
{
    struct strbuf *text = &reader->call.text;
    struct syntax syntax = syntax_of(slot);
    if (is_key_byte(byte) && reader->call.step != EQUALS) {
        strbuf_add_byte(text, byte);
        reader->call.step = KEY;
        return SLOT_TAKES;
    }
    if (!text->len)
        return bytes_is_space(byte) ? SLOT_TAKES : SLOT_BAD;
    if (bytes_is_space(byte)) {
        reader->call.step = EQUALS;
        return SLOT_TAKES;
    }
    if (byte != syntax.equals)
        return SLOT_BAD;
    reader->call.key.len = 0;
    end_key(reader);
    return SLOT_TAKES;
}

// The pattern's literal behind the slot begins with the end.
static enum slot end_arguments(struct tool_reader *reader, char byte)
{
    call_end_members(reader);
    reader_release(reader);
    strbuf_add_byte(&reader->held, byte);
    return SLOT_ENDED;
}

enum slot arguments_add(struct tool_reader *reader, char slot, char byte)
{
    struct syntax syntax = syntax_of(slot);
    switch (reader->call.step) {
    case VALUE: return add_to_value(reader, slot, byte);
    case NEXT:
        if (bytes_is_space(byte))
            return SLOT_TAKES;
        if (byte == syntax.end)
            return end_arguments(reader, byte);
        reader->call.text.len = 0;
        reader->call.step = KEY_OR_END;
        return byte == ',' ? SLOT_TAKES : SLOT_BAD;
    case KEY_OR_END:
        if (byte == syntax.end && !reader->call.text.len)
            return end_arguments(reader, byte);
        // fall through
    default: return add_to_key(reader, slot, byte);
    }
}

void arguments_finish(struct tool_reader *reader)
{
    if (reader->call.step != VALUE || !reader->call.text.len)
        return;
    if (!is_begun(reader))
        call_begin_member(reader);
    strbuf_add(reader_arguments(reader), reader->call.text.data, reader->call.text.len);
}
