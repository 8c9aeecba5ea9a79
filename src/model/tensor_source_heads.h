// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_heads.h: the matrices between heads and latents. A file has both in one: for each head the rows
// that
// make keys of a latent, then those that make values. Queries are brought to latents instead, which wants the first
// ones turned around, and what attention makes of latents is brought to values.
#ifndef MODEL_TENSOR_SOURCE_HEADS_H
#define MODEL_TENSOR_SOURCE_HEADS_H

#include "model/tensor_source.h"

// Of (heads * each, latent), or (heads, each, latent), the rows [first, first + count) of each head: as they are,
// (heads * count, latent), or turned around, (heads * latent, count). At most HEAD_DIM_MAX columns. Plain floats keep
// their format, all others become float16, which rounds them a little.
const struct tensor *tensor_source_head_rows(struct arena *arena, const struct tensor *tensor, int each, int first,
                                       int count);
const struct tensor *tensor_source_head_transpose(struct arena *arena, const struct tensor *tensor, int each, int first,
                                         int count);

#endif
