// SPDX-License-Identifier: Apache-2.0
// Rewriting of JSON schemas: $ref resolution, allOf as one merged schema, and a test for schemas that exclude each
// other.
#include <stdlib.h>

#include "base/strbuf.h"
#include "text/grammar/schema.h"

// ---- references ----

// Appends one unescaped step of a JSON pointer (RFC 6901) to *out; returns the rest of the pointer.
static const char *read_step(const char *at, struct strbuf *out)
{
    for (; *at && *at != '/'; at++) {
        char byte = *at;
        if (byte == '~' && (at[1] == '0' || at[1] == '1'))
            byte = *++at == '0' ? '~' : '/';
        else if (byte == '%' && bytes_hex_digit(at[1]) >= 0 && bytes_hex_digit(at[2]) >= 0) {
            byte = (char)(bytes_hex_digit(at[1]) * 16 + bytes_hex_digit(at[2]));
            at += 2;
        }
        strbuf_add_byte(out, byte);
    }
    return at;
}

bool schema_is_elsewhere(const char *ref) { return ref[0] != '#' || (ref[1] && ref[1] != '/'); }

const json_t *schema_resolve(const json_t *root, const char *ref, struct error *err)
{
    const json_t *target = root;
    const char *at = ref + 1;
    if (schema_is_elsewhere(ref))
        return fail(err, "the $ref '%s' cannot be followed; only those into the schema itself, from #/, can", ref),
               NULL;
    while (*at == '/' && target) {
        struct strbuf step = { 0 };
        strbuf_add_text(&step, "");
        at = read_step(at + 1, &step);
        target = json_is_array(target) ? json_array_get(target, strtoul(step.data, NULL, 10))
                                       : json_object_get(target, step.data);
        strbuf_free(&step);
    }
    if (!target)
        fail(err, "the $ref '%s' leads nowhere", ref);
    return target;
}

// ---- merging ----

const json_t *schema_keep(struct schema *schema, json_t *made)
{
    if (json_array_size(schema->made) >= SCHEMA_MERGES_MAX) {
        json_decref(made);
        fail(schema->err, "more than %d schemas would have to be merged", SCHEMA_MERGES_MAX);
        return NULL;
    }
    json_array_append_new(schema->made, made);
    return made;
}

const json_t *schema_without(struct schema *schema, const json_t *json, const char *keyword)
{
    json_t *copy = json_copy((json_t *)json);
    json_object_del(copy, keyword);
    return schema_keep(schema, copy);
}

// Two values of a keyword, both of its form, as one. Each function returns a new reference, or NULL with a sentence.

// The grammar enforces the first value alone.
static json_t *merge_unmerged(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)b;
    schema_defer(schema, keyword);
    return json_incref(a);
}

// The larger minimum, the smaller maximum.
static json_t *merge_bounds(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema;
    if (!json_is_number(a) || !json_is_number(b)) // draft 4: a flag
        return json_incref(json_is_number(a) ? b : a);
    bool larger = json_number_value(a) > json_number_value(b), equal = json_number_value(a) == json_number_value(b);
    return json_incref(!equal && larger != keyword_is_maximum(keyword) ? a : b);
}

static json_t *merge_flags(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema, (void)keyword;
    return json_incref(json_is_true(a) ? a : b);
}

// The least common multiple.
static json_t *merge_multiples(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    json_int_t x = json_integer_value(a), y = json_integer_value(b), product = x * y;
    if (x <= 0 || y <= 0 || x > INT32_MAX || y > INT32_MAX)
        return merge_unmerged(schema, keyword, a, b);
    while (y) {
        json_int_t rest = x % y;
        x = y;
        y = rest;
    }
    return json_integer(product / x);
}

// A text that matches both: ^(?=A)(?=B), which does not work for patterns with alternatives.
static json_t *merge_patterns(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    if (strchr(x, '|') || strchr(y, '|'))
        return merge_unmerged(schema, keyword, a, b);
    return json_sprintf("^(?=%s%s)(?=%s%s)", x[0] == '^' ? "" : ".*", x, y[0] == '^' ? "" : ".*", y);
}

