// SPDX-License-Identifier: Apache-2.0
// text/grammar/notation.h: a recursive descent that GBNF, Lark and regexes share: a cursor, characters and escapes,
// texts and classes, and the levels of an expression, which are alternatives of sequences of repeated atoms.
#ifndef TEXT_GRAMMAR_NOTATION_H
#define TEXT_GRAMMAR_NOTATION_H

#include "text/grammar/ebnf.h"

struct reader {
    struct ebnf *tree;
    struct bytes text;
    size_t at;
    int depth; // of groups
    const struct notation *notation;
};

// Where notations differ.
struct notation {
    const char *name;     // in sentences
    const char *comment;  // begins one, as # does
    const char *repeats;  // characters that stand behind what is repeated
    const char *controls; // escapes: the letter behind the backslash, and the character that it stands for
    const char *escapes;  // the others, whose characters stand for themselves; NULL: all but letters and digits
    int stacked_max;      // repetitions of one another, x+?*; 0: a ? or + behind one says which match is preferred
    bool leading_bar;     // an expression may begin with |
    bool leading_bracket; // a ] that comes first in a class is a character
    bool ecma;            // \u may name a half of a pair, and there are neither \U nor x*+

    void (*skip_space)(struct reader *reader);  // between the parts of a sequence
    void (*skip_blanks)(struct reader *reader); // within a repetition
    uint32_t (*read_atom)(struct reader *reader);
    bool (*ends_sequence)(const struct reader *reader);
    bool (*end_sequence)(struct reader *reader); // passes what belongs to its end; NULL: nothing does
    // An item of a class that is no range of characters: false: there is none; *ok false: with a sentence
    bool (*read_class_item)(struct reader *reader, struct character_class *class, bool *ok);
};

// ---- the cursor -----------------------------------------------------------------------------------------------------

static inline bool at_end(const struct reader *reader) { return reader->at >= reader->text.len; }

static inline char peek_at(const struct reader *reader, size_t ahead) // NUL: the text ends before
{
    return ahead < reader->text.len - reader->at ? reader->text.data[reader->at + ahead] : '\0';
}

static inline char peek(const struct reader *reader) { return peek_at(reader, 0); }

static inline bool starts_with(const struct reader *reader, const char *text)
{
    return bytes_start_with(bytes_from(reader->text, reader->at), bytes_of(text));
}

static inline bool take(struct reader *reader, const char *text)
{
    bool found = starts_with(reader, text);
    reader->at += found ? strlen(text) : 0;
    return found;
}

bool notation_fail_found(struct reader *reader, const char *expected); // names what stands here; returns false

// Skips in the order of what may come: blanks; blanks, line ends and comments; nothing.
void notation_skip_blanks(struct reader *reader);
void notation_skip_space(struct reader *reader);
void notation_skip_nothing(struct reader *reader);

bool notation_is_letter(char c); // or a digit
bool notation_is_name(char c);   // the same, _ or -

// ---- parts. Nodes as in ebnf.h: EBNF_NONE comes with a sentence -----------------------------------------------------

bool notation_character(struct reader *reader, uint32_t *out);                            // or an escape
bool notation_quoted(struct reader *reader, char quote, struct strbuf *out);              // behind the first quote
bool notation_class(struct reader *reader, struct character_class *class, bool *negated); // behind the bracket
uint32_t notation_group(struct reader *reader, const char *close);                        // behind the parenthesis
uint32_t notation_sequence(struct reader *reader);
uint32_t notation_alternatives(struct reader *reader);

#endif
