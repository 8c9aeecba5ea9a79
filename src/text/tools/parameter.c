// SPDX-License-Identifier: Apache-2.0
// text/tools/parameter.c: parameters in tags of their own. Strings stand as they are and are emitted as they come;
// other values are held until they are whole, because only then it shows whether they are JSON.
#include "format/json.h"
#include "text/tools/reader.h"

enum { PARAMETER_KEY_BYTES_MAX = 1024 };

static const char cdata_open[] = "<![CDATA[", cdata_close[] = "]]>";

// ---- members of the arguments -------------------------------------------------------------------------------------

void call_begin_member(struct tool_reader *reader)
{
    if (!reader->call.emitted)
        reader_emit_call(reader);
    struct strbuf *out = reader_arguments(reader);
    strbuf_add_text(out, reader->call.members++ ? ", " : "{");
    typed_add_string(strbuf_bytes(&reader->call.key), out);
    strbuf_add_text(out, ": ");
    reader_release(reader);
}

void call_end_members(struct tool_reader *reader)
{
    const char *call = reader->form->call;
    if (reader->call.closed || (!strstr(call, "%p") && !strstr(call, "%a") && !strstr(call, "%g")))
        return;
    reader->call.closed = true;
    if (!reader->call.emitted)
        reader_emit_call(reader);
    strbuf_add_text(reader_arguments(reader), reader->call.members ? "}" : "{}");
}

void call_find_kind(struct tool_reader *reader)
{
    strbuf_add_byte(&reader->call.key, '\0');
    reader->call.key.len--;
    reader->call.kind = typed_kind(reader->call.schema,
                                   typed_schema(reader->call.schema, strbuf_text(&reader->call.key)));
}

// ---- %p -----------------------------------------------------------------------------------------------------------

enum { OPENS_PARAMETER, CLOSES_CALL, CLOSES_CALLS };

static void parameter_markers(const struct tool_reader *reader, struct markers *markers)
{
    const char *behind = reader->call.at + 2;
    markers_add(markers, form_literal(reader->form->parameter));
    markers_add(markers, form_literal(behind + (*behind == '\n')));
    markers_add(markers, form_tag(reader->form->close));
}

static enum slot take_marker(struct tool_reader *reader, int marker)
{
    const char *behind = reader->call.at + 2;
    reader->mark.len = 0;
    if (marker == OPENS_PARAMETER) {
        reader->call.back = reader->call.at;
        reader->call.at = reader->form->parameter + form_literal(reader->form->parameter).len;
        reader->call.text.len = reader->call.key.len = 0;
        reader->call.step = 0;
        return SLOT_TAKES;
    }
    call_end_members(reader);
    reader_release(reader);
    if (marker == CLOSES_CALLS) {
        reader_end_call(reader, STEP_CONTENT);
        return SLOT_TAKES;
    }
    behind += *behind == '\n';
    reader->call.at = behind + form_literal(behind).len;
    if (!*reader->call.at)
        reader_end_call(reader, STEP_SECTION);
    return SLOT_TAKES;
}

// The longest marker that the text begins with, which ended before the text's last byte.
static int shorter_marker(const struct markers *markers, struct bytes text)
{
    int found = MARKER_NONE;
    for (int i = 0; i < markers->count; i++)
        if (markers->texts[i].len < text.len && bytes_start_with(text, markers->texts[i])
            && (found < 0 || markers->texts[i].len > markers->texts[found].len))
            found = i;
    return found;
}

// MiniMax-M3's markers begin alike: one is the beginning of another.
static enum slot take_shorter(struct tool_reader *reader, const struct markers *markers)
{
    char again[FORM_ID_BYTES_MAX];
    struct bytes text = strbuf_bytes(&reader->mark);
    int marker = shorter_marker(markers, text);
    if (marker < 0) {
        reader->mark.len--;
        return SLOT_BAD;
    }
    size_t len = markers->texts[marker].len, rest = text.len - len;
    if (rest > sizeof again)
        return SLOT_BAD;
    memcpy(again, text.data + len, rest);
    enum slot answer = take_marker(reader, marker);
    for (size_t i = 0; i < rest && answer == SLOT_TAKES; i++)
        answer = call_add(reader, again[i]) ? SLOT_TAKES : SLOT_BAD;
    return answer;
}

