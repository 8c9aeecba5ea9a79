// SPDX-License-Identifier: Apache-2.0
// text/tools/harmony.c: gpt-oss's answers, messages on channels (OpenAI's harmony format): analysis is reasoning, final
// and commentary are content, and a message to functions.NAME is a call.
#include "format/json.h"
#include "text/tools/reader.h"

enum { HEADER_BYTES_MAX = 1024 };

static const char *const headers[] = { "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>" };
static const char *const ends[] = { "<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>" };
enum { END, RETURN, CALL, START, CHANNEL };

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static struct bytes text_behind(struct bytes header, const char *marker)
{
    size_t len = strlen(marker);
    const char *at = header.len ? memmem(header.data, header.len, marker, len) : NULL;
    return at ? bytes_from(header, (size_t)(at - header.data) + len) : (struct bytes){ NULL, 0 };
}

// The word that a text begins with: a channel, or the receiver of a message.
static struct bytes word_of(struct bytes text)
{
    size_t len = 0;
    while (len < text.len && !bytes_is_space(text.data[len]) && text.data[len] != '<')
        len++;
    return (struct bytes){ text.data, len };
}

// Could a message begin like this? Its header has a role, a receiver and a channel; the prompt may have written some.
static bool may_be_header(struct bytes text)
{
    static const char *const begins[] = { "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", " to=", "to=" };
    for (size_t i = 0; i < COUNT_OF(begins); i++) {
        struct bytes begin = bytes_of(begins[i]);
        if (bytes_start_with(begin, text) || bytes_start_with(text, begin))
            return true;
    }
    return false;
}

static void begin_message(struct tool_reader *reader, enum channel channel)
{
    reader->channel = channel;
    reader->step = STEP_MESSAGE;
}

// A message to a tool that is there is a call; to one that is not, it is content, with its header.
static void take_receiver(struct tool_reader *reader, struct bytes receiver)
{
    static const char functions[] = "functions.";
    int index = -1;
    if (bytes_start_with(receiver, bytes_of(functions)))
        index = call_find_tool(reader, bytes_from(receiver, sizeof functions - 1));
    if (index < 0) {
        reader->broken++;
        reader_emit_held(reader);
        begin_message(reader, CHANNEL_CONTENT);
        return;
    }
    call_begin(reader, strstr(reader->form->call, "%j"));
    call_set_tool(reader, index);
}

static void end_header(struct tool_reader *reader)
{
    struct bytes header = strbuf_bytes(&reader->held);
    struct bytes channel = word_of(text_behind(header, "<|channel|>"));
    struct bytes receiver = word_of(text_behind(header, "to="));
    reader->mark.len = 0;
    if (receiver.len && !bytes_equal(receiver, bytes_of("assistant"))) {
        take_receiver(reader, receiver);
        return;
    }
    reader_release(reader);
    begin_message(reader, bytes_equal(channel, bytes_of("analysis")) ? CHANNEL_REASONING : CHANNEL_CONTENT);
}

static void add_to_header(struct tool_reader *reader, char byte)
{
    strbuf_add_byte(&reader->held, byte);
    struct bytes text = strbuf_bytes(&reader->held);
    if (text.len == 1 && bytes_is_space(byte) && reader->behind_call && byte != ' ')
        reader_release(reader);
    else if (bytes_end_with(text, bytes_of(headers[3])))
        end_header(reader);
    else if (!may_be_header(text) || text.len > HEADER_BYTES_MAX) { // the model does without headers
        reader->mark.len = 0;
        reader_emit_held(reader);
        begin_message(reader, CHANNEL_CONTENT);
    }
}

static void add_text(struct tool_reader *reader, const char *text, size_t len)
{
    while (reader->channel == CHANNEL_BEHIND_CALL && len && bytes_is_space(*text))
        text++, len--;
    if (reader->channel == CHANNEL_BEHIND_CALL && len)
        reader->channel = CHANNEL_CONTENT;
    if (reader->channel == CHANNEL_REASONING)
        reader_reasoning(reader, text, len);
    else
        reader_content(reader, text, len);
}

static void end_message(struct tool_reader *reader, int marker)
{
    struct strbuf begins = { 0 };
    strbuf_add_text(&begins, marker == START || marker == CHANNEL ? ends[marker] : "");
    reader_release(reader);
    reader->step = STEP_HEADER;
    strbuf_add(&reader->held, begins.data, begins.len);
    strbuf_free(&begins);
}

static void add_to_message(struct tool_reader *reader, char byte)
{
    struct markers markers = { .count = 0 };
    size_t drop = 0;
    int marker = MARKER_NONE;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        markers_add(&markers, bytes_of(ends[i]));
    strbuf_add_byte(&reader->mark, byte);
    while (drop < reader->mark.len && marker == MARKER_NONE) {
        marker = markers_match(&markers, (struct bytes){ reader->mark.data + drop, reader->mark.len - drop });
        drop += marker == MARKER_NONE;
    }
    add_text(reader, reader->mark.data, drop);
    memmove(reader->mark.data, reader->mark.data + drop, reader->mark.len - drop);
    reader->mark.len -= drop;
    if (marker >= 0)
        end_message(reader, marker);
}

void harmony_add(struct tool_reader *reader, char byte)
{
    if (reader->step == STEP_HEADER)
        add_to_header(reader, byte);
    else
        add_to_message(reader, byte);
}

void harmony_finish(struct tool_reader *reader)
{
    if (reader->step == STEP_MESSAGE)
        add_text(reader, reader->mark.data, reader->mark.len);
    else if (!bytes_start_with(bytes_of("<|start|>assistant"), strbuf_bytes(&reader->held)))
        reader_emit_held(reader);
}
