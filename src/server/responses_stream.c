// SPDX-License-Identifier: Apache-2.0
// server/responses_stream.c: the events of a streamed response: it begins, items are added, their text comes in deltas,
// each is done with its whole text, and the response ends with the whole object. Events are numbered without gaps.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/responses.h"

enum { DELTA_TOKENS_MAX = 64 }; // with logprobs

static void open_event(const struct job *job, const char *name, struct strbuf *out)
{
    strbuf_add_format(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", name, name,
                      job->response->sequence);
}

static void close_event(struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, "}\n\n");
    job->response->sequence++;
}

// Opens an event of an item.
static void open_item_event(const struct job *job, const char *name, enum part_kind kind, int item, struct strbuf *out)
{
    open_event(job, name, out);
    strbuf_add_text(out, ",\"item_id\":");
    responses_write_item_id(job, kind, item, out);
    strbuf_add_format(out, kind == PART_CALL ? ",\"output_index\":%d" : ",\"output_index\":%d,\"content_index\":0",
                      item);
}

// ---- an item begins -----------------------------------------------------------------------------------------------

static void add_item(struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_event(job, "response.output_item.added", out);
    strbuf_add_format(out, ",\"output_index\":%d,\"item\":{\"id\":", item);
    responses_write_item_id(job, part->kind, item, out);
    strbuf_add_text(out, ",\"status\":\"in_progress\"");
    if (part->kind == PART_REASONING)
        strbuf_add_text(out, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[]}");
    if (part->kind == PART_CONTENT)
        strbuf_add_text(out, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}");
    if (part->kind == PART_CALL) {
        strbuf_add_text(out, ",\"type\":\"function_call\",\"arguments\":\"\",\"call_id\":");
        json_write_text(out, bytes_of(part->id));
        strbuf_add_text(out, ",\"name\":");
        json_write_text(out, strbuf_bytes(&part->name));
        strbuf_add_byte(out, '}');
    }
    close_event(job, out);
}

static void add_content_part(struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    if (part->kind == PART_CALL)
        return;
    open_item_event(job, "response.content_part.added", part->kind, item, out);
    strbuf_add_text(out,
                    part->kind == PART_REASONING ? ",\"part\":{\"type\":\"reasoning_text\",\"text\":\"\"}"
                                                 : ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                                                   "\"\",\"logprobs\":[]}");
    close_event(job, out);
}

// ---- its text -----------------------------------------------------------------------------------------------------

static const char *const delta_events[] = {
    [PART_REASONING] = "response.reasoning_text.delta",
    [PART_CONTENT] = "response.output_text.delta",
    [PART_CALL] = "response.function_call_arguments.delta",
};

static int unlogged_tokens(struct job *job, const struct answer_part *part)
{
    int count;
    answer_lists(job, &count);
    return count && part->kind == PART_CONTENT && part->token_end > job->response->logged
        ? part->token_end - job->response->logged
        : 0;
}

static void write_delta_logprobs(struct job *job, int tokens, struct strbuf *out)
{
    struct response *response = job->response;
    int count;
    const struct answer_list *list = answer_lists(job, &count);
    strbuf_add_text(out, ",\"logprobs\":[");
    for (int i = 0; i < tokens; i++)
        answer_write_entry(list, &job->choices[0], response->logged + i, i == 0, out);
    strbuf_add_byte(out, ']');
    response->logged += tokens;
}

// Writes what is new of a part. False: there is more than a slice.
static bool write_deltas(struct job *job, struct answer_part *part, int item, struct strbuf *out)
{
    int tokens;
    while (part->sent < part->text.len || unlogged_tokens(job, part)) {
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        size_t length = rest.len ? json_text_cut(rest, ANSWER_SLICE_BYTES) : 0;
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        open_item_event(job, delta_events[part->kind], part->kind, item, out);
        strbuf_add_text(out, ",\"delta\":");
        json_write_text(out, (struct bytes){ rest.data, length });
        tokens = unlogged_tokens(job, part);
        if (part->kind == PART_CONTENT)
            write_delta_logprobs(job, tokens < DELTA_TOKENS_MAX ? tokens : DELTA_TOKENS_MAX, out);
        close_event(job, out);
        part->sent += length;
    }
    return true;
}

// ---- an item ends -------------------------------------------------------------------------------------------------

static void open_reasoning_done(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_item_event(job, "response.reasoning_text.done", part->kind, item, out);
    strbuf_add_text(out, ",\"text\":\"");
}

static void open_reasoning_part_done(const struct job *job, const struct answer_part *part, int item,
                                     struct strbuf *out)
{
    open_item_event(job, "response.content_part.done", part->kind, item, out);
    strbuf_add_text(out, ",\"part\":{\"type\":\"reasoning_text\",\"text\":\"");
}

static void open_text_done(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_item_event(job, "response.output_text.done", part->kind, item, out);
    strbuf_add_text(out, ",\"text\":\"");
}

static void open_text_part_done(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_item_event(job, "response.content_part.done", part->kind, item, out);
    strbuf_add_text(out, ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"");
}

static void open_arguments_done(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_item_event(job, "response.function_call_arguments.done", part->kind, item, out);
    strbuf_add_text(out, ",\"arguments\":\"");
}

static void open_item_done(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_event(job, "response.output_item.done", out);
    strbuf_add_format(out, ",\"output_index\":%d,\"item\":", item);
    responses_items[part->kind].open(job, part, item, out);
}

