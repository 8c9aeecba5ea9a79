// SPDX-License-Identifier: Apache-2.0
// server/admission.h: admission control by memory: the memory that a request will hold is charged to the budget before
// the work that needs it begins. Without room it is refused: 429 when there may be room later, 413 or 400 when there
// never is.
//
// The rule: what is charged is the most that reading a body can take, and then the most that the answers' tokens can
// (n x max_tokens), so that a running answer never has to ask for more. Text is the exception, as a token's longest
// text is many times the usual: ANSWER_TEXT_BYTES a token are charged, and an answer that has more is charged for it
// as it comes, beyond the limit if need be, at the expense of requests that come later.
#ifndef SERVER_ADMISSION_H
#define SERVER_ADMISSION_H

#include "server/job.h"

// The readers': before the body is parsed.
// The reader's: JSON that is read beside the request's own.
bool admission_read_more(struct job *job, struct bytes json);
bool admission_read(struct job *job);
// When prompts and fields are known and the JSON is gone. Logprobs have a bound of their own, too.
bool admission_answer(struct job *job);
// For an answer that was made without the engine.
bool admission_reply(struct job *job);

// The writer's: an answer's text has grown past what was charged for it.
void admission_grow(struct job *job);

#endif
