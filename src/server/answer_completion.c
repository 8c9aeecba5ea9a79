// SPDX-License-Identifier: Apache-2.0
// server/answer_completion.c: response bodies of /v1/completions: the echo and the logprobs.
#include "base/utf8.h"
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"

void answer_completion_echo(struct choice *choice)
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

static size_t count_characters(struct bytes text)
{
    size_t count = 0;
    uint32_t codepoint;
    for (size_t at = 0, length; at < text.len; at += length ? length : 1, count++)
        length = utf8_decode((struct bytes){ text.data + at, text.len - at }, &codepoint);
    return count;
}

// ---- logprobs: four lists side by side ----------------------------------------------------------------------------

static void write_token(struct choice *choice, int index, struct strbuf *out)
{
    struct strbuf text = { 0 };
    answer_token_name(choice->job, choice->answer.tokens[index].id, &text);
    json_write_text(out, strbuf_bytes(&text));
    strbuf_free(&text);
}

static void write_token_logprob(struct choice *choice, int index, struct strbuf *out)
{
    const struct answer_token *token = &choice->answer.tokens[index];
    if (token->scored)
        json_write_logprob(out, token->logprob);
    else
        strbuf_add_text(out, "null");
}

// Tokens with equal text (parts of a character) share a key: it keeps the first one's place and the last one's value.
struct top_logprobs {
    struct strbuf keys; // JSON strings, one behind the other
    struct {
        size_t begin, end;
        float logprob;
    } rows[API_LOGPROBS_MAX + 1];
    int count;
};

static void set_logprob(struct top_logprobs *table, const struct job *job, int32_t id, float logprob)
{
    struct strbuf token = { 0 };
    size_t begin = table->keys.len;
    answer_token_name(job, id, &token);
    json_write_text(&table->keys, strbuf_bytes(&token));
    strbuf_free(&token);
    struct bytes key = { table->keys.data + begin, table->keys.len - begin };
    int row = 0;
    while (row < table->count
           && !bytes_equal(key,
                           (struct bytes){ table->keys.data + table->rows[row].begin,
                                           table->rows[row].end - table->rows[row].begin }))
        row++;
    if (row == table->count) {
        table->rows[row].begin = begin;
        table->rows[row].end = table->keys.len;
        table->count++;
    }
    table->rows[row].logprob = logprob;
}

static void write_tops(struct choice *choice, int index, struct strbuf *out)
{
    const struct output *output = &choice->answer;
    const struct job *job = choice->job;
    const struct answer_token *token = &output->tokens[index];
    struct top_logprobs table = { 0 };
    if (!token->scored) {
        strbuf_add_text(out, "null");
        return;
    }
    for (int i = 0; i < token->top_count; i++)
        set_logprob(&table, job, output->tops[token->top_first + i].id, output->tops[token->top_first + i].logprob);
    set_logprob(&table, job, token->id, token->logprob);
    strbuf_add_byte(out, '{');
    for (int i = 0; i < table.count; i++) {
        strbuf_add_text(out, i ? "," : "");
        strbuf_add(out, table.keys.data + table.rows[i].begin, table.rows[i].end - table.rows[i].begin);
        strbuf_add_byte(out, ':');
        json_write_logprob(out, table.rows[i].logprob);
    }
    strbuf_add_byte(out, '}');
    strbuf_free(&table.keys);
}

static void write_offset(struct choice *choice, int index, struct strbuf *out)
{
    struct strbuf text = { 0 };
    answer_token_bytes(choice->job->api, choice->answer.tokens[index].id, &text);
    json_write(out, "%z", choice->text_offset);
    choice->text_offset += count_characters(strbuf_bytes(&text));
    strbuf_free(&text);
}

const struct answer_list answer_completion_lists[4] = {
    { "\"tokens\":[", "]", write_token, true },
    { ",\"token_logprobs\":[", "]", write_token_logprob, true },
    { ",\"top_logprobs\":[", "]", write_tops, true },
    { ",\"text_offset\":[", "]", write_offset, true },
};
