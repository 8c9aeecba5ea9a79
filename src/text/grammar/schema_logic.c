// SPDX-License-Identifier: Apache-2.0
// Negation normal form for JSON Schema: not, if, overlapping oneOf and dependent* are rewritten without `not`, as far
// as possible: {"not": {"minimum": 3}} becomes {"type": "number", "exclusiveMaximum": 3}. The result may be narrower
// than the negation, never wider; a negation that cannot be written is left to the validator.
#include <stdlib.h>

#include "text/grammar/schema.h"

enum { NEGATE_DEPTH_MAX = 8, NEGATE_WAYS_MAX = 32, NEGATE_NUMBERS_MAX = 16, APART_MAX = 8 };

// ---- negation, keyword by keyword: each appends ways not to meet it ----

struct negation {
    struct schema *schema;
    const json_t *json; // the schema
    json_t *ways;       // schemas
    int depth;
};

static json_t *negate(struct schema *schema, const json_t *json, int depth);

static void add_way(struct negation *negation, json_t *way)
{
    if (!way || json_array_size(negation->ways) >= NEGATE_WAYS_MAX)
        negation->schema->narrow = true;
    else
        json_array_append(negation->ways, way);
    json_decref(way);
}

static void add_types(struct negation *negation, unsigned types)
{
    if (types)
        add_way(negation, json_pack("{so}", "type", schema_type_names(types)));
}

