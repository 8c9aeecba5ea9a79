// SPDX-License-Identifier: Apache-2.0
// text/grammar/vocabulary.h: a vocabulary as tries over token bytes, with tokens sorted by what they do inside a JSON
// string (as llguidance's slicer).
#ifndef TEXT_GRAMMAR_VOCABULARY_H
#define TEXT_GRAMMAR_VOCABULARY_H

#include "text/grammar/rules.h"

enum { VOCABULARY_TOKEN_BYTES_MAX = 128 }; // longer tokens never come in an answer that must follow a grammar

// Nodes stand in the order of a walk: below a node are those behind it, up to `skip`.
struct trie_node {
    uint32_t skip;
    uint32_t tokens; // where those that end here begin; they end where the next node's begin
    uint8_t byte;
    uint8_t depth; // bytes up to here, this one included
};

struct trie_token {
    int32_t id;
    uint32_t characters; // of `closers`: those before the quote
};

struct trie {
    struct trie_node *nodes; // and one more, for the end of the last one's tokens
    struct trie_token *tokens;
    uint32_t node_count, token_count;
    uint32_t roots[257]; // the node of a first byte; where there is none, that of the next
};

struct plain_token {
    int32_t id;
    uint32_t characters;
};

struct grammar_vocabulary {
    const struct tokenizer *tokenizer;
    int size;
    size_t mask_words;  // of 32 bits
    struct trie tokens; // as they are written inside a text
    struct trie first;  // as they are written at its beginning, where that differs; else no nodes
    // Inside a JSON string nearly every token is allowed; those that stay inside and those that end it are known here.
    uint32_t *plain;            // a mask of tokens that stay inside
    struct plain_token *plains; // the same, most characters first
    uint32_t plain_count;
    struct trie closers;   // tokens that end the string, by what they have behind the quote
    uint32_t *ends;        // a mask of end tokens
    int32_t end;           // one of them; -1: none
    size_t longest;        // bytes of a token
    struct byte_set bytes; // those that are a token of their own
};

static inline const struct trie *vocabulary_trie(const struct grammar_vocabulary *vocabulary, bool first)
{
    return first && vocabulary->first.node_count ? &vocabulary->first : &vocabulary->tokens;
}

static inline void mask_set(uint32_t *mask, int32_t id) { mask[id / 32] |= (uint32_t)1 << id % 32; }

// The bytes that a token puts into a text; `first`: at its beginning.
void vocabulary_write(const struct tokenizer *tokenizer, int32_t id, bool first, struct strbuf *out);

// Can any answer be written in this vocabulary, and be ended?
bool vocabulary_suffices(const struct grammar_vocabulary *vocabulary, const struct grammar *grammar);

// The fewest tokens that make up `text`, appended to *out; false: no tokens do.
bool vocabulary_cut(const struct grammar_vocabulary *vocabulary, struct bytes text, bool first, struct tokens *out);

#endif
