// SPDX-License-Identifier: Apache-2.0
// engine/sampling/families.h: the sampling parameters that the makers of model families advise, for files that say
// nothing about sampling themselves.
#ifndef ENGINE_SAMPLING_FAMILIES_H
#define ENGINE_SAMPLING_FAMILIES_H

#include "format/checkpoint.h"

struct sampling_family {
    const char *name;     // as its makers write it
    const char *words[2]; // all of them occur in the model's name; lower case letters and digits
    double temperature, top_p;
    int top_k;                 // 0: off
    double repetition_penalty; // 0: off, like the next
    double presence_penalty;
};

// The family of a checkpoint by its own names, those of its files and its architecture, in this order; NULL: none that
// is known.
const struct sampling_family *sampling_family_of(const struct checkpoint *checkpoint);

#endif
