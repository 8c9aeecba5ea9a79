// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup.h: finds an op's weights by name and checks their shape and dtype against the config and the
// quantisation config. A missing or mismatched tensor is an error that names it; unused tensors are named in a warning.
// A folder with config.json alone can be planned: its weights are imagined, in the config's dtype or as declared.
#ifndef MODEL_TENSOR_LOOKUP_H
#define MODEL_TENSOR_LOOKUP_H

#include "model/graph.h"

// Before the first lookup: detects the names' prefix and whether there are weights, and reads the quantisation config.
void find_begin(struct graph *graph);

// After the last lookup: records unused tensors and frees the lookup. Call it in any case.
void find_end(struct graph *graph);

// A matrix with its bias (if present or required) and global scale. rows 0: any number (the vocabulary).
struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols, enum buffer out);

// A matrix of one row, which GGUF may store as a vector.
struct op_matrix find_row(struct graph *graph, enum weight_name name, int64_t cols, enum buffer out);

// The matrices of `count` experts as one tensor (count, rows, cols), with bias (count, rows) and scale (count, 1) if
// present. In safetensors each expert has its own name, with its number in place of '*'; a name without '*', and GGUF
// names, are stacked tensors.
struct op_matrix find_experts(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out);

// The same from a fused tensor with two matrices per expert, gate above up, (count, 2 * rows, cols), of which this is
// number `half`. In safetensors such tensors, and the stacked down, have no ".weight" suffix and hold plain floats.
struct op_matrix find_half(struct graph *graph, enum weight_name name, int half, int count, int64_t rows, int64_t cols,
                           enum buffer out);
struct op_matrix find_stacked(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out);

// The same from a tensor in which the rows of `step` matrices are interleaved, of which this is number `first`:
// gpt-oss's gate and up (step 2), and down alone (step 1). MXFP4 as NAME_blocks and NAME_scales, or floats of (count,
// cols, step * rows); biases as NAME_bias, (count, step * rows).
struct op_matrix find_alternating(struct graph *graph, enum weight_name name, int first, int step, int count,
                                  int64_t rows, int64_t cols, enum buffer out);

// A plain float vector: norm weights, a router's bias.
const struct tensor *find_vector(struct graph *graph, enum weight_name name, int64_t width); // NAME.weight
const struct tensor *find_named_vector(struct graph *graph, enum weight_name name, const char *suffix, int64_t width);

// The kernel of a short convolution, (channels, 1, width), in GGUF (channels, width).
const struct tensor *find_conv_kernel(struct graph *graph, enum weight_name name, int64_t channels, int64_t conv_width);

// A vector that GGUF stores as a matrix of one column.
const struct tensor *find_column(struct graph *graph, enum weight_name name, const char *suffix, int64_t rows);

// Grouped norm weights: (groups * width), in GGUF (groups, width).
const struct tensor *find_groups(struct graph *graph, enum weight_name name, int64_t groups, int64_t width);

bool find_has(struct graph *graph, enum weight_name name, const char *suffix); // true if NAME.suffix exists

bool find_tied_head(struct graph *graph); // tied embeddings: no lm_head, and the config does not require one

#endif
