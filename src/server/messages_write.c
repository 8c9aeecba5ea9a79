// SPDX-License-Identifier: Apache-2.0
// server/messages_write.c: an answer in the words of Anthropic's Messages API: content blocks (thinking, text,
// tool_use), whole or as named server-sent events.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/messages.h"
#include "server/parts.h"

// ---- parts that both have -----------------------------------------------------------------------------------------

static const struct {
    const char *type, *begin, *delta, *key; // of a block, and of its deltas
} blocks[] = {
    [PART_REASONING] = { "thinking", "\"thinking\":\"\",\"signature\":\"\"", "thinking_delta", "thinking" },
    [PART_CONTENT] = { "text", "\"text\":\"\"", "text_delta", "text" },
    [PART_CALL] = { "tool_use", NULL, "input_json_delta", "partial_json" },
};

static void open_message(const struct job *job, struct strbuf *out)
{
    strbuf_add_format(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", job->id);
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_text(out, ",\"content\":[");
}

static void write_stop(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    bool stopped = answer->reason == NIBBLE_FINISH_STOP && answer->stop_string >= 0;
    const char *reason = answer->reason == NIBBLE_FINISH_LENGTH ? "max_tokens"
        : stopped                                               ? "stop_sequence"
        : choice->call_count                                    ? "tool_use"
                                                                : "end_turn";
    strbuf_add_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (stopped)
        json_write_text(out, choice->job->params.stops[answer->stop_string]);
    else
        strbuf_add_text(out, "null");
}

// Tokens of the prompt that were found in the prefix cache are not counted as input again, as the API has it.
static void write_usage(const struct choice *choice, struct strbuf *out)
{
    long long prompt = (long long)choice->prompt->count, cached = choice->answer.usage.cached_tokens;
    strbuf_add_format(out,
                      "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
                      "\"cache_read_input_tokens\":%lld,\"output_tokens\":%d}",
                      prompt - cached, cached, choice->generated);
}

// Longer runs are content: they are not looked at again with each token.
enum { BLANK_BYTES_MAX = 64 };

static bool is_blank(struct bytes text)
{
    if (text.len > BLANK_BYTES_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!strchr(" \t\r\n", text.data[i]) || !text.data[i])
            return false;
    return true;
}

// Blank lines that a model puts between its thought, its text and its calls are no block of their own.
static bool is_filler(const struct choice *choice, const struct answer_part *part)
{
    return part->kind == PART_CONTENT && choice->part_count > 1 && is_blank(strbuf_bytes(&part->text));
}

// ---- a whole message ----------------------------------------------------------------------------------------------

static void open_block(const struct answer_part *part, struct strbuf *out)
{
    strbuf_add_format(out, "{\"type\":\"%s\",", blocks[part->kind].type);
    if (part->kind != PART_CALL) {
        strbuf_add_format(out, "\"%s\":\"", blocks[part->kind].key);
        return;
    }
    strbuf_add_format(out, "\"id\":\"%s\",\"name\":", part->id);
    json_write_text(out, strbuf_bytes(&part->name));
    strbuf_add_text(out, ",\"input\":");
}

static void close_block(const struct answer_part *part, struct strbuf *out)
{
    strbuf_add_text(out,
                    part->kind == PART_REASONING     ? "\",\"signature\":\"\"}"
                        : part->kind == PART_CONTENT ? "\"}"
                                                     : "}");
}

// Writes the next slice of a block's text. True: that was all of it.
static bool write_block_text(struct answer_part *part, struct answer_cursor *cursor, struct strbuf *out)
{
    struct bytes rest = bytes_from(strbuf_bytes(&part->text), cursor->at);
    size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
    if (part->kind == PART_CALL)
        strbuf_add(out, rest.data, length); // JSON already
    else
        json_write_text_inside(out, (struct bytes){ rest.data, length });
    cursor->at += length;
    return length == rest.len;
}

// Writes the next block, or a slice of it.
static void write_block(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    struct answer_part *part = &choice->parts[cursor->part];
    bool skipped = is_filler(choice, part);
    if (!skipped && !part->begun) {
        if (part->kind == PART_CALL)
            parts_complete_call(part);
        strbuf_add_text(out, cursor->block++ ? "," : "");
        open_block(part, out);
        part->begun = true;
    }
    if (!skipped && !write_block_text(part, cursor, out))
        return;
    if (!skipped)
        close_block(part, out);
    cursor->part++;
    cursor->at = 0;
}

bool messages_whole(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    if (!job->begun)
        open_message(job, out);
    job->begun = true;
    while (job->cursor.part < choice->part_count) {
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        write_block(job, choice, out);
    }
    strbuf_add_text(out, "],");
    write_stop(choice, out);
    strbuf_add_byte(out, ',');
    write_usage(choice, out);
    strbuf_add_byte(out, '}');
    return true;
}

// ---- a stream -----------------------------------------------------------------------------------------------------

static void open_event(const char *name, struct strbuf *out)
{
    strbuf_add_format(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void close_event(struct strbuf *out) { strbuf_add_text(out, "}\n\n"); }

static void start_message(const struct job *job, struct strbuf *out)
{
    open_event("message_start", out);
    strbuf_add_text(out, ",\"message\":");
    open_message(job, out);
    strbuf_add_text(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(&job->choices[0], out);
    strbuf_add_byte(out, '}');
    close_event(out);
    open_event("ping", out);
    close_event(out);
}

static void start_block(const struct answer_part *part, int index, struct strbuf *out)
{
    open_event("content_block_start", out);
    strbuf_add_format(out, ",\"index\":%d,\"content_block\":{\"type\":\"%s\",", index, blocks[part->kind].type);
    if (part->kind == PART_CALL) {
        strbuf_add_format(out, "\"id\":\"%s\",\"name\":", part->id);
        json_write_text(out, strbuf_bytes(&part->name));
        strbuf_add_text(out, ",\"input\":{}");
    } else {
        strbuf_add_text(out, blocks[part->kind].begin);
    }
    strbuf_add_byte(out, '}');
    close_event(out);
}

static void open_delta(const char *type, int index, struct strbuf *out)
{
    open_event("content_block_delta", out);
    strbuf_add_format(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\"", index, type);
}

// Writes new text of a block, and drops it. False: the slice is full.
static bool write_deltas(struct answer_part *part, int index, struct strbuf *out)
{
    while (part->sent < part->text.len) {
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        open_delta(blocks[part->kind].delta, index, out);
        strbuf_add_format(out, ",\"%s\":", blocks[part->kind].key);
        json_write_text(out, (struct bytes){ rest.data, length });
        strbuf_add_byte(out, '}');
        close_event(out);
        part->sent += length;
    }
    part->sent = part->text.len = 0;
    return true;
}

static void stop_block(const struct answer_part *part, int index, struct strbuf *out)
{
    if (part->kind == PART_REASONING) {
        open_delta("signature_delta", index, out);
        strbuf_add_text(out, ",\"signature\":\"\"}");
        close_event(out);
    }
    open_event("content_block_stop", out);
    strbuf_add_format(out, ",\"index\":%d", index);
    close_event(out);
}

// Blank text waits until it is known whether a block comes of it.
static bool stream_blocks(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        struct answer_part *part = &choice->parts[cursor->part];
        bool last = cursor->part + 1 == choice->part_count, complete = !last || choice->answer.finished;
        bool blank = part->kind == PART_CONTENT && is_blank(strbuf_bytes(&part->text));
        if (!part->begun && blank && !complete)
            return true;
        if (!part->begun && blank && is_filler(choice, part))
            continue;
        if (!part->begun)
            start_block(part, cursor->block, out);
        part->begun = true;
        if (!write_deltas(part, cursor->block, out))
            return false;
        if (!complete)
            return true;
        stop_block(part, cursor->block++, out);
    }
    return true;
}

static void end_message(const struct job *job, struct strbuf *out)
{
    open_event("message_delta", out);
    strbuf_add_text(out, ",\"delta\":{");
    write_stop(&job->choices[0], out);
    strbuf_add_text(out, "},");
    write_usage(&job->choices[0], out);
    close_event(out);
    open_event("message_stop", out);
    close_event(out);
}

bool messages_stream(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    if (!choice->begun)
        start_message(job, out);
    choice->begun = true;
    if (!stream_blocks(job, choice, out))
        return false;
    if (job->released && job->error.status)
        messages_stream_error(&job->error, out);
    else if (job->released)
        end_message(job, out);
    return true;
}

void messages_stream_error(const struct api_error *err, struct strbuf *out)
{
    json_t *error = api_error_json(err, API_ANTHROPIC);
    strbuf_add_text(out, "event: error\ndata: ");
    api_dump(error, out);
    strbuf_add_text(out, "\n\n");
    json_decref(error);
}
