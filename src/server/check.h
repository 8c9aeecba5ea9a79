// SPDX-License-Identifier: Apache-2.0
// server/check.h: structured output that masks alone do not hold. A choice whose grammar is looser than its schema
// keeps its text back until it is finished and a JSON Schema validator has seen it; one that fails is generated again.
#ifndef SERVER_CHECK_H
#define SERVER_CHECK_H

#include "server/job.h"

enum { CHECK_ATTEMPTS = 3 }; // answers of one choice, the first included

// The reader's: what the grammar of the answer leaves to be done. `strict`: what cannot be held is an error, not a
// warning; `schema`: of an answer that is no call, NULL where there is none. False: refused, with job->error.
bool check_prepare(struct job *job, const json_t *schema, bool strict, const char *param);

// Does the text of a finished answer meet its schemas? False with a sentence, and *strict: whether that is an error.
bool check_text(const struct job *job, struct bytes text, bool *strict, struct error *err);

// Adds to what the log says of the job.
void check_warn(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
