// SPDX-License-Identifier: Apache-2.0
// server/answer_logprobs.c: the lists of tokens in answers: ids, and logprobs in the form of a chat, of a completion
// and of a prompt (vLLM's prompt_logprobs).
#include "base/utf8.h"
#include "server/answer.h"
#include "server/json_writer.h"

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

// ---- ids ----------------------------------------------------------------------------------------------------------

void answer_write_id(int32_t id, struct strbuf *out) { strbuf_add_format(out, "%d", id); }

static void write_own_id(struct choice *choice, int index, struct strbuf *out)
{
    answer_write_id(choice->answer.tokens[index].id, out);
}

static void write_prompt_id(struct choice *choice, int index, struct strbuf *out)
{
    answer_write_id(choice->prompt->ids[index], out);
}

const struct answer_list answer_ids_list = { ",\"token_ids\":[", "]", write_own_id };
const struct answer_list answer_prompt_ids_list = { ",\"prompt_token_ids\":[", "]", write_prompt_id };

// ---- of a chat ----------------------------------------------------------------------------------------------------

// Writes an entry without its closing brace.
static void write_logprob(const struct job *job, int32_t id, float logprob, struct strbuf *out)
{
    struct strbuf token = { 0 }, name = { 0 };
    answer_token_bytes(job->api, id, &token);
    answer_token_name(job, id, &name);
    json_write(out, "{\"token\":%b,\"logprob\":", strbuf_bytes(&name));
    json_write_logprob(out, logprob);
    strbuf_add_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < token.len; i++)
        json_write(out, i ? ",%d" : "%d", (unsigned char)token.data[i]);
    strbuf_add_byte(out, ']');
    strbuf_free(&token);
    strbuf_free(&name);
}

static void write_chat_entry(struct choice *choice, int index, struct strbuf *out)
{
    const struct output *output = &choice->answer;
    const struct answer_token *token = &output->tokens[index];
    write_logprob(choice->job, token->id, token->logprob, out);
    strbuf_add_text(out, ",\"top_logprobs\":[");
    for (int i = 0; i < token->top_count; i++) {
        const struct nibble_candidate *likely = &output->tops[token->top_first + i];
        strbuf_add_text(out, i ? "," : "");
        write_logprob(choice->job, likely->id, likely->logprob, out);
        strbuf_add_byte(out, '}');
    }
    strbuf_add_text(out, "]}");
}

const struct answer_list answer_chat_lists[1] = { { "\"content\":[", "]", write_chat_entry, true } };

static size_t count_characters(struct bytes text)
{
    size_t count = 0;
    uint32_t codepoint;
    for (size_t at = 0, length; at < text.len; at += length ? length : 1, count++)
        length = utf8_decode((struct bytes){ text.data + at, text.len - at }, &codepoint);
    return count;
}

// ---- of a completion: four lists side by side ---------------------------------------------------------------------

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

const struct answer_list *answer_lists(const struct job *job, int *count)
{
    bool chat = kind_is_chat(job);
    *count = job->params.request.top_logprobs < 0 ? 0
        : chat                                    ? 1
                                                  : sizeof answer_completion_lists / sizeof(struct answer_list);
    return chat ? answer_chat_lists : answer_completion_lists;
}

// ---- of a prompt --------------------------------------------------------------------------------------------------

// For each token but the first a table of itself and the likeliest, keyed by id, with logprob, rank and text.
static void write_prompt_entry(const struct job *job, int32_t id, float logprob, int rank, bool first,
                               struct strbuf *out)
{
    struct strbuf text = { 0 };
    answer_token_bytes(job->api, id, &text);
    json_write(out, first ? "\"%d\":{\"logprob\":" : ",\"%d\":{\"logprob\":", id);
    json_write_logprob(out, logprob);
    json_write(out, ",\"rank\":%d,\"decoded_token\":%b}", rank, strbuf_bytes(&text));
    strbuf_free(&text);
}

static struct output *scores_of(const struct choice *choice)
{
    return &choice->job->choices[choice->index - choice->number].prompt_scores; // the n share it
}

static void write_prompt_token(struct choice *choice, int index, struct strbuf *out)
{
    const struct output *prompt = scores_of(choice);
    const struct answer_token *token = &prompt->tokens[index];
    if (!token->scored) {
        strbuf_add_text(out, "null");
        return;
    }
    strbuf_add_byte(out, '{');
    write_prompt_entry(choice->job, token->id, token->logprob, token->rank, true, out);
    for (int i = 0; i < token->top_count; i++) {
        const struct nibble_candidate *likely = &prompt->tops[token->top_first + i];
        if (likely->id != token->id)
            write_prompt_entry(choice->job, likely->id, likely->logprob, i + 1, false, out);
    }
    strbuf_add_byte(out, '}');
}

static bool write_prompt(struct choice *choice, struct strbuf *out)
{
    static const struct answer_list list = { ",\"prompt_logprobs\":[", "]", write_prompt_token };
    return choice->job->params.prompt_logprobs < 0
        || answer_write_list(&list, choice, 0, scores_of(choice)->token_count, out);
}

bool answer_prompt_of_choice(struct job *job, struct choice *choice, struct strbuf *out)
{
    return kind_is_chat(job) || write_prompt(choice, out);
}

bool answer_prompt_of_chat(struct job *job, struct choice *choice, struct strbuf *out)
{
    return !kind_is_chat(job) || choice->index + 1 < job->choice_count || write_prompt(choice, out);
}
