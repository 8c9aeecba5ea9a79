// SPDX-License-Identifier: Apache-2.0
// text/template/escape.h: the backslash escapes of string literals, as Python reads them.
#ifndef TEXT_TEMPLATE_ESCAPE_H
#define TEXT_TEMPLATE_ESCAPE_H

#include "base/bytes.h"
#include "base/memory.h"

// *out lives in the arena. Returns NULL, or why the text is no string.
const char *escape_decode(struct bytes text, struct arena *arena, struct bytes *out);

#endif
