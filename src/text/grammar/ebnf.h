// SPDX-License-Identifier: Apache-2.0
// text/grammar/ebnf.h: the syntax tree of a context-free grammar or a regex that came as text. Readers of GBNF and EBNF
// (gbnf.c), Lark (lark.c), regexes (regex.c) and structural tags build it. Regular parts become automata (ebnf_nfa.c);
// of grammars, ebnf_check finds what no answer could follow, and ebnf_compile.c makes rules.
#ifndef TEXT_GRAMMAR_EBNF_H
#define TEXT_GRAMMAR_EBNF_H

#include "text/grammar/character_class.h"
#include "text/grammar/rules.h"

enum {
    EBNF_BYTES_MAX = 1 << 19, // of a grammar's text
    EBNF_RULES_MAX = 4096,
    EBNF_NODES_MAX = 1 << 16,
    EBNF_RANGES_MAX = 1 << 17, // of all character classes together
    EBNF_DEPTH_MAX = 64,       // groups within groups
    EBNF_REPEAT_MAX = 4096,    // of a count in braces
};

#define EBNF_NONE UINT32_MAX // no node, no rule: what a reader returns with a sentence

enum ebnf_kind {
    EBNF_TEXT,     // `count` bytes of texts from `first` on
    EBNF_CLASS,    // a character out of `count` ranges from `first` on, sorted and apart
    EBNF_RULE,     // another rule, `first`
    EBNF_SEQUENCE, // `count` nodes from links[first] on
    EBNF_CHOICE,   // one of them
    EBNF_REPEAT,   // node `first`, low .. high times
    EBNF_SCHEMA,   // a value of schemas[first]
    EBNF_DFA,      // a text that dfas[first] accepts
};

struct ebnf_node {
    enum ebnf_kind kind;
    uint32_t first, count;
    uint32_t low, high; // RULES_UNBOUNDED: any number
    uint32_t line;      // of the text
    uint32_t parent;    // EBNF_NONE: the body of a rule, or not in use
    uint32_t body_of;   // a rule
    uint32_t size;      // states that an automaton of it takes, about; EBNF_IRREGULAR: there is none
    bool ends;          // it has a text at all,
    bool may_be_empty;  // the empty one,
    bool has_text;      // another one
};

#define EBNF_IRREGULAR UINT32_MAX // recursive, or nested deeper than EBNF_DEPTH_MAX

struct ebnf_rule {
    struct bytes name;
    uint32_t line; // where it is defined, or else used first
    uint32_t body; // EBNF_NONE: not defined yet
    bool used;     // the root leads to it
};

struct ebnf {
    struct ebnf_node *nodes;
    struct ebnf_rule *rules;
    struct range *ranges;
    uint32_t *links;
    struct strbuf texts;
    const json_t **schemas; // borrowed
    struct dfa *dfas;       // until a grammar takes them
    uint32_t node_count, rule_count, range_count, link_count, schema_count, dfa_count;
    uint32_t node_capacity, rule_capacity, range_capacity, link_capacity, schema_capacity, dfa_capacity;
    struct map names; // of rules
    struct arena arena;
    uint32_t *pending; // nodes of the lists being read
    uint32_t pending_count, pending_capacity;
    uint32_t root; // a rule
    uint32_t line; // that is being read
    struct error *err;
};

void ebnf_free(struct ebnf *tree);

// ---- building. Each returns a node, or EBNF_NONE with a sentence in tree->err when a limit is passed or an operand is
// EBNF_NONE -----------------------------------------------------------------------------------------------------------

uint32_t ebnf_text(struct ebnf *tree, struct bytes text);
uint32_t ebnf_character(struct ebnf *tree, uint32_t codepoint);
uint32_t ebnf_class(struct ebnf *tree, struct range *ranges, size_t count); // the ranges in any order
uint32_t ebnf_reference(struct ebnf *tree, struct bytes name);
uint32_t ebnf_repeat(struct ebnf *tree, uint32_t item, uint32_t low, uint32_t high);
uint32_t ebnf_schema(struct ebnf *tree, const json_t *schema);
uint32_t ebnf_dfa(struct ebnf *tree, struct dfa *dfa); // it becomes the tree's in any case

// Lists: ebnf_begin, an ebnf_add for each entry, then the node of all entries since that beginning. A list of one is
// its entry.
uint32_t ebnf_begin(const struct ebnf *tree);
bool ebnf_add(struct ebnf *tree, uint32_t node);
uint32_t ebnf_end(struct ebnf *tree, uint32_t begin, enum ebnf_kind kind);

uint32_t ebnf_rule(struct ebnf *tree, struct bytes name); // the rule of that name, made where there is none
bool ebnf_define(struct ebnf *tree, uint32_t rule, uint32_t line, uint32_t body);

bool ebnf_fail(struct ebnf *tree, const char *format, ...)
    __attribute__((format(printf, 2, 3))); // "line 3: ..."; returns false

// ---- after the last rule --------------------------------------------------------------------------------------------

// Fails with a sentence: a rule that is not defined, cannot end, or begins with itself by way of another.
bool ebnf_check(struct ebnf *tree);
bool ebnf_fail_rule(struct ebnf *tree, uint32_t rule, const char *what); // about a rule and its line

// Adds the texts of a regular part as paths between two states; in_string: as the content of a JSON string.
void ebnf_to_nfa(const struct ebnf *tree, uint32_t node, bool in_string, struct nfa *nfa, uint32_t from, uint32_t to);

// The root as a node of the grammar; RULES_NONE with a sentence.
uint32_t ebnf_compile(struct ebnf *tree, struct grammar *grammar);

// ---- readers of text ------------------------------------------------------------------------------------------------

bool gbnf_read(struct ebnf *tree, struct bytes text);
bool lark_read(struct ebnf *tree, struct bytes text);
bool lark_is_likely(struct bytes text); // no line of it begins a rule with ::=

// The structural tag of vLLM, SGLang and XGrammar: free text in which triggers begin forms.
bool structural_tag_read(struct ebnf *tree, const json_t *tag);

#endif
