// SPDX-License-Identifier: Apache-2.0
// A JSON Schema validator: one check per keyword of keywords.h. A keyword of another type than the value's holds.
#include "text/grammar/validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "format/json.h"
#include "text/grammar/ecma.h"
#include "text/grammar/formats.h"
#include "text/grammar/number.h"
#include "text/grammar/schema.h"

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

// ---- verdicts ----

static bool violated(struct validator *v, const struct check *check, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Always false.
static bool violated(struct validator *v, const struct check *check, const char *format, ...)
{
    char why[256];
    va_list args;
    if (v->quiet || v->undecided)
        return false;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return fail(v->err, "'%s' at #%s does not hold%s%s: %s", check->keyword, strbuf_text(&v->where),
                v->at.len ? " for " : "", strbuf_text(&v->at), why);
}

// Always false, and no verdict is one any more.
static bool give_up(struct validator *v, const char *why)
{
    if (!v->undecided)
        fail(v->err, "it cannot be checked at #%s: %s", strbuf_text(&v->where), why);
    v->undecided = true;
    return false;
}

static bool spend(struct validator *v, size_t work)
{
    v->work += work;
    return (v->work <= VALIDATE_WORK_MAX && !v->undecided) || give_up(v, "it takes too many steps");
}

// ---- going down ----

static size_t enter(struct strbuf *path, const char *step)
{
    enum { PATH_BYTES_MAX = 512 }; // of the path in a message
    size_t mark = path->len;
    if (step && mark < PATH_BYTES_MAX)
        strbuf_add_format(path, "/%.64s", step);
    return mark;
}

static void leave(struct strbuf *path, size_t mark)
{
    path->len = mark;
    if (path->data)
        path->data[mark] = '\0';
}

static bool holds(struct validator *v, const json_t *schema, const json_t *instance);

// The schema at `keyword`/`name` (NULL: at the keyword itself), for the part of the value at `step` (NULL: all of it).
static bool holds_at(struct validator *v, const char *keyword, const char *name, const json_t *schema, const char *step,
                     const json_t *instance)
{
    size_t where = enter(&v->where, keyword), at = enter(&v->at, step);
    enter(&v->where, name);
    bool ok = holds(v, schema, instance);
    leave(&v->where, where);
    leave(&v->at, at);
    return ok;
}

static const char *index_text(size_t index, char text[24])
{
    snprintf(text, 24, "%zu", index);
    return text;
}

static bool holds_quietly(struct validator *v, const json_t *schema, const json_t *instance)
{
    v->quiet++;
    bool ok = holds(v, schema, instance);
    v->quiet--;
    return ok;
}

// ---- values ----

static bool equal_containers(struct validator *v, const json_t *a, const json_t *b);

static bool equal(struct validator *v, const json_t *a, const json_t *b)
{
    if (!spend(v, 1))
        return false;
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b) ? json_integer_value(a) == json_integer_value(b)
                                                        : json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    return json_is_array(a) || json_is_object(a) ? equal_containers(v, a, b) : json_equal((json_t *)a, (json_t *)b);
}

static bool equal_containers(struct validator *v, const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;
    size_t i;
    if (json_array_size(a) != json_array_size(b) || json_object_size(a) != json_object_size(b))
        return false;
    json_array_foreach (a, i, value)
        if (!equal(v, value, json_array_get(b, i)))
            return false;
    json_object_foreach ((json_t *)a, name, value) {
        const json_t *other = json_object_get(b, name);
        if (!other || !equal(v, value, other))
            return false;
    }
    return true;
}

static bool is_among(struct validator *v, const json_t *list, const json_t *instance)
{
    json_t *value;
    size_t i;
    json_array_foreach (list, i, value)
        if (equal(v, value, instance))
            return true;
    return false;
}

static const struct ecma *find_regex(struct validator *v, struct bytes pattern)
{
    int64_t place;
    struct error why;
    if (map_get(&v->known, pattern, &place))
        return v->regexes[place];
    if (v->regex_count == VALIDATE_REGEXES_MAX)
        return give_up(v, "it has too many different patterns"), NULL;
    struct ecma *regex = ecma_new(pattern, NULL, &why);
    if (!regex)
        return give_up(v, why.text), NULL;
    map_put(&v->known, pattern, v->regex_count);
    return v->regexes[v->regex_count++] = regex;
}

static bool matches(struct validator *v, struct bytes pattern, struct bytes text)
{
    enum { SEARCH_WORK = 512 };
    const struct ecma *regex = find_regex(v, pattern);
    if (!regex || !spend(v, SEARCH_WORK + text.len))
        return false;
    enum ecma_match match = ecma_search(regex, text);
    if (match == ECMA_GAVE_UP)
        return give_up(v, "a pattern takes too many steps");
    return match == ECMA_FOUND;
}

// ---- keywords of all types ----

static bool check_type(struct validator *v, const struct check *check)
{
    struct error why;
    unsigned types;
    if (!schema_read_types(check->schema, &types, &why))
        return give_up(v, why.text);
    return (schema_type_of(check->instance) & types) || violated(v, check, "it is of another type");
}

