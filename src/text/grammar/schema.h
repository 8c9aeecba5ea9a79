// SPDX-License-Identifier: Apache-2.0
// text/grammar/schema.h: JSON Schema to a pushdown automaton over bytes (as in XGrammar and llguidance). A keyword is
//   enforced     every answer that follows the grammar meets it. Not every valid answer follows the grammar: properties
//                come in the order given, and unnamed ones do not come beside named ones
//   checked      the grammar accepts more than the schema: grammar->unenforced lists the keyword, and the finished
//                answer must be given to the validator (validate.h)
//   unsupported  by grammar and validator: grammar->unsupported lists it, and the caller refuses or warns
#ifndef TEXT_GRAMMAR_SCHEMA_H
#define TEXT_GRAMMAR_SCHEMA_H

#include "text/grammar/keywords.h"
#include "text/grammar/rules.h"

enum {
    SCHEMA_BYTES_MAX = 512 << 10,  // names and texts in it
    SCHEMA_VALUES_MAX = 1 << 14,   // JSON values in it
    SCHEMA_DEPTH_MAX = 100,        // of nesting, through $ref too
    SCHEMA_PROPERTIES_MAX = 1024,  // of one object
    SCHEMA_PREFIX_MAX = 256,       // prefixItems
    SCHEMA_COUNT_MAX = 1 << 20,    // minLength, minItems and the like; longer than any answer
    SCHEMA_MERGES_MAX = 2048,      // allOf, and anyOf with something beside it
    SCHEMA_PRODUCT_MAX = 64,       // alternatives that two anyOf make together
    SCHEMA_NOTES_BYTES_MAX = 1024, // of the lists of checked and of unsupported keywords
    SCHEMA_WORK_MAX = 4 << 20,     // comparisons of values
};

// A schema being turned into rules.
struct schema {
    struct grammar *grammar;
    const json_t *root; // what $ref starts from
    struct error *err;
    struct strbuf path; // where we are; stays where something was refused
    struct map refs;    // $ref -> node
    json_t *made;       // schemas that merging has made, kept to the end
    size_t work;
    int depth;
    bool unmet;  // the failure is that nothing can meet the schema: among alternatives, it is none of them
    bool narrow; // a negation has left something out
};

// The node of a value that meets the schema, or RULES_NONE with a sentence.
uint32_t schema_compile(struct grammar *grammar, const json_t *schema, struct error *err);

uint32_t parameters_compile(struct grammar *grammar, const struct grammar_parameters *parameters, struct error *err);

// ---- among the files of schemas ------------------------------------------------------------------------------------

uint32_t schema_value(struct schema *schema, const json_t *json); // any schema
uint32_t schema_object(struct schema *schema, const json_t *json);
uint32_t schema_array(struct schema *schema, const json_t *json);
uint32_t schema_string(struct schema *schema, const json_t *json);
uint32_t schema_number(struct schema *schema, const json_t *json, bool integer);
uint32_t schema_enum(struct schema *schema, const json_t *json);
uint32_t schema_any(struct grammar *grammar, struct error *err);                        // any JSON value
uint32_t schema_any_object(struct grammar *grammar, uint32_t value, struct error *err); // of any such members
uint32_t schema_any_array(struct grammar *grammar, uint32_t item, uint32_t low, uint32_t high, struct error *err);

// Sets up the compilation of a whole schema; false with a sentence when it is too large.
bool schema_open(struct schema *schema, struct grammar *grammar, const json_t *json, struct error *err);
uint32_t schema_close(struct schema *schema, uint32_t node); // returns the node

// A literal that is made once.
uint32_t schema_token(struct grammar *grammar, const char *text, struct error *err);
uint32_t schema_word(struct grammar *grammar, const char *word, struct error *err); // true, false or null
// Punctuation, with JSON's white space where that belongs to it: behind what opens, before what closes, around the
// rest.
uint32_t schema_mark(struct grammar *grammar, char byte, struct error *err);
uint32_t schema_never(struct schema *schema);

// Enters a part of the schema, for the path in error messages; schema_leave returns.
size_t schema_enter(struct schema *schema, const char *keyword, const char *name);
void schema_leave(struct schema *schema, size_t mark);

// Leaves a keyword to the validator; the grammar accepts more than the schema here.
void schema_defer(struct schema *schema, const char *keyword);
// Leaves out a keyword with a value that the validator cannot check either: unsupported.
void schema_ignore(struct schema *schema, const char *keyword);
// Fails with "it cannot be met: ..." and says so in schema->unmet; returns false.
bool schema_fail_unmet(struct schema *schema, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A savepoint undoes what a failed attempt has deferred.
struct schema_savepoint {
    size_t unenforced, unsupported, path;
};
struct schema_savepoint schema_begin(const struct schema *schema);
void schema_undo(struct schema *schema, const struct schema_savepoint *attempt);

// Two counts such as minLength and maxLength; false with a sentence when they are none or exclude each other.
bool schema_counts(struct schema *schema, const json_t *json, const char *low_name, uint32_t *low,
                   const char *high_name, uint32_t *high);

// The first keyword that constrains beside those listed, or NULL.
const char *schema_constraint_beside(const json_t *json, const char *const *known);

// ---- strings ----

// The strings of a schema (its pattern, format, lengths, and what `not` excludes) as a dfa over their JSON text, of
// no states where there are none. False with a sentence: it would be too large, or the pattern cannot be masked.
bool schema_string_dfa(struct schema *schema, const json_t *json, struct dfa *out);
bool schema_any_string(struct schema *schema, struct dfa *out);
// Leaves only the strings that match the pattern, or only those that do not.
bool schema_keep_matching(struct schema *schema, const char *pattern, bool matching, struct dfa *dfa);
bool schema_drop_strings(struct schema *schema, const json_t *list, struct dfa *dfa);
// Is this {"type": "string", "not": E}, E being enum or pattern or an anyOf of such? Negations end in that form.
bool schema_excludes_strings(const json_t *json);

// ---- logic ----

uint32_t schema_not(struct schema *schema, const json_t *json);
uint32_t schema_if(struct schema *schema, const json_t *json);
// {"anyOf": [if and then, not if and else]}, borrowed; NULL with a sentence.
const json_t *schema_if_as_any(struct schema *schema, const json_t *json);
uint32_t schema_one(struct schema *schema, const json_t *json);
uint32_t schema_dependent(struct schema *schema, const json_t *json);
uint32_t schema_alternatives(struct schema *schema, const json_t *json, const char *keyword); // anyOf, or oneOf as such

// ---- schemas as JSON ----

const json_t *schema_resolve(const json_t *root, const char *ref, struct error *err); // borrowed; NULL with a sentence
bool schema_is_elsewhere(const char *ref); // in another document, or by an anchor: schema_resolve does not follow it
const json_t *schema_follow(struct schema *schema, const json_t *json); // through $ref, as far as that leads
// Keeps a schema that was made until all is done; NULL with a sentence when there are too many.
const json_t *schema_keep(struct schema *schema, json_t *made);
// The schema of values that are valid against both, borrowed; NULL with a sentence.
const json_t *schema_merge(struct schema *schema, const json_t *a, const json_t *b);
const json_t *schema_without(struct schema *schema, const json_t *json, const char *keyword); // borrowed
json_t *schema_listed(const json_t *json); // the values of const or enum, as a new list; NULL: neither is there
// Can it be seen that no answer to either is valid against both?
bool schema_exclusive(struct schema *schema, const json_t *a, const json_t *b, int depth);

#endif
