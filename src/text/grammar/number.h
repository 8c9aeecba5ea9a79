// SPDX-License-Identifier: Apache-2.0
// text/grammar/number.h: numbers that every reader of JSON takes for the same value: integers of up to 15 digits, and
// between bounds decimals of up to 15 digits, so that rounding to a double never carries one across a bound.
#ifndef TEXT_GRAMMAR_NUMBER_H
#define TEXT_GRAMMAR_NUMBER_H

#include <jansson.h>

#include "text/grammar/rules.h"

enum { NUMBER_DIGITS_MAX = 15, NUMBER_PLACES_MAX = 20, NUMBER_MULTIPLE_MAX = 1000 };

struct number_bound {
    bool present, exclusive;
    double value;
};

// `of` units of the last of so many decimal places; of 0: of anything.
struct number_multiple {
    uint32_t of, places;
};

struct number_range {
    bool integer;
    struct number_bound low, high;
    struct number_multiple multiple;
};

// Is one a multiple of the other, which is positive? Both are taken as the decimals that they are written as: 0.07 is a
// multiple of 0.01, though the doubles are not.
bool number_is_multiple(const json_t *number, const json_t *of);
// A multipleOf for a number_range; false: its dfa would be too large.
bool number_read_multiple(const json_t *of, struct number_multiple *out);

uint32_t number_rule(struct grammar *grammar, const struct number_range *range, struct error *err);

#endif
