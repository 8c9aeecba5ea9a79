// SPDX-License-Identifier: Apache-2.0
// The text outside of calls: content, the markers that open and close calls, and the events.
#include "text/tools/reader.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"

// ---- events -------------------------------------------------------------------------------------------------------

static void flush(struct tool_reader *reader)
{
    struct bytes text = strbuf_bytes(&reader->out);
    const struct tool_sink *sink = &reader->sink;
    reader->out.len = 0;
    if (!text.len)
        return;
    if (reader->out_kind == OUT_ARGUMENTS && sink->arguments)
        sink->arguments(sink->context, reader->calls - 1, text);
    else if (reader->out_kind == OUT_CONTENT && sink->content)
        sink->content(sink->context, text);
    else if (reader->out_kind == OUT_REASONING && sink->reasoning)
        sink->reasoning(sink->context, text);
}

static struct strbuf *out_of(struct tool_reader *reader, int kind)
{
    if ((int)reader->out_kind != kind)
        flush(reader);
    reader->out_kind = kind;
    return &reader->out;
}

void reader_content(struct tool_reader *reader, const char *text, size_t len)
{
    if (!len)
        return;
    strbuf_add(out_of(reader, OUT_CONTENT), text, len);
    reader->behind_call = false;
}

void reader_reasoning(struct tool_reader *reader, const char *text, size_t len)
{
    if (len)
        strbuf_add(out_of(reader, OUT_REASONING), text, len);
}

struct strbuf *reader_arguments(struct tool_reader *reader) { return out_of(reader, OUT_ARGUMENTS); }

void reader_emit_call(struct tool_reader *reader)
{
    flush(reader);
    reader->call.emitted = true;
    if (reader->sink.call)
        reader->sink.call(reader->sink.context, reader->calls, json_bytes(reader->call.name),
                          bytes_of(reader->call.id));
    reader->calls++;
}

void reader_release(struct tool_reader *reader)
{
    reader->held.len = 0;
    reader->mark.len = 0;
}

void reader_emit_held(struct tool_reader *reader)
{
    reader_content(reader, reader->held.data, reader->held.len);
    reader_release(reader);
}

void reader_end_call(struct tool_reader *reader, enum step step)
{
    reader_release(reader);
    reader->behind_call = reader->has_call = true;
    if (reader->form->channels) {
        step = STEP_MESSAGE;
        reader->channel = CHANNEL_BEHIND_CALL;
    }
    reader->step = reader->ends_with_call ? STEP_OVER : step;
}

// ---- markers ------------------------------------------------------------------------------------------------------

void markers_add(struct markers *markers, struct bytes text)
{
    if (text.len && markers->count < MARKERS_MAX)
        markers->texts[markers->count++] = text;
}

int markers_match(const struct markers *markers, struct bytes text)
{
    bool part = false;
    for (int i = 0; i < markers->count; i++) {
        if (bytes_equal(markers->texts[i], text))
            return i;
        part |= bytes_start_with(markers->texts[i], text);
    }
    return part ? MARKER_PART : MARKER_NONE;
}

// Takes `count` bytes off the end of what is held, and reads them again.
static void read_again(struct tool_reader *reader, size_t count)
{
    struct strbuf again = { 0 };
    strbuf_add(&again, reader->held.data + reader->held.len - count, count);
    reader->held.len -= count;
    reader->mark.len = 0;
    if (reader->step == STEP_PLAIN)
        reader_emit_held(reader);
    for (size_t i = 0; i < again.len; i++)
        reader_add(reader, again.data[i]);
    strbuf_free(&again);
}

// The text turns out to be content, but for the beginning of a marker at its end; white space may still precede a call.
void reader_give_up(struct tool_reader *reader)
{
    size_t again = reader->mark.len < reader->held.len ? reader->mark.len + 1 : reader->held.len;
    size_t end = reader->held.len - again, kept = end;
    reader->broken += !reader->form->bare || reader->call.name; // any JSON may begin like a call without a marker
    reader->step = reader->form->bare ? STEP_PLAIN : reader->form->channels ? STEP_MESSAGE : STEP_CONTENT;
    reader->channel = CHANNEL_CONTENT;
    while (kept && reader->step == STEP_CONTENT && bytes_is_space(reader->held.data[kept - 1]))
        kept--;
    reader_content(reader, reader->held.data, kept);
    memmove(reader->held.data, reader->held.data + kept, reader->held.len - kept);
    reader->held.len -= kept;
    read_again(reader, again);
}

// ---- content ------------------------------------------------------------------------------------------------------

enum { OPENS_SECTION, OPENS_CALL }; // the first markers of content

