// SPDX-License-Identifier: Apache-2.0
// server/answer_prompt.c: prompt_logprobs as vLLM has it: for each token of the prompt but the first a table of itself
// and the likeliest, keyed by id, with logprob, rank and text.
#include "server/answer.h"
#include "server/json_writer.h"

static void write_entry(const struct job *job, int32_t id, float logprob, int rank, bool first, struct strbuf *out)
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

static void write_token(struct choice *choice, int index, struct strbuf *out)
{
    const struct output *prompt = scores_of(choice);
    const struct answer_token *token = &prompt->tokens[index];
    if (!token->scored) {
        strbuf_add_text(out, "null");
        return;
    }
    strbuf_add_byte(out, '{');
    write_entry(choice->job, token->id, token->logprob, token->rank, true, out);
    for (int i = 0; i < token->top_count; i++) {
        const struct nibble_candidate *likely = &prompt->tops[token->top_first + i];
        if (likely->id != token->id)
            write_entry(choice->job, likely->id, likely->logprob, i + 1, false, out);
    }
    strbuf_add_byte(out, '}');
}

static bool write_prompt(struct choice *choice, struct strbuf *out)
{
    static const struct answer_list list = { ",\"prompt_logprobs\":[", "]", write_token };
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
