// SPDX-License-Identifier: Apache-2.0
// server/observe.h: what metrics say of answers: the times of their tokens, and of their ends.
#ifndef SERVER_OBSERVE_H
#define SERVER_OBSERVE_H

#include "server/job.h"
#include "server/metrics.h"

void observe_output(struct metrics *metrics, struct job *job); // before answer_take consumes the output

#endif
