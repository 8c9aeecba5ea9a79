// SPDX-License-Identifier: Apache-2.0
// server/parts.h: the text of an answer taken apart into reasoning, content and tool calls, in the order in which the
// model wrote them. The writers of all APIs read these parts. Runs on the writer's thread.
#ifndef SERVER_PARTS_H
#define SERVER_PARTS_H

#include "server/job.h"

void parts_take(struct choice *choice); // a chat's delivered text
void parts_add_content(struct choice *choice, struct bytes text);
void parts_add_empty(struct choice *choice); // content of no text

// All text of one kind, joined; borrowed until the next text comes. For whole answers: only the first part of that kind
// keeps a text.
struct bytes parts_join(struct choice *choice, enum part_kind kind);

// For APIs whose calls have arguments as an object: arguments that are none, because the answer was cut off within
// them, become {"incomplete": "..."} with what there is.
void parts_complete_call(struct answer_part *call);

// White space alone, so far: no part of its own where there are others.
bool parts_is_blank(struct answer_part *part);
bool parts_is_filler(const struct choice *choice, struct answer_part *part); // and nothing of it is shown

size_t parts_bytes(const struct choice *choice); // of memory
void parts_free(struct choice *choice);

#endif