// Values (or names) that both lists have.
static json_t *merge_common(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    json_t *common = json_array(), *x, *y;
    size_t i, j;
    json_array_foreach (a, i, x)
        for (j = 0; (y = json_array_get(b, j)) && schema->work++ < SCHEMA_WORK_MAX; j++)
            if (json_equal(x, y)) {
                json_array_append(common, x);
                break;
            }
    if (json_array_size(common))
        return common;
    json_decref(common);
    schema_fail_unmet(schema, "nothing is common to two lists of '%s'", keyword);
    return NULL;
}

static json_t *merge_types(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    json_t *first = json_pack("{sO}", "type", a), *second = json_pack("{sO}", "type", b), *common = NULL;
    unsigned x = 0, y = 0;
    bool ok = schema_read_types(first, &x, schema->err) && schema_read_types(second, &y, schema->err);
    json_decref(first);
    json_decref(second);
    if (ok && x & y)
        common = schema_type_names(x & y);
    else if (ok)
        schema_fail_unmet(schema, "'%s' is asked to be two different things", keyword);
    return common;
}

static json_t *merge_constants(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)a, (void)b; // equal ones do not come here
    schema_fail_unmet(schema, "'%s' is asked to be two different values", keyword);
    return NULL;
}

static json_t *merge_lists(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema, (void)keyword;
    json_t *all = json_copy(a);
    json_array_extend(all, b);
    return all;
}

// The two schemas are merged later, when the result is compiled.
static json_t *merge_schemas(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema, (void)keyword;
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    return json_pack("{s[OO]}", "allOf", a, b);
}

// Not valid against either.
static json_t *merge_negated(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema, (void)keyword;
    return json_pack("{s[OO]}", "anyOf", a, b);
}

// All pairs of alternatives, if they are few.
static json_t *merge_alternatives(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    json_t *x, *y, *pairs;
    size_t i, j;
    if (json_array_size(a) * json_array_size(b) > SCHEMA_PRODUCT_MAX)
        return merge_unmerged(schema, keyword, a, b);
    pairs = json_array();
    json_array_foreach (a, i, x)
        json_array_foreach (b, j, y)
            json_array_append_new(pairs, merge_schemas(schema, keyword, x, y));
    return pairs;
}

static json_t *merge_properties(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    const char *name;
    json_t *value;
    (void)keyword;
    json_t *all = json_copy(a);
    json_object_foreach (b, name, value) {
        json_t *other = json_object_get(a, name);
        if (!other)
            json_object_set(all, name, value);
        else if (!json_equal(other, value))
            json_object_set_new(all, name, merge_schemas(schema, name, other, value));
    }
    return all;
}

typedef json_t *merge(struct schema *schema, const char *keyword, json_t *a, json_t *b);

static json_t *merge_values_of(struct schema *schema, const char *name, json_t *a, json_t *b)
{
#define X(name, form, type, merge, negate, check, opposite) merge_##merge,
    static merge *const merges[] = { SCHEMA_KEYWORDS(X) };
#undef X
    const char *ignored;
    int keyword = keyword_find(name);
    if (keyword < 0 || json_equal(a, b))
        return json_incref(a);
    if (!keyword_fits(keyword, a, &ignored)) // refused where it is compiled
        return json_incref(a);
    return keyword_fits(keyword, b, &ignored) ? merges[keyword](schema, name, a, b) : json_incref(b);
}

// A property that one schema names is an additional one to the other.
static void close_properties(struct schema *schema, const json_t *closed, const json_t *other, json_t *both)
{
    json_t *additional = json_object_get(closed, "additionalProperties"), *value;
    const json_t *own = json_object_get(closed, "properties"), *names = json_object_get(other, "properties");
    const char *name;
    if (!additional || json_is_true(additional) || !json_object_size(names))
        return;
    if (json_object_get(closed, "patternProperties")) { // which may name them
        schema_defer(schema, "additionalProperties");
        return;
    }
    json_t *properties = json_copy(json_object_get(both, "properties"));
    json_object_foreach ((json_t *)names, name, value)
        if (!json_object_get(own, name))
            json_object_set_new(properties, name, merge_schemas(schema, name, value, additional));
    json_object_set_new(both, "properties", properties ? properties : json_object());
}