static void negate_type(struct negation *negation, const char *keyword, json_t *value)
{
    struct error ignored;
    unsigned types;
    (void)keyword, (void)value;
    if (!schema_read_types(negation->json, &types, &ignored))
        return;
    if ((types & SCHEMA_NUMBER) == SCHEMA_INTEGER) {
        negation->schema->narrow = true; // no word says: a number that is no integer
        types |= SCHEMA_REAL;
    }
    add_types(negation, SCHEMA_ALL & ~types);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The open intervals between the listed numbers.
static void add_gaps(struct negation *negation, double *numbers, size_t count)
{
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    for (size_t i = 0; i <= count; i++) {
        json_t *gap = json_pack("{ss}", "type", "number");
        if (i)
            json_object_set_new(gap, "exclusiveMinimum", json_real(numbers[i - 1]));
        if (i < count)
            json_object_set_new(gap, "exclusiveMaximum", json_real(numbers[i]));
        add_way(negation, gap);
    }
}

static void negate_values(struct negation *negation, const char *keyword, json_t *value)
{
    json_t *list = strcmp(keyword, "const") == 0 ? json_pack("[O]", value) : json_incref(value);
    json_t *strings = json_array(), *flags = json_pack("[b, b]", 1, 0), *item;
    double numbers[NEGATE_NUMBERS_MAX];
    size_t count = 0, i;
    unsigned listed = 0;
    json_array_foreach (list, i, item) {
        listed |= json_is_number(item) ? SCHEMA_NUMBER : schema_type_of(item);
        if (json_is_string(item))
            json_array_append(strings, item);
        else if (json_is_number(item) && count < NEGATE_NUMBERS_MAX)
            numbers[count++] = json_number_value(item);
        else if (json_is_boolean(item))
            for (size_t k = json_array_size(flags); k-- > 0;)
                if (json_array_get(flags, k) == item) // jansson has one of each
                    json_array_remove(flags, k);
        negation->schema->narrow |= json_is_array(item) || json_is_object(item) || count == NEGATE_NUMBERS_MAX;
    }
    add_types(negation, SCHEMA_ALL & ~listed);
    if (json_array_size(strings))
        add_way(negation, json_pack("{ss s{sO}}", "type", "string", "not", "enum", strings));
    if (count && count < NEGATE_NUMBERS_MAX)
        add_gaps(negation, numbers, count);
    if (listed & SCHEMA_BOOLEAN && json_array_size(flags))
        add_way(negation, json_pack("{sO}", "enum", flags));
    json_decref(flags);
    json_decref(strings);
    json_decref(list);
}

static const struct keyword *keyword_of(const char *name) { return &schema_keywords[keyword_find(name)]; }

static void negate_bound(struct negation *negation, const char *keyword, json_t *value)
{
    if (json_is_number(value))
        add_way(negation, json_pack("{ss sO}", "type", "number", keyword_of(keyword)->opposite, value));
}

static void negate_count(struct negation *negation, const char *keyword, json_t *value)
{
    json_int_t count = json_integer_value(value) + (keyword_is_maximum(keyword) ? 1 : -1);
    json_t *type = schema_type_names(keyword_of(keyword)->implies);
    if (count >= 0 && json_integer_value(value) < SCHEMA_COUNT_MAX)
        add_way(negation, json_pack("{sO sI}", "type", type, keyword_of(keyword)->opposite, count));
    json_decref(type);
}

static void negate_pattern(struct negation *negation, const char *keyword, json_t *value)
{
    add_way(negation, json_pack("{ss s{sO}}", "type", "string", "not", keyword, value));
}

static void negate_required(struct negation *negation, const char *keyword, json_t *value)
{
    json_t *name;
    size_t i;
    (void)keyword;
    json_array_foreach (value, i, name)
        if (json_is_string(name))
            add_way(negation, json_pack("{ss s{sb}}", "type", "object", "properties", json_string_value(name), 0));
}

static void negate_properties(struct negation *negation, const char *keyword, json_t *value)
{
    const char *name;
    json_t *part;
    json_object_foreach (value, name, part) {
        json_t *other = negate(negation->schema, part, negation->depth + 1);
        add_way(negation,
                other ? json_pack("{ss s[s] s{so}}", "type", "object", "required", name, keyword, name, other) : NULL);
    }
}

// Some item does not meet the schema: here, the first one.
static void negate_items(struct negation *negation, const char *keyword, json_t *value)
{
    json_t *other = json_is_array(value) ? NULL : negate(negation->schema, value, negation->depth + 1);
    (void)keyword;
    negation->schema->narrow = true;
    if (other && json_object_get(negation->json, "prefixItems"))
        json_decref(other);
    else if (other)
        add_way(negation, json_pack("{ss si s[o]}", "type", "array", "minItems", 1, "prefixItems", other));
}

static void negate_all(struct negation *negation, const char *keyword, json_t *value)
{
    json_t *part;
    size_t i;
    (void)keyword;
    json_array_foreach (value, i, part)
        add_way(negation, negate(negation->schema, part, negation->depth + 1));
}

static void negate_any(struct negation *negation, const char *keyword, json_t *value)
{
    json_t *part, *none = json_array();
    size_t i;
    bool ok = true;
    negation->schema->narrow |= strcmp(keyword, "oneOf") == 0; // to meet two of them is another way
    json_array_foreach (value, i, part) {
        json_t *other = ok ? negate(negation->schema, part, negation->depth + 1) : NULL;
        ok = other && json_array_append_new(none, other) == 0;
    }
    add_way(negation, ok && json_array_size(none) ? json_pack("{sO}", "allOf", none) : NULL);
    json_decref(none);
}

static void negate_not(struct negation *negation, const char *keyword, json_t *value)
{
    (void)keyword;
    add_way(negation, json_incref(value));
}

static void negate_ref(struct negation *negation, const char *keyword, json_t *value)
{
    struct error ignored;
    const json_t *target = json_is_string(value)
        ? schema_resolve(negation->schema->root, json_string_value(value), &ignored)
        : NULL;
    if (json_is_string(value) && schema_is_elsewhere(json_string_value(value)))
        schema_ignore(negation->schema, keyword);
    add_way(negation, target ? negate(negation->schema, target, negation->depth + 1) : NULL);
}

static void negate_unknown(struct negation *negation, const char *keyword, json_t *value)
{
    (void)keyword, (void)value;
    negation->schema->narrow = true;
}

typedef void negate_keyword(struct negation *negation, const char *keyword, json_t *value);

// A schema of values that are invalid against this one, as a new reference; NULL: it cannot be written.
static json_t *negate(struct schema *schema, const json_t *json, int depth)
{
    struct negation negation = { schema, json, NULL, depth };
    const char *keyword;
    json_t *value;
#define X(name, form, type, merge, negate, check, opposite) negate_##negate,
    static negate_keyword *const negations[] = { SCHEMA_KEYWORDS(X) };
#undef X
    bool narrow = schema->narrow;
    if (json_is_boolean(json))
        return json_boolean(json_is_false(json));
    if (depth > NEGATE_DEPTH_MAX || !json_is_object(json) || schema->work++ > SCHEMA_WORK_MAX)
        return NULL;
    negation.ways = json_array();
    schema->narrow = false;
    json_object_foreach ((json_t *)json, keyword, value) {
        int index = keyword_find(keyword);
        if (index >= 0)
            negations[index](&negation, keyword, value);
    }
    size_t count = json_array_size(negation.ways);
    json_t *result = count == 1 ? json_incref(json_array_get(negation.ways, 0))
        : count                 ? json_pack("{sO}", "anyOf", negation.ways)
        : schema->narrow        ? NULL
                                : json_false();
    json_decref(negation.ways);
    schema->narrow |= narrow;
    return result;
}

// ---- keywords ----

uint32_t schema_not(struct schema *schema, const json_t *json)
{
    struct schema_savepoint attempt = schema_begin(schema);
    const json_t *rest = schema_without(schema, json, "not");
    schema->narrow = false;
    json_t *other = negate(schema, json_object_get(json, "not"), 0);
    bool narrow = schema->narrow;
    if (other) {
        const json_t *both = schema_merge(schema, rest, schema_keep(schema, other));
        uint32_t node = both ? schema_value(schema, both) : RULES_NONE;
        if (node != RULES_NONE || !schema->unmet || !narrow)
            return node;
        schema_undo(schema, &attempt);
    }
    schema_defer(schema, "not");
    return rest ? schema_value(schema, rest) : RULES_NONE;
}

const json_t *schema_if_as_any(struct schema *schema, const json_t *json)
{
    json_t *condition = json_object_get(json, "if"), *then = json_object_get(json, "then");
    json_t *otherwise = json_object_get(json, "else"), *other = negate(schema, condition, 0);
    then = then ? then : json_true();
    otherwise = otherwise ? otherwise : json_true();
    if (!other)
        schema_defer(schema, "if");
    json_t *no = other ? json_pack("{s[oO]}", "allOf", other, otherwise) : json_incref(otherwise);
    return schema_keep(schema, json_pack("{s[{s[OO]} o]}", "anyOf", "allOf", condition, then, no));
}

// Without then and else, `if` constrains nothing.
uint32_t schema_if(struct schema *schema, const json_t *json)
{
    struct schema_savepoint attempt = schema_begin(schema);
    const json_t *rest = schema_without(schema, json, "if");
    rest = rest ? schema_without(schema, rest, "then") : NULL;
    rest = rest ? schema_without(schema, rest, "else") : NULL;
    if (!rest)
        return RULES_NONE;
    if (!json_object_get(json, "then") && !json_object_get(json, "else"))
        return schema_value(schema, rest);
    const json_t *ways = schema_if_as_any(schema, json), *both = ways ? schema_merge(schema, rest, ways) : NULL;
    uint32_t node = both ? schema_value(schema, both) : RULES_NONE;
    if (node != RULES_NONE || !schema->unmet)
        return node;
    schema_undo(schema, &attempt);
    schema_defer(schema, "if");
    return schema_value(schema, rest);
}

// {"a": ["b"]}: a property a requires a property b; {"a": S}: a property a requires that S is met.
uint32_t schema_dependent(struct schema *schema, const json_t *json)
{
    static const char *const spellings[] = { "dependentRequired", "dependentSchemas", "dependencies" };
    json_t *rest = json_copy((json_t *)json), *conditions = json_array();
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const char *name;
        json_t *then;
        json_object_foreach (json_object_get(json, spellings[i]), name, then) {
            json_t *met = json_is_array(then) ? json_pack("{sO}", "required", then) : json_incref(then);
            json_array_append_new(conditions, json_pack("{s{s[s]} so}", "if", "required", name, "then", met));
        }
        json_object_del(rest, spellings[i]);
    }
    json_t *parts = json_object_get(rest, "allOf");
    if (json_is_array(parts))
        json_array_extend(conditions, parts);
    if (json_array_size(conditions))
        json_object_set(rest, "allOf", conditions);
    json_decref(conditions);
    const json_t *kept = schema_keep(schema, rest);
    return kept ? schema_value(schema, kept) : RULES_NONE;
}

