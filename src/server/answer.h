// SPDX-License-Identifier: Apache-2.0
// server/answer.h: serialises answers as OpenAI's JSON: server-sent events where the client streams, one object at the
// end where it does not. Both are written in slices of bounded size (ANSWER_SLICE_BYTES), so that neither
// memory nor other answers wait for a long one. Runs on the writer's thread.
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/job.h"

// A slice ends behind the first value that reaches this; values are texts of that size or one token's logprobs.
enum { ANSWER_SLICE_BYTES = 64 << 10 };

// Consumes the output that was delivered last: text becomes content and calls; tokens are kept where the answer lists
// logprobs or ids.
void answer_take(struct job *job);

// Append the next slice of what has been taken in, in the words of the job's API (kind.h). True: nothing is left to
// write, and for a job that is released, nothing will come. answer_whole is for released jobs alone.
bool answer_stream(struct job *job, struct strbuf *out);
bool answer_whole(struct job *job, struct strbuf *out);

// ---- OpenAI's chat and completions --------------------------------------------------------------------------------

bool openai_stream(struct job *job, struct strbuf *out);
bool openai_whole(struct job *job, struct strbuf *out);
void openai_stream_error(const struct api_error *err, struct strbuf *out);

// ---- parts that all answers have ----------------------------------------------------------------------------------

void answer_open(const struct job *job, bool chunk, struct strbuf *out); // {"id": ... "choices":[
void answer_write_usage(const struct job *job, struct strbuf *out);
void answer_write_finish(const struct choice *choice, bool finished, struct strbuf *out); // ,"finish_reason": ...
void answer_write_id(int32_t id, bool first, struct strbuf *out);                         // first of its list

// Logprobs are one object of one list (chat) or several parallel ones (completions), an entry for each token.
struct answer_list {
    const char *open; // what stands before its entries; behind the last list: "]}"
    void (*write)(struct choice *choice, int token, struct strbuf *out);
};
const struct answer_list *answer_lists(const struct job *job, int *count); // none are asked for: *count is 0
// One of choice->answer's tokens. The token that ended the answer is no part of its text and has no entry.
void answer_write_entry(const struct answer_list *list, struct choice *choice, int token, bool first,
                        struct strbuf *out);

// A token's own bytes, whatever stands around it.
void answer_token_bytes(const struct api *api, int32_t id, struct strbuf *out);
// A token as logprobs call it: its bytes, or "token_id:5" where return_tokens_as_token_ids asks for that.
void answer_token_name(const struct job *job, int32_t id, struct strbuf *out);

// prompt_logprobs: a completion has them in each choice, a chat behind the choices. From cursor.at on; true: complete.
bool answer_prompt_of_choice(struct job *job, struct choice *choice, struct strbuf *out);
bool answer_prompt_of_chat(struct job *job, struct choice *choice, struct strbuf *out);

// ---- parts by endpoint --------------------------------------------------------------------------------------------

extern const struct answer_list answer_chat_lists[1], answer_completion_lists[4];

extern const char *const answer_chat_reasoning_keys[2];                        // clients read one or the other
bool answer_chat_delta(struct choice *choice, struct strbuf *out);             // false: nothing is new, and it wrote {}
bool answer_chat_is_silent(struct choice *choice);                             // calls and no content: it is null
void answer_chat_write_calls(const struct choice *choice, struct strbuf *out); // ,"tool_calls": ..., if there are any

void answer_completion_echo(struct choice *choice); // the prompt as the beginning of its text

#endif
