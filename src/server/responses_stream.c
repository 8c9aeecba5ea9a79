// SPDX-License-Identifier: Apache-2.0
// server/responses_stream.c: the events of a streamed response: it begins, items are added, their text comes in deltas,
// each is done with its whole text, and the response ends with the whole object. Events are numbered without gaps.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"
#include "server/responses.h"

enum { DELTA_TOKENS_MAX = 64 }; // with logprobs

static void open_event(const struct job *job, const char *name, const char *suffix, struct strbuf *out)
{
    json_write(out, "event: %s%s\ndata: {\"type\":\"%s%s\",\"sequence_number\":%d", name, suffix, name, suffix,
               job->response->sequence);
}

static void close_event(struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, "}\n\n");
    job->response->sequence++;
}

// Names the item that an event is about.
static void write_place(const struct job *job, enum part_kind kind, int item, struct strbuf *out)
{
    strbuf_add_text(out, ",\"item_id\":");
    responses_write_item_id(job, kind, item, out);
    json_write(out, kind == PART_CALL ? ",\"output_index\":%d" : ",\"output_index\":%d,\"content_index\":0", item);
}

static void add_item(struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_event(job, "response.output_item", ".added", out);
    json_write(out, ",\"output_index\":%d,\"item\":", item);
    responses_begin_item(job, part, item, out);
    close_event(job, out);
    if (part->kind == PART_CALL)
        return;
    open_event(job, "response.content_part", ".added", out);
    write_place(job, part->kind, item, out);
    strbuf_add_text(out, ",\"part\":");
    responses_add_part(part->kind, out);
    close_event(job, out);
}

// ---- its text -----------------------------------------------------------------------------------------------------

static const char *const text_events[] = {
    [PART_REASONING] = "response.reasoning_text",
    [PART_CONTENT] = "response.output_text",
    [PART_CALL] = "response.function_call_arguments",
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
    struct answer_list list = answer_chat_lists[0];
    list.open = ",\"logprobs\":[";
    answer_write_entries(&list, &job->choices[0], response->logged, response->logged + tokens, out);
    response->logged += tokens;
}

// Writes what is new of a part. False: there is more than a slice.
static bool write_deltas(struct job *job, struct answer_part *part, int item, struct strbuf *out)
{
    int tokens;
    while (part->sent < part->text.len || unlogged_tokens(job, part)) {
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        if (answer_is_full(out))
            return false;
        open_event(job, text_events[part->kind], ".delta", out);
        write_place(job, part->kind, item, out);
        json_write(out, ",\"delta\":%b", (struct bytes){ rest.data, length });
        tokens = unlogged_tokens(job, part);
        if (part->kind == PART_CONTENT)
            write_delta_logprobs(job, tokens < DELTA_TOKENS_MAX ? tokens : DELTA_TOKENS_MAX, out);
        close_event(job, out);
        part->sent += length;
    }
    return true;
}

// ---- an item ends -------------------------------------------------------------------------------------------------

static void open_done_event(struct job *job, enum part_kind kind, int item, enum response_frame frame,
                            struct strbuf *out)
{
    if (frame == FRAME_ITEM) {
        open_event(job, "response.output_item", ".done", out);
        json_write(out, ",\"output_index\":%d,\"item\":", item);
        return;
    }
    open_event(job, frame == FRAME_TEXT ? text_events[kind] : "response.content_part", ".done", out);
    write_place(job, kind, item, out);
    strbuf_add_text(out, frame == FRAME_PART ? ",\"part\":" : kind == PART_CALL ? ",\"arguments\":\"" : ",\"text\":\"");
}

// Each repeats the whole text.
static bool write_done_events(struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->event < FRAMES; cursor->event++) {
        enum response_frame frame = (enum response_frame)cursor->event;
        if (frame == FRAME_PART && part->kind == PART_CALL)
            continue;
        if (cursor->segment == 0 && answer_is_full(out))
            return false;
        if (cursor->segment == 0)
            open_done_event(job, part->kind, item, frame, out);
        if (!responses_write_frame(job, job->response->part, item, frame, out))
            return false;
        close_event(job, out);
    }
    cursor->event = 0;
    return true;
}

// ---- items --------------------------------------------------------------------------------------------------------

static bool is_ended(const struct job *job) { return job->choices[0].answer.finished || job->released; }

// Goes on with one part. False: there is more to write, or nothing more that can be written now (*waits): blank text
// waits for what comes behind it.
static bool stream_part(struct job *job, struct answer_part *part, bool last, bool *waits, struct strbuf *out)
{
    struct response *response = job->response;
    bool complete = !last || is_ended(job), shown = !parts_is_filler(&job->choices[0], part);
    if (!part->begun && parts_is_blank(part) && !complete)
        return *waits = true, false;
    if (!part->begun && shown) {
        int first = response->part ? job->choices[0].parts[response->part - 1].token_end : 0;
        response->logged = first > response->logged ? first : response->logged;
        add_item(job, part, response->items, out);
        part->begun = true;
    }
    if (shown && !write_deltas(job, part, response->items, out))
        return false;
    if (!complete)
        return *waits = true, false;
    if (shown && !write_done_events(job, part, response->items, out))
        return false;
    response->items += shown;
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
        if (answer_is_full(out) || !stream_part(job, part, response->part == choice->part_count - 1, waits, out))
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
    if (answer_is_full(out))
        return false;
    if (!job->cursor.step && !job->cursor.at) {
        open_event(job, name, "", out);
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
