// SPDX-License-Identifier: Apache-2.0
// text/grammar/validator.h: one check of a value against a schema, shared by the walk over both (validate.c) and the
// checks of keywords (validate_keywords.c).
#ifndef TEXT_GRAMMAR_VALIDATOR_H
#define TEXT_GRAMMAR_VALIDATOR_H

#include "base/map.h"
#include "base/strbuf.h"
#include "text/grammar/ecma.h"
#include "text/grammar/validate.h"

struct validator {
    const json_t *root;
    struct strbuf where; // in the schema, as a JSON pointer
    struct strbuf at;    // in the value
    struct map known;    // regex -> its place in `regexes`
    struct ecma *regexes[VALIDATE_REGEXES_MAX];
    int regex_count;
    size_t work;
    int depth;
    int quiet; // inside anyOf, not and the like, where a violation is no verdict yet
    bool undecided;
    struct error *err;
};

// The value of a keyword, its schema, and what it is to hold for.
struct check {
    const char *keyword;
    const json_t *schema, *value, *instance;
};

// Both always return false: the keyword does not hold; no verdict is one any more.
bool validator_violated(struct validator *v, const struct check *check, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool validator_give_up(struct validator *v, const char *why);
bool validator_spend(struct validator *v, size_t work); // false: too much has been done

// The schema at `keyword`/`name` (NULL: at the keyword itself), for the part of the value at `step` (NULL: all of it).
bool validator_holds_at(struct validator *v, const char *keyword, const char *name, const json_t *schema,
                        const char *step, const json_t *instance);
bool validator_holds_quietly(struct validator *v, const json_t *schema, const json_t *instance); // no verdict yet

bool validator_equal(struct validator *v, const json_t *a, const json_t *b);
bool validator_matches(struct validator *v, struct bytes pattern, struct bytes text);

// The check of a keyword; NULL: the validator does not know it.
typedef bool check_keyword(struct validator *v, const struct check *check);
check_keyword *validator_check(int keyword);

#endif
