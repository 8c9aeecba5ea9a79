// SPDX-License-Identifier: Apache-2.0
// server/answer_infill.c: response bodies of llama-server's /infill: one object, or in a stream an event for each new
// text and a last one with the figures.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/kind.h"

static struct bytes text_of(struct choice *choice)
{
    return choice->part_count ? strbuf_bytes(&choice->parts[0].text) : (struct bytes){ 0 };
}

static void write_opening(struct strbuf *out) { strbuf_add_text(out, "{\"index\":0,\"content\":\""); }

static void write_figures(const struct choice *choice, bool stop, struct strbuf *out)
{
    strbuf_add_format(out,
                      "\",\"tokens\":[],\"id_slot\":0,\"stop\":%s,\"tokens_predicted\":%d,"
                      "\"tokens_evaluated\":%zu",
                      stop ? "true" : "false", choice->generated, choice->prompt->count);
}

// How it ended, in llama-server's words.
static void write_end(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    const struct job *job = choice->job;
    bool word = answer->stop_string >= 0, limit = answer->reason == NIBBLE_FINISH_LENGTH;
    write_figures(choice, true, out);
    strbuf_add_text(out, ",\"model\":");
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_format(out, ",\"stop_type\":\"%s\",\"stopping_word\":", limit ? "limit" : word ? "word" : "eos");
    json_write_text(out, word ? job->params.stops[answer->stop_string] : (struct bytes){ 0 });
    strbuf_add_format(out, ",\"truncated\":false,\"tokens_cached\":%d}", answer->usage.cached_tokens);
}

bool infill_whole(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    struct answer_cursor *cursor = &job->cursor;
    struct bytes all = text_of(choice), rest = { all.data + cursor->at, all.len - cursor->at };
    if (!cursor->at)
        write_opening(out);
    size_t length = rest.len ? json_text_cut(rest, ANSWER_SLICE_BYTES) : 0;
    json_write_text_inside(out, (struct bytes){ rest.data, length });
    cursor->at += length;
    if (cursor->at < all.len)
        return false;
    write_end(choice, out);
    return true;
}

static void begin_event(struct strbuf *out)
{
    strbuf_add_text(out, "data: ");
    write_opening(out);
}

bool infill_stream(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    struct bytes fresh = text_of(choice);
    if (fresh.len) {
        begin_event(out);
        json_write_text_inside(out, fresh);
        choice->parts[0].text.len = 0;
        write_figures(choice, false, out);
        strbuf_add_text(out, "}\n\n");
    }
    if (job->released && job->error.status) {
        openai_stream_error(&job->error, out);
    } else if (job->released) {
        begin_event(out);
        write_end(choice, out);
        strbuf_add_text(out, "\n\n");
    }
    return true;
}