enum slot parameters_add(struct tool_reader *reader, char byte)
{
    struct markers markers = { .count = 0 };
    if (!reader->mark.len && bytes_is_space(byte))
        return SLOT_TAKES;
    parameter_markers(reader, &markers);
    strbuf_add_byte(&reader->mark, byte);
    struct bytes text = strbuf_bytes(&reader->mark);
    int marker = markers_match(&markers, text);
    for (int i = 0; i < markers.count && marker >= 0; i++)
        if (markers.texts[i].len > text.len && bytes_start_with(markers.texts[i], text))
            return SLOT_TAKES;
    if (marker == MARKER_NONE)
        return take_shorter(reader, &markers);
    return marker >= 0 ? take_marker(reader, marker) : SLOT_TAKES;
}

// ---- %k %t %x -----------------------------------------------------------------------------------------------------

static void take_key(struct tool_reader *reader, struct bytes text)
{
    strbuf_add(&reader->call.key, text.data, text.len);
    call_find_kind(reader);
}

static void take_type(struct tool_reader *reader, struct bytes text)
{
    bool string = bytes_equal(text, bytes_of("true")) || bytes_equal(text, bytes_of("string"));
    reader->call.kind = string ? TYPED_TEXT : TYPED_JSON;
}

enum slot parameter_key_add(struct tool_reader *reader, char slot, char byte)
{
    struct strbuf *text = &reader->call.text;
    struct bytes end = form_literal(reader->call.at + 2);
    strbuf_add_byte(text, byte);
    if (text->len > PARAMETER_KEY_BYTES_MAX)
        return SLOT_BAD;
    if (!end.len || !bytes_end_with(strbuf_bytes(text), end))
        return SLOT_TAKES;
    struct bytes value = { text->data, text->len - end.len };
    if (slot == 'k')
        take_key(reader, value);
    else if (slot == 't')
        take_type(reader, value);
    reader->call.at += 2 + end.len;
    text->len = 0;
    return SLOT_TAKES;
}

// ---- %v -----------------------------------------------------------------------------------------------------------

enum { BEFORE, TEXT, HELD };
enum { SCANS, SCANNED }; // reader->call.member: whether the text so far is JSON

// The text that ends the value: what follows in the pattern, with the key in its place.
static void find_close(struct tool_reader *reader)
{
    struct strbuf *close = &reader->call.close;
    close->len = 0;
    for (const char *at = reader->call.at + 2; *at; at++) {
        if (*at == '%')
            strbuf_add(close, reader->call.key.data, reader->call.key.len);
        if (*at == '%')
            at++;
        else if (*at != '\n')
            strbuf_add_byte(close, *at);
    }
}

static bool drops_break(const struct tool_reader *reader) { return reader->call.at[2] == '\n'; }

static void begin_value(struct tool_reader *reader)
{
    find_close(reader);
    call_begin_member(reader);
    reader->call.text.len = reader->mark.len = 0;
    reader->call.scan = (struct scan){ 0 };
    reader->call.member = SCANS;
    reader->call.step = reader->call.kind == TYPED_TEXT && !reader->form->cdata ? TEXT : HELD;
    if (reader->call.step == TEXT)
        strbuf_add_byte(reader_arguments(reader), '"');
}

static enum slot end_value(struct tool_reader *reader)
{
    reader_release(reader);
    reader->call.at = reader->call.back;
    reader->call.back = NULL;
    reader->call.step = 0;
    return SLOT_TAKES;
}

// Is the text the beginning of the closing marker, with a line break before it where one belongs to it?
static bool begins_close(const struct tool_reader *reader, struct bytes text)
{
    struct bytes close = strbuf_bytes(&reader->call.close);
    if (drops_break(reader) && text.len && *text.data == '\n')
        text = bytes_from(text, 1);
    return bytes_start_with(close, text);
}

