// SPDX-License-Identifier: Apache-2.0
// server/responses_write.c: the response object and its output items, in slices.
#include <stdlib.h>

#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"
#include "server/responses.h"

static const char *const id_prefixes[] = {
    [PART_REASONING] = "rs_",
    [PART_CONTENT] = "msg_",
    [PART_CALL] = "fc_",
};

static const char *digits_of(const struct job *job) { return strchr(job->id, '_') + 1; }

void responses_write_item_id(const struct job *job, enum part_kind kind, int item, struct strbuf *out)
{
    strbuf_add_format(out, "\"%s%s_%d\"", id_prefixes[kind], digits_of(job), item);
}

// ---- which items there are ----------------------------------------------------------------------------------------

static bool is_blank(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!strchr(" \t\r\n", text.data[i]) || !text.data[i])
            return false;
    return true;
}

bool responses_shows(const struct choice *choice, int part)
{
    return choice->part_count == 1 || choice->parts[part].kind != PART_CONTENT || choice->parts[part].begun
        || !is_blank(strbuf_bytes(&choice->parts[part].text));
}

enum response_status responses_final_status(const struct job *job)
{
    const struct output *answer = &job->choices[0].answer;
    if (job->error.status || (answer->finished && answer->reason == NIBBLE_FINISH_FAILED))
        return RESPONSE_FAILED;
    if (!answer->finished || answer->reason == NIBBLE_FINISH_CANCELLED)
        return RESPONSE_CANCELLED;
    return answer->reason == NIBBLE_FINISH_LENGTH ? RESPONSE_INCOMPLETE : RESPONSE_COMPLETED;
}

// Where an answer was cut, its last item is not complete.
static const char *item_status(const struct job *job, const struct answer_part *part)
{
    const struct choice *choice = &job->choices[0];
    bool last = part == &choice->parts[choice->part_count - 1];
    return response_status_words[last && responses_final_status(job) != RESPONSE_COMPLETED ? RESPONSE_INCOMPLETE
                                                                                           : RESPONSE_COMPLETED];
}

// ---- items --------------------------------------------------------------------------------------------------------

static void open_reasoning(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    strbuf_add_text(out, "{\"id\":");
    responses_write_item_id(job, part->kind, item, out);
    strbuf_add_format(out,
                      ",\"type\":\"reasoning\",\"status\":\"%s\",\"summary\":[],\"content\":[{\"type\":"
                      "\"reasoning_text\",\"text\":\"",
                      item_status(job, part));
}

static void open_message(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    strbuf_add_text(out, "{\"id\":");
    responses_write_item_id(job, part->kind, item, out);
    strbuf_add_format(out,
                      ",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[{\"type\":"
                      "\"output_text\",\"annotations\":[],\"text\":\"",
                      item_status(job, part));
}

static void open_call(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    strbuf_add_text(out, "{\"id\":");
    responses_write_item_id(job, part->kind, item, out);
    strbuf_add_format(out, ",\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":", item_status(job, part));
    json_write_text(out, bytes_of(part->id));
    strbuf_add_text(out, ",\"name\":");
    json_write_text(out, strbuf_bytes(&part->name));
    strbuf_add_text(out, ",\"arguments\":\"");
}

const struct response_frame responses_items[] = {
    [PART_REASONING] = { open_reasoning, false, "\"}]}" },
    [PART_CONTENT] = { open_message, true, "}]}" },
    [PART_CALL] = { open_call, false, "\"}" },
};

// ---- frames -------------------------------------------------------------------------------------------------------

static bool write_text(struct response_cursor *cursor, const struct answer_part *part, struct strbuf *out)
{
    struct bytes rest = bytes_from(strbuf_bytes(&part->text), cursor->at);
    if (rest.len) {
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        json_write_text_inside(out, (struct bytes){ rest.data, length });
        cursor->at += length;
    }
    return cursor->at == part->text.len;
}

static bool write_logprobs(struct job *job, int part, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    struct response_cursor *cursor = &job->response->cursor;
    int count, first = part ? choice->parts[part - 1].token_end : 0, end = choice->parts[part].token_end;
    const struct answer_list *list = answer_lists(job, &count);
    if (!cursor->at)
        strbuf_add_text(out, "\",\"logprobs\":[");
    for (; count && first + (int)cursor->at < end; cursor->at++) {
        if (out->len >= ANSWER_SLICE_BYTES && cursor->at)
            return false;
        answer_write_entry(list, choice, first + (int)cursor->at, cursor->at == 0, out);
    }
    strbuf_add_byte(out, ']');
    return true;
}

bool responses_write_frame(struct job *job, int part, int item, const struct response_frame *frame, struct strbuf *out)
{
    enum { OPEN, TEXT, LOGPROBS, CLOSE, SEGMENTS };
    struct response_cursor *cursor = &job->response->cursor;
    const struct answer_part *own = &job->choices[0].parts[part];
    while (cursor->segment < SEGMENTS) {
        bool complete = true;
        if (out->len >= ANSWER_SLICE_BYTES && cursor->segment != OPEN) // its beginning is the caller's
            return false;
        switch (cursor->segment) {
        case OPEN: frame->open(job, own, item, out); break;
        case TEXT: complete = write_text(cursor, own, out); break;
        case LOGPROBS: complete = !frame->logprobs || write_logprobs(job, part, out); break;
        case CLOSE: strbuf_add_text(out, frame->close); break;
        }
        if (!complete)
            continue;
        cursor->segment++;
        cursor->at = 0;
    }
    cursor->segment = 0;
    return true;
}

// ---- the object ---------------------------------------------------------------------------------------------------

static bool write_head(struct job *job, bool final, struct strbuf *out)
{
    (void) final;
    const struct response_record *record = job->response->record;
    strbuf_add_format(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"store\":%s", record->id,
                      (long long)record->created, job->response->stored ? "true" : "false");
    return true;
}

static bool write_echo(struct job *job, bool final, struct strbuf *out)
{
    (void) final;
    struct response_cursor *cursor = &job->response->cursor;
    struct bytes rest = bytes_from(strbuf_bytes(&job->response->record->echo), cursor->at);
    size_t length = rest.len < ANSWER_SLICE_BYTES ? rest.len : ANSWER_SLICE_BYTES;
    strbuf_add(out, rest.data, length);
    cursor->at += length;
    return length == rest.len;
}

static bool write_items(struct job *job, struct strbuf *out)
{
    const struct choice *choice = &job->choices[0];
    struct response_cursor *cursor = &job->response->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        if (!responses_shows(choice, cursor->part))
            continue;
        if (cursor->segment == 0 && out->len >= ANSWER_SLICE_BYTES)
            return false;
        if (cursor->written && cursor->segment == 0)
            strbuf_add_byte(out, ',');
        if (!responses_write_frame(job, cursor->part, (int)cursor->written,
                                   &responses_items[choice->parts[cursor->part].kind], out))
            return false;
        cursor->written++;
    }
    return true;
}

