// SPDX-License-Identifier: Apache-2.0
// server/answer_whole.c: whole answers of /v1/chat/completions and /v1/completions, and what their streams share with
// them: usage, finish_reason, token ids.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"

// ---- what chunks have, too ----------------------------------------------------------------------------------------

void answer_open(const struct job *job, bool chunk, struct strbuf *out)
{
    const char *object = !kind_is_chat(job) ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    json_write(out,
               "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%l,\"model\":%q,\"system_fingerprint\":%q,\"choices\":[",
               job->id, object, (long long)job->created, job->api->names[0], job->api->fingerprint);
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
    json_write(out,
               ",\"usage\":{\"prompt_tokens\":%l,\"completion_tokens\":%l,\"total_tokens\":%l,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%l}",
               prompt, answer, prompt + answer, cached);
    if (job->reasoning)
        json_write(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%l}", reasoning);
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
        answer_write_id(answer->stop_id, out);
}

void answer_write_finish(const struct choice *choice, bool finished, struct strbuf *out)
{
    if (!finished) {
        strbuf_add_text(out, ",\"finish_reason\":null");
        return;
    }
    json_write(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_word(choice));
    write_stop_reason(choice, out);
}

// ---- the steps of an entry of "choices" ---------------------------------------------------------------------------

static bool write_opening(struct job *job, struct choice *choice, struct strbuf *out)
{
    const char *key = kind_is_chat(job) ? "\"message\":{\"role\":\"assistant\",\"content\"" : "\"text\"";
    if (choice->index == 0)
        answer_open(job, false, out);
    else
        strbuf_add_byte(out, ',');
    json_write(out, "{\"index\":%d,%s:%s", choice->index, key, answer_chat_is_silent(choice) ? "null" : "\"");
    return true;
}

static bool write_content(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (!answer_write_text(parts_join(choice, PART_CONTENT), &job->cursor.at, out))
        return false;
    strbuf_add_text(out, answer_chat_is_silent(choice) ? "" : "\"");
    strbuf_add_text(out, kind_is_chat(job) ? ",\"refusal\":null" : "");
    return true;
}

static bool write_reasoning(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    struct bytes all = parts_join(choice, PART_REASONING);
    for (; all.len && cursor->list < 2; cursor->list++, cursor->at = 0) {
        if (answer_is_full(out))
            return false;
        if (!cursor->at)
            json_write(out, ",\"%s\":\"", answer_chat_reasoning_keys[cursor->list]);
        if (!answer_write_text(all, &cursor->at, out))
            return false;
        strbuf_add_byte(out, '"');
    }
    return true;
}

static bool write_message_end(struct job *job, struct choice *choice, struct strbuf *out)
{
    answer_chat_write_calls(choice, out);
    strbuf_add_text(out, kind_is_chat(job) ? "}" : "");
    return true;
}

static bool write_logprobs(struct job *job, struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    int count;
    const struct answer_list *lists = answer_lists(job, &count);
    if (!cursor->list && !cursor->at)
        strbuf_add_text(out, count ? ",\"logprobs\":{" : ",\"logprobs\":null");
    for (; cursor->list < count; cursor->list++, cursor->at = 0)
        if (!answer_write_list(&lists[cursor->list], choice, 0, choice->answer.token_count, out))
            return false;
    strbuf_add_text(out, count ? "}" : "");
    return true;
}

static bool write_finish(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)job;
    answer_write_finish(choice, true, out);
    return true;
}

static bool write_ids(struct job *job, struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    return !job->params.return_token_ids
        || answer_write_list(&answer_ids_list, choice, answer->prompt_tokens, answer->token_count, out);
}

static bool write_prompt_ids(struct job *job, struct choice *choice, struct strbuf *out)
{
    return !job->params.return_token_ids
        || answer_write_list(&answer_prompt_ids_list, choice, 0, (int)choice->prompt->count, out);
}

static bool write_choice_end(struct job *job, struct choice *choice, struct strbuf *out)
{
    strbuf_add_text(out, choice->index + 1 < job->choice_count ? "}" : "}]");
    return true;
}

static bool write_closing(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (choice->index + 1 < job->choice_count)
        return true;
    answer_write_usage(job, out);
    strbuf_add_byte(out, '}');
    return true;
}

static const answer_step steps[] = {
    write_opening, write_content,    write_reasoning,         write_message_end, write_logprobs,        write_finish,
    write_ids,     write_prompt_ids, answer_prompt_of_choice, write_choice_end,  answer_prompt_of_chat, write_closing,
};

const struct dialect openai_dialect = {
    .stream = openai_stream,
    .end = openai_end,
    DIALECT_STEPS(steps),
    .failure_open = "data: ",
    .failure_close = "\n\ndata: [DONE]\n\n",
};
