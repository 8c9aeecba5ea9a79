// SPDX-License-Identifier: Apache-2.0
// server/responses_write.c: the response object and its output items, in slices.
#include <stdlib.h>

#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"
#include "server/responses.h"

static const struct field_name responses_field_names[] = {
    { "messages", "input" },
    { "max_tokens", "max_output_tokens" },
    { "response_format", "text" },
    { "reasoning_effort", "reasoning" },
    { 0 },
};

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

// ---- what the object repeats of its request -----------------------------------------------------------------------

enum echo_rule { ECHO_AS_IT_IS, ECHO_TEXT }; // ECHO_TEXT: only a string

// Values as they came, or as JSON text where there are none.
static const struct {
    const char *name;
    enum echo_rule rule;
    const char *otherwise;
} echoes[] = {
    { "instructions", ECHO_AS_IT_IS, "null" },
    { "max_output_tokens", ECHO_AS_IT_IS, "null" },
    { "max_tool_calls", ECHO_AS_IT_IS, "null" },
    { "metadata", ECHO_AS_IT_IS, "{}" },
    { "parallel_tool_calls", ECHO_AS_IT_IS, "true" },
    { "previous_response_id", ECHO_AS_IT_IS, "null" },
    { "prompt_cache_key", ECHO_TEXT, "null" },
    { "safety_identifier", ECHO_TEXT, "null" },
    { "tool_choice", ECHO_AS_IT_IS, "\"auto\"" },
    { "tools", ECHO_AS_IT_IS, "[]" },
    { "top_logprobs", ECHO_AS_IT_IS, "0" },
    { "truncation", ECHO_AS_IT_IS, "\"disabled\"" },
    { "user", ECHO_TEXT, "null" },
};

static void add_echo(const json_t *value, enum echo_rule rule, const char *otherwise, struct strbuf *out)
{
    if (!value || json_is_null(value) || (rule == ECHO_TEXT && !json_is_string(value)))
        strbuf_add_text(out, otherwise);
    else
        api_dump(value, out);
}

static void add_number(const json_t *value, const char *name, double otherwise, struct strbuf *out)
{
    enum { FLOAT_DIGITS = 7 };
    double number = json_is_number(value) ? json_number_value(value) : otherwise;
    strbuf_add_format(out, ",\"%s\":%.*g", name, FLOAT_DIGITS, number);
}

static void add_text(const json_t *text, struct strbuf *out)
{
    strbuf_add_text(out, ",\"text\":{\"format\":");
    add_echo(json_object_get(text, "format"), ECHO_AS_IT_IS, "{\"type\":\"text\"}", out);
    strbuf_add_text(out, ",\"verbosity\":\"medium\"}");
}

static void add_reasoning(const json_t *reasoning, struct strbuf *out)
{
    strbuf_add_text(out, ",\"reasoning\":{\"effort\":");
    add_echo(json_object_get(reasoning, "effort"), ECHO_TEXT, "null", out);
    strbuf_add_text(out, ",\"summary\":null}");
}

void responses_write_echo(struct job *job)
{
    const json_t *body = job->json;
    struct strbuf *out = &job->response->record->echo;
    strbuf_add_text(out, ",\"model\":");
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_text(out, ",\"background\":false,\"service_tier\":\"default\"");
    for (size_t i = 0; i < sizeof echoes / sizeof *echoes; i++) {
        strbuf_add_format(out, ",\"%s\":", echoes[i].name);
        add_echo(json_object_get(body, echoes[i].name), echoes[i].rule, echoes[i].otherwise, out);
    }
    add_number(json_object_get(body, "temperature"), "temperature", (double)job->api->defaults.temperature, out);
    add_number(json_object_get(body, "top_p"), "top_p", (double)job->api->defaults.top_p, out);
    add_text(json_object_get(body, "text"), out);
    add_reasoning(json_object_get(body, "reasoning"), out);
}

// ---- items --------------------------------------------------------------------------------------------------------

enum response_status responses_final_status(const struct job *job)
{
    const struct output *answer = &job->choices[0].answer;
    if (job->error.status || (answer->finished && answer->reason == NIBBLE_FINISH_FAILED))
        return RESPONSE_FAILED;
    if (!answer->finished || answer->reason == NIBBLE_FINISH_CANCELLED)
        return RESPONSE_CANCELLED;
    return answer->reason == NIBBLE_FINISH_LENGTH ? RESPONSE_INCOMPLETE : RESPONSE_COMPLETED;
}