// Keywords whose meaning depends on another one in their own schema: `items` on prefixItems, `additionalProperties` on
// patternProperties. False: they cannot be merged as they are.
static bool is_told_apart(const json_t *a, const json_t *b, const char *keyword, const char *beside)
{
    const json_t *own = json_object_get(a, keyword), *other = json_object_get(b, keyword);
    if (own && other && json_equal((json_t *)own, (json_t *)other))
        return true;
    return !(own && (other || json_object_get(b, beside))) && !(other && json_object_get(a, beside));
}

// If, then and else of b as alternatives beside those of a.
static const json_t *spell_out_if(struct schema *schema, const json_t *json)
{
    static const char *const trio[] = { "if", "then", "else" };
    json_t *one = json_object(), *rest = json_copy((json_t *)json);
    for (int i = 0; i < 3; i++) {
        json_object_set(one, trio[i], json_object_get(json, trio[i]));
        json_object_del(rest, trio[i]);
    }
    const json_t *kept = schema_keep(schema, rest), *spelled = kept ? schema_if_as_any(schema, one) : NULL;
    json_decref(one);
    return spelled ? schema_merge(schema, kept, spelled) : NULL;
}

static const json_t *merge_objects(struct schema *schema, const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value, *both = json_copy((json_t *)a);
    json_object_foreach ((json_t *)b, name, value) {
        json_t *other = json_object_get(a, name);
        json_t *merged = other ? merge_values_of(schema, name, other, value) : json_incref(value);
        if (!merged) {
            json_decref(both);
            return NULL;
        }
        json_object_set_new(both, name, merged);
    }
    close_properties(schema, a, b, both);
    close_properties(schema, b, a, both);
    if (!json_object_get(a, "nullable") || !json_object_get(b, "nullable"))
        json_object_del(both, "nullable"); // null must be valid against both
    return schema_keep(schema, both);
}

const json_t *schema_merge(struct schema *schema, const json_t *a, const json_t *b)
{
    if (!a || !b)
        return NULL;
    if (json_is_boolean(a) || json_is_boolean(b))
        return json_is_true(a) || json_is_false(b) ? b : a;
    if (!json_is_object(a) || !json_is_object(b))
        return fail(schema->err, "a schema is an object, true or false"), NULL;
    const json_t *ref = json_object_get(b, "$ref");
    if (json_is_string(ref) && schema_is_elsewhere(json_string_value(ref))) {
        schema_ignore(schema, "$ref");
        return schema_merge(schema, a, schema_without(schema, b, "$ref"));
    }
    if (json_is_string(ref)) { // b may be anything; what it stands for is joined first
        const json_t *target = schema_resolve(schema->root, json_string_value(ref), schema->err);
        if (!target || !(b = schema_without(schema, b, "$ref")) || !(a = schema_merge(schema, a, b)))
            return NULL;
        return schema_merge(schema, a, target);
    }
    if (json_object_get(a, "if") && json_object_get(b, "if") && !(b = spell_out_if(schema, b)))
        return NULL;
    if (!is_told_apart(a, b, "patternProperties", "additionalProperties"))
        schema_defer(schema, "additionalProperties");
    if (!is_told_apart(a, b, "prefixItems", "items")) {
        schema_defer(schema, "items");
        if (!(b = schema_without(schema, b, "prefixItems")) || !(b = schema_without(schema, b, "items")))
            return NULL;
    }
    return merge_objects(schema, a, b);
}

// ---- mutual exclusion ----

const json_t *schema_follow(struct schema *schema, const json_t *json)
{
    enum { HOPS_MAX = 16 };
    struct error ignored; // a $ref that leads nowhere is refused where it is compiled
    for (int hops = 0; json && hops < HOPS_MAX; hops++, schema->work++) {
        const char *ref = json_string_value(json_object_get(json, "$ref"));
        if (!ref)
            break;
        json = schema_resolve(schema->root, ref, &ignored);
    }
    return json;
}

