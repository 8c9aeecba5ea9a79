// SPDX-License-Identifier: Apache-2.0
// text/grammar/keywords.h: the keywords of JSON Schema (draft 2020-12, with older spellings) that say which values are
// valid, in one list for all that reads them: the compiler, allOf, not, and the validator. Keywords that describe
// (title, default, examples ...) and unknown ones are not here and are ignored.
#ifndef TEXT_GRAMMAR_KEYWORDS_H
#define TEXT_GRAMMAR_KEYWORDS_H

#include <jansson.h>

#include "base/error.h"

// A row:
//   form      what the keyword's value must be
//   implies   in a schema without `type`, the type of an answer; the first row that implies one decides
//   merge     schema_merge.c, merge_*: two values under allOf as one
//   negate    schema_logic.c, negate_*: the keyword under `not`
//   check     validate_keywords.c, check_*; none: the validator does not know the keyword either
//   opposite  what is asked for when the keyword is negated, for bounds and counts
// clang-format off
#define SCHEMA_KEYWORDS(X) \
    X("$ref",                 READ_TEXT,   ALL,    unmerged,     ref,        ref,                "") \
    X("allOf",                READ_LIST,   ALL,    lists,        all,        all,                "") \
    X("anyOf",                READ_LIST,   ALL,    alternatives, any,        any,                "") \
    X("oneOf",                READ_LIST,   ALL,    unmerged,     any,        one,                "") \
    X("not",                  SCHEMA,      ALL,    negated,      not,        not,                "") \
    X("if",                   SCHEMA,      ALL,    unmerged,     unknown,    if,                 "") \
    X("properties",           READ_OBJECT, OBJECT, properties,   properties, properties,         "") \
    X("required",             READ_LIST,   OBJECT, lists,        required,   required,           "") \
    X("additionalProperties", ANY,         OBJECT, schemas,      unknown,    additional,         "") \
    X("items",                ANY,         ARRAY,  schemas,      items,      items,              "") \
    X("prefixItems",          READ_LIST,   ARRAY,  unmerged,     unknown,    items,              "") \
    X("minItems",             READ_NUMBER, ARRAY,  bounds,       count,      count,              "maxItems") \
    X("maxItems",             READ_NUMBER, ARRAY,  bounds,       count,      count,              "minItems") \
    X("pattern",              READ_TEXT,   STRING, patterns,     pattern,    pattern,            "") \
    X("format",               ANY,         STRING, unmerged,     unknown,    format,             "") \
    X("minLength",            READ_NUMBER, STRING, bounds,       count,      count,              "maxLength") \
    X("maxLength",            READ_NUMBER, STRING, bounds,       count,      count,              "minLength") \
    X("minimum",              READ_BOUND,  NUMBER, bounds,       bound,      bound,              "exclusiveMaximum") \
    X("maximum",              READ_BOUND,  NUMBER, bounds,       bound,      bound,              "exclusiveMinimum") \
    X("exclusiveMinimum",     READ_BOUND,  NUMBER, bounds,       bound,      bound,              "maximum") \
    X("exclusiveMaximum",     READ_BOUND,  NUMBER, bounds,       bound,      bound,              "minimum") \
    X("multipleOf",           POSITIVE,    NUMBER, multiples,    unknown,    multiple,           "") \
    X("uniqueItems",          FLAG,        ARRAY,  flags,        unknown,    unique,             "") \
    X("contains",             SCHEMA,      ARRAY,  unmerged,     unknown,    contains,           "") \
    X("patternProperties",    SCHEMAS,     OBJECT, properties,   unknown,    pattern_properties, "") \
    X("propertyNames",        SCHEMA,      OBJECT, schemas,      unknown,    names,              "") \
    X("minProperties",        READ_NUMBER, OBJECT, bounds,       count,      count,              "maxProperties") \
    X("maxProperties",        READ_NUMBER, OBJECT, bounds,       count,      count,              "minProperties") \
    X("type",                 ANY,         NONE,   types,        type,       type,               "") \
    X("enum",                 READ_LIST,   NONE,   common,       values,     enum,               "") \
    X("const",                ANY,         NONE,   constants,    values,     const,              "") \
    X("nullable",             ANY,         NONE,   unmerged,     unknown,    nothing,            "") \
    X("then",                 SCHEMA,      NONE,   unmerged,     unknown,    nothing,            "") \
    X("else",                 SCHEMA,      NONE,   unmerged,     unknown,    nothing,            "") \
    X("additionalItems",      ANY,         NONE,   unmerged,     unknown,    items,              "") \
    X("minContains",          COUNT,       NONE,   unmerged,     unknown,    nothing,            "") \
    X("maxContains",          COUNT,       NONE,   unmerged,     unknown,    nothing,            "") \
    X("dependentRequired",    OBJECT,      NONE,   properties,   unknown,    dependent,          "") \
    X("dependentSchemas",     OBJECT,      NONE,   properties,   unknown,    dependent,          "") \
    X("dependencies",         OBJECT,      NONE,   unmerged,     unknown,    dependent,          "") \
    X("unevaluatedItems",     SCHEMA,      NONE,   unmerged,     unknown,    none,               "") \
    X("unevaluatedProperties", SCHEMA,     NONE,   unmerged,     unknown,    none,               "") \
    X("$dynamicRef",          ANY,         NONE,   unmerged,     unknown,    none,               "") \
    X("$recursiveRef",        ANY,         NONE,   unmerged,     unknown,    none,               "") \
    X("disallow",             ANY,         NONE,   unmerged,     unknown,    none,               "") \
    X("divisibleBy",          ANY,         NONE,   unmerged,     unknown,    none,               "") \
    X("extends",              ANY,         NONE,   unmerged,     unknown,    none,               "") \
    X("propertyDependencies", ANY,         NONE,   unmerged,     unknown,    none,               "")
// clang-format on

// The types that a schema allows, as bits. A whole number is an integer, however it is spelled.
enum {
    SCHEMA_NONE = 0,
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_REAL = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_NUMBER = SCHEMA_INTEGER | SCHEMA_REAL,
    SCHEMA_ALL = 127,
};

enum keyword_form {
    FORM_ANY,
    FORM_SCHEMA,
    FORM_SCHEMAS,
    FORM_COUNT,
    FORM_FLAG,
    FORM_POSITIVE,
    FORM_OBJECT,
    FORM_READ_OBJECT, // from here on the value matters only where the keyword applies to the type of an answer
    FORM_READ_LIST,
    FORM_READ_NUMBER,
    FORM_READ_BOUND, // true is draft 4's exclusiveMinimum
    FORM_READ_TEXT,
};

struct keyword {
    const char *name;
    enum keyword_form form;
    unsigned implies;
    const char *opposite;
};

extern const struct keyword schema_keywords[];

int keyword_find(const char *name); // index; -1: it constrains nothing
// Does the value have the keyword's form? If not, *expected says what it should be.
bool keyword_fits(int keyword, const json_t *value, const char **expected);
bool keyword_is_maximum(const char *name); // of bounds and counts

bool schema_read_types(const json_t *json, unsigned *out, struct error *err); // of `type`; absent: all
json_t *schema_type_names(unsigned types);         // a new list; numbers that are no integers have no name
unsigned schema_implied_types(const json_t *json); // without `type`
unsigned schema_type_of(const json_t *value);

#endif
