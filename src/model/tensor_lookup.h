// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup.h: an op's weights, by name, checked against what the config makes of them and, where the
// checkpoint
// declares quantised modules, against that. What is missing or of another type or shape is a refusal that names it;
// what nobody asked for is named in a warning. A folder with config.json alone is planned all the same: its weights are
// imagined, in the config's own type or as it declares them.
#ifndef MODEL_TENSOR_LOOKUP_H
#define MODEL_TENSOR_LOOKUP_H

#include "model/graph.h"

// Before the first look: how this checkpoint's names begin, whether it has weights at all, and what it declares.
void find_begin(struct graph *graph);

// After the last: writes down what was left over, and frees what looking needed. To be called in any case.
void find_end(struct graph *graph);

// rows 0: whatever it has. With its bias, where there is one or must be, and its overall scale.
struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols, enum buffer out);

// A matrix of one row, which a GGUF may have as a vector.
struct op_matrix find_row(struct graph *graph, enum weight_name name, int64_t cols, enum buffer out);

// The matrices of `count` experts as one tensor (count, rows, cols), with bias (count, rows) and scale (count, 1) where
// they have them. In safetensors they have names of their own, where '*' stands for the expert's number; a name without
// one, and a GGUF's, is that of a tensor with all of them.
struct op_matrix find_experts(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out);

// The same of a tensor with two matrices of each expert, one below the other, of which this is number `half`: gate and
// up, (count, 2 * rows, cols). In safetensors such tensors, and down beside them, have no ".weight" behind their names
// and hold plain floats.
struct op_matrix find_half(struct graph *graph, enum weight_name name, int half, int count, int64_t rows, int64_t cols,
                           enum buffer out);
struct op_matrix find_stacked(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out);

// The same of a tensor in which the rows of `step` matrices take turns, of which this is number `first`: gpt-oss has
// gate and up so (step 2), and down alone (step 1). MXFP4 as NAME_blocks and NAME_scales, or floats of
// (count, cols, step * rows); biases as NAME_bias, (count, step * rows).
struct op_matrix find_alternating(struct graph *graph, enum weight_name name, int first, int step, int count,
                                  int64_t rows, int64_t cols, enum buffer out);

// Plain floats in one dimension, as they lie in the file: norm weights, a router's bias.
const struct tensor *find_vector(struct graph *graph, enum weight_name name, int64_t width); // NAME.weight
const struct tensor *find_named_vector(struct graph *graph, enum weight_name name, const char *suffix, int64_t width);

// The kernel of a short convolution, (channels, 1, taps), or of a GGUF (channels, taps).
const struct tensor *find_conv_kernel(struct graph *graph, enum weight_name name, int64_t channels, int64_t taps);

// A vector that a GGUF has as a matrix of one column.
const struct tensor *find_column(struct graph *graph, enum weight_name name, const char *suffix, int64_t rows);

// Weights of each group's channels: (groups * width), or of a GGUF (groups, width).
const struct tensor *find_groups(struct graph *graph, enum weight_name name, int64_t groups, int64_t width);

bool find_has(struct graph *graph, enum weight_name name, const char *suffix); // is there NAME.suffix?

bool find_tied_head(struct graph *graph); // no head of its own, and the config does not say there must be one

#endif
