// SPDX-License-Identifier: Apache-2.0
// server/messages_write.c: an answer in the words of Anthropic's Messages API: content blocks (thinking, text,
// tool_use), whole or as named server-sent events.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/translate.h"
#include "server/parts.h"

// ---- parts that both have -----------------------------------------------------------------------------------------

static const struct {
    const char *type, *key, *close; // of a block: its text's key, and what stands behind the text
    const char *delta, *delta_key;
} blocks[] = {
    [PART_REASONING] = { "thinking", "thinking", "\",\"signature\":\"\"}", "thinking_delta", "thinking" },
    [PART_CONTENT] = { "text", "text", "\"}", "text_delta", "text" },
    [PART_CALL] = { "tool_use", NULL, "}", "input_json_delta", "partial_json" },
};

static void open_message(const struct job *job, struct strbuf *out)
{
    json_write(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":%q,\"content\":[", job->id,
               job->api->names[0]);
}

static void write_stop(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    bool stopped = answer->reason == NIBBLE_FINISH_STOP && answer->stop_string >= 0;
    const char *reason = answer->reason == NIBBLE_FINISH_LENGTH ? "max_tokens"
        : stopped                                               ? "stop_sequence"
        : choice->call_count                                    ? "tool_use"
                                                                : "end_turn";
    json_write(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (stopped)
        json_write_text(out, choice->job->params.stops[answer->stop_string]);
    else
        strbuf_add_text(out, "null");
}

// Tokens of the prompt that were found in the prefix cache are not counted as input again, as the API has it.
static void write_usage(const struct choice *choice, struct strbuf *out)
{
    long long prompt = (long long)choice->prompt->count, cached = choice->answer.usage.cached_tokens;
    json_write(out,
               "\"usage\":{\"input_tokens\":%l,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%l,"
               "\"output_tokens\":%d}",
               prompt - cached, cached, choice->generated);
}

// A block up to its text: of a call, up to its input.
static void open_block(const struct answer_part *part, struct strbuf *out)
{
    json_write(out, "{\"type\":\"%s\",", blocks[part->kind].type);
    if (part->kind == PART_CALL)
        json_write(out, "\"id\":\"%s\",\"name\":%b,\"input\":", part->id, strbuf_bytes(&part->name));
    else
        json_write(out, "\"%s\":\"", blocks[part->kind].key);
}

static void close_block(const struct answer_part *part, struct strbuf *out)
{
    strbuf_add_text(out, blocks[part->kind].close);
}

// ---- a whole message ----------------------------------------------------------------------------------------------

static bool write_opening(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice;
    open_message(job, out);
    return true;
}

// Writes the next slice of a block's text. True: that was all of it.
static bool write_block_text(const struct answer_part *part, size_t *at, struct strbuf *out)
{
    if (part->kind != PART_CALL)
        return answer_write_text(strbuf_bytes(&part->text), at, out);
    strbuf_add(out, part->text.data, part->text.len); // JSON already
    return true;
}

static bool write_blocks(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++, cursor->at = 0) {
        struct answer_part *part = &choice->parts[cursor->part];
        if (parts_is_filler(choice, part))
            continue;
        if (answer_is_full(out))
            return false;
        if (!part->begun && part->kind == PART_CALL)
            parts_complete_call(part);
        if (!part->begun) {
            strbuf_add_text(out, cursor->block++ ? "," : "");
            open_block(part, out);
        }
        part->begun = true;
        if (!write_block_text(part, &cursor->at, out))
            return false;
        close_block(part, out);
    }
    return true;
}

static bool write_closing(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)job;
    strbuf_add_text(out, "],");
    write_stop(choice, out);
    strbuf_add_byte(out, ',');
    write_usage(choice, out);
    strbuf_add_byte(out, '}');
    return true;
}

static const answer_step steps[] = { write_opening, write_blocks, write_closing };

// ---- a stream -----------------------------------------------------------------------------------------------------

static void open_event(const char *name, struct strbuf *out)
{
    json_write(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
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

static void start_block(struct job *job, const struct answer_part *part, struct strbuf *out)
{
    open_event("content_block_start", out);
    json_write(out, ",\"index\":%d,\"content_block\":", job->cursor.block);
    open_block(part, out);
    strbuf_add_text(out, part->kind == PART_CALL ? "{}" : "");
    close_block(part, out);
    close_event(out);
}

static void write_piece(struct job *job, const struct answer_part *part, struct bytes text, struct strbuf *out)
{
    open_event("content_block_delta", out);
    json_write(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":%b}", job->cursor.block, blocks[part->kind].delta,
               blocks[part->kind].delta_key, text);
    close_event(out);
}

static void stop_block(struct job *job, struct answer_part *part, struct strbuf *out)
{
    if (part->kind == PART_REASONING) {
        open_event("content_block_delta", out);
        json_write(out, ",\"index\":%d,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}", job->cursor.block);
        close_event(out);
    }
    open_event("content_block_stop", out);
    json_write(out, ",\"index\":%d", job->cursor.block);
    close_event(out);
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

static bool stream(struct job *job, struct strbuf *out)
{
    static const struct part_events events = {
        .begin = start_block, .piece = write_piece, .end = stop_block, .no_filler = true
    };
    struct choice *choice = &job->choices[0];
    if (!choice->begun)
        start_message(job, out);
    choice->begun = true;
    return answer_stream_parts(job, &events, out);
}

const struct dialect messages_dialect = {
    .stream = stream,
    .end = end_message,
    DIALECT_STEPS(steps),
    .style = API_ANTHROPIC,
    .failure_open = "event: error\ndata: ",
    .failure_close = "\n\n",
    .renamed = messages_field_names,
};
