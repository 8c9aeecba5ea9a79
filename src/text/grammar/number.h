// SPDX-License-Identifier: Apache-2.0
// text/grammar/number.h: numbers that every reader of JSON takes for the same value: integers of up to 15 digits, and
// between bounds decimals of up to 15 digits, so that rounding to a double never carries one across a bound.
#ifndef TEXT_GRAMMAR_NUMBER_H
#define TEXT_GRAMMAR_NUMBER_H

#include "text/grammar/rules.h"

enum { NUMBER_DIGITS_MAX = 15, NUMBER_PLACES_MAX = 20 };

struct number_bound {
    bool present, exclusive;
    double value;
};

struct number_range {
    bool integer;
    struct number_bound low, high;
};

uint32_t number_rule(struct grammar *grammar, const struct number_range *range, struct error *err);

#endif
