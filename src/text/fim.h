// SPDX-License-Identifier: Apache-2.0
// text/fim.h: fill in the middle (FIM): the prompt with which a model writes what stands between a prefix and a suffix,
// in the tokens and the order of its family. The tokens are named by a GGUF's keys, or found by their known spellings.
#ifndef TEXT_FIM_H
#define TEXT_FIM_H

#include "text/tokenizer.h"

enum { FIM_ENDS_MAX = 4 };

struct fim {
    int32_t prefix, suffix, middle; // middle -1: the family has none
    int32_t repository, file;       // before a project's name, and before each file's; -1: none
    bool suffix_first;              // the suffix stands before the prefix, as in Codestral
    bool adds_space;                // the tokenizer puts a space before a text, which the suffix must not have
    int32_t ends[FIM_ENDS_MAX];     // tokens with which a middle ends, beside those of any answer
    int end_count;
};

// False: the vocabulary has no such tokens.
bool fim_find(const struct tokenizer *tokenizer, struct fim *out);

// A file of the project that the text belongs to.
struct fim_file {
    struct bytes name, text;
};

struct fim_text {
    struct bytes prefix, suffix;
    struct bytes begun;           // of the middle, what is there already
    const struct fim_file *files; // they come first
    size_t file_count;
};

// Appends to *out.
bool fim_encode(const struct tokenizer *tokenizer, const struct fim *fim, const struct fim_text *text, bool add_bos,
                const atomic_bool *cancelled, struct tokens *out, struct error *err);

#endif
