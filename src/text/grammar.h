// SPDX-License-Identifier: Apache-2.0
// text/grammar.h: constrained decoding (structured outputs). A JSON schema, a regex or a form of tool calls becomes a
// grammar over bytes; a matcher follows one answer and masks the tokens that cannot come next. The cost of a schema is
// bounded when it is compiled; after that a matcher cannot fail.
#ifndef TEXT_GRAMMAR_H
#define TEXT_GRAMMAR_H

#include <jansson.h>

#include "base/error.h"
#include "text/tokenizer.h"

// The tokens of a vocabulary as bytes, in an order that a matcher can walk. One per tokenizer; immutable.
struct grammar_vocabulary;
struct grammar_vocabulary *grammar_vocabulary_open(const struct tokenizer *tokenizer);
void grammar_vocabulary_close(struct grammar_vocabulary *vocabulary);

struct grammar; // immutable: any number of matchers of one vocabulary, on any thread
struct grammar *grammar_share(struct grammar *grammar); // a further reference
void grammar_free(struct grammar *grammar);             // gives one back
// The memory that it takes, with the masks that it keeps for a vocabulary of so many tokens.
size_t grammar_bytes(const struct grammar *grammar, int vocabulary);

// NULL with a sentence: a schema that is malformed, too large or cannot be met.
struct grammar *grammar_from_schema(const json_t *schema, struct error *err);
struct grammar *grammar_from_compact_schema(const json_t *schema, struct error *err); // without white space in answers
// Keywords that the grammar does not enforce, with their places ("'not' at #/items, ..."): an answer has to be given
// to validate() (text/grammar/validate.h). NULL: every answer that follows the grammar meets its schemas.
const char *grammar_unenforced(const struct grammar *grammar);
// Keywords that neither the grammar nor the validator understands. NULL: there are none.
const char *grammar_unsupported(const struct grammar *grammar);
// Text that the whole of a regex matches (text/grammar/pattern.h says which dialect).
struct grammar *grammar_from_pattern(struct bytes pattern, struct error *err);
// A context-free grammar as text: GBNF (llama.cpp), EBNF (XGrammar, SGLang) or Lark (vLLM), told apart by ::=.
struct grammar *grammar_from_text(struct bytes text, struct error *err);
// XGrammar's structural tag: free text in which markers begin forms.
struct grammar *grammar_from_structural_tag(const json_t *tag, struct error *err);
const char *grammar_notice(const struct grammar *grammar); // a sentence for the log, or NULL

// Text that must come word for word, then a value of the schema, and so on: what tool calls are made of. Each
// alternative is a list of parts; the answer is one of the alternatives, or several with the separator between them.
struct grammar_part {     // one of
    const char *literal;  // not empty
    const json_t *schema; // of a JSON value
    char mark;            // JSON's punctuation, with white space between it and its neighbours
    const char *pattern;  // a regex
    const struct grammar_parameters *parameters;
    bool is_word; // the literal is told from others by all of its text
};

// The properties of an object, in the order of its schema, each written as before, name, behind, value, close. A string
// is the text itself, which does not contain `text_close` (but for line breaks at its ends); any other value is JSON.
// In the closing texts %k stands for the name.
struct grammar_parameters {
    const json_t *schema;
    const char *before;
    const char *text_behind, *text_close; // of a string; NULL: strings are JSON, too
    const char *json_behind, *json_close; // of other values
    const char *between;
    const char *end; // behind all of them; without any, it comes without its leading line break
    bool python;     // True, False and None instead of JSON's words
};
struct grammar_alternative {
    const struct grammar_part *parts;
    int count;
};
struct grammar_parts {
    const struct grammar_alternative *alternatives;
    int count;
    const char *separator;       // NULL: exactly one of them comes; it may be empty
    const json_t *otherwise;     // a value of this schema is an answer, too; NULL: nothing else is
    const char *before, *behind; // literals around all of them; NULL or empty: none
};
struct grammar *grammar_from_parts(const struct grammar_parts *parts, struct error *err);

// The fewest tokens that an answer takes, its end token not counted, where matcher_choose closes it; INT_MAX when the
// vocabulary lacks bytes that an answer may need, or an end token. To be asked before a matcher is opened.
int grammar_shortest(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary);

struct matcher; // of one answer
struct matcher *matcher_open(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary);
void matcher_close(struct matcher *matcher);

// Clears the bits of tokens that cannot come next; `mask` has tokenizer_size of them. End tokens (tokenizer_is_end)
// may come where the answer may end. Matchers of one grammar share their masks, on any thread. Returns the work that
// it took, in steps of a few nanoseconds; 0: the mask was known.
uint64_t matcher_restrict(struct matcher *matcher, uint32_t *mask);

// For answers that must be whole whatever their length: the token to take where `drawn` would be. That is `drawn`
// itself, unless the answer could then no longer be finished within tokens_left (this one included); then the first
// token of the shortest way to finish, and from there on the answer is forced: what it says is no longer the model's
// choice.
int32_t matcher_choose(struct matcher *matcher, int tokens_left, int32_t drawn);
bool matcher_forced(const struct matcher *matcher);

// Accepts text inside an answer that came with tokens the matcher was not asked about. False: it cannot come next, and
// nothing has changed. matcher_takes only asks.
bool matcher_accept_text(struct matcher *matcher, struct bytes text);
bool matcher_takes(struct matcher *matcher, struct bytes text);

void matcher_accept(struct matcher *matcher, int32_t id); // one that matcher_restrict left, or matcher_choose gave
bool matcher_done(const struct matcher *matcher);         // the answer is whole and nothing but its end may follow

#endif
