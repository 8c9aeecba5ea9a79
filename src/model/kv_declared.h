// SPDX-License-Identifier: Apache-2.0
// model/kv_declared.h: the KV cache format that a checkpoint declares, which --kv-cache-dtype auto follows.
#ifndef MODEL_KV_DECLARED_H
#define MODEL_KV_DECLARED_H

#include "model/model.h"

// Sets every layer's kv_dtype: the model's 16-bit type, or what the checkpoint declares (kv_cache_scheme,
// kv_cache_quant_algo, kv_cache_quantized_layers, in config.json or hf_quant_config.json). For an unknown declaration
// the message is in model->kv_declared_unknown: `auto` is then refused, an explicit format is not.
void kv_declared_read(struct model *model, const struct checkpoint *checkpoint);

#endif
