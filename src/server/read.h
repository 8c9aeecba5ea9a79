// SPDX-License-Identifier: Apache-2.0
// server/read.h: reads a request's body: JSON to prompts, parameters and a grammar. All work that takes time and needs
// no engine is done here, on reader threads, so that neither the sockets nor the running answers wait for it.
#ifndef SERVER_READ_H
#define SERVER_READ_H

#include "server/job.h"

// True: the job is ready for the engine. False: it has its answer, job->reply or job->error, or it leaves its lane and
// is to be read once more.
bool read_job(struct job *job);

// Parts of it, by endpoint.
bool read_chat(struct job *job);
bool read_completion(struct job *job);
bool read_infill(struct job *job);
bool read_tokenize(struct job *job);
bool read_detokenize(struct job *job);
bool read_input_tokens(struct job *job);

// Tokenises into the next of job->prompts (there is room). Text that cannot fit the context whatever its tokens is
// refused before it is looked at.
bool read_prompt_text(struct job *job, struct bytes text, int flags, const char *param);
bool read_prompt_fim(struct job *job, const struct fim_text *text, const char *param); // fill in the middle
bool read_prompt_ids(struct job *job, const json_t *ids);

// The form that an answer is asked to have, in any of the fields that can ask for one; all zero: any text.
struct answer_form {
    const char *field;       // that asks for it
    json_t *schema;          // of a JSON value, or
    struct grammar *grammar; // of a text
    bool compact;            // JSON without white space
    bool strict;             // what cannot be held of the schema is refused
};
bool read_format(struct job *job, struct answer_form *form);
bool read_form_grammar(struct job *job, struct answer_form *form); // it becomes the job's grammar
void read_form_free(struct answer_form *form);

// The chat template that a request brings along, where it may.
bool read_own_template(struct job *job);

// The tools that a request may call, and whether it must.
bool read_tools(struct job *job);

// How it is to think: the job's fields, and the variables of the chat template. And behind that, how its prompt ends.
bool read_reasoning(struct job *job, json_t *variables);
void read_prompt_end(struct job *job, struct bytes prompt);

// The prompt that a request's messages and tools become, as text; and as the job's only prompt.
bool read_messages(struct job *job, struct strbuf *out);
bool read_chat_prompt(struct job *job, int flags);
// Answers with the number of its tokens: `opening` and "input_tokens". Always false: there is a reply or an error.
bool read_count(struct job *job, int flags, const char *opening);
#define READ_COUNT_OPENING "{\"object\":\"response.input_tokens\","

#endif
