// SPDX-License-Identifier: Apache-2.0
// model/quantize/config.h: the config.json that a GGUF's model would have been published with.
#ifndef MODEL_QUANTIZE_CONFIG_H
#define MODEL_QUANTIZE_CONFIG_H

#include <jansson.h>

#include "model/model.h"

// What was made is read again, as *published (without weights, under published names), and must describe the very same
// model: where the GGUF says what the config cannot, that is a refusal. On true *config is a new reference.
bool config_publish(const struct checkpoint *gguf, const struct model *model, json_t **config, struct model *published,
                    struct error *err);

#endif
