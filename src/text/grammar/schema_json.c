// SPDX-License-Identifier: Apache-2.0
// Schemas as JSON: following $ref, joining what must hold together, telling apart what cannot.
#include <stdlib.h>

#include "base/strbuf.h"
#include "text/grammar/schema.h"

// ---- references ----

// One step of a JSON pointer, ~ and % undone, is appended to *out; the rest of the pointer.
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

const json_t *schema_resolve(struct schema *schema, const char *ref)
{
    const json_t *target = schema->root;
    const char *at = ref + 1;
    if (ref[0] != '#' || (*at && *at != '/')) {
        fail(schema->err, "the $ref '%s' cannot be followed; only those into the schema itself, from #/, can", ref);
        return NULL;
    }
    while (*at == '/' && target) {
        struct strbuf step = { 0 };
        strbuf_add_text(&step, "");
        at = read_step(at + 1, &step);
        target = json_is_array(target) ? json_array_get(target, strtoul(step.data, NULL, 10))
                                       : json_object_get(target, step.data);
        strbuf_free(&step);
    }
    if (!target)
        fail(schema->err, "the $ref '%s' leads nowhere", ref);
    return target;
}

// ---- what must hold together ----

// Keeps a schema that was made here until all is done; NULL when there are too many.
static json_t *keep(struct schema *schema, json_t *made)
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
    return keep(schema, copy);
}

// How two values of a keyword become one. Each returns a new reference, or NULL with a sentence.

static json_t *merge_impossible(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)a, (void)b;
    fail(schema->err, "two different '%s' for the same value cannot be enforced together", keyword);
    return NULL;
}

static json_t *merge_largest(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b))
        return merge_impossible(schema, keyword, a, b);
    return json_incref(json_number_value(a) > json_number_value(b) ? a : b);
}

static json_t *merge_smallest(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b))
        return merge_impossible(schema, keyword, a, b);
    return json_incref(json_number_value(a) < json_number_value(b) ? a : b);
}

// Values (or names) that both lists have.
static json_t *merge_common(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    json_t *common = json_array(), *x, *y;
    size_t i, j;
    json_array_foreach(a, i, x)
        for (j = 0; (y = json_array_get(b, j)) && schema->work++ < SCHEMA_WORK_MAX; j++)
            if (json_equal(x, y)) {
                json_array_append(common, x);
                break;
            }
    if (json_array_size(common))
        return common;
    json_decref(common);
    fail(schema->err, "it cannot be met: nothing is common to two lists of '%s'", keyword);
    return NULL;
}

static json_t *merge_types(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    static const struct { const char *name; unsigned bit; } words[] = {
        { "null", SCHEMA_NULL }, { "boolean", SCHEMA_BOOLEAN }, { "number", SCHEMA_NUMBER },
        { "integer", SCHEMA_INTEGER }, { "string", SCHEMA_STRING }, { "array", SCHEMA_ARRAY },
        { "object", SCHEMA_OBJECT },
    };
    json_t *first = json_pack("{sO}", "type", a), *second = json_pack("{sO}", "type", b), *common = json_array();
    unsigned x = 0, y = 0;
    bool ok = schema_types(schema, first, &x) && schema_types(schema, second, &y);
    json_decref(first);
    json_decref(second);
    unsigned left = x & y;
    for (size_t i = 0; ok && i < sizeof words / sizeof *words; i++)
        if ((left & words[i].bit) == words[i].bit) {
            json_array_append_new(common, json_string(words[i].name));
            left &= ~words[i].bit;
        }
    if (ok && json_array_size(common))
        return common;
    json_decref(common);
    if (ok)
        fail(schema->err, "it cannot be met: '%s' is asked to be two different things", keyword);
    return NULL;
}

static json_t *merge_lists(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    if (!json_is_array(a) || !json_is_array(b))
        return merge_impossible(schema, keyword, a, b);
    json_t *all = json_copy(a);
    json_array_extend(all, b);
    return all;
}

