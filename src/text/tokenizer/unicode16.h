// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/unicode16.h: the general categories of what Unicode 15.0, 15.1 and 16.0 have added. The PCRE2 of a
// distribution may be as old as Unicode 14; with these beside its own tables, a text has the same tokens on every
// machine.
#ifndef TEXT_UNICODE16_H
#define TEXT_UNICODE16_H

#include "base/bytes.h"
#include "base/strbuf.h"

// Appends the code points of a category, "L" or "Lu", or of the script "Han", as items of a character class.
void unicode16_add_category(struct bytes category, struct strbuf *out);

#endif
