// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/normalize.h: normalizers: steps applied to text before it is split. Text in and out is valid
// UTF-8.
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "text/tokenizer/regex.h"

// However its steps are written, a normalizer makes a text no longer than this.
enum { NORMALIZE_GROWTH_MAX = 64, NORMALIZE_GROWTH_FREE_BYTES = 64 * 1024 };

enum normalize_kind {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE,     // each character by itself
    NORMALIZE_STRIP_ACCENTS, // drop combining marks
    NORMALIZE_STRIP,         // white space at either end
    NORMALIZE_PREPEND,       // `content` in front of text that is not empty
    NORMALIZE_REPLACE,       // each match of `regex` by `content`
};

struct normalize_step {
    enum normalize_kind kind;
    bool left, right;     // STRIP
    struct bytes content; // PREPEND, REPLACE; borrowed
    struct regex *regex;  // REPLACE; owned
};

struct normalizer {
    struct normalize_step *steps; // heap; a zeroed struct changes nothing
    size_t count;
};

void normalizer_add(struct normalizer *normalizer, struct normalize_step step);
void normalizer_free(struct normalizer *normalizer);

// Appends to *out. `continues`: the text follows other text directly, so nothing is put in front of it.
bool normalizer_apply(const struct normalizer *normalizer, struct bytes text, bool continues, struct strbuf *out,
                      struct error *err);

bool normalize_is_space(uint32_t codepoint); // Unicode's White_Space
bool normalize_is_word(uint32_t codepoint);  // \w as Unicode's TR18 has it

#endif