static void opening_markers(const struct tool_form *form, struct markers *markers)
{
    markers_add(markers, form_tag(form->open));
    if (!markers->count) // so that the second one has its place
        markers->texts[markers->count++] = (struct bytes){ "", 0 };
    markers_add(markers, form_literal(form->call));
    for (int i = 0; i < FORM_DROPS_MAX && form->drops[i]; i++)
        markers_add(markers, bytes_of(form->drops[i]));
}

static void open_section(struct tool_reader *reader)
{
    reader->mark.len = 0;
    reader->has_call = reader->bracket = false;
    reader->step = STEP_SECTION;
}

static void take_marker(struct tool_reader *reader, int marker)
{
    struct bytes call = form_literal(reader->form->call);
    reader->mark.len = 0;
    if (marker == OPENS_SECTION) {
        open_section(reader);
    } else if (marker == OPENS_CALL && call.len) {
        open_section(reader);
        call_begin(reader, reader->form->call + call.len);
    } else {
        reader_release(reader);
    }
}

static void add_to_content(struct tool_reader *reader, char byte)
{
    struct markers markers = { .count = 0 };
    strbuf_add_byte(&reader->held, byte);
    if (!reader->mark.len && bytes_is_space(byte))
        return;
    opening_markers(reader->form, &markers);
    strbuf_add_byte(&reader->mark, byte);
    int marker = markers_match(&markers, strbuf_bytes(&reader->mark));
    if (marker >= 0) {
        take_marker(reader, marker);
    } else if (marker == MARKER_NONE) {
        size_t again = reader->mark.len - 1, end = reader->held.len - again;
        reader_content(reader, reader->held.data, end);
        memmove(reader->held.data, reader->held.data + end, again);
        reader->held.len = again;
        read_again(reader, again);
    }
}

// ---- between calls ------------------------------------------------------------------------------------------------

enum { CLOSES_SECTION, NEXT_CALL, SKIPPED };

static void section_markers(const struct tool_form *form, struct markers *markers)
{
    struct bytes close = form_tag(form->close), call = form_literal(form->call);
    markers->texts[markers->count++] = close; // each in its place, though it be empty
    markers->texts[markers->count++] = call;
    if (form->bare)
        markers_add(markers, form_tag(form->open));
}

// Does a byte between calls belong to none: a bracket or comma of the list, or a bracket too many?
static bool is_filler(const struct tool_reader *reader, char byte)
{
    char slot = reader->form->call[0] == '%' ? reader->form->call[1] : 0;
    if (!byte || !slot)
        return false;
    if (!reader->has_call)
        return byte == '[' && !reader->bracket;
    if (slot == 'o')
        return strchr(reader->form->bare ? ";,[]" : "},]", byte) || (byte == ';' && reader->form->bare);
    return strchr(",]", byte);
}

static void take_filler(struct tool_reader *reader, char byte)
{
    if (byte == '[') {
        reader->bracket = true;
    } else if (byte == ']' && reader->bracket) {
        reader->bracket = false;
        reader_release(reader);
        if (!form_tag(reader->form->close).len && !reader->form->bare)
            reader->step = STEP_CONTENT;
    }
}

static bool begins_call(const struct tool_reader *reader, char byte)
{
    const struct tool_form *form = reader->form;
    struct bytes close = form_tag(form->close);
    if (form->call[0] != '%')
        return false;
    if (form->call[1] == 'o')
        return byte == '{';
    return (!form->bare || reader->bracket) && !(close.len && byte == *close.data);
}

// Leaves the section, because neither a call nor its end follows.
static void leave_section(struct tool_reader *reader)
{
    if (!reader->has_call) {
        reader_give_up(reader);
    } else if (reader->form->bare) {
        reader->step = STEP_PLAIN;
        reader_emit_held(reader);
    } else {
        reader->step = STEP_CONTENT;
        read_again(reader, reader->held.len);
    }
}

static void add_section_marker(struct tool_reader *reader, char byte)
{
    struct markers markers = { .count = 0 };
    section_markers(reader->form, &markers);
    strbuf_add_byte(&reader->mark, byte);
    int marker = markers_match(&markers, strbuf_bytes(&reader->mark));
    if (marker == MARKER_PART)
        return;
    if (marker == MARKER_NONE) {
        reader->mark.len--;
        leave_section(reader);
        return;
    }
    reader->mark.len = 0;
    if (marker == NEXT_CALL) {
        call_begin(reader, reader->form->call + markers.texts[NEXT_CALL].len);
    } else if (marker == CLOSES_SECTION && reader->has_call) {
        reader_release(reader);
        reader->step = reader->form->bare ? STEP_PLAIN : STEP_CONTENT;
    } else if (marker == CLOSES_SECTION) { // a section without a call
        reader_give_up(reader);
    }
}

