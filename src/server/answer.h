// SPDX-License-Identifier: Apache-2.0
// server/answer.h: serialises answers as JSON: server-sent events where the client streams, one object at the end
// where it does not. Both are written in slices of bounded size (ANSWER_SLICE_BYTES), so that neither memory nor other
// answers wait for a long one. Runs on the writer's thread.
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/kind.h"

// A slice ends behind the first value that reaches this; values are texts of that size or one token's logprobs.
enum { ANSWER_SLICE_BYTES = 64 << 10 };

static inline bool answer_is_full(const struct strbuf *slice) { return slice->len >= ANSWER_SLICE_BYTES; }

// Consumes the output that was delivered last: text becomes content and calls; tokens are kept where the answer lists
// logprobs or ids.
void answer_take(struct job *job);

// Append the next slice of what has been taken in, in the words of the job's API (kind.h). True: nothing is left to
// write, and for a job that is released, nothing will come. answer_whole is for released jobs alone.
bool answer_stream(struct job *job, struct strbuf *out);
bool answer_whole(struct job *job, struct strbuf *out);
// The last events of a stream that fails.
void answer_write_failure(const struct job *job, const struct api_error *err, struct strbuf *out);

// ---- slices: each of these goes on from the job's cursor; true: it is complete -------------------------------------

// A text without its quotes, from *at on.
bool answer_write_text(struct bytes all, size_t *at, struct strbuf *out);

// Steps one behind the other: cursor.step is the index of the next one, which begins with cursor.at and cursor.list 0.
typedef bool (*answer_step)(struct job *job, struct choice *choice, struct strbuf *out);
bool answer_write_steps(struct job *job, struct choice *choice, const answer_step *steps, int count,
                        struct strbuf *out);

// A list in an answer: with an entry for each token of the answer, of the prompt, or of either with its logprobs.
struct answer_list {
    const char *open, *close; // what stands around its entries
    void (*write)(struct choice *choice, int index, struct strbuf *out);
    bool of_text; // the token that ended the answer is no part of its text and has no entry
};
bool answer_write_list(const struct answer_list *list, struct choice *choice, int from, int to, struct strbuf *out);
// The same at once, where there are few.
void answer_write_entries(const struct answer_list *list, struct choice *choice, int from, int to, struct strbuf *out);

// How a stream shows the parts of an answer, one behind the other; cursor.block counts those that are shown.
struct part_events {
    void (*begin)(struct job *job, const struct answer_part *part, struct strbuf *out); // NULL: nothing is written
    void (*piece)(struct job *job, const struct answer_part *part, struct bytes text, struct strbuf *out);
    void (*end)(struct job *job, struct answer_part *part, struct strbuf *out); // NULL: nothing is written
    bool whole_calls; // a call has no pieces, and is written when it is complete
    bool no_filler;   // blank text between other parts is left out (parts_is_filler)
};
bool answer_stream_parts(struct job *job, const struct part_events *events, struct strbuf *out);

// ---- OpenAI's chat and completions --------------------------------------------------------------------------------

void answer_open(const struct job *job, bool chunk, struct strbuf *out); // {"id": ... "choices":[
void answer_write_usage(const struct job *job, struct strbuf *out);
void answer_write_finish(const struct choice *choice, bool finished, struct strbuf *out); // ,"finish_reason": ...
void answer_write_id(int32_t id, struct strbuf *out);

bool openai_stream(struct job *job, struct strbuf *out); // answer_stream.c
void openai_end(const struct job *job, struct strbuf *out);

// Logprobs are one object of one list (chat) or several parallel ones (completions).
const struct answer_list *answer_lists(const struct job *job, int *count); // none are asked for: *count is 0
extern const struct answer_list answer_chat_lists[1], answer_completion_lists[4], answer_ids_list,
    answer_prompt_ids_list;

// A token's own bytes, whatever stands around it.
void answer_token_bytes(const struct api *api, int32_t id, struct strbuf *out);
// A token as logprobs call it: its bytes, or "token_id:5" where return_tokens_as_token_ids asks for that.
void answer_token_name(const struct job *job, int32_t id, struct strbuf *out);

// prompt_logprobs: a completion has them in each choice, a chat behind the choices.
bool answer_prompt_of_choice(struct job *job, struct choice *choice, struct strbuf *out);
bool answer_prompt_of_chat(struct job *job, struct choice *choice, struct strbuf *out);

extern const char *const answer_chat_reasoning_keys[2];                        // clients read one or the other
bool answer_chat_delta(struct choice *choice, struct strbuf *out);             // false: nothing is new, and it wrote {}
bool answer_chat_is_silent(struct choice *choice);                             // calls and no content: it is null
void answer_chat_write_calls(const struct choice *choice, struct strbuf *out); // ,"tool_calls": ..., if there are any

#endif