// ---- oneOf ----

static bool are_exclusive(struct schema *schema, const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++)
        for (size_t j = 0; j < i; j++)
            if (!schema_exclusive(schema, json_array_get(parts, i), json_array_get(parts, j), 0))
                return false;
    return true;
}

// anyOf of each alternative without the values that another one takes; NULL: it cannot be written.
static json_t *set_apart(struct schema *schema, const json_t *parts)
{
    json_t *apart = json_array();
    size_t count = json_array_size(parts);
    bool ok = count <= APART_MAX;
    for (size_t i = 0; ok && i < count; i++) {
        json_t *together = json_pack("[O]", json_array_get(parts, i));
        for (size_t j = 0; ok && j < count; j++) {
            if (j == i || schema_exclusive(schema, json_array_get(parts, i), json_array_get(parts, j), 0))
                continue;
            json_t *other = negate(schema, json_array_get(parts, j), 0);
            ok = other && json_array_append_new(together, other) == 0;
        }
        json_array_append_new(apart, json_pack("{so}", "allOf", together));
    }
    json_t *any = ok ? json_pack("{sO}", "anyOf", apart) : NULL;
    json_decref(apart);
    return any;
}

// oneOf equals anyOf where no value is valid against two alternatives.
uint32_t schema_one(struct schema *schema, const json_t *json)
{
    const json_t *parts = json_object_get(json, "oneOf");
    struct schema_savepoint attempt = schema_begin(schema);
    if (!json_is_array(parts) || are_exclusive(schema, parts))
        return schema_alternatives(schema, json, "oneOf");
    json_t *apart = set_apart(schema, parts);
    if (apart) {
        const json_t *rest = schema_without(schema, json, "oneOf"), *kept = schema_keep(schema, apart);
        const json_t *both = schema_merge(schema, rest, kept);
        uint32_t node = both ? schema_value(schema, both) : RULES_NONE;
        if (node != RULES_NONE || !schema->unmet)
            return node;
        schema_undo(schema, &attempt);
    }
    schema_defer(schema, "oneOf");
    return schema_alternatives(schema, json, "oneOf");
}
