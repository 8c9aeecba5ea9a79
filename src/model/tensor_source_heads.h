// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_heads.h: splits MLA's kv_b_proj by heads. For each head the file has the rows that make keys
// (w_uk) and then values (w_uv) from a latent. In absorbed MLA queries are multiplied by w_uk, which needs it
// transposed, and attention's output by w_uv.
#ifndef MODEL_TENSOR_SOURCE_HEADS_H
#define MODEL_TENSOR_SOURCE_HEADS_H

#include "model/tensor_source.h"

// Returns the rows [first, first + count) of each head of a (heads * each, latent) or (heads, each, latent) tensor: as
// they are, (heads * count, latent), or transposed, (heads * latent, count). At most HEAD_DIM_MAX columns. Plain floats
// keep their dtype; other formats become float16, with rounding.
const struct tensor *tensor_source_head_rows(struct arena *arena, const struct tensor *tensor, int each, int first,
                                             int count);
const struct tensor *tensor_source_head_transpose(struct arena *arena, const struct tensor *tensor, int each, int first,
                                                  int count);

#endif
