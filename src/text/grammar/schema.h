// SPDX-License-Identifier: Apache-2.0
// text/grammar/schema.h: JSON schemas as rules. An answer that follows the rules meets the schema; not every answer
// that meets the schema follows them: properties come in the order given, and none that the schema does not name comes
// beside those that it does. A keyword that constrains and is not understood is refused by name, never ignored.
#ifndef TEXT_GRAMMAR_SCHEMA_H
#define TEXT_GRAMMAR_SCHEMA_H

#include "text/grammar/rules.h"

enum {
    SCHEMA_BYTES_MAX = 512 << 10,   // names and texts in it
    SCHEMA_VALUES_MAX = 1 << 14,    // JSON values in it
    SCHEMA_DEPTH_MAX = 100,         // of nesting, through $ref too
    SCHEMA_PROPERTIES_MAX = 1024,   // of one object
    SCHEMA_PREFIX_MAX = 256,        // prefixItems
    SCHEMA_COUNT_MAX = 1 << 20,     // minLength, minItems and the like; longer than any answer
    SCHEMA_MERGES_MAX = 1024,       // allOf, and anyOf with something beside it
    SCHEMA_WORK_MAX = 4 << 20,      // comparisons of values
};

// A schema being turned into rules.
struct schema {
    struct grammar *grammar;
    const json_t *root;  // what $ref starts from
    struct error *err;
    struct strbuf path;  // where we are; stays where something was refused
    struct map refs;     // $ref -> node
    json_t *made;        // schemas that merging has made, kept to the end
    size_t work;
    int depth;
};

// The node of a value that meets the schema, or RULES_NONE with a sentence.
uint32_t schema_compile(struct grammar *grammar, const json_t *schema, struct error *err);

// ---- among the files of schemas ------------------------------------------------------------------------------------

uint32_t schema_value(struct schema *schema, const json_t *json); // any schema
uint32_t schema_object(struct schema *schema, const json_t *json);
uint32_t schema_array(struct schema *schema, const json_t *json);
uint32_t schema_string(struct schema *schema, const json_t *json);
uint32_t schema_number(struct schema *schema, const json_t *json, bool integer);
uint32_t schema_enum(struct schema *schema, const json_t *json);
uint32_t schema_any(struct grammar *grammar, struct error *err);        // any JSON value
uint32_t schema_any_object(struct grammar *grammar, uint32_t value, struct error *err); // of any such members
uint32_t schema_any_array(struct grammar *grammar, uint32_t item, uint32_t low, uint32_t high, struct error *err);

// A literal that is made once.
uint32_t schema_token(struct grammar *grammar, const char *text, struct error *err);
// Punctuation, with JSON's white space where that belongs to it: behind what opens, before what closes, around the
// rest.
uint32_t schema_mark(struct grammar *grammar, char byte, struct error *err);
uint32_t schema_never(struct schema *schema);

// Goes to a part of the schema, for sentences; back with schema_leave.
size_t schema_enter(struct schema *schema, const char *keyword, const char *name);
void schema_leave(struct schema *schema, size_t mark);

// Two counts such as minLength and maxLength; false with a sentence when they are none or exclude each other.
bool schema_counts(struct schema *schema, const json_t *json, const char *low_name, uint32_t *low,
                   const char *high_name, uint32_t *high);

// Is this a keyword that says something about which values are valid?
bool schema_constrains(const char *keyword);
// The first such keyword beside those listed, or NULL.
const char *schema_constraint_beside(const json_t *json, const char *const *known);

// The types that a schema lets values have, as bits. Whole numbers are integers, whatever their spelling.
enum {
    SCHEMA_NULL = 1, SCHEMA_BOOLEAN = 2, SCHEMA_INTEGER = 4, SCHEMA_REAL = 8, SCHEMA_STRING = 16, SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64, SCHEMA_NUMBER = SCHEMA_INTEGER | SCHEMA_REAL, SCHEMA_ALL = 127,
};
bool schema_types(struct schema *schema, const json_t *json, unsigned *out); // of `type`; absent: all
unsigned schema_implied_types(const json_t *json); // without `type`, its keywords tell what an answer will be
unsigned schema_type_of(const json_t *value);

// ---- schemas as JSON ----

const json_t *schema_resolve(struct schema *schema, const char *ref); // borrowed; NULL with a sentence
// What is valid against both, borrowed; NULL with a sentence.
const json_t *schema_merge(struct schema *schema, const json_t *a, const json_t *b);
const json_t *schema_without(struct schema *schema, const json_t *json, const char *keyword); // borrowed
// Can it be seen that no answer to either is valid against both?
bool schema_exclusive(struct schema *schema, const json_t *a, const json_t *b, int depth);

#endif
