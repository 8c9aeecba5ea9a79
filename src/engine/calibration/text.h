// SPDX-License-Identifier: Apache-2.0
// engine/calibration/text.h: the built-in calibration text, of many kinds (prose, talk, code, tables, several
// languages). Models are measured on it when the user names no other text. The build embeds calibration_text.txt.
#ifndef ENGINE_CALIBRATION_TEXT_H
#define ENGINE_CALIBRATION_TEXT_H

#include <stddef.h>

extern const char calibration_text[]; // terminated
extern const size_t calibration_text_len;

#endif
