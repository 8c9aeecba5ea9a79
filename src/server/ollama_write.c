// SPDX-License-Identifier: Apache-2.0
// server/ollama_write.c: an answer in Ollama's words: one JSON object, or a line of JSON for each piece of a stream
// (NDJSON), the last of which has the counts and times.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/ollama.h"
#include "server/parts.h"

bool ollama_is_chat(const struct job *job) { return job->kind == JOB_OLLAMA_CHAT; }

void ollama_open_answer(const struct job *job, struct strbuf *out)
{
    struct tm when;
    char text[32];
    gmtime_r(&job->created, &when);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &when);
    strbuf_add_text(out, "{\"model\":");
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_format(out, ",\"created_at\":\"%s\"", text);
}

// ---- parts that both have -----------------------------------------------------------------------------------------

// The members that have the text and the thought: of the answer itself, or of its message.
static void open_text(const struct job *job, struct strbuf *out)
{
    strbuf_add_text(out,
                    ollama_is_chat(job) ? ",\"message\":{\"role\":\"assistant\",\"content\":\"" : ",\"response\":\"");
}

static void write_call(struct answer_part *call, bool first, struct strbuf *out)
{
    strbuf_add_text(out, first ? ",\"tool_calls\":[" : ",");
    strbuf_add_format(out, "{\"id\":\"%s\",\"function\":{\"index\":%d,\"name\":", call->id, call->call);
    json_write_text(out, strbuf_bytes(&call->name));
    strbuf_add_text(out, ",\"arguments\":");
    parts_complete_call(call);
    strbuf_add(out, call->text.data, call->text.len);
    strbuf_add_text(out, "}}");
}

static long long nanoseconds(double from, double to)
{
    static const double per_second = 1e9;
    return from > 0 && to > from ? (long long)((to - from) * per_second) : 0;
}

static void write_end(const struct choice *choice, struct strbuf *out)
{
    const struct nibble_usage *usage = &choice->answer.usage;
    strbuf_add_format(out,
                      ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":0,"
                      "\"prompt_eval_count\":%zu,\"prompt_eval_duration\":%lld,\"eval_count\":%d,"
                      "\"eval_duration\":%lld}",
                      choice->answer.reason == NIBBLE_FINISH_LENGTH ? "length" : "stop",
                      nanoseconds(usage->arrived, usage->finished), choice->prompt->count,
                      nanoseconds(usage->admitted, usage->first_token), choice->generated,
                      nanoseconds(usage->first_token, usage->finished));
}

// ---- a whole answer -----------------------------------------------------------------------------------------------

// The next slice of the text of one kind. True: that was all of it.
static bool write_joined(struct job *job, enum part_kind kind, struct strbuf *out)
{
    struct bytes all = parts_join(&job->choices[0], kind);
    size_t left = all.len - job->cursor.at;
    if (!left)
        return true;
    struct bytes rest = bytes_from(all, job->cursor.at);
    size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
    json_write_text_inside(out, (struct bytes){ rest.data, length });
    job->cursor.at += length;
    return length == left;
}

static bool write_opening(struct job *job, struct strbuf *out)
{
    ollama_open_answer(job, out);
    open_text(job, out);
    return true;
}

static bool write_content(struct job *job, struct strbuf *out)
{
    bool all = write_joined(job, PART_CONTENT, out);
    strbuf_add_text(out, all ? "\"" : "");
    return all;
}

static bool write_thinking(struct job *job, struct strbuf *out)
{
    if (!parts_join(&job->choices[0], PART_REASONING).len)
        return true;
    strbuf_add_text(out, job->cursor.at ? "" : ",\"thinking\":\"");
    bool all = write_joined(job, PART_REASONING, out);
    strbuf_add_text(out, all ? "\"" : "");
    return all;
}

// The cursor's `at` counts parts here.
static bool write_calls(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    for (; job->cursor.at < (size_t)choice->part_count; job->cursor.at++) {
        struct answer_part *part = &choice->parts[job->cursor.at];
        if (part->kind != PART_CALL)
            continue;
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        write_call(part, job->cursor.block++ == 0, out);
    }
    strbuf_add_text(out, choice->call_count ? "]" : "");
    return true;
}

static bool write_closing(struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, ollama_is_chat(job) ? "}" : "");
    write_end(&job->choices[0], out);
    return true;
}

bool ollama_whole(struct job *job, struct strbuf *out)
{
    static bool (*const steps[])(struct job *job, struct strbuf *out) = { write_opening, write_content, write_thinking,
                                                                          write_calls, write_closing };
    struct answer_cursor *cursor = &job->cursor;
    while (cursor->part < (int)(sizeof steps / sizeof *steps)) {
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        if (!steps[cursor->part](job, out))
            continue;
        cursor->part++;
        cursor->at = 0;
    }
    return true;
}

// ---- a stream -----------------------------------------------------------------------------------------------------

static void open_line(const struct job *job, struct strbuf *out)
{
    ollama_open_answer(job, out);
    open_text(job, out);
}

static void close_line(const struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, ollama_is_chat(job) ? "},\"done\":false}\n" : ",\"done\":false}\n");
}

// Writes new text of a part, and drops it. False: the slice is full.
static bool write_lines(const struct job *job, struct answer_part *part, struct strbuf *out)
{
    while (part->sent < part->text.len) {
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        struct bytes text = { rest.data, json_text_cut(rest, ANSWER_SLICE_BYTES) };
        open_line(job, out);
        strbuf_add_text(out, part->kind == PART_REASONING ? "\",\"thinking\":\"" : "");
        json_write_text_inside(out, text);
        strbuf_add_byte(out, '"');
        close_line(job, out);
        part->sent += text.len;
    }
    part->sent = part->text.len = 0;
    return true;
}

// Arguments are an object, so a call is written when it is complete.
static bool stream_parts(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        struct answer_part *part = &choice->parts[cursor->part];
        bool complete = cursor->part + 1 < choice->part_count || choice->answer.finished;
        if (part->kind != PART_CALL && !write_lines(job, part, out))
            return false;
        if (!complete)
            return true;
        if (part->kind != PART_CALL)
            continue;
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        open_line(job, out);
        strbuf_add_byte(out, '"');
        write_call(part, true, out);
        strbuf_add_byte(out, ']');
        close_line(job, out);
    }
    return true;
}

bool ollama_stream(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    if (!stream_parts(job, choice, out))
        return false;
    if (!job->released)
        return true;
    if (job->error.status) {
        ollama_stream_error(&job->error, out);
        return true;
    }
    open_line(job, out);
    strbuf_add_text(out, ollama_is_chat(job) ? "\"}" : "\"");
    write_end(choice, out);
    strbuf_add_byte(out, '\n');
    return true;
}

void ollama_stream_error(const struct api_error *err, struct strbuf *out)
{
    json_t *error = api_error_json(err, API_OLLAMA);
    api_dump(error, out);
    strbuf_add_byte(out, '\n');
    json_decref(error);
}
