// SPDX-License-Identifier: Apache-2.0
#include "server/answer.h"

#include "server/json_writer.h"
#include "server/kind.h"
#include "server/parts.h"

void answer_token_bytes(const struct api *api, int32_t id, struct strbuf *out)
{
    struct detokenizer detokenizer = { .tokenizer = api->tokenizer, .started = true };
    detokenizer_add(&detokenizer, id, out);
    detokenizer_finish(&detokenizer, out);
}

void answer_token_name(const struct job *job, int32_t id, struct strbuf *out)
{
    if (job->params.tokens_as_ids)
        strbuf_add_format(out, "token_id:%d", id);
    else
        answer_token_bytes(job->api, id, out);
}

// ---- what all answers have ----------------------------------------------------------------------------------------

static const struct {
    const char *whole, *chunk;
} objects[] = {
    [JOB_CHAT] = { "chat.completion", "chat.completion.chunk" },
    [JOB_COMPLETION] = { "text_completion", "text_completion" },
};

void answer_open(const struct job *job, bool chunk, struct strbuf *out)
{
    strbuf_add_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", job->id,
                      chunk ? objects[job->kind].chunk : objects[job->kind].whole, (long long)job->created);
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_text(out, ",\"system_fingerprint\":");
    json_write_text(out, bytes_of(job->api->fingerprint));
    strbuf_add_text(out, ",\"choices\":[");
}

// Writes the token counts of all prompts and answers so far.
void answer_write_usage(const struct job *job, struct strbuf *out)
{
    long long prompt = 0, cached = 0, answer = 0, reasoning = 0;
    for (int i = 0; i < job->choice_count; i++) {
        const struct choice *choice = &job->choices[i];
        bool first = choice->number == 0; // the n of a prompt share it
        prompt += first ? (long long)choice->prompt->count : 0;
        cached += first ? choice->answer.usage.cached_tokens : 0;
        answer += choice->generated;
        reasoning += choice->reasoning_tokens;
    }
    strbuf_add_format(out,
                      ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":%lld}",
                      prompt, answer, prompt + answer, cached);
    if (job->reasoning)
        strbuf_add_format(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%lld}", reasoning);
    strbuf_add_byte(out, '}');
}

static const char *finish_word(const struct choice *choice)
{
    bool calls = choice->call_count && choice->answer.reason == NIBBLE_FINISH_STOP;
    return calls ? "tool_calls" : api_finish_words[choice->answer.reason];
}

// Writes the stop string or token that ended the answer; null where the model's own end token did.
static void write_stop_reason(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    const struct api *api = choice->job->api;
    bool own = answer->stop_id < 0;
    for (int i = 0; i < api->end_count; i++)
        own |= api->end_ids[i] == answer->stop_id;
    if (answer->stop_string >= 0)
        json_write_text(out, choice->job->params.stops[answer->stop_string]);
    else if (own)
        strbuf_add_text(out, "null");
    else
        json_write_int(out, answer->stop_id);
}

void answer_write_finish(const struct choice *choice, bool finished, struct strbuf *out)
{
    if (!finished) {
        strbuf_add_text(out, ",\"finish_reason\":null");
        return;
    }
    strbuf_add_format(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_word(choice));
    write_stop_reason(choice, out);
}

const struct answer_list *answer_lists(const struct job *job, int *count)
{
    bool chat = kind_is_chat(job);
    *count = job->params.request.top_logprobs < 0 ? 0
        : chat                                    ? 1
                                                  : sizeof answer_completion_lists / sizeof(struct answer_list);
    return chat ? answer_chat_lists : answer_completion_lists;
}

void answer_write_entry(const struct answer_list *list, struct choice *choice, int token, bool first,
                        struct strbuf *out)
{
    if (choice->answer.tokens[token].stop)
        return;
    strbuf_add_text(out, first ? "" : ",");
    list->write(choice, token, out);
}

void answer_write_id(int32_t id, bool first, struct strbuf *out) { strbuf_add_format(out, first ? "%d" : ",%d", id); }

// ---- taking in ----------------------------------------------------------------------------------------------------

static void take_text(struct choice *choice)
{
    if (kind_is_chat(choice->job)) {
        parts_take(choice);
        return;
    }
    if (choice->job->params.echo && !choice->begun)
        answer_completion_echo(choice);
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

bool answer_stream(struct job *job, struct strbuf *out) { return kind_of(job)->stream(job, out); }

bool answer_whole(struct job *job, struct strbuf *out) { return kind_of(job)->whole(job, out); }

void answer_take(struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        take_text(&job->choices[i]);
        take_tokens(&job->choices[i]);
    }
}

// ---- whole answers ------------------------------------------------------------------------------------------------

static void write_opening(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (choice->index == 0)
        answer_open(job, false, out);
    else
        strbuf_add_byte(out, ',');
    strbuf_add_format(out, "{\"index\":%d,", choice->index);
    if (kind_is_chat(job))
        strbuf_add_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    else
        strbuf_add_text(out, "\"text\":");
}

