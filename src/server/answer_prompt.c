// SPDX-License-Identifier: Apache-2.0
// server/answer_prompt.c: prompt_logprobs as vLLM has it: for each token of the prompt but the first a table of itself
// and the likeliest, keyed by id, with logprob, rank and text.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/kind.h"

static void write_entry(const struct job *job, int32_t id, float logprob, int rank, bool first, struct strbuf *out)
{
    struct strbuf text = { 0 };
    answer_token_bytes(job->api, id, &text);
    strbuf_add_format(out, "%s\"%d\":{\"logprob\":", first ? "" : ",", id);
    json_write_logprob(out, logprob);
    strbuf_add_format(out, ",\"rank\":%d,\"decoded_token\":", rank);
    json_write_text(out, strbuf_bytes(&text));
    strbuf_add_byte(out, '}');
    strbuf_free(&text);
}

static void write_token(const struct job *job, const struct output *prompt, int index, struct strbuf *out)
{
    const struct answer_token *token = &prompt->tokens[index];
    strbuf_add_text(out, index ? "," : "");
    if (!token->scored) {
        strbuf_add_text(out, "null");
        return;
    }
    strbuf_add_byte(out, '{');
    write_entry(job, token->id, token->logprob, token->rank, true, out);
    for (int i = 0; i < token->top_count; i++) {
        const struct nibble_candidate *likely = &prompt->tops[token->top_first + i];
        if (likely->id != token->id)
            write_entry(job, likely->id, likely->logprob, i + 1, false, out);
    }
    strbuf_add_byte(out, '}');
}

// Goes on from cursor.at. True: it is complete.
static bool write_prompt(struct job *job, const struct choice *choice, struct strbuf *out)
{
    struct answer_cursor *cursor = &job->cursor;
    const struct output *prompt = &job->choices[choice->index - choice->number].prompt_scores; // the n share it
    if (job->params.prompt_logprobs < 0)
        return true;
    strbuf_add_text(out, cursor->at ? "" : ",\"prompt_logprobs\":[");
    for (; cursor->at < (size_t)prompt->token_count; cursor->at++) {
        if (out->len >= ANSWER_SLICE_BYTES && cursor->at)
            return false;
        write_token(job, prompt, (int)cursor->at, out);
    }
    strbuf_add_byte(out, ']');
    return true;
}

bool answer_prompt_of_choice(struct job *job, struct choice *choice, struct strbuf *out)
{
    return kind_is_chat(job) || write_prompt(job, choice, out);
}

bool answer_prompt_of_chat(struct job *job, struct choice *choice, struct strbuf *out)
{
    return !kind_is_chat(job) || choice->index + 1 < job->choice_count || write_prompt(job, choice, out);
}
