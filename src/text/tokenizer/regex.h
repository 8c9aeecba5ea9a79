// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/regex.h: the regexes of tokenizers, on PCRE2. They are written for Oniguruma, whose dialect differs
// (regex_dialect.h); the text is always valid UTF-8. A scan is bounded in memory and time whatever the pattern.
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

struct regex; // immutable: any number of scans at once

struct regex *regex_new(struct bytes pattern, struct error *err);      // NULL on failure
struct regex *regex_new_literal(struct bytes text, struct error *err); // matches exactly this text
void regex_free(struct regex *regex);

// A walk over the matches in one text after another. The memory it needs is kept from text to text.
struct regex_scan;

struct regex_scan *regex_scan_open(const struct regex *regex);
void regex_scan_close(struct regex_scan *scan);
void regex_scan_start(struct regex_scan *scan, struct bytes text);

enum regex_step { REGEX_MATCH, REGEX_END, REGEX_FAILED };
// The next match, left to right and without overlap; empty matches count, but not right behind another match.
enum regex_step regex_scan_next(struct regex_scan *scan, size_t *begin, size_t *end, struct error *err);

// Appends `text` to *out with every match replaced by `content`; fails rather than make *out longer than `bytes_max`.
bool regex_replace(struct regex_scan *scan, struct bytes text, struct bytes content, size_t bytes_max,
                   struct strbuf *out, struct error *err);

#endif
