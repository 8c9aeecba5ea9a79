// SPDX-License-Identifier: Apache-2.0
// sim/step_time.h: how long a server takes for a step, from what was measured: a curve over the rows that a step reads
// (weights are read once for all of them), and what each row of logits, each token of context that a continued
// sequence looks back at, and each pair of a prompt's token with one before it adds.
#ifndef SIM_STEP_TIME_H
#define SIM_STEP_TIME_H

#include "engine/schedule/scheduler.h"

enum { STEP_TIME_POINTS_MAX = 64 };

struct step_time {
    struct {
        double rows, seconds;
    } points[STEP_TIME_POINTS_MAX]; // by rising rows; straight lines between them, and on after the last
    int point_count;
    double output, context, pair; // seconds each
};

// "1:0.004 128:0.0066 ..." False: that is no curve.
bool step_time_read(struct step_time *time, const char *text);

double step_time_of(const struct step_time *time, const struct chunk *chunks, int count);

#endif