json_t *schema_listed(const json_t *json)
{
    json_t *constant = json_object_get(json, "const"), *listed = json_object_get(json, "enum");
    return constant ? json_pack("[O]", constant) : json_is_array(listed) ? json_incref(listed) : NULL;
}

// The types of values that are valid against a schema; of answers to it, when those are asked for.
static unsigned possible_types(struct schema *schema, const json_t *json, const json_t *values, bool answers)
{
    struct error ignored; // a type that is none is refused where it is compiled
    unsigned types = SCHEMA_ALL, listed = 0;
    json_t *value;
    size_t i;
    if (!schema_read_types(json, &types, &ignored))
        types = SCHEMA_ALL;
    if (answers && types == SCHEMA_ALL && !values)
        return schema_implied_types(json);
    json_array_foreach (values, i, value)
        listed |= schema_type_of(value);
    schema->work += json_array_size(values);
    return values ? types & listed : types;
}

static bool share_value(struct schema *schema, const json_t *a, const json_t *b)
{
    json_t *x, *y;
    size_t i, j;
    json_array_foreach (a, i, x)
        json_array_foreach (b, j, y) {
            bool numbers = json_is_number(x) && json_is_number(y); // 1 and 1.0 are the same value
            if (schema->work++ >= SCHEMA_WORK_MAX || json_equal(x, y)
                || (numbers && json_number_value(x) == json_number_value(y)))
                return true;
        }
    return false;
}

static bool requires(struct schema *schema, const json_t *json, const char *name)
{
    json_t *item;
    size_t i;
    json_array_foreach (json_object_get(json, "required"), i, item)
        if (schema->work++ < SCHEMA_WORK_MAX && json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    return false;
}

// Objects exclude each other by a property that both require with different values, or that one requires and the other
// forbids.
static bool exclusive_objects(struct schema *schema, const json_t *a, const json_t *b, int depth)
{
    const json_t *names = json_object_get(a, "properties"), *others = json_object_get(b, "properties");
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)names, name, value) {
        const json_t *other = json_object_get(others, name);
        if (schema->work >= SCHEMA_WORK_MAX || !requires(schema, a, name))
            continue;
        if (!other && json_is_false(json_object_get(b, "additionalProperties")))
            return true;
        if (other && requires(schema, b, name) && schema_exclusive(schema, value, other, depth + 1))
            return true;
    }
    return false;
}

// No answer to `a` is valid against `b`, which requires a property that answers to `a` do not have: with properties
// named, no others are written.
static bool lacks_required(struct schema *schema, const json_t *a, const json_t *b)
{
    static const char *const simple[] = { "type", "properties", "required", "additionalProperties", NULL };
    const json_t *named = json_object_get(a, "properties");
    json_t *item;
    size_t i;
    if (!json_object_size(named) || schema_constraint_beside(a, simple))
        return false;
    json_array_foreach (json_object_get(b, "required"), i, item)
        if (json_is_string(item) && !json_object_get(named, json_string_value(item))
            && !requires(schema, a, json_string_value(item)))
            return true;
    return false;
}

bool schema_exclusive(struct schema *schema, const json_t *a, const json_t *b, int depth)
{
    enum { LEVELS_MAX = 4, PAIR_WORK = 16 };
    a = schema_follow(schema, a);
    b = schema_follow(schema, b);
    if (json_is_false(a) || json_is_false(b))
        return true;
    if (!json_is_object(a) || !json_is_object(b) || depth > LEVELS_MAX || schema->work >= SCHEMA_WORK_MAX)
        return false;
    schema->work += PAIR_WORK;
    json_t *x = schema_listed(a), *y = schema_listed(b);
    unsigned types = (possible_types(schema, a, x, true) & possible_types(schema, b, y, false))
        | (possible_types(schema, a, x, false) & possible_types(schema, b, y, true));
    bool exclusive = !types || (x && y && !share_value(schema, x, y));
    json_decref(x);
    json_decref(y);
    return exclusive
        || (types == SCHEMA_OBJECT
            && (exclusive_objects(schema, a, b, depth) || exclusive_objects(schema, b, a, depth)
                || (!depth && lacks_required(schema, a, b) && lacks_required(schema, b, a))));
}
