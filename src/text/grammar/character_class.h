// SPDX-License-Identifier: Apache-2.0
// text/grammar/character_class.h: character classes of grammars and regexes ([a-z], \d, .) as ranges of code points,
// and those as edges of an NFA over UTF-8 bytes (the utf8-ranges construction of RE2 and Rust's regex-automata).
#ifndef TEXT_GRAMMAR_CHARACTER_CLASS_H
#define TEXT_GRAMMAR_CHARACTER_CLASS_H

#include "text/grammar/dfa.h"

enum { CLASS_RANGES_MAX = 512, CODEPOINT_MAX = 0x10FFFF, ASCII_MAX = 0x7F };

struct range {
    uint32_t low, high;
};

struct character_class { // being read
    struct range ranges[CLASS_RANGES_MAX];
    size_t count;
    bool letters; // it holds \d, \w or \s, which regex engines read alike for ASCII only
};

bool class_add(struct character_class *class, uint32_t low, uint32_t high); // false: it has too many ranges
size_t class_join(struct range *ranges, size_t count); // sorts them, joins those that touch; returns how many are left
bool class_negate(struct character_class *class, uint32_t first, uint32_t last); // the others between the two
// Adds the characters of \d, \w or \s; of \D, \W or \S, those of first .. last. False: it is another letter, or as
// above.
bool class_add_letters(struct character_class *class, char letter, uint32_t first, uint32_t last);

// in_string: inside a JSON string, where characters are escaped as JSON demands.
void class_to_nfa(const struct range *ranges, size_t count, bool in_string, struct nfa *nfa, uint32_t from,
                  uint32_t to);

#endif
