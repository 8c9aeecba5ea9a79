// SPDX-License-Identifier: Apache-2.0
#include "sim/step_time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool step_time_read(struct step_time *time, const char *text)
{
    time->point_count = 0;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        char *end;
        int i = time->point_count++;
        if (i == STEP_TIME_POINTS_MAX)
            return false;
        time->points[i].rows = strtod(text, &end);
        if (end == text || *end != ':')
            return false;
        text = end + 1;
        time->points[i].seconds = strtod(text, &end);
        if (end == text || !isfinite(time->points[i].rows) || !isfinite(time->points[i].seconds)
            || time->points[i].rows <= (i ? time->points[i - 1].rows : 0))
            return false;
        text = end;
    }
    return time->point_count > 0;
}

static double seconds_of_rows(const struct step_time *time, double rows)
{
    if (time->point_count == 1)
        return time->points->seconds;
    int i = 1;
    while (i < time->point_count - 1 && time->points[i].rows < rows)
        i++;
    double width = time->points[i].rows - time->points[i - 1].rows;
    double share = (rows - time->points[i - 1].rows) / width;
    return time->points[i - 1].seconds + share * (time->points[i].seconds - time->points[i - 1].seconds);
}

double step_time_of(const struct step_time *time, const struct chunk *chunks, int count)
{
    double rows = 0, outputs = 0, context = 0, pairs = 0;
    for (int i = 0; i < count; i++) {
        double first = chunks[i].first, tokens = chunks[i].count;
        rows += tokens;
        outputs += chunks[i].outputs;
        *(chunks[i].count == 1 ? &context : &pairs) += tokens * first + tokens * (tokens + 1) / 2;
    }
    return seconds_of_rows(time, rows) + outputs * time->output + context * time->context + pairs * time->pair;
}