// Each repeats the whole text. Without an `open` there are no more.
enum { DONE_EVENTS_MAX = 3 };
static const struct response_frame done_events[][DONE_EVENTS_MAX] = {
    [PART_REASONING] = { { open_reasoning_done, false, "\"" },
                         { open_reasoning_part_done, false, "\"}" },
                         { open_item_done, false, "\"}]}" } },
    [PART_CONTENT] = { { open_text_done, true, "" },
                       { open_text_part_done, true, "}" },
                       { open_item_done, true, "}]}" } },
    [PART_CALL] = { { open_arguments_done, false, "\"" }, { open_item_done, false, "\"}" } },
};

static bool write_done_events(struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    struct response *response = job->response;
    const struct response_frame *events = done_events[part->kind];
    for (; response->cursor.event < DONE_EVENTS_MAX && events[response->cursor.event].open; response->cursor.event++) {
        if (response->cursor.segment == 0 && out->len >= ANSWER_SLICE_BYTES)
            return false;
        if (!responses_write_frame(job, response->part, item, &events[response->cursor.event], out))
            return false;
        close_event(job, out);
    }
    response->cursor.event = 0;
    return true;
}

// ---- items --------------------------------------------------------------------------------------------------------

static bool is_ended(const struct job *job) { return job->choices[0].answer.finished || job->released; }

// Does a part have an item? Blank text waits for what comes behind it. *shown is for parts that need not wait.
static bool is_decided(struct job *job, const struct answer_part *part, bool last, bool *shown)
{
    struct response *response = job->response;
    *shown = true;
    if (part->kind != PART_CONTENT)
        return true;
    while (response->blank < part->text.len && part->text.data[response->blank]
           && strchr(" \t\r\n", part->text.data[response->blank]))
        response->blank++;
    if (response->blank < part->text.len)
        return true;
    *shown = last && job->choices[0].part_count == 1;
    return !last || is_ended(job);
}

// Goes on with one part. False: there is more to write, or nothing more that can be written now (*waits).
static bool stream_part(struct job *job, struct answer_part *part, bool last, bool *waits, struct strbuf *out)
{
    struct response *response = job->response;
    bool shown = true;
    if (!part->begun && !is_decided(job, part, last, &shown))
        return *waits = true, false;
    if (!part->begun && shown) {
        int first = response->part ? job->choices[0].parts[response->part - 1].token_end : 0;
        response->logged = first > response->logged ? first : response->logged;
        add_item(job, part, response->items, out);
        add_content_part(job, part, response->items, out);
        part->begun = true;
    }
    if (shown && !write_deltas(job, part, response->items, out))
        return false;
    if (last && !is_ended(job))
        return *waits = true, false;
    if (shown && !write_done_events(job, part, response->items, out))
        return false;
    part->ended = true;
    response->items += shown;
    response->blank = 0;
    return true;
}

// True: all items are written. *waits: all that can be written now is.
static bool stream_items(struct job *job, bool *waits, struct strbuf *out)
{
    struct response *response = job->response;
    struct choice *choice = &job->choices[0];
    if (is_ended(job))
        responses_add_empty(job);
    for (; response->part < choice->part_count; response->part++) {
        struct answer_part *part = &choice->parts[response->part];
        if (out->len >= ANSWER_SLICE_BYTES
            || !stream_part(job, part, response->part == choice->part_count - 1, waits, out))
            return false;
    }
    *waits = !is_ended(job);
    return !*waits;
}

// ---- the stream ---------------------------------------------------------------------------------------------------

static const char *const end_events[] = {
    [RESPONSE_COMPLETED] = "response.completed",
    [RESPONSE_INCOMPLETE] = "response.incomplete",
    [RESPONSE_FAILED] = "response.failed",
    [RESPONSE_CANCELLED] = "response.incomplete", // there is no event of its own
};

static bool stream_object(struct job *job, const char *name, bool final, struct strbuf *out)
{
    const struct response_cursor *cursor = &job->response->cursor;
    if (out->len >= ANSWER_SLICE_BYTES)
        return false;
    if (!cursor->object && !cursor->at) {
        open_event(job, name, out);
        strbuf_add_text(out, ",\"response\":");
    }
    if (!responses_write_object(job, final, out))
        return false;
    close_event(job, out);
    return true;
}

bool responses_stream(struct job *job, struct strbuf *out)
{
    struct response *response = job->response;
    bool waits = false, complete = true;
    for (; response->phase < STREAM_OVER; response->phase++) {
        switch (response->phase) {
        case STREAM_CREATED: complete = stream_object(job, "response.created", false, out); break;
        case STREAM_IN_PROGRESS: complete = stream_object(job, "response.in_progress", false, out); break;
        case STREAM_ITEMS: complete = stream_items(job, &waits, out); break;
        case STREAM_END:
            if (!job->released) // the usage may still change
                return true;
            complete = stream_object(job, end_events[responses_final_status(job)], true, out);
            break;
        case STREAM_OVER: break;
        }
        if (!complete)
            return waits;
    }
    return true;
}

void responses_stream_error(const struct api_error *err, struct strbuf *out)
{
    strbuf_add_text(out,
                    "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"server_error\","
                    "\"param\":null,\"message\":");
    json_write_text(out, bytes_of(err->text));
    strbuf_add_text(out, "}\n\n");
}