static bool check_enum(struct validator *v, const struct check *check)
{
    return is_among(v, check->value, check->instance) || violated(v, check, "it is none of the values");
}

static bool check_const(struct validator *v, const struct check *check)
{
    return equal(v, check->value, check->instance) || violated(v, check, "it is another value");
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
    return ok || violated(v, check, "%g is out of bounds", value);
}

static bool check_multiple(struct validator *v, const struct check *check)
{
    if (!json_is_number(check->instance))
        return true;
    return number_is_multiple(check->instance, check->value)
        || violated(v, check, "%g is not a multiple", json_number_value(check->instance));
}

// ---- keywords of strings ----

static size_t length_of(struct bytes text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    return count;
}

// minLength, maxItems and their like.
static bool check_count(struct validator *v, const struct check *check)
{
    const json_t *instance = check->instance;
    if (schema_type_of(instance) != schema_keywords[keyword_find(check->keyword)].implies)
        return true;
    size_t count = json_is_string(instance) ? length_of(json_bytes(instance))
                                            : json_array_size(instance) + json_object_size(instance);
    double bound = json_number_value(check->value);
    return (keyword_is_maximum(check->keyword) ? (double)count <= bound : (double)count >= bound)
        || violated(v, check, "there are %zu", count);
}

static bool check_pattern(struct validator *v, const struct check *check)
{
    if (!json_is_string(check->instance))
        return true;
    return matches(v, json_bytes(check->value), json_bytes(check->instance)) || violated(v, check, "it does not match");
}

static bool check_format(struct validator *v, const struct check *check)
{
    const struct string_format *format = format_find(json_string_value(check->value));
    struct error why;
    if (!json_is_string(check->instance) || !format)
        return true;
    const char *pattern = format->checked ? format->checked : format->enforced;
    if (pattern)
        return matches(v, bytes_of(pattern), json_bytes(check->instance))
            || violated(v, check, "it is no %s", format->name);
    struct ecma *regex = ecma_new(json_bytes(check->instance), NULL, &why); // the format regex
    bool ok = regex || violated(v, check, "%.200s", why.text);
    ecma_free(regex);
    return ok;
}

// ---- keywords of arrays ----

// The schemas of the first items: prefixItems, or the older spelling of items.
static const json_t *prefix_of(const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    return json_is_array(items) ? items : prefix;
}

static bool check_prefix(struct validator *v, const struct check *check)
{
    const json_t *item;
    char step[24];
    size_t i;
    json_array_foreach (check->instance, i, item) {
        const json_t *schema = json_array_get(check->value, i);
        if (schema && !holds_at(v, check->keyword, NULL, schema, index_text(i, step), item))
            return false;
    }
    return true;
}

static bool check_items(struct validator *v, const struct check *check)
{
    bool older = json_is_array(json_object_get(check->schema, "items"));
    size_t first = json_array_size(prefix_of(check->schema)), i;
    const json_t *item;
    char step[24];
    if (json_is_array(check->value))
        return check_prefix(v, check);
    if (!older && strcmp(check->keyword, "additionalItems") == 0)
        return true;
    json_array_foreach (check->instance, i, item)
        if (i >= first && !holds_at(v, check->keyword, NULL, check->value, index_text(i, step), item))
            return false;
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
        count += holds_quietly(v, check->value, item);
    return ((double)count >= (json_is_number(low) ? json_number_value(low) : 1)
            && (!json_is_number(high) || (double)count <= json_number_value(high)))
        || violated(v, check, "%zu of its items are such", count);
}

static bool check_unique(struct validator *v, const struct check *check)
{
    const json_t *item;
    size_t i;
    if (!json_is_true(check->value))
        return true;
    json_array_foreach (check->instance, i, item)
        for (size_t k = 0; k < i; k++)
            if (equal(v, json_array_get(check->instance, k), item))
                return violated(v, check, "items %zu and %zu are equal", k, i);
    return !v->undecided;
}

// ---- keywords of objects ----

static bool check_properties(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *schema;
    json_object_foreach ((json_t *)check->value, name, schema) {
        const json_t *value = json_object_get(check->instance, name);
        if ((value && !holds_at(v, check->keyword, name, schema, name, value)) || !spend(v, 1))
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
            if ((matches(v, bytes_of(pattern), bytes_of(name))
                 && !holds_at(v, check->keyword, pattern, schema, name, value))
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
        if (matches(v, bytes_of(pattern), bytes_of(name)))
            return true;
    return false;
}

static bool check_additional(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)check->instance, name, value)
        if (!is_named(v, check->schema, name) && !holds_at(v, check->keyword, NULL, check->value, name, value))
            return false;
    return true;
}

