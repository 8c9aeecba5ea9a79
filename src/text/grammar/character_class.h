// SPDX-License-Identifier: Apache-2.0
// text/grammar/character_class.h: character classes of regexes ([a-z], \d, .) as ranges of code points, and those as
// edges of an NFA over UTF-8 bytes (the utf8-ranges construction of RE2 and Rust's regex-automata).
#ifndef TEXT_GRAMMAR_CHARACTER_CLASS_H
#define TEXT_GRAMMAR_CHARACTER_CLASS_H

#include "text/grammar/dfa.h"

enum { CLASS_RANGES_MAX = 512 };

struct range {
    uint32_t low, high;
};

struct character_class {
    struct range ranges[CLASS_RANGES_MAX];
    size_t count;
    bool letters;   // it holds \d, \w or \s, which regex engines read alike for ASCII only
    bool wide;      // with all that any engine might let pass
    bool in_string; // inside a JSON string: characters are escaped as JSON demands
};

bool class_add(struct character_class *class, uint32_t low, uint32_t high, struct error *err);
bool class_negate(struct character_class *class, struct error *err);
bool class_add_letter(struct character_class *class, char letter, struct error *err); // d D w W s S; false: another one
void class_to_nfa(const struct character_class *class, struct nfa *nfa, uint32_t from, uint32_t to);

#endif