// Members that stand before the text: in an item, and in its content.
static const struct {
    const char *item, *content;
} openings[] = {
    [PART_REASONING] = { "\"summary\":[],\"content\":[", "{\"type\":\"reasoning_text\",\"text\":\"" },
    [PART_CONTENT] = { "\"role\":\"assistant\",\"content\":[",
                       "{\"type\":\"output_text\",\"annotations\":[],\"text\":\"" },
};
static const char *const item_types[] = {
    [PART_REASONING] = "reasoning",
    [PART_CONTENT] = "message",
    [PART_CALL] = "function_call",
};

static void open_item(const struct job *job, const struct answer_part *part, int item, const char *status,
                      struct strbuf *out)
{
    strbuf_add_text(out, "{\"id\":");
    responses_write_item_id(job, part->kind, item, out);
    json_write(out, ",\"type\":\"%s\",\"status\":\"%s\",", item_types[part->kind], status);
    if (part->kind == PART_CALL)
        json_write(out, "\"call_id\":%q,\"name\":%b,\"arguments\":\"", part->id, strbuf_bytes(&part->name));
    else
        strbuf_add_text(out, openings[part->kind].item);
}

void responses_begin_item(const struct job *job, const struct answer_part *part, int item, struct strbuf *out)
{
    open_item(job, part, item, "in_progress", out);
    strbuf_add_text(out, part->kind == PART_CALL ? "\"}" : "]}");
}

// Where an answer was cut, its last item is not complete.
static void open_frame(const struct job *job, const struct answer_part *part, int item, enum response_frame frame,
                       struct strbuf *out)
{
    const struct choice *choice = &job->choices[0];
    bool cut = part == &choice->parts[choice->part_count - 1] && responses_final_status(job) != RESPONSE_COMPLETED;
    if (frame == FRAME_ITEM)
        open_item(job, part, item, response_status_words[cut ? RESPONSE_INCOMPLETE : RESPONSE_COMPLETED], out);
    if (frame != FRAME_TEXT && part->kind != PART_CALL)
        strbuf_add_text(out, openings[part->kind].content);
}

static void close_frame(enum part_kind kind, enum response_frame frame, struct strbuf *out)
{
    static const char *const closings[] = { [FRAME_TEXT] = "", [FRAME_PART] = "}", [FRAME_ITEM] = "}]}" };
    strbuf_add_text(out, kind == PART_CALL && frame == FRAME_ITEM ? "}" : closings[frame]);
}

void responses_add_part(enum part_kind kind, struct strbuf *out)
{
    strbuf_add_text(out, openings[kind].content);
    strbuf_add_text(out, kind == PART_CONTENT ? "\",\"logprobs\":[]" : "\"");
    close_frame(kind, FRAME_PART, out);
}

// Ends a text, of content with its logprobs.
static bool write_text_end(struct job *job, int part, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    int count, first = part ? choice->parts[part - 1].token_end : 0;
    struct answer_list list = answer_lists(job, &count)[0];
    list.open = "\",\"logprobs\":[";
    if (choice->parts[part].kind == PART_CONTENT)
        return answer_write_list(&list, choice, first, count ? choice->parts[part].token_end : first, out);
    strbuf_add_byte(out, '"');
    return true;
}

bool responses_write_frame(struct job *job, int part, int item, enum response_frame frame, struct strbuf *out)
{
    enum { OPEN, TEXT, TEXT_END, CLOSE, SEGMENTS };
    struct answer_cursor *cursor = &job->cursor;
    const struct answer_part *own = &job->choices[0].parts[part];
    for (; cursor->segment < SEGMENTS; cursor->segment++, cursor->at = 0) {
        bool complete = true;
        if (answer_is_full(out) && cursor->segment != OPEN) // its beginning is the caller's
            return false;
        switch (cursor->segment) {
        case OPEN: open_frame(job, own, item, frame, out); break;
        case TEXT: complete = answer_write_text(strbuf_bytes(&own->text), &cursor->at, out); break;
        case TEXT_END: complete = write_text_end(job, part, out); break;
        case CLOSE: close_frame(own->kind, frame, out); break;
        }
        if (!complete)
            return false;
    }
    cursor->segment = 0;
    return true;
}

// ---- the object ---------------------------------------------------------------------------------------------------

void responses_open_object(const struct response_record *record, bool stored, struct strbuf *out)
{
    json_write(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%l,\"store\":%s", record->id,
               (long long)record->created, stored ? "true" : "false");
}

