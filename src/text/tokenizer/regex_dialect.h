// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/regex_dialect.h: from Oniguruma's regex dialect, which tokenizers are published in, to PCRE2's. The
// two agree on most of the syntax and disagree on what it means: \s, \w, \h, \v, \b, scripts, `{n,m}+`, nested and
// intersected classes, the reach of `(?i)`. Everything is rewritten in terms that mean the same to both Unicode tables;
// what the dialects do not share and no tokenizer uses (captures, back references, POSIX brackets) is refused by name.
#ifndef TEXT_REGEX_DIALECT_H
#define TEXT_REGEX_DIALECT_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

enum { REGEX_BYTES_MAX = 64 * 1024, REGEX_DEPTH_MAX = 64 };

// Appends to *out. The result is for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE with newline LF.
bool regex_dialect_translate(struct bytes pattern, struct strbuf *out, struct error *err);

#endif
