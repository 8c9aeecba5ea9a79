// SPDX-License-Identifier: Apache-2.0
// server/answer_completion.c: the echo and the logprobs of /v1/completions.
#include "base/utf8.h"
#include "server/answer.h"

void answer_completion_echo(const struct choice *choice, struct strbuf *out)
{
    const struct prompt *prompt = choice->prompt;
    struct detokenizer detokenizer = { .tokenizer = choice->job->api->tokenizer };
    strbuf_add(out, prompt->text.data, prompt->text.len);
    for (size_t i = 0; i < prompt->count && !prompt->text.data; i++)
        detokenizer_add(&detokenizer, prompt->ids[i], out);
    detokenizer_finish(&detokenizer, out);
}

static size_t count_characters(struct bytes text)
{
    size_t count = 0;
    uint32_t codepoint;
    for (size_t at = 0, length; at < text.len; at += length ? length : 1, count++)
        length = utf8_decode((struct bytes){ text.data + at, text.len - at }, &codepoint);
    return count;
}

static void set_logprob(json_t *table, const struct job *job, int32_t id, float logprob)
{
    struct strbuf token = { 0 }, key = { 0 };
    answer_token_name(job, id, &token);
    strbuf_add_clean(&key, strbuf_bytes(&token));
    json_object_setn_new_nocheck(table, strbuf_text(&key), key.len, api_logprob(logprob));
    strbuf_free(&token);
    strbuf_free(&key);
}

json_t *answer_completion_logprobs(const struct job *job, const struct mail *mail, size_t *offset)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (int i = 0; i < mail->token_count; i++) {
        const struct answer_token *token = &mail->tokens[i];
        struct strbuf text = { 0 }, name = { 0 };
        if (token->stop)
            continue; // it ends the text and is no part of it
        answer_token_bytes(job->api, token->id, &text);
        answer_token_name(job, token->id, &name);
        json_array_append_new(tokens, api_text(strbuf_bytes(&name)));
        json_array_append_new(logprobs, token->scored ? api_logprob(token->logprob) : json_null());
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += count_characters(strbuf_bytes(&text));
        strbuf_free(&text);
        strbuf_free(&name);
        json_t *table = token->scored ? json_object() : json_null();
        for (int j = 0; j < token->top_count; j++)
            set_logprob(table, job, mail->tops[token->top_first + j].id, mail->tops[token->top_first + j].logprob);
        if (token->scored)
            set_logprob(table, job, token->id, token->logprob);
        json_array_append_new(tops, table);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}