// A schema for both is left to be merged when it is looked at.
static json_t *merge_schemas(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    (void)schema, (void)keyword;
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    return json_pack("{s[OO]}", "allOf", a, b);
}

static json_t *merge_properties(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    const char *name;
    json_t *value;
    if (!json_is_object(a) || !json_is_object(b))
        return merge_impossible(schema, keyword, a, b);
    json_t *all = json_copy(a);
    json_object_foreach(b, name, value) {
        json_t *other = json_object_get(a, name);
        if (!other)
            json_object_set(all, name, value);
        else if (!json_equal(other, value))
            json_object_set_new(all, name, merge_schemas(schema, name, other, value));
    }
    return all;
}

static json_t *merge_values_of(struct schema *schema, const char *keyword, json_t *a, json_t *b)
{
    static const struct {
        const char *keyword;
        json_t *(*merge)(struct schema *schema, const char *keyword, json_t *a, json_t *b);
    } rules[] = {
        { "type", merge_types }, { "required", merge_lists }, { "allOf", merge_lists }, { "enum", merge_common },
        { "properties", merge_properties }, { "additionalProperties", merge_schemas }, { "items", merge_schemas },
        { "minimum", merge_largest }, { "exclusiveMinimum", merge_largest }, { "minLength", merge_largest },
        { "minItems", merge_largest }, { "maximum", merge_smallest }, { "exclusiveMaximum", merge_smallest },
        { "maxLength", merge_smallest }, { "maxItems", merge_smallest },
    };
    if (!schema_constrains(keyword) || json_equal(a, b))
        return json_incref(a);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].keyword, keyword) == 0)
            return rules[i].merge(schema, keyword, a, b);
    return merge_impossible(schema, keyword, a, b);
}

// An object that is closed by one schema cannot have what only the other one names.
static bool check_closed(struct schema *schema, const json_t *closed, const json_t *other)
{
    const json_t *additional = json_object_get(closed, "additionalProperties");
    const json_t *own = json_object_get(closed, "properties"), *names = json_object_get(other, "properties");
    const char *name;
    json_t *value;
    if (!additional || json_is_true(additional))
        return true;
    json_object_foreach((json_t *)names, name, value)
        if (!json_object_get(own, name))
            return fail(schema->err, "'additionalProperties' of one schema and the property '%s' of another cannot be "
                                     "enforced together", name);
    return true;
}

// `items` means the items behind the prefix of its own schema: beside another prefix it would mean others.
static bool check_prefix(struct schema *schema, const json_t *a, const json_t *b)
{
    const json_t *prefix = json_object_get(a, "prefixItems"), *other = json_object_get(b, "prefixItems");
    if (!prefix || (other && json_equal((json_t *)prefix, (json_t *)other)))
        return true;
    return !(other || json_object_get(b, "items"))
           || fail(schema->err, "'prefixItems' of one schema and the items of another cannot be enforced together");
}

const json_t *schema_merge(struct schema *schema, const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;
    if (!a || !b)
        return NULL;
    if (json_is_boolean(a) || json_is_boolean(b))
        return json_is_true(a) || json_is_false(b) ? b : a;
    if (!json_is_object(a) || !json_is_object(b)) {
        fail(schema->err, "a schema is an object, true or false");
        return NULL;
    }
    const json_t *ref = json_object_get(b, "$ref");
    if (json_is_string(ref)) { // b may be anything; what it stands for is joined first
        const json_t *target = schema_resolve(schema, json_string_value(ref));
        if (!target || !(b = schema_without(schema, b, "$ref")) || !(a = schema_merge(schema, a, b)))
            return NULL;
        return schema_merge(schema, a, target);
    }
    if (!check_closed(schema, a, b) || !check_closed(schema, b, a) || !check_prefix(schema, a, b)
        || !check_prefix(schema, b, a))
        return NULL;
    json_t *both = json_copy((json_t *)a);
    json_object_foreach((json_t *)b, name, value) {
        json_t *other = json_object_get(a, name);
        json_t *merged = other ? merge_values_of(schema, name, other, value) : json_incref(value);
        if (!merged) {
            json_decref(both);
            return NULL;
        }
        json_object_set_new(both, name, merged);
    }
    if (!json_object_get(a, "nullable") || !json_object_get(b, "nullable"))
        json_object_del(both, "nullable"); // null must be valid against both
    return keep(schema, both);
}

