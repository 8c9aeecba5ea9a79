// SPDX-License-Identifier: Apache-2.0
// The checks of JSON Schema's keywords (keywords.h). A keyword of another type than the value's holds.
#include <stdio.h>

#include "base/utf8.h"
#include "format/json.h"
#include "text/grammar/formats.h"
#include "text/grammar/number.h"
#include "text/grammar/schema.h"
#include "text/grammar/validator.h"

// ---- keywords of all types ----

static bool check_type(struct validator *v, const struct check *check)
{
    struct error why;
    unsigned types;
    if (!schema_read_types(check->schema, &types, &why))
        return validator_give_up(v, why.text);
    return (schema_type_of(check->instance) & types) || validator_violated(v, check, "it is of another type");
}

static bool check_enum(struct validator *v, const struct check *check)
{
    json_t *value;
    size_t i;
    json_array_foreach (check->value, i, value)
        if (validator_equal(v, value, check->instance))
            return true;
    return validator_violated(v, check, "it is none of the values");
}

static bool check_const(struct validator *v, const struct check *check)
{
    return validator_equal(v, check->value, check->instance) || validator_violated(v, check, "it is another value");
}

// ---- keywords of numbers ----

static bool check_bound(struct validator *v, const struct check *check)
{
    bool low = !keyword_is_maximum(check->keyword), exclusive = check->keyword[0] == 'e';
    const json_t *flag = json_object_get(check->schema, low ? "exclusiveMinimum" : "exclusiveMaximum");
    if (!json_is_number(check->instance) || json_is_boolean(check->value))
        return true; // draft 4 has a flag beside the bound
    double value = json_number_value(check->instance), bound = json_number_value(check->value);
    exclusive |= json_is_true(flag);
    bool ok = low ? exclusive ? value > bound : value >= bound : exclusive ? value < bound : value <= bound;
    return ok || validator_violated(v, check, "%g is out of bounds", value);
}

static bool check_multiple(struct validator *v, const struct check *check)
{
    if (!json_is_number(check->instance))
        return true;
    return number_is_multiple(check->instance, check->value)
        || validator_violated(v, check, "%g is not a multiple", json_number_value(check->instance));
}

// ---- keywords of strings ----

// minLength, maxItems and their like.
static bool check_count(struct validator *v, const struct check *check)
{
    const json_t *instance = check->instance;
    if (schema_type_of(instance) != schema_keywords[keyword_find(check->keyword)].implies)
        return true;
    size_t count = json_is_string(instance) ? utf8_count(json_bytes(instance))
                                            : json_array_size(instance) + json_object_size(instance);
    double bound = json_number_value(check->value);
    return (keyword_is_maximum(check->keyword) ? (double)count <= bound : (double)count >= bound)
        || validator_violated(v, check, "there are %zu", count);
}

static bool check_pattern(struct validator *v, const struct check *check)
{
    if (!json_is_string(check->instance))
        return true;
    return validator_matches(v, json_bytes(check->value), json_bytes(check->instance))
        || validator_violated(v, check, "it does not match");
}

static bool check_format(struct validator *v, const struct check *check)
{
    const struct string_format *format = format_find(json_string_value(check->value));
    struct error why;
    if (!json_is_string(check->instance) || !format)
        return true;
    const char *pattern = format->checked ? format->checked : format->enforced;
    if (pattern)
        return validator_matches(v, bytes_of(pattern), json_bytes(check->instance))
            || validator_violated(v, check, "it is no %s", format->name);
    struct ecma *regex = ecma_new(json_bytes(check->instance), NULL, &why); // the format regex
    bool ok = regex || validator_violated(v, check, "%.200s", why.text);
    ecma_free(regex);
    return ok;
}

// ---- keywords of arrays ----

static const char *index_text(size_t index, char text[24])
{
    snprintf(text, 24, "%zu", index);
    return text;
}

// The schemas of the first items: prefixItems, or the older spelling of items.
static const json_t *prefix_of(const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    return json_is_array(items) ? items : prefix;
}

// A list: a schema for each of the first items. One schema: that of the items behind those.
static bool check_items(struct validator *v, const struct check *check)
{
    bool older = json_is_array(json_object_get(check->schema, "items")), list = json_is_array(check->value);
    size_t first = json_array_size(prefix_of(check->schema)), i;
    const json_t *item;
    char step[24];
    if (!list && !older && strcmp(check->keyword, "additionalItems") == 0)
        return true;
    json_array_foreach (check->instance, i, item) {
        const json_t *schema = list ? json_array_get(check->value, i) : i >= first ? check->value : NULL;
        if (schema && !validator_holds_at(v, check->keyword, NULL, schema, index_text(i, step), item))
            return false;
    }
    return true;
}

static bool check_contains(struct validator *v, const struct check *check)
{
    const json_t *low = json_object_get(check->schema, "minContains"), *item;
    const json_t *high = json_object_get(check->schema, "maxContains");
    size_t i, count = 0;
    if (!json_is_array(check->instance))
        return true;
    json_array_foreach (check->instance, i, item)
        count += validator_holds_quietly(v, check->value, item);
    return ((double)count >= (json_is_number(low) ? json_number_value(low) : 1)
            && (!json_is_number(high) || (double)count <= json_number_value(high)))
        || validator_violated(v, check, "%zu of its items are such", count);
}