static bool write_head(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice;
    responses_open_object(job->response->record, job->response->stored, out);
    return true;
}

static bool write_echo(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice;
    struct bytes rest = bytes_from(strbuf_bytes(&job->response->record->echo), job->cursor.at);
    size_t length = rest.len < ANSWER_SLICE_BYTES ? rest.len : ANSWER_SLICE_BYTES;
    strbuf_add(out, rest.data, length);
    job->cursor.at += length;
    return length == rest.len;
}

static bool write_items(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        if (parts_is_filler(choice, &choice->parts[cursor->part]))
            continue;
        if (cursor->segment == 0 && answer_is_full(out))
            return false;
        if (cursor->block && cursor->segment == 0)
            strbuf_add_byte(out, ',');
        if (!responses_write_frame(job, cursor->part, cursor->block, FRAME_ITEM, out))
            return false;
        cursor->block++;
    }
    return true;
}

// The list of items, which the record keeps as it is written.
static bool write_output(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct response *response = job->response;
    struct response_record *record = response->record;
    bool begins = !job->cursor.list++, final = response->final;
    strbuf_add_text(out, begins ? ",\"output\":" : "");
    size_t begin = out->len;
    strbuf_add_text(out, begins ? "[" : "");
    bool complete = !final || write_items(job, choice, out);
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
    int in = (int)choice->prompt->count;
    json_write(out,
               ",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
               "\"cache_write_tokens\":0},\"output_tokens\":%d,\"output_tokens_details\":{"
               "\"reasoning_tokens\":%d},\"total_tokens\":%d}",
               in, choice->answer.usage.cached_tokens, choice->generated, choice->reasoning_tokens,
               in + choice->generated);
}

static void write_error(const struct job *job, struct strbuf *out)
{
    json_write(out, "{\"code\":\"server_error\",\"message\":%q}",
               job->error.status ? job->error.text : "the answer could not be computed");
}

void responses_write_status(enum response_status status, const struct job *failed, struct strbuf *out)
{
    json_write(out, ",\"status\":\"%s\",\"error\":", response_status_words[status]);
    if (failed)
        write_error(failed, out);
    else
        strbuf_add_text(out, "null");
    json_write(out, ",\"incomplete_details\":%s",
               status == RESPONSE_INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : "null");
}

static void write_end_members(const struct job *job, struct strbuf *out)
{
    bool final = job->response->final;
    enum response_status status = final ? responses_final_status(job) : RESPONSE_IN_PROGRESS;
    responses_write_status(status, status == RESPONSE_FAILED ? job : NULL, out);
    if (status == RESPONSE_COMPLETED)
        json_write(out, ",\"completed_at\":%l", (long long)time(NULL));
    if (final)
        write_usage(job, out);
    else
        strbuf_add_text(out, ",\"usage\":null");
}

// The record is complete before the client has the end of its answer, and may ask for the response by its id.
static bool write_end(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice;
    struct response *response = job->response;
    struct response_record *record = response->record;
    size_t begin = out->len;
    write_end_members(job, out);
    if (response->final && response->stored && response_store_grow(record, out->len - begin)) {
        strbuf_add(&record->end, out->data + begin, out->len - begin);
        atomic_store(&record->status, responses_final_status(job));
    }
    strbuf_add_byte(out, '}');
    return true;
}

void responses_add_empty(struct job *job)
{
    if (!job->choices[0].part_count && responses_final_status(job) != RESPONSE_FAILED)
        parts_add_empty(&job->choices[0]);
}

static bool begin_whole(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice, (void)out;
    responses_add_empty(job);
    job->response->final = true;
    return true;
}

static const answer_step whole_steps[] = { begin_whole, write_head, write_echo, write_output, write_end };

bool responses_write_object(struct job *job, bool final, struct strbuf *out)
{
    enum { STEPS = sizeof whole_steps / sizeof *whole_steps - 1 }; // but for the first
    job->response->final = final;
    if (!answer_write_steps(job, &job->choices[0], whole_steps + 1, STEPS, out))
        return false;
    job->cursor = (struct answer_cursor){ 0 };
    return true;
}

// A stream's last event has the object, also where it fails.
const struct dialect responses_dialect = {
    .stream = responses_stream,
    DIALECT_STEPS(whole_steps),
    .style = API_RESPONSES_EVENT,
    .failure_open = "event: error\ndata: ",
    .failure_close = "\n\n",
    .renamed = responses_field_names,
};

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
