// SPDX-License-Identifier: Apache-2.0
// A JSON Schema validator: the walk through schema and value, its verdicts and limits.
#include "text/grammar/validator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "text/grammar/keywords.h"

// ---- verdicts ----

bool validator_violated(struct validator *v, const struct check *check, const char *format, ...)
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

bool validator_give_up(struct validator *v, const char *why)
{
    if (!v->undecided)
        fail(v->err, "it cannot be checked at #%s: %s", strbuf_text(&v->where), why);
    v->undecided = true;
    return false;
}

bool validator_spend(struct validator *v, size_t work)
{
    v->work += work;
    return (v->work <= VALIDATE_WORK_MAX && !v->undecided) || validator_give_up(v, "it takes too many steps");
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

static bool holds(struct validator *v, const json_t *schema, const json_t *instance);

bool validator_holds_at(struct validator *v, const char *keyword, const char *name, const json_t *schema,
                        const char *step, const json_t *instance)
{
    size_t where = enter(&v->where, keyword), at = enter(&v->at, step);
    enter(&v->where, name);
    bool ok = holds(v, schema, instance);
    strbuf_cut(&v->where, where);
    strbuf_cut(&v->at, at);
    return ok;
}

bool validator_holds_quietly(struct validator *v, const json_t *schema, const json_t *instance)
{
    v->quiet++;
    bool ok = holds(v, schema, instance);
    v->quiet--;
    return ok;
}

// ---- values ----

static bool equal_containers(struct validator *v, const json_t *a, const json_t *b);

bool validator_equal(struct validator *v, const json_t *a, const json_t *b)
{
    if (!validator_spend(v, 1))
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
        if (!validator_equal(v, value, json_array_get(b, i)))
            return false;
    json_object_foreach ((json_t *)a, name, value) {
        const json_t *other = json_object_get(b, name);
        if (!other || !validator_equal(v, value, other))
            return false;
    }
    return true;
}

static const struct ecma *find_regex(struct validator *v, struct bytes pattern)
{
    int64_t place;
    struct error why;
    if (map_get(&v->known, pattern, &place))
        return v->regexes[place];
    if (v->regex_count == VALIDATE_REGEXES_MAX)
        return validator_give_up(v, "it has too many different patterns"), NULL;
    struct ecma *regex = ecma_new(pattern, NULL, &why);
    if (!regex)
        return validator_give_up(v, why.text), NULL;
    map_put(&v->known, pattern, v->regex_count);
    return v->regexes[v->regex_count++] = regex;
}

bool validator_matches(struct validator *v, struct bytes pattern, struct bytes text)
{
    enum { SEARCH_WORK = 512 };
    const struct ecma *regex = find_regex(v, pattern);
    if (!regex || !validator_spend(v, SEARCH_WORK + text.len))
        return false;
    enum ecma_match match = ecma_search(regex, text);
    if (match == ECMA_GAVE_UP)
        return validator_give_up(v, "a pattern takes too many steps");
    return match == ECMA_FOUND;
}

// ---- the whole ----

static bool holds_keyword(struct validator *v, int keyword, const struct check *check)
{
    const char *expected;
    char why[96];
    if (keyword_fits(keyword, check->value, &expected))
        return validator_check(keyword)(v, check);
    snprintf(why, sizeof why, "'%s' is not %s", check->keyword, expected);
    return validator_give_up(v, why);
}

static bool all_hold(struct validator *v, const json_t *schema, const json_t *instance)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)schema, name, value) {
        int keyword = keyword_find(name);
        struct check check = { name, schema, value, instance };
        if (keyword >= 0 && validator_check(keyword) && (!holds_keyword(v, keyword, &check) || v->undecided))
            return false;
    }
    return true;
}

static bool holds(struct validator *v, const json_t *schema, const json_t *instance)
{
    struct check false_check = { "false", schema, schema, instance };
    enum { SCHEMA_WORK = 4 };
    if (!validator_spend(v, SCHEMA_WORK))
        return false;
    if (json_is_boolean(schema))
        return json_is_true(schema) || validator_violated(v, &false_check, "nothing may stand there");
    if (!json_is_object(schema))
        return validator_give_up(v, "a schema is an object, true or false");
    if (v->depth >= VALIDATE_DEPTH_MAX)
        return validator_give_up(v, "it nests too deep");
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