static bool check_names(struct validator *v, const struct check *check)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)check->instance, name, value) {
        json_t *text = json_string_nocheck(name);
        bool ok = holds_at(v, check->keyword, NULL, check->value, name, text);
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
        if (!spend(v, 1) || !json_is_string(name) || !json_object_get(check->instance, json_string_value(name)))
            return violated(v, check, "\"%.64s\" is missing", json_is_string(name) ? json_string_value(name) : "");
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
        if (!spend(v, 1))
            return false;
        if (!json_object_get(check->instance, name))
            continue;
        if (!(json_is_array(then) ? has_all(v, check, then)
                                  : holds_at(v, check->keyword, name, then, NULL, check->instance)))
            return false;
    }
    return true;
}

// ---- schemas made of schemas ----

static size_t count_holding(struct validator *v, const struct check *check)
{
    size_t i, count = 0;
    json_t *schema;
    json_array_foreach (check->value, i, schema)
        count += holds_quietly(v, schema, check->instance);
    return count;
}

static bool check_all(struct validator *v, const struct check *check)
{
    json_t *schema;
    size_t i;
    json_array_foreach (check->value, i, schema) {
        char name[24];
        if (!holds_at(v, check->keyword, index_text(i, name), schema, NULL, check->instance))
            return false;
    }
    return true;
}

static bool check_any(struct validator *v, const struct check *check)
{
    json_t *schema;
    size_t i;
    json_array_foreach (check->value, i, schema)
        if (holds_quietly(v, schema, check->instance))
            return true;
    return violated(v, check, "it meets none of the %zu schemas", json_array_size(check->value));
}

static bool check_one(struct validator *v, const struct check *check)
{
    size_t count = count_holding(v, check);
    return count == 1 || violated(v, check, "it meets %zu of the %zu schemas", count, json_array_size(check->value));
}

static bool check_not(struct validator *v, const struct check *check)
{
    return !holds_quietly(v, check->value, check->instance) || violated(v, check, "it meets that schema");
}

static bool check_if(struct validator *v, const struct check *check)
{
    const char *branch = holds_quietly(v, check->value, check->instance) ? "then" : "else";
    const json_t *schema = json_object_get(check->schema, branch);
    return !schema || holds_at(v, branch, NULL, schema, NULL, check->instance);
}

static bool check_ref(struct validator *v, const struct check *check)
{
    struct error why;
    if (schema_is_elsewhere(json_string_value(check->value)))
        return true; // the grammar has it in its list of what is not supported
    const json_t *target = schema_resolve(v->root, json_string_value(check->value), &why);
    return target ? holds_at(v, check->keyword, NULL, target, NULL, check->instance) : give_up(v, why.text);
}

// ---- the whole ----

static bool check_nothing(struct validator *v, const struct check *check)
{
    (void)v, (void)check; // another keyword reads it
    return true;
}

typedef bool check_keyword(struct validator *v, const struct check *check);

#define check_none NULL
#define X(name, form, type, merge, negate, check, opposite) check_##check,
static check_keyword *const checks[] = { SCHEMA_KEYWORDS(X) };
#undef X

bool validate_supports(const char *name)
{
    int keyword = keyword_find(name);
    return keyword >= 0 && checks[keyword];
}

static bool holds_keyword(struct validator *v, int keyword, const struct check *check)
{
    const char *expected;
    char why[96];
    if (keyword_fits(keyword, check->value, &expected))
        return checks[keyword](v, check);
    snprintf(why, sizeof why, "'%s' is not %s", check->keyword, expected);
    return give_up(v, why);
}

static bool all_hold(struct validator *v, const json_t *schema, const json_t *instance)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)schema, name, value) {
        int keyword = keyword_find(name);
        struct check check = { name, schema, value, instance };
        if (keyword >= 0 && checks[keyword] && (!holds_keyword(v, keyword, &check) || v->undecided))
            return false;
    }
    return true;
}

static bool holds(struct validator *v, const json_t *schema, const json_t *instance)
{
    struct check false_check = { "false", schema, schema, instance };
    enum { SCHEMA_WORK = 4 };
    if (!spend(v, SCHEMA_WORK))
        return false;
    if (json_is_boolean(schema))
        return json_is_true(schema) || violated(v, &false_check, "nothing may stand there");
    if (!json_is_object(schema))
        return give_up(v, "a schema is an object, true or false");
    if (v->depth >= VALIDATE_DEPTH_MAX)
        return give_up(v, "it nests too deep");
    v->depth++;
    bool ok = all_hold(v, schema, instance);
    v->depth--;
    return ok;
}

enum validity validate(const json_t *root, const json_t *schema, const json_t *value, struct error *err)
{
    struct validator *v = memory_new(1, sizeof *v);
    *v = (struct validator){ .root = root, .err = err };
    bool ok = holds(v, schema, value);
    enum validity verdict = v->undecided ? UNDECIDED : ok ? VALID : INVALID;
    for (int i = 0; i < v->regex_count; i++)
        ecma_free(v->regexes[i]);
    map_free(&v->known);
    strbuf_free(&v->where);
    strbuf_free(&v->at);
    free(v);
    return verdict;
}
