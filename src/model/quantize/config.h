// SPDX-License-Identifier: Apache-2.0
// model/quantize/config.h: makes a config.json for a GGUF's model.
#ifndef MODEL_QUANTIZE_CONFIG_H
#define MODEL_QUANTIZE_CONFIG_H

#include <jansson.h>

#include "model/model.h"

// The new config is parsed again into *published (without weights, with published names) and must describe the same
// model; what a config.json cannot express is an error. On success *config is a new reference.
bool config_publish(const struct checkpoint *gguf, const struct model *model, json_t **config, struct model *published,
                    struct error *err);

#endif