static bool check_unique(struct validator *v, const struct check *check)
{
    const json_t *item;
    size_t i;
    if (!json_is_true(check->value))
        return true;
    json_array_foreach (check->instance, i, item)
        for (size_t k = 0; k < i; k++)
            if (validator_equal(v, json_array_get(check->instance, k), item))
                return validator_violated(v, check, "items %zu and %zu are equal", k, i);
    return !v->undecided;
}

// ---- keywords of objects ----

static bool check_properties(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *schema;
    json_object_foreach ((json_t *)check->value, name, schema) {
        const json_t *value = json_object_get(check->instance, name);
        if ((value && !validator_holds_at(v, check->keyword, name, schema, name, value)) || !validator_spend(v, 1))
            return false;
    }
    return true;
}

static bool check_pattern_properties(struct validator *v, const struct check *check)
{
    const char *pattern, *name;
    json_t *schema, *value;
    json_object_foreach ((json_t *)check->value, pattern, schema)
        json_object_foreach ((json_t *)check->instance, name, value)
            if ((validator_matches(v, bytes_of(pattern), bytes_of(name))
                 && !validator_holds_at(v, check->keyword, pattern, schema, name, value))
                || v->undecided)
                return false;
    return true;
}

// Is the property named by properties or patternProperties?
static bool is_named(struct validator *v, const json_t *schema, const char *name)
{
    const char *pattern;
    json_t *ignored;
    if (json_object_get(json_object_get(schema, "properties"), name))
        return true;
    json_object_foreach (json_object_get(schema, "patternProperties"), pattern, ignored)
        if (validator_matches(v, bytes_of(pattern), bytes_of(name)))
            return true;
    return false;
}

static bool check_additional(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)check->instance, name, value)
        if (!is_named(v, check->schema, name)
            && !validator_holds_at(v, check->keyword, NULL, check->value, name, value))
            return false;
    return true;
}

static bool check_names(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)check->instance, name, value) {
        json_t *text = json_string_nocheck(name);
        bool ok = validator_holds_at(v, check->keyword, NULL, check->value, name, text);
        json_decref(text);
        if (!ok)
            return false;
    }
    return true;
}

static bool has_all(struct validator *v, const struct check *check, const json_t *names)
{
    json_t *name;
    size_t i;
    json_array_foreach (names, i, name)
        if (!validator_spend(v, 1) || !json_is_string(name)
            || !json_object_get(check->instance, json_string_value(name)))
            return validator_violated(v, check, "\"%.64s\" is missing",
                                      json_is_string(name) ? json_string_value(name) : "");
    return true;
}

static bool check_required(struct validator *v, const struct check *check)
{
    return !json_is_object(check->instance) || has_all(v, check, check->value);
}

// dependentRequired and dependentSchemas; dependencies is the older name of both.
static bool check_dependent(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *then;
    json_object_foreach ((json_t *)check->value, name, then) {
        if (!validator_spend(v, 1))
            return false;
        if (!json_object_get(check->instance, name))
            continue;
        if (!(json_is_array(then) ? has_all(v, check, then)
                                  : validator_holds_at(v, check->keyword, name, then, NULL, check->instance)))
            return false;
    }
    return true;
}

// ---- schemas made of schemas ----

static size_t count_holding(struct validator *v, const struct check *check, size_t enough)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(check->value) && count < enough; i++)
        count += validator_holds_quietly(v, json_array_get(check->value, i), check->instance);
    return count;
}

static bool check_all(struct validator *v, const struct check *check)
{
    json_t *schema;
    size_t i;
    json_array_foreach (check->value, i, schema) {
        char name[24];
        if (!validator_holds_at(v, check->keyword, index_text(i, name), schema, NULL, check->instance))
            return false;
    }
    return true;
}

static bool check_any(struct validator *v, const struct check *check)
{
    return count_holding(v, check, 1)
        || validator_violated(v, check, "it meets none of the %zu schemas", json_array_size(check->value));
}

static bool check_one(struct validator *v, const struct check *check)
{
    size_t count = count_holding(v, check, SIZE_MAX);
    return count == 1
        || validator_violated(v, check, "it meets %zu of the %zu schemas", count, json_array_size(check->value));
}

static bool check_not(struct validator *v, const struct check *check)
{
    return !validator_holds_quietly(v, check->value, check->instance)
        || validator_violated(v, check, "it meets that schema");
}

static bool check_if(struct validator *v, const struct check *check)
{
    const char *branch = validator_holds_quietly(v, check->value, check->instance) ? "then" : "else";
    const json_t *schema = json_object_get(check->schema, branch);
    return !schema || validator_holds_at(v, branch, NULL, schema, NULL, check->instance);
}

static bool check_ref(struct validator *v, const struct check *check)
{
    struct error why;
    if (schema_is_elsewhere(json_string_value(check->value)))
        return true; // the grammar has it in its list of what is not supported
    const json_t *target = schema_resolve(v->root, json_string_value(check->value), &why);
    return target ? validator_holds_at(v, check->keyword, NULL, target, NULL, check->instance)
                  : validator_give_up(v, why.text);
}

static bool check_nothing(struct validator *v, const struct check *check)
{
    (void)v, (void)check; // another keyword reads it
    return true;
}

#define check_none NULL
#define X(name, form, type, merge, negate, check, opposite) check_##check,
static check_keyword *const checks[] = { SCHEMA_KEYWORDS(X) };
#undef X

check_keyword *validator_check(int keyword) { return checks[keyword]; }

bool validate_supports(const char *name)
{
    int keyword = keyword_find(name);
    return keyword >= 0 && checks[keyword];
}