// ---- what can be told apart ----

static const json_t *follow(struct schema *schema, const json_t *json)
{
    enum { HOPS_MAX = 16 };
    struct error ignored, *err = schema->err;
    schema->err = &ignored; // a $ref that leads nowhere is refused where it is compiled
    for (int hops = 0; json && hops < HOPS_MAX; hops++, schema->work++) {
        const char *ref = json_string_value(json_object_get(json, "$ref"));
        if (!ref)
            break;
        json = schema_resolve(schema, ref);
    }
    schema->err = err;
    return json;
}

// The values that a schema lists, as a new list; NULL: it lists none.
static json_t *listed_values(const json_t *json)
{
    json_t *constant = json_object_get(json, "const"), *listed = json_object_get(json, "enum");
    return constant ? json_pack("[O]", constant) : json_is_array(listed) ? json_incref(listed) : NULL;
}

// The types of values that are valid against a schema; of answers to it, when those are asked for.
static unsigned possible_types(struct schema *schema, const json_t *json, const json_t *values, bool answers)
{
    struct error ignored, *err = schema->err;
    unsigned types = SCHEMA_ALL, listed = 0;
    json_t *value;
    size_t i;
    schema->err = &ignored; // a type that is none is refused where it is compiled
    if (!schema_types(schema, json, &types))
        types = SCHEMA_ALL;
    schema->err = err;
    if (answers && types == SCHEMA_ALL && !values)
        return schema_implied_types(json);
    json_array_foreach(values, i, value)
        listed |= schema_type_of(value);
    schema->work += json_array_size(values);
    return values ? types & listed : types;
}

static bool share_value(struct schema *schema, const json_t *a, const json_t *b)
{
    json_t *x, *y;
    size_t i, j;
    json_array_foreach(a, i, x)
        json_array_foreach(b, j, y) {
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
    json_array_foreach(json_object_get(json, "required"), i, item)
        if (schema->work++ < SCHEMA_WORK_MAX && json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    return false;
}

// Objects are told apart by a property that both require with different values, or that one requires and the other does
// not let in.
static bool exclusive_objects(struct schema *schema, const json_t *a, const json_t *b, int depth)
{
    const json_t *names = json_object_get(a, "properties"), *others = json_object_get(b, "properties");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)names, name, value) {
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

bool schema_exclusive(struct schema *schema, const json_t *a, const json_t *b, int depth)
{
    enum { LEVELS_MAX = 4, PAIR_WORK = 16 };
    a = follow(schema, a);
    b = follow(schema, b);
    if (json_is_false(a) || json_is_false(b))
        return true;
    if (!json_is_object(a) || !json_is_object(b) || depth > LEVELS_MAX || schema->work >= SCHEMA_WORK_MAX)
        return false;
    schema->work += PAIR_WORK;
    json_t *x = listed_values(a), *y = listed_values(b);
    unsigned types = (possible_types(schema, a, x, true) & possible_types(schema, b, y, false))
                     | (possible_types(schema, a, x, false) & possible_types(schema, b, y, true));
    bool exclusive = !types || (x && y && !share_value(schema, x, y));
    json_decref(x);
    json_decref(y);
    return exclusive || (types == SCHEMA_OBJECT
                         && (exclusive_objects(schema, a, b, depth) || exclusive_objects(schema, b, a, depth)));
}
