// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/added.h: added tokens (<|im_end|>, user-defined words), which are found in a text before it is split.
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include "base/bytes.h"
#include "base/map.h"
#include "text/tokenizer/vocab.h"

// At every place where one could start, each length is tried: these keep a hostile file from making that slow.
enum { ADDED_BYTES_MAX = 1024, ADDED_LENGTHS_MAX = 256 };

struct added_token {
    struct bytes content; // borrowed
    int32_t id;
    bool single_word;    // not inside a word
    bool lstrip, rstrip; // takes the white space on that side with it
};

// Where two could match, llama.cpp gives way to the longest anywhere in the text, Hugging Face to the leftmost.
enum added_order { ADDED_LEFTMOST_FIRST, ADDED_LONGEST_FIRST };

struct added {
    enum added_order order;
    struct added_token *tokens; // heap
    size_t count;
    struct map index;             // content -> index into tokens
    struct added_length *lengths; // the lengths there are, longest first
    size_t length_count;
    bool starts[256]; // bytes that some token starts with
};

void added_add(struct added *added, struct added_token token);
bool added_finish(struct added *added, struct error *err); // once, after the last added_add
void added_free(struct added *added);

struct added_match {
    size_t begin, end; // with the white space it took
    int32_t id;
};

struct added_matches {
    struct added_match *items; // heap, in the order of the text
    size_t count, capacity;
};

// Fills *out, which must be zeroed or used before. Special tokens count only with `special`.
void added_find(const struct added *added, const struct vocab *vocab, struct bytes text, bool special,
                struct added_matches *out);
void added_matches_free(struct added_matches *matches);

#endif
