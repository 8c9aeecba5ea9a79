// SPDX-License-Identifier: Apache-2.0
// model/quantize/quantize.h: quantises a checkpoint to a published layout: linear layers in a small format, everything
// else unchanged. A GGUF becomes a folder with Hugging Face names.
#ifndef MODEL_QUANTIZE_H
#define MODEL_QUANTIZE_H

#include "base/error.h"
#include "format/checkpoint.h"
#include "nibble.h"

struct hessian_source;

// Writes weights, config.json and perhaps hf_quant_config.json into an existing, empty folder. config.json comes last:
// without it a folder is no checkpoint. With a Hessian source (model/quantize/cholesky.h) weights are rounded by GPTQ;
// with NULL to nearest.
bool quantize(const struct checkpoint *checkpoint, const char *folder, const struct nibble_quantize_options *options,
              const struct hessian_source *hessian, struct error *err);

#endif
