// SPDX-License-Identifier: Apache-2.0
// model/find.h: an op's weights, by name, checked against what the config makes of them. What is missing or of another
// type or shape is a refusal that names it. A folder with config.json alone is planned all the same: its weights are
// imagined, in the config's own type.
#ifndef MODEL_FIND_H
#define MODEL_FIND_H

#include "model/graph.h"

// Before the first look: how this checkpoint's names begin, and whether it has weights at all.
void find_begin(struct graph *graph);

// rows 0: whatever it has. With its bias, where there is one or must be, and its overall scale.
struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols, enum buffer out);

// Norm weights: plain floats.
const struct tensor *find_vector(struct graph *graph, enum weight_name name, int64_t width);

bool find_tied_head(struct graph *graph); // no head of its own, and the config does not say there must be one

#endif
