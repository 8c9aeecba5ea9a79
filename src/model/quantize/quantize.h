// SPDX-License-Identifier: Apache-2.0
// model/quantize/quantize.h: a checkpoint's weights written anew, as published checkpoints have them: linear layers in
// a small format, everything else as it is. What was one file of a GGUF's becomes a folder under Hugging Face's names.
#ifndef MODEL_QUANTIZE_H
#define MODEL_QUANTIZE_H

#include "base/error.h"
#include "format/checkpoint.h"
#include "nibble.h"

struct hessian_source;

// Writes weights, config.json and, where the layout has one, hf_quant_config.json into a folder that is there and
// empty. config.json comes last: without it a folder is no checkpoint. With hessian (model/quantize/cholesky.h), which
// may be NULL, weights make up for each other's errors.
bool quantize(const struct checkpoint *checkpoint, const char *folder, const struct nibble_quantize_options *options,
              const struct hessian_source *hessian, struct error *err);

#endif
