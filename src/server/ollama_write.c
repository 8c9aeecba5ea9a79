// SPDX-License-Identifier: Apache-2.0
// server/ollama_write.c: an answer in Ollama's words: one JSON object, or a line of JSON for each piece of a stream
// (NDJSON), the last of which has the counts and times.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/translate.h"
#include "server/parts.h"

static bool is_chat(const struct job *job) { return job->kind == JOB_OLLAMA_CHAT; }

// The beginning of an answer, up to the text: of the answer itself, or of its message.
static void open_answer(const struct job *job, struct strbuf *out)
{
    char created[API_TIME_BYTES];
    api_format_time(job->created, created);
    json_write(out, "{\"model\":%q,\"created_at\":\"%s\",%s\":\"", job->api->names[0], created,
               is_chat(job) ? "\"message\":{\"role\":\"assistant\",\"content" : "\"response");
}

static void close_text(const struct job *job, struct strbuf *out) { strbuf_add_text(out, is_chat(job) ? "}" : ""); }

static void write_call(struct answer_part *call, bool first, struct strbuf *out)
{
    parts_complete_call(call);
    json_write(out, "%s{\"id\":\"%s\",\"function\":{\"index\":%d,\"name\":%b,\"arguments\":%s}}",
               first ? ",\"tool_calls\":[" : ",", call->id, call->call, strbuf_bytes(&call->name),
               strbuf_text(&call->text));
}

static long long nanoseconds(double from, double to)
{
    static const double per_second = 1e9;
    return from > 0 && to > from ? (long long)((to - from) * per_second) : 0;
}

static void write_end(const struct choice *choice, struct strbuf *out)
{
    const struct nibble_usage *usage = &choice->answer.usage;
    close_text(choice->job, out);
    json_write(out,
               ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%l,\"load_duration\":0,"
               "\"prompt_eval_count\":%z,\"prompt_eval_duration\":%l,\"eval_count\":%d,\"eval_duration\":%l}",
               choice->answer.reason == NIBBLE_FINISH_LENGTH ? "length" : "stop",
               nanoseconds(usage->arrived, usage->finished), choice->prompt->count,
               nanoseconds(usage->admitted, usage->first_token), choice->generated,
               nanoseconds(usage->first_token, usage->finished));
}

void ollama_write_loaded(const struct job *job, struct strbuf *out)
{
    open_answer(job, out);
    strbuf_add_byte(out, '"');
    close_text(job, out);
    strbuf_add_text(out, ",\"done\":true,\"done_reason\":\"load\"}\n");
}

// ---- a whole answer -----------------------------------------------------------------------------------------------

static bool write_opening(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)choice;
    open_answer(job, out);
    return true;
}

static bool write_content(struct job *job, struct choice *choice, struct strbuf *out)
{
    bool all = answer_write_text(parts_join(choice, PART_CONTENT), &job->cursor.at, out);
    strbuf_add_text(out, all ? "\"" : "");
    return all;
}

static bool write_thinking(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct bytes text = parts_join(choice, PART_REASONING);
    if (!text.len)
        return true;
    strbuf_add_text(out, job->cursor.at ? "" : ",\"thinking\":\"");
    bool all = answer_write_text(text, &job->cursor.at, out);
    strbuf_add_text(out, all ? "\"" : "");
    return all;
}

static bool write_calls(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        struct answer_part *part = &choice->parts[cursor->part];
        if (part->kind != PART_CALL)
            continue;
        if (answer_is_full(out))
            return false;
        write_call(part, cursor->block++ == 0, out);
    }
    strbuf_add_text(out, choice->call_count ? "]" : "");
    return true;
}

static bool write_closing(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)job;
    write_end(choice, out);
    return true;
}

static const answer_step steps[] = { write_opening, write_content, write_thinking, write_calls, write_closing };

// ---- a stream -----------------------------------------------------------------------------------------------------

static void close_line(const struct job *job, struct strbuf *out)
{
    close_text(job, out);
    strbuf_add_text(out, ",\"done\":false}\n");
}

static void write_piece(struct job *job, const struct answer_part *part, struct bytes text, struct strbuf *out)
{
    open_answer(job, out);
    strbuf_add_text(out, part->kind == PART_REASONING ? "\",\"thinking\":\"" : "");
    json_write_text_inside(out, text);
    strbuf_add_byte(out, '"');
    close_line(job, out);
}

static void end_part(struct job *job, struct answer_part *part, struct strbuf *out)
{
    if (part->kind != PART_CALL)
        return;
    open_answer(job, out);
    strbuf_add_byte(out, '"');
    write_call(part, true, out);
    strbuf_add_byte(out, ']');
    close_line(job, out);
}

// Arguments are an object, so a call is written when it is complete.
static bool stream(struct job *job, struct strbuf *out)
{
    static const struct part_events events = { .piece = write_piece, .end = end_part, .whole_calls = true };
    return answer_stream_parts(job, &events, out);
}

static void end_stream(const struct job *job, struct strbuf *out)
{
    open_answer(job, out);
    strbuf_add_byte(out, '"');
    write_end(&job->choices[0], out);
    strbuf_add_byte(out, '\n');
}

const struct dialect ollama_dialect = {
    .stream = stream,
    .end = end_stream,
    DIALECT_STEPS(steps),
    .style = API_OLLAMA,
    .failure_open = "",
    .failure_close = "\n",
    .stream_type = "application/x-ndjson",
    .renamed = ollama_field_names,
};