static enum slot add_to_text(struct tool_reader *reader, char byte)
{
    struct strbuf *mark = &reader->mark;
    size_t drop = 0;
    strbuf_add_byte(mark, byte);
    while (drop < mark->len && !begins_close(reader, (struct bytes){ mark->data + drop, mark->len - drop }))
        drop++;
    typed_add_escaped((struct bytes){ mark->data, drop }, reader_arguments(reader));
    memmove(mark->data, mark->data + drop, mark->len - drop);
    mark->len -= drop;
    size_t spare = mark->len && *mark->data == '\n' && drops_break(reader);
    if (mark->len - spare < reader->call.close.len || !mark->len)
        return SLOT_TAKES;
    strbuf_add_byte(reader_arguments(reader), '"');
    return end_value(reader);
}

// May the closing marker's text be part of the value? Inside a string of what is JSON so far, and in CDATA.
static bool is_inside(const struct tool_reader *reader)
{
    struct bytes text = strbuf_bytes(&reader->call.text);
    size_t close = reader->call.close.len;
    if (reader->form->cdata && bytes_start_with(text, bytes_of(cdata_open)))
        return !bytes_end_with((struct bytes){ text.data, text.len - close }, bytes_of(cdata_close));
    return reader->call.member == SCANS && scan_in_text(&reader->call.scan);
}

static void scan_value(struct tool_reader *reader, char byte)
{
    const struct scan *scan = &reader->call.scan;
    bool container = scan->depth || byte == '{' || byte == '[' || bytes_is_space(byte);
    if (reader->call.member == SCANNED)
        return;
    if ((reader->call.kind == TYPED_EITHER && !container) || scan_add(&reader->call.scan, byte) != SCAN_MORE)
        reader->call.member = SCANNED;
}

static void emit_value(struct tool_reader *reader, struct bytes text)
{
    const json_t *arguments = reader->call.schema;
    const json_t *schema = typed_schema(arguments, strbuf_text(&reader->call.key));
    struct bytes prefix = form_literal(reader->form->parameter);
    struct strbuf *out = reader_arguments(reader);
    size_t around = sizeof cdata_open - 1, behind = sizeof cdata_close - 1;
    if (reader->form->cdata && text.len >= around + behind && bytes_start_with(text, bytes_of(cdata_open)))
        typed_add_string((struct bytes){ text.data + around, text.len - around - behind }, out);
    else if (!reader->form->nested || !typed_add_nested(arguments, schema, prefix, text, out))
        typed_add(arguments, schema, reader->call.kind, text, out);
}

static enum slot add_to_held(struct tool_reader *reader, char byte)
{
    struct strbuf *text = &reader->call.text;
    reader_release(reader);
    strbuf_add_byte(text, byte);
    scan_value(reader, byte);
    if (!bytes_end_with(strbuf_bytes(text), strbuf_bytes(&reader->call.close)) || is_inside(reader))
        return SLOT_TAKES;
    struct bytes value = { text->data, text->len - reader->call.close.len };
    if (drops_break(reader) && value.len && value.data[value.len - 1] == '\n')
        value.len--;
    emit_value(reader, value);
    return end_value(reader);
}

enum slot parameter_value_add(struct tool_reader *reader, char byte)
{
    if (reader->call.step == BEFORE)
        begin_value(reader);
    reader->held.len = 0;
    return reader->call.step == TEXT ? add_to_text(reader, byte) : add_to_held(reader, byte);
}

void parameter_finish(struct tool_reader *reader)
{
    struct strbuf *out = reader_arguments(reader);
    struct bytes text = strbuf_bytes(&reader->call.text);
    if (reader->call.step == TEXT) {
        typed_add_escaped(strbuf_bytes(&reader->mark), out);
    } else if (reader->call.kind == TYPED_JSON) {
        strbuf_add(out, text.data, text.len);
    } else if (text.len) {
        strbuf_add_byte(out, '"');
        typed_add_escaped(text, out);
    }
}
