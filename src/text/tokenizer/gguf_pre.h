// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/gguf_pre.h: the pre-tokenizers a GGUF names in tokenizer.ggml.pre. A GGUF carries no regexes, only
// such a name; here are the ones each family published. A name that is not here cannot be tokenised rightly.
#ifndef TEXT_GGUF_PRE_H
#define TEXT_GGUF_PRE_H

#include "base/bytes.h"

enum {
    GGUF_PRE_WHOLE = 1,          // a piece that is a token is taken whole
    GGUF_PRE_BOS = 2,            // BOS is added unless the file says otherwise
    GGUF_PRE_BOS_ALWAYS = 4,     // and even then: the files of this family have it wrong
    GGUF_PRE_NO_BOS = 8,         // there is no BOS unless the file names one
    GGUF_PRE_SPACES = 16,        // pieces are plain text with U+2581 for a space, not the byte alphabet
    GGUF_PRE_NEWLINES_WHOLE = 32 // a run of newlines that is a token is taken whole
};

struct gguf_pre {
    const char *names;
    const char *const *splits; // regexes, one after another, each isolating its matches; NULL at the end
    int flags;
};

const struct gguf_pre *gguf_pre_find(struct bytes name); // NULL: unknown

#endif