// The list of items, which the record keeps as it is written.
static bool write_output(struct job *job, bool final, struct strbuf *out)
{
    struct response *response = job->response;
    struct response_record *record = response->record;
    struct response_cursor *cursor = &response->cursor;
    strbuf_add_text(out, cursor->listing ? "" : ",\"output\":");
    size_t begin = out->len;
    strbuf_add_text(out, cursor->listing ? "" : "[");
    cursor->listing = true;
    bool complete = !final || write_items(job, out);
    if (complete)
        strbuf_add_byte(out, ']');
    if (final && response->stored && !response_store_grow(record, out->len - begin))
        response->stored = false;
    if (final && response->stored)
        strbuf_add(&record->output, out->data + begin, out->len - begin);
    return complete;
}

static void write_usage(const struct job *job, struct strbuf *out)
{
    const struct choice *choice = &job->choices[0];
    long long in = (long long)choice->prompt->count, generated = choice->generated;
    strbuf_add_format(out,
                      ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,"
                      "\"cache_write_tokens\":0},\"output_tokens\":%lld,\"output_tokens_details\":{"
                      "\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
                      in, (long long)choice->answer.usage.cached_tokens, generated, (long long)choice->reasoning_tokens,
                      in + generated);
}

static void write_error(const struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, ",\"error\":{\"code\":\"server_error\",\"message\":");
    json_write_text(out, bytes_of(job->error.status ? job->error.text : "the answer could not be computed"));
    strbuf_add_byte(out, '}');
}

static void write_end_members(const struct job *job, bool final, struct strbuf *out)
{
    enum response_status status = final ? responses_final_status(job) : RESPONSE_IN_PROGRESS;
    strbuf_add_format(out, ",\"status\":\"%s\"", response_status_words[status]);
    if (status == RESPONSE_FAILED)
        write_error(job, out);
    else
        strbuf_add_text(out, ",\"error\":null");
    strbuf_add_text(out, ",\"incomplete_details\":");
    strbuf_add_text(out, status == RESPONSE_INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (status == RESPONSE_COMPLETED)
        strbuf_add_format(out, ",\"completed_at\":%lld", (long long)time(NULL));
    if (final)
        write_usage(job, out);
    else
        strbuf_add_text(out, ",\"usage\":null");
}

// The record is complete before the client has the end of its answer, and may ask for the response by its id.
static bool write_end(struct job *job, bool final, struct strbuf *out)
{
    struct response *response = job->response;
    struct response_record *record = response->record;
    size_t begin = out->len;
    write_end_members(job, final, out);
    if (final && response->stored && response_store_grow(record, out->len - begin)) {
        strbuf_add(&record->end, out->data + begin, out->len - begin);
        atomic_store(&record->status, responses_final_status(job));
    }
    strbuf_add_byte(out, '}');
    return true;
}

bool responses_write_object(struct job *job, bool final, struct strbuf *out)
{
    static bool (*const segments[])(struct job *, bool, struct strbuf *) = { write_head, write_echo, write_output,
                                                                             write_end };
    struct response_cursor *cursor = &job->response->cursor;
    while (cursor->object < (int)(sizeof segments / sizeof *segments)) {
        if (out->len >= ANSWER_SLICE_BYTES && cursor->object) // its beginning is the caller's
            return false;
        if (!segments[cursor->object](job, final, out))
            continue;
        cursor->object++;
        cursor->at = 0;
    }
    *cursor = (struct response_cursor){ 0 };
    return true;
}

void responses_add_empty(struct job *job)
{
    if (!job->choices[0].part_count && responses_final_status(job) != RESPONSE_FAILED)
        parts_add_empty(&job->choices[0]);
}

bool responses_whole(struct job *job, struct strbuf *out)
{
    responses_add_empty(job);
    return responses_write_object(job, true, out);
}

void response_free(struct job *job)
{
    struct response *response = job->response;
    if (!response)
        return;
    if (atomic_load(&response->record->status) == RESPONSE_IN_PROGRESS)
        response_store_remove(response->record); // there is nothing to look up
    response_record_release(response->record);
    free(response);
    job->response = NULL;
}
