// SPDX-License-Identifier: Apache-2.0
// tools/tune_solve.h: chooses a format for the keys and the values of each layer from what each of them costs
// (a multiple-choice knapsack). Costs are taken to add up; the cost of the whole choice is measured afterwards.
#ifndef TOOLS_TUNE_SOLVE_H
#define TOOLS_TUNE_SOLVE_H

#include <stdbool.h>

enum { TUNE_FORMATS_MAX = 8 };

// One side of one layer in each of the formats.
struct tune_item {
    double bits[TUNE_FORMATS_MAX]; // of a value
    double kld[TUNE_FORMATS_MAX];  // what it adds
    int chosen;                    // a format
};

// Chooses a format for every item so that the mean of bits is at most `bits_max` and the sum of kld as low as it can be
// had, or, with bits_max 0, so that the sum is at most `kld_max` for as few bits as that takes. False: the cheapest in
// bits is too much, or the best in kld not good enough; it is chosen then.
bool tune_solve(struct tune_item *items, int count, int formats, double bits_max, double kld_max);

double tune_bits(const struct tune_item *items, int count); // the mean of what is chosen
double tune_kld(const struct tune_item *items, int count);  // and the sum

#endif
