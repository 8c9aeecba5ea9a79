// SPDX-License-Identifier: Apache-2.0
#include "server/answer.h"

#include "server/json_writer.h"
#include "server/parts.h"

// ---- slices -------------------------------------------------------------------------------------------------------

bool answer_write_text(struct bytes all, size_t *at, struct strbuf *out)
{
    struct bytes rest = bytes_from(all, *at);
    size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
    json_write_text_inside(out, (struct bytes){ rest.data, length });
    *at += length;
    return length == rest.len;
}

bool answer_write_steps(struct job *job, struct choice *choice, const answer_step *steps, int count, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    while (cursor->step < count) {
        if (answer_is_full(out) && cursor->step) // its beginning is the caller's
            return false;
        if (!steps[cursor->step](job, choice, out))
            continue;
        cursor->step++;
        cursor->at = 0;
        cursor->list = 0;
    }
    return true;
}

static void write_entry(const struct answer_list *list, struct choice *choice, int index, bool first,
                        struct strbuf *out)
{
    if (list->of_text && choice->answer.tokens[index].stop)
        return;
    strbuf_add_text(out, first ? "" : ",");
    list->write(choice, index, out);
}

bool answer_write_list(const struct answer_list *list, struct choice *choice, int from, int to, struct strbuf *out)
{
    struct answer_cursor *cursor = &choice->job->cursor;
    strbuf_add_text(out, cursor->at ? "" : list->open);
    for (; from + (int)cursor->at < to; cursor->at++) {
        if (answer_is_full(out) && cursor->at)
            return false;
        write_entry(list, choice, from + (int)cursor->at, cursor->at == 0, out);
    }
    strbuf_add_text(out, list->close);
    return true;
}

void answer_write_entries(const struct answer_list *list, struct choice *choice, int from, int to, struct strbuf *out)
{
    strbuf_add_text(out, list->open);
    for (int i = from; i < to; i++)
        write_entry(list, choice, i, i == from, out);
    strbuf_add_text(out, list->close);
}

// Writes what is new of a part, and drops it. False: the slice is full.
static bool stream_text(struct job *job, struct answer_part *part, const struct part_events *events, struct strbuf *out)
{
    while (part->sent < part->text.len) {
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        if (answer_is_full(out))
            return false;
        events->piece(job, part, (struct bytes){ rest.data, length }, out);
        part->sent += length;
    }
    part->sent = part->text.len = 0;
    return true;
}

bool answer_stream_parts(struct job *job, const struct part_events *events, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->part < choice->part_count; cursor->part++) {
        struct answer_part *part = &choice->parts[cursor->part];
        bool complete = cursor->part + 1 < choice->part_count || choice->answer.finished;
        if (events->no_filler && !part->begun && parts_is_blank(part) && !complete)
            return true; // until it is known whether something comes of it
        if (events->no_filler && parts_is_filler(choice, part))
            continue;
        if (answer_is_full(out))
            return false;
        if (!part->begun && events->begin)
            events->begin(job, part, out);
        part->begun = true;
        if (!(events->whole_calls && part->kind == PART_CALL) && !stream_text(job, part, events, out))
            return false;
        if (!complete)
            return true;
        if (events->end)
            events->end(job, part, out);
        cursor->block++;
    }
    return true;
}

// ---- in the words of an API ---------------------------------------------------------------------------------------

bool answer_stream(struct job *job, struct strbuf *out)
{
    const struct dialect *dialect = kind_of(job)->dialect;
    if (!dialect->stream(job, out))
        return false;
    if (job->released && dialect->end && job->error.status)
        answer_write_failure(job, &job->error, out);
    else if (job->released && dialect->end)
        dialect->end(job, out);
    return true;
}

bool answer_whole(struct job *job, struct strbuf *out)
{
    const struct dialect *dialect = kind_of(job)->dialect;
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->choice < job->choice_count; cursor->choice++, cursor->step = 0)
        if (!answer_write_steps(job, &job->choices[cursor->choice], dialect->whole, dialect->whole_steps, out))
            return false;
    return true;
}

void answer_write_failure(const struct job *job, const struct api_error *err, struct strbuf *out)
{
    const struct dialect *dialect = kind_of(job)->dialect;
    json_t *error = api_error_json(err, dialect->style);
    strbuf_add_text(out, dialect->failure_open);
    api_dump(error, out);
    strbuf_add_text(out, dialect->failure_close);
    json_decref(error);
}

// ---- taking in ----------------------------------------------------------------------------------------------------

// The prompt as the beginning of a completion's text.
static void add_echo(struct choice *choice)
{
    const struct prompt *prompt = choice->prompt;
    struct strbuf text = { 0 };
    struct detokenizer detokenizer = { .tokenizer = choice->job->api->tokenizer };
    strbuf_add(&text, prompt->text.data, prompt->text.len);
    for (size_t i = 0; i < prompt->count && !prompt->text.data; i++)
        detokenizer_add(&detokenizer, prompt->ids[i], &text);
    detokenizer_finish(&detokenizer, &text);
    parts_add_content(choice, strbuf_bytes(&text));
    strbuf_free(&text);
}

static void take_text(struct choice *choice)
{
    if (kind_is_chat(choice->job)) {
        parts_take(choice);
        return;
    }
    if (choice->job->params.echo && !choice->begun)
        add_echo(choice);
    choice->begun = true;
    parts_add_content(choice, strbuf_bytes(&choice->delivered.text));
}

// Notes which kept tokens came with which part: those that come at once with several count as the last one's.
static void mark_tokens(struct choice *choice, int before)
{
    int last = choice->part_count - 1;
    for (int i = last; i >= 0 && choice->parts[i].token_end < before; i--)
        choice->parts[i].token_end = before;
    if (last >= 0)
        choice->parts[last].token_end = choice->answer.token_count;
}

// The text is content by now, and tokens are needed only where an answer lists them.
static void take_tokens(struct choice *choice)
{
    const struct request_params *params = &choice->job->params;
    struct output *delivered = &choice->delivered;
    choice->generated += delivered->token_count - delivered->prompt_tokens + delivered->discarded_tokens;
    choice->reasoning_tokens += delivered->reasoning_tokens;
    delivered->text.len = 0;
    delivered->run_count = 0;
    if (params->request.top_logprobs < 0 && !params->return_token_ids)
        delivered->token_count = delivered->top_count = delivered->prompt_tokens = 0;
    int before = choice->answer.token_count;
    output_move(delivered, &choice->answer);
    mark_tokens(choice, before);
}

void answer_take(struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        take_text(&job->choices[i]);
        take_tokens(&job->choices[i]);
    }
}
