// SPDX-License-Identifier: Apache-2.0
// text/save.h: the files of a checkpoint's folder that are about text.
#ifndef TEXT_SAVE_H
#define TEXT_SAVE_H

#include "format/checkpoint.h"

// Copies tokenizer, template and generation files from the checkpoint's folder, or makes them of a GGUF's keys:
// tokenizer.json, tokenizer_config.json and generation_config.json.
bool text_save(const struct checkpoint *checkpoint, const char *folder, struct error *err);

#endif
