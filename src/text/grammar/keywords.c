// SPDX-License-Identifier: Apache-2.0
// Forms of keyword values, and the types of JSON Schema.
#include "text/grammar/keywords.h"

#include <math.h>
#include <string.h>

const struct keyword schema_keywords[] = {
#define X(name, form, type, merge, negate, check, opposite) { name, FORM_##form, SCHEMA_##type, opposite },
    SCHEMA_KEYWORDS(X)
#undef X
};

enum { KEYWORD_COUNT = sizeof schema_keywords / sizeof *schema_keywords };

int keyword_find(const char *name)
{
    for (int i = 0; i < KEYWORD_COUNT; i++)
        if (strcmp(schema_keywords[i].name, name) == 0)
            return i;
    return -1;
}

bool keyword_is_maximum(const char *name) { return strstr(name, "max") || strstr(name, "Max"); }

// ---- forms ----

static bool is_schema(const json_t *value) { return json_is_object(value) || json_is_boolean(value); }

static bool are_schemas(const json_t *value)
{
    const char *name;
    json_t *item;
    json_object_foreach ((json_t *)value, name, item)
        if (!is_schema(item))
            return false;
    return json_is_object(value);
}

bool keyword_fits(int keyword, const json_t *value, const char **expected)
{
    static const char *const names[] = {
        [FORM_SCHEMA] = "a schema: an object, true or false",
        [FORM_SCHEMAS] = "an object of schemas",
        [FORM_COUNT] = "a count",
        [FORM_FLAG] = "true or false",
        [FORM_POSITIVE] = "a number above 0",
        [FORM_OBJECT] = "an object",
        [FORM_READ_OBJECT] = "an object",
        [FORM_READ_LIST] = "a list",
        [FORM_READ_NUMBER] = "a number",
        [FORM_READ_BOUND] = "a number",
        [FORM_READ_TEXT] = "a string",
    };
    enum keyword_form form = schema_keywords[keyword].form;
    *expected = names[form];
    switch (form) {
    case FORM_ANY: return true;
    case FORM_SCHEMA: return is_schema(value);
    case FORM_SCHEMAS: return are_schemas(value);
    case FORM_COUNT: return json_is_integer(value) && json_integer_value(value) >= 0;
    case FORM_FLAG: return json_is_boolean(value);
    case FORM_POSITIVE: return json_number_value(value) > 0;
    case FORM_OBJECT:
    case FORM_READ_OBJECT: return json_is_object(value);
    case FORM_READ_LIST: return json_is_array(value);
    case FORM_READ_NUMBER: return json_is_number(value);
    case FORM_READ_BOUND: return json_is_number(value) || json_is_boolean(value);
    case FORM_READ_TEXT: return json_is_string(value);
    }
    return true;
}

// ---- types ----

static const struct type_word {
    const char *name;
    unsigned type;
} type_words[] = {
    { "null", SCHEMA_NULL },     { "boolean", SCHEMA_BOOLEAN }, { "integer", SCHEMA_INTEGER },
    { "number", SCHEMA_NUMBER }, { "string", SCHEMA_STRING },   { "array", SCHEMA_ARRAY },
    { "object", SCHEMA_OBJECT },
};

static bool read_type(const json_t *value, unsigned *types, struct error *err)
{
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < sizeof type_words / sizeof *type_words; i++)
        if (strcmp(type_words[i].name, name) == 0)
            return *types |= type_words[i].type, true;
    return fail(err,
                "'type' is not one of null, boolean, integer, number, string, array and object, nor a list of "
                "them");
}

bool schema_read_types(const json_t *json, unsigned *out, struct error *err)
{
    const json_t *type = json_object_get(json, "type");
    json_t *item;
    size_t i;
    *out = type ? 0 : SCHEMA_ALL;
    if (json_is_array(type)) {
        json_array_foreach (type, i, item)
            if (!read_type(item, out, err))
                return false;
    } else if (type && !read_type(type, out, err)) {
        return false;
    }
    if (json_is_true(json_object_get(json, "nullable")))
        *out |= SCHEMA_NULL;
    return true;
}

json_t *schema_type_names(unsigned types)
{
    json_t *names = json_array();
    for (size_t i = sizeof type_words / sizeof *type_words; i-- > 0;) // number before integer
        if ((types & type_words[i].type) == type_words[i].type) {
            json_array_append_new(names, json_string(type_words[i].name));
            types &= ~type_words[i].type;
        }
    return names;
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return SCHEMA_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return SCHEMA_BOOLEAN;
    case JSON_INTEGER: return SCHEMA_INTEGER;
    case JSON_REAL: return floor(json_real_value(value)) == json_real_value(value) ? SCHEMA_INTEGER : SCHEMA_REAL;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_OBJECT: return SCHEMA_OBJECT;
    }
    return 0;
}

unsigned schema_implied_types(const json_t *json)
{
    for (int i = 0; i < KEYWORD_COUNT; i++)
        if (schema_keywords[i].implies && json_object_get(json, schema_keywords[i].name))
            return schema_keywords[i].implies;
    return SCHEMA_ALL;
}