static void add_to_call(struct tool_reader *reader, char byte);

static void add_to_section(struct tool_reader *reader, char byte)
{
    strbuf_add_byte(&reader->held, byte);
    if (!reader->mark.len && bytes_is_space(byte))
        return;
    if (!reader->mark.len && is_filler(reader, byte)) {
        take_filler(reader, byte);
    } else if (!reader->mark.len && begins_call(reader, byte)) {
        reader->held.len--;
        call_begin(reader, reader->form->call);
        add_to_call(reader, byte);
    } else {
        add_section_marker(reader, byte);
    }
}

// ---- the reader ---------------------------------------------------------------------------------------------------

// The call was emitted, but it does not go on as one: its arguments end, and the rest is read as what is behind it.
static void break_off(struct tool_reader *reader)
{
    struct strbuf again = reader->held;
    reader->held = (struct strbuf){ 0 };
    reader->broken++;
    call_end_members(reader);
    reader_end_call(reader, STEP_SECTION);
    for (size_t i = 0; i < again.len; i++)
        reader_add(reader, again.data[i]);
    strbuf_free(&again);
}

static void add_to_call(struct tool_reader *reader, char byte)
{
    strbuf_add_byte(&reader->held, byte);
    if (call_add(reader, byte))
        return;
    if (reader->call.emitted)
        break_off(reader);
    else
        reader_give_up(reader);
}

void reader_add(struct tool_reader *reader, char byte)
{
    switch (reader->step) {
    case STEP_CONTENT: add_to_content(reader, byte); break;
    case STEP_SECTION: add_to_section(reader, byte); break;
    case STEP_PLAIN: reader_content(reader, &byte, 1); break;
    case STEP_OVER: break;
    case STEP_BROKEN: broken_add(reader, byte); break;
    case STEP_CALL: add_to_call(reader, byte); break;
    case STEP_HEADER:
    case STEP_MESSAGE: harmony_add(reader, byte); break;
    }
    if (reader->held.len > TOOL_HELD_BYTES_MAX) {
        reader->broken += reader->step != STEP_CONTENT;
        reader_emit_held(reader);
        reader->step = reader->form->bare ? STEP_PLAIN : reader->form->channels ? STEP_MESSAGE : STEP_CONTENT;
    }
}

struct tool_reader *tool_reader_open(const struct tool_form *form, const json_t *tools, const struct tool_sink *sink)
{
    struct tool_reader *reader = memory_new(1, sizeof *reader);
    reader->form = form;
    reader->sink = *sink;
    reader->tools = json_incref((json_t *)tools);
    reader->step = form->channels ? STEP_HEADER : form->bare ? STEP_SECTION : STEP_CONTENT;
    return reader;
}

void tool_reader_end_with_call(struct tool_reader *reader) { reader->ends_with_call = true; }

bool tool_reader_is_over(const struct tool_reader *reader) { return reader->step == STEP_OVER; }

void tool_reader_add(struct tool_reader *reader, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        reader_add(reader, text.data[i]);
    flush(reader);
}

static void finish_section(struct tool_reader *reader)
{
    if (reader->has_call && !reader->form->bare)
        return; // nothing but what belongs to the markers
    if (!reader->has_call && !reader->form->bare)
        reader->broken++;
    if (reader->mark.len || !reader->behind_call)
        reader_emit_held(reader);
}

void tool_reader_finish(struct tool_reader *reader)
{
    switch (reader->step) {
    case STEP_CONTENT:
        if (reader->mark.len || !reader->behind_call)
            reader_emit_held(reader);
        break;
    case STEP_SECTION: finish_section(reader); break;
    case STEP_BROKEN: strbuf_add(reader_arguments(reader), reader->mark.data, reader->mark.len); break;
    case STEP_PLAIN:
    case STEP_OVER: break;
    case STEP_HEADER:
    case STEP_MESSAGE: harmony_finish(reader); break;
    case STEP_CALL: call_finish(reader); break;
    }
    reader_release(reader);
    flush(reader);
}

int tool_reader_calls(const struct tool_reader *reader) { return reader->calls; }

int tool_reader_broken(const struct tool_reader *reader) { return reader->broken; }

void tool_reader_close(struct tool_reader *reader)
{
    if (!reader)
        return;
    json_decref(reader->tools);
    call_free(reader);
    strbuf_free(&reader->held);
    strbuf_free(&reader->mark);
    strbuf_free(&reader->out);
    free(reader);
}
