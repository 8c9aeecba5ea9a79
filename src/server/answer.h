// SPDX-License-Identifier: Apache-2.0
// server/answer.h: from a choice's news to OpenAI's JSON: a chunk per piece of news where the client streams, one
// object at the end where it does not. Runs on the loop's thread.
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/job.h"

// Appends the server-sent events that the job's news calls for, the first one and the last included.
void answer_stream(struct job *job, struct strbuf *out);
void answer_stream_error(const struct api_error *err, struct strbuf *out); // the last words of a stream that fails

// Takes the job's news in; answer_whole prints the answer once every choice is finished.
void answer_gather(struct job *job);
void answer_whole(struct job *job, struct strbuf *out);

// ---- parts, by endpoint -------------------------------------------------------------------------------------------

json_t *answer_chat_opening(struct choice *choice);            // the chunk that comes first
void answer_chat_add(struct choice *choice);                   // news into content and calls
json_t *answer_chat_chunk(struct choice *choice);              // delta; NULL: nothing to tell
json_t *answer_chat_message(const struct choice *choice);
json_t *answer_chat_logprobs(const struct job *job, const struct mail *mail);

json_t *answer_completion_logprobs(const struct job *job, const struct mail *mail, size_t *offset);
void answer_completion_echo(const struct choice *choice, struct strbuf *out);

// A token's own bytes, whatever stands around it.
void answer_token_bytes(const struct api *api, int32_t id, struct strbuf *out);
// A token as logprobs call it: its bytes, or "token_id:5" where return_tokens_as_token_ids asks for that.
void answer_token_name(const struct job *job, int32_t id, struct strbuf *out);

#endif
