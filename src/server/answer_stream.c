// SPDX-License-Identifier: Apache-2.0
// server/answer_stream.c: server-sent events (SSE): a chunk for the new output of each choice, and the end of the
// stream.
#include "server/answer.h"
#include "server/json_writer.h"

// Limits a chunk: a slow client, or an echoed prompt with logprobs, would otherwise get thousands of tokens in one.
enum { CHUNK_TOKENS_MAX = 64 };

static void open_event(const struct job *job, struct strbuf *out)
{
    strbuf_add_text(out, "data: ");
    answer_open(job, true, out);
}

static void close_event(struct strbuf *out) { strbuf_add_text(out, "}\n\n"); }

// ---- chunks -------------------------------------------------------------------------------------------------------

// Writes a chunk up to its content.
static void open_chunk(const struct choice *choice, struct strbuf *out)
{
    open_event(choice->job, out);
    strbuf_add_format(out, "{\"index\":%d,\"%s\":", choice->index, kind_is_chat(choice->job) ? "delta" : "text");
}

static void close_chunk(const struct choice *choice, struct strbuf *out)
{
    const struct request_params *params = &choice->job->params;
    strbuf_add_text(out, "}]");
    if (params->continuous_usage)
        answer_write_usage(choice->job, out);
    else if (params->include_usage)
        strbuf_add_text(out, ",\"usage\":null");
    close_event(out);
}

// Writes a chunk of `content` without tokens: the first and the last of a choice.
static void add_bare_chunk(const struct choice *choice, const char *content, bool finished, struct strbuf *out)
{
    open_chunk(choice, out);
    strbuf_add_format(out, "%s,\"logprobs\":null", content);
    answer_write_finish(choice, finished, out);
    close_chunk(choice, out);
}

static void write_logprobs(struct choice *choice, int from, int to, struct strbuf *out)
{
    int count;
    const struct answer_list *lists = answer_lists(choice->job, &count);
    strbuf_add_text(out, count ? ",\"logprobs\":{" : ",\"logprobs\":null");
    for (int i = 0; i < count; i++)
        answer_write_entries(&lists[i], choice, from, to, out);
    strbuf_add_text(out, count ? "}" : "");
}

static void write_ids(struct choice *choice, int from, int to, struct strbuf *out)
{
    int first = from > choice->answer.prompt_tokens ? from : choice->answer.prompt_tokens;
    if (choice->job->params.return_token_ids)
        answer_write_entries(&answer_ids_list, choice, first, to, out);
}

// Writes new content as a chunk's value. False: there is none.
static bool write_content(struct choice *choice, struct strbuf *out)
{
    if (kind_is_chat(choice->job))
        return answer_chat_delta(choice, out);
    struct strbuf *text = choice->part_count ? &choice->parts[0].text : NULL; // a completion has but this
    bool any = text && text->len;
    json_write_text(out, any ? strbuf_bytes(text) : (struct bytes){ 0 });
    if (any)
        text->len = 0;
    return any;
}

// Writes one chunk of new output, if there is any.
static void add_fresh_chunk(struct choice *choice, struct strbuf *out)
{
    struct output *answer = &choice->answer;
    int from = choice->tokens_written, left = answer->token_count - from;
    int to = from + (left < CHUNK_TOKENS_MAX ? left : CHUNK_TOKENS_MAX);
    size_t begin = out->len;
    open_chunk(choice, out);
    if (!write_content(choice, out) && to == from) {
        out->len = begin;
        return;
    }
    write_logprobs(choice, from, to, out);
    answer_write_finish(choice, false, out);
    write_ids(choice, from, to, out);
    close_chunk(choice, out);
    choice->tokens_written = to;
    if (to < answer->token_count)
        return;
    answer->token_count = answer->top_count = answer->prompt_tokens = 0;
    choice->tokens_written = 0;
}

// True: all available output of the choice is written.
static bool stream_choice(struct choice *choice, struct strbuf *out)
{
    bool chat = kind_is_chat(choice->job);
    const struct output *answer = &choice->answer;
    if (chat && !choice->begun)
        add_bare_chunk(choice, "{\"role\":\"assistant\",\"content\":\"\"}", false, out);
    choice->begun = true;
    do
        add_fresh_chunk(choice, out);
    while (answer->token_count && !answer_is_full(out));
    if (answer->token_count)
        return false;
    if (answer->finished && !choice->ended && answer->reason != NIBBLE_FINISH_FAILED)
        add_bare_chunk(choice, chat ? "{}" : "\"\"", true, out);
    choice->ended |= answer->finished;
    return true;
}

// ---- the stream ---------------------------------------------------------------------------------------------------

void openai_end(const struct job *job, struct strbuf *out)
{
    if (job->params.include_usage || job->params.continuous_usage) {
        open_event(job, out);
        strbuf_add_byte(out, ']');
        answer_write_usage(job, out);
        close_event(out);
    }
    strbuf_add_text(out, "data: [DONE]\n\n");
}

bool openai_stream(struct job *job, struct strbuf *out)
{
    for (int i = 0; i < job->choice_count; i++)
        if (answer_is_full(out) || !stream_choice(&job->choices[i], out))
            return false;
    return true;
}