// The parts of an entry of "choices", in their order. Each goes on from cursor.at; true: it is complete.
static bool write_opening_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    bool silent = kind_is_chat(job) && answer_chat_is_silent(choice);
    write_opening(job, choice, out);
    strbuf_add_text(out, silent ? "null" : "\"");
    return true;
}

static bool write_joined(struct job *job, struct choice *choice, enum part_kind kind, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    struct bytes all = parts_join(choice, kind), rest = { all.data + cursor->at, all.len - cursor->at };
    if (rest.len) {
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        json_write_text_inside(out, (struct bytes){ rest.data, length });
        cursor->at += length;
    }
    return cursor->at == all.len;
}

static bool write_text_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    return write_joined(job, choice, PART_CONTENT, out);
}

static bool write_text_end_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    bool chat = kind_is_chat(job);
    strbuf_add_text(out, chat && answer_chat_is_silent(choice) ? "" : "\"");
    strbuf_add_text(out, chat ? ",\"refusal\":null" : "");
    return true;
}

static bool write_reasoning(struct job *job, struct choice *choice, const char *key, struct strbuf *out)
{
    if (!parts_join(choice, PART_REASONING).len)
        return true;
    if (!job->cursor.at)
        strbuf_add_format(out, ",\"%s\":\"", key);
    if (!write_joined(job, choice, PART_REASONING, out))
        return false;
    strbuf_add_byte(out, '"');
    return true;
}

static bool write_reasoning_content_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    return write_reasoning(job, choice, answer_chat_reasoning_keys[0], out);
}

static bool write_reasoning_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    return write_reasoning(job, choice, answer_chat_reasoning_keys[1], out);
}

static bool write_message_end_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (!kind_is_chat(job))
        return true;
    answer_chat_write_calls(choice, out);
    strbuf_add_byte(out, '}');
    return true;
}

static bool write_logprobs_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    int count;
    const struct answer_list *lists = answer_lists(job, &count);
    if (!cursor->list && !cursor->at)
        strbuf_add_text(out, count ? ",\"logprobs\":" : ",\"logprobs\":null");
    for (; cursor->list < count; cursor->list++, cursor->at = 0) {
        const struct answer_list *list = &lists[cursor->list];
        if (!cursor->at)
            strbuf_add_text(out, list->open);
        for (; cursor->at < (size_t)choice->answer.token_count; cursor->at++) {
            if (out->len >= ANSWER_SLICE_BYTES && cursor->at)
                return false;
            answer_write_entry(list, choice, (int)cursor->at, cursor->at == 0, out);
        }
    }
    strbuf_add_text(out, count ? "]}" : "");
    return true;
}

static bool write_finish_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)job;
    answer_write_finish(choice, true, out);
    return true;
}

static bool write_ids_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    const struct output *answer = &choice->answer;
    size_t count = (size_t)(answer->token_count - answer->prompt_tokens);
    if (!job->params.return_token_ids)
        return true;
    strbuf_add_text(out, cursor->at ? "" : ",\"token_ids\":[");
    for (; cursor->at < count; cursor->at++) {
        if (out->len >= ANSWER_SLICE_BYTES && cursor->at)
            return false;
        answer_write_id(answer->tokens[answer->prompt_tokens + (int)cursor->at].id, cursor->at == 0, out);
    }
    strbuf_add_byte(out, ']');
    return true;
}

static bool write_prompt_ids_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    if (!job->params.return_token_ids)
        return true;
    strbuf_add_text(out, cursor->at ? "" : ",\"prompt_token_ids\":[");
    for (; cursor->at < choice->prompt->count; cursor->at++) {
        if (out->len >= ANSWER_SLICE_BYTES && cursor->at)
            return false;
        answer_write_id(choice->prompt->ids[cursor->at], cursor->at == 0, out);
    }
    strbuf_add_byte(out, ']');
    return true;
}

static bool write_choice_end_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    strbuf_add_text(out, choice->index + 1 < job->choice_count ? "}" : "}]");
    return true;
}

static bool write_closing_part(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (choice->index + 1 < job->choice_count)
        return true;
    answer_write_usage(job, out);
    strbuf_add_byte(out, '}');
    return true;
}

static bool (*const parts[])(struct job *job, struct choice *choice, struct strbuf *out) = {
    write_opening_part,    write_text_part,        write_text_end_part,     write_reasoning_content_part,
    write_reasoning_part,  write_message_end_part, write_logprobs_part,     write_finish_part,
    write_ids_part,        write_prompt_ids_part,  answer_prompt_of_choice, write_choice_end_part,
    answer_prompt_of_chat, write_closing_part,
};

bool openai_whole(struct job *job, struct strbuf *out)
{
    enum { PARTS = sizeof parts / sizeof *parts };
    struct answer_cursor *cursor = &job->cursor;
    for (; cursor->choice < job->choice_count; cursor->choice++, cursor->part = 0) {
        while (cursor->part < PARTS) {
            if (out->len >= ANSWER_SLICE_BYTES)
                return false;
            if (!parts[cursor->part](job, &job->choices[cursor->choice], out))
                continue;
            cursor->part++;
            cursor->at = 0;
            cursor->list = 0;
        }
    }
    return true;
}
