// SPDX-License-Identifier: Apache-2.0
// The compiler from JSON Schema to grammar rules: keyword checks, types, $ref, allOf and anyOf.
#include "text/grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>

#include "format/json.h"
#include "text/grammar/number.h"
#include "text/grammar/validate.h"

const char *schema_constraint_beside(const json_t *json, const char *const *known)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)json, name, value) {
        bool listed = keyword_find(name) < 0;
        for (size_t i = 0; known[i] && !listed; i++)
            listed = strcmp(known[i], name) == 0;
        if (!listed)
            return name;
    }
    return NULL;
}

static bool check_keywords(struct schema *schema, const json_t *json)
{
    const char *name, *expected;
    json_t *value;
    json_object_foreach ((json_t *)json, name, value) {
        int keyword = keyword_find(name);
        if (keyword < 0)
            continue;
        if (schema_keywords[keyword].form < FORM_READ_OBJECT && !keyword_fits(keyword, value, &expected))
            return fail(schema->err, "'%s' is not %s", name, expected);
        if (!validate_supports(name) && !json_is_true(value))
            schema_defer(schema, name);
    }
    return true;
}

static void add_note(struct schema *schema, const char *keyword, struct strbuf *notes)
{
    struct strbuf note = { 0 };
    strbuf_add_format(&note, "'%s' at %s", keyword, schema->path.data);
    if (!notes->len || (notes->len < SCHEMA_NOTES_BYTES_MAX && !strstr(notes->data, note.data)))
        strbuf_add_format(notes, "%s%.200s", notes->len ? ", " : "", note.data);
    strbuf_free(&note);
}

void schema_defer(struct schema *schema, const char *keyword)
{
    struct grammar *grammar = schema->grammar;
    add_note(schema, keyword, validate_supports(keyword) ? &grammar->unenforced : &grammar->unsupported);
}

void schema_ignore(struct schema *schema, const char *keyword)
{
    add_note(schema, keyword, &schema->grammar->unsupported);
}

bool schema_fail_unmet(struct schema *schema, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    schema->unmet = true;
    return fail(schema->err, "it cannot be met: %s", why);
}

struct schema_savepoint schema_begin(const struct schema *schema)
{
    return (struct schema_savepoint){ schema->grammar->unenforced.len, schema->grammar->unsupported.len,
                                      schema->path.len };
}

static void cut(struct strbuf *text, size_t len)
{
    text->len = len;
    if (text->data)
        text->data[len] = '\0';
}

void schema_undo(struct schema *schema, const struct schema_savepoint *attempt)
{
    cut(&schema->grammar->unenforced, attempt->unenforced);
    cut(&schema->grammar->unsupported, attempt->unsupported);
    cut(&schema->path, attempt->path);
    schema->unmet = false;
}

// ---- small things that all kinds of values share ----

size_t schema_enter(struct schema *schema, const char *keyword, const char *name)
{
    size_t mark = schema->path.len;
    strbuf_add_format(&schema->path, "/%s", keyword);
    if (name)
        strbuf_add_format(&schema->path, "/%s", name);
    return mark;
}

void schema_leave(struct schema *schema, size_t mark) { cut(&schema->path, mark); }

bool schema_counts(struct schema *schema, const json_t *json, const char *low_name, uint32_t *low,
                   const char *high_name, uint32_t *high)
{
    int64_t least = 0, most = INT64_MAX;
    if (!json_get_int(json, low_name, 0, INT64_MAX, &least, schema->err)
        || !json_get_int(json, high_name, 0, INT64_MAX, &most, schema->err))
        return false;
    if (least > most)
        return schema_fail_unmet(schema, "%s is greater than %s", low_name, high_name);
    if (least > SCHEMA_COUNT_MAX)
        return fail(schema->err, "'%s' is more than any answer has", low_name);
    *low = (uint32_t)least;
    *high = most > SCHEMA_COUNT_MAX ? RULES_UNBOUNDED : (uint32_t)most;
    return true;
}

uint32_t schema_token(struct grammar *grammar, const char *text, struct error *err)
{
    uint32_t node;
    if (rules_find(grammar, text, &node))
        return node;
    return rules_name(grammar, text, rules_literal(grammar, bytes_of(text), err));
}

uint32_t schema_word(struct grammar *grammar, const char *word, struct error *err)
{
    const char *python = *word == 't' ? "True" : *word == 'f' ? "False" : "None";
    return schema_token(grammar, grammar->python ? python : word, err);
}

uint32_t schema_mark(struct grammar *grammar, char byte, struct error *err)
{
    bool opens = byte == '{' || byte == '[', closes = byte == '}' || byte == ']';
    return rules_mark(grammar, byte, !opens, !closes, err);
}

uint32_t schema_never(struct schema *schema) { return rules_choice(schema->grammar, NULL, 0, schema->err); }

// ---- values without a schema ----

uint32_t schema_any_object(struct grammar *grammar, uint32_t value, struct error *err)
{
    uint32_t member = rules_sequence(grammar, schema_mark(grammar, ':', err), value, err);
    member = rules_sequence(grammar, rules_string(grammar, 0, RULES_UNBOUNDED, err), member, err);
    uint32_t members = rules_repeat(grammar, member, schema_mark(grammar, ',', err), 0, RULES_UNBOUNDED, err);
    return rules_sequence(grammar, schema_mark(grammar, '{', err),
                          rules_sequence(grammar, members, schema_mark(grammar, '}', err), err), err);
}

uint32_t schema_any_array(struct grammar *grammar, uint32_t item, uint32_t low, uint32_t high, struct error *err)
{
    uint32_t items = rules_repeat(grammar, item, schema_mark(grammar, ',', err), low, high, err);
    return rules_sequence(grammar, schema_mark(grammar, '[', err),
                          rules_sequence(grammar, items, schema_mark(grammar, ']', err), err), err);
}

uint32_t schema_any(struct grammar *grammar, struct error *err)
{
    static const char *const words[] = { "true", "false", "null" };
    const char *name = grammar->python ? "any Python value" : "any value";
    uint32_t node, kinds[7];
    if (rules_find(grammar, name, &node))
        return node;
    node = rules_reserve(grammar, err);
    for (int i = 0; i < 3; i++)
        kinds[i] = schema_word(grammar, words[i], err);
    kinds[3] = number_rule(grammar, &(struct number_range){ 0 }, err);
    kinds[4] = rules_string(grammar, 0, RULES_UNBOUNDED, err);
    kinds[5] = schema_any_object(grammar, node, err);
    kinds[6] = schema_any_array(grammar, node, 0, RULES_UNBOUNDED, err);
    uint32_t choice = rules_choice(grammar, kinds, 7, err);
    if (node == RULES_NONE || choice == RULES_NONE)
        return RULES_NONE;
    rules_define(grammar, node, choice);
    return rules_name(grammar, name, node);
}

// ---- types ----

// Adds an alternative, unless its schema cannot be met; false: it failed for another reason.
static bool add_way(struct schema *schema, uint32_t node, uint32_t *nodes, size_t *count)
{
    bool unmet = schema->unmet;
    schema->unmet = false;
    if (node == RULES_NONE)
        return unmet;
    nodes[(*count)++] = node;
    return true;
}

// One of the alternatives. Without any, the error of the last one stands.
static uint32_t choose(struct schema *schema, const uint32_t *nodes, size_t count)
{
    schema->unmet = !count;
    return count ? rules_choice(schema->grammar, nodes, count, schema->err) : RULES_NONE;
}

static uint32_t compile_types(struct schema *schema, const json_t *json)
{
    unsigned types;
    uint32_t nodes[8];
    size_t count = 0;
    if (!schema_read_types(json, &types, schema->err))
        return RULES_NONE;
    if (types == SCHEMA_ALL && !json_object_get(json, "type"))
        types = schema_implied_types(json);
    if (!types)
        return schema_never(schema);
    if (types == SCHEMA_ALL && !schema_constraint_beside(json, (const char *const[]){ "type", "nullable", NULL }))
        return schema_any(schema->grammar, schema->err);
    if ((types & SCHEMA_OBJECT) && !add_way(schema, schema_object(schema, json), nodes, &count))
        return RULES_NONE;
    if ((types & SCHEMA_ARRAY) && !add_way(schema, schema_array(schema, json), nodes, &count))
        return RULES_NONE;
    if ((types & SCHEMA_STRING) && !add_way(schema, schema_string(schema, json), nodes, &count))
        return RULES_NONE;
    if ((types & SCHEMA_NUMBER) && !add_way(schema, schema_number(schema, json, !(types & SCHEMA_REAL)), nodes, &count))
        return RULES_NONE;
    if (types & SCHEMA_BOOLEAN) {
        nodes[count++] = schema_word(schema->grammar, "true", schema->err);
        nodes[count++] = schema_word(schema->grammar, "false", schema->err);
    }
    if (types & SCHEMA_NULL)
        nodes[count++] = schema_word(schema->grammar, "null", schema->err);
    return choose(schema, nodes, count);
}

// ---- schemas made of schemas ----

static uint32_t compile_ref(struct schema *schema, const json_t *json)
{
    const json_t *value = json_object_get(json, "$ref");
    const char *ref = json_string_value(value);
    int64_t known;
    if (!ref)
        return fail(schema->err, "'$ref' is not a string"), RULES_NONE;
    if (schema_is_elsewhere(ref)) {
        const json_t *rest = schema_without(schema, json, "$ref");
        schema_ignore(schema, "$ref");
        return rest ? schema_value(schema, rest) : RULES_NONE;
    }
    const json_t *target = schema_resolve(schema->root, ref, schema->err);
    if (!target)
        return RULES_NONE;
    if (schema_constraint_beside(json, (const char *const[]){ "$ref", NULL })) {
        const json_t *both = schema_merge(schema, schema_without(schema, json, "$ref"), target);
        return both ? schema_value(schema, both) : RULES_NONE;
    }
    struct bytes key = { ref, json_string_length(value) };
    if (map_get(&schema->refs, key, &known))
        return (uint32_t)known;
    uint32_t reserved = rules_reserve(schema->grammar, schema->err);
    if (reserved == RULES_NONE)
        return RULES_NONE;
    map_put(&schema->refs, key, reserved);
    size_t mark = schema_enter(schema, "$ref", ref);
    uint32_t node = schema_value(schema, target);
    if (node == RULES_NONE && !schema->unmet)
        return RULES_NONE;
    if (node != RULES_NONE)
        schema_leave(schema, mark);
    rules_define(schema->grammar, reserved, node != RULES_NONE ? node : schema_never(schema));
    return node != RULES_NONE ? reserved : RULES_NONE;
}

static uint32_t compile_all(struct schema *schema, const json_t *json)
{
    const json_t *parts = json_object_get(json, "allOf"), *merged = schema_without(schema, json, "allOf");
    json_t *part;
    size_t i;
    if (!json_array_size(parts))
        return fail(schema->err, "'allOf' is not a list of schemas"), RULES_NONE;
    json_array_foreach (parts, i, part) {
        merged = schema_merge(schema, merged, part);
        if (!merged)
            return RULES_NONE;
    }
    return schema_value(schema, merged);
}

uint32_t schema_alternatives(struct schema *schema, const json_t *json, const char *keyword)
{
    const json_t *parts = json_object_get(json, keyword);
    const json_t *beside = NULL;
    uint32_t nodes[RULES_CHOICES_MAX];
    size_t i, count = json_array_size(parts), ways = 0;
    char name[24];
    json_t *part;
    if (!count || count > RULES_CHOICES_MAX)
        return fail(schema->err, "'%s' is not a list of 1 to %d schemas", keyword, RULES_CHOICES_MAX), RULES_NONE;
    if (schema_constraint_beside(json, (const char *const[]){ keyword, NULL }))
        beside = schema_without(schema, json, keyword);
    json_array_foreach (parts, i, part) {
        snprintf(name, sizeof name, "%zu", i);
        size_t mark = schema_enter(schema, keyword, name);
        const json_t *alternative = beside ? schema_merge(schema, beside, part) : part;
        if (!add_way(schema, alternative ? schema_value(schema, alternative) : RULES_NONE, nodes, &ways))
            return RULES_NONE;
        schema_leave(schema, mark);
    }
    return choose(schema, nodes, ways);
}

static uint32_t compile_any(struct schema *schema, const json_t *json)
{
    return schema_alternatives(schema, json, "anyOf");
}

static uint32_t compile_not(struct schema *schema, const json_t *json)
{
    return schema_excludes_strings(json) ? compile_types(schema, json) : schema_not(schema, json);
}

// Keywords that rewrite a schema into simpler ones, in this order: enum and const are filtered by the keywords beside
// them, then conjunctions are merged, then disjunctions are split; a negation comes last.
static const struct {
    const char *keyword;
    uint32_t (*compile)(struct schema *schema, const json_t *json);
} kinds[] = {
    { "enum", schema_enum },
    { "const", schema_enum },
    { "$ref", compile_ref },
    { "allOf", compile_all },
    { "dependentRequired", schema_dependent },
    { "dependentSchemas", schema_dependent },
    { "dependencies", schema_dependent },
    { "if", schema_if },
    { "anyOf", compile_any },
    { "oneOf", schema_one },
    { "not", compile_not },
};

static uint32_t compile_value(struct schema *schema, const json_t *json)
{
    if (json_is_true(json))
        return schema_any(schema->grammar, schema->err);
    if (json_is_false(json))
        return schema_never(schema);
    if (!json_is_object(json))
        return fail(schema->err, "a schema is an object, true or false"), RULES_NONE;
    if (!check_keywords(schema, json))
        return RULES_NONE;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_object_get(json, kinds[i].keyword))
            return kinds[i].compile(schema, json);
    return compile_types(schema, json);
}

uint32_t schema_value(struct schema *schema, const json_t *json)
{
    if (schema->depth >= SCHEMA_DEPTH_MAX)
        return fail(schema->err, "the schema nests more than %d deep", SCHEMA_DEPTH_MAX), RULES_NONE;
    schema->depth++;
    uint32_t node = compile_value(schema, json);
    schema->depth--;
    return node;
}

// ---- the whole ----

struct size {
    size_t bytes, values;
};

static bool check_size(const json_t *json, int depth, struct size *size, struct error *err)
{
    const char *name;
    json_t *value;
    size_t i;
    size->values++;
    size->bytes += json_string_length(json);
    if (depth > SCHEMA_DEPTH_MAX)
        return fail(err, "it nests more than %d deep", SCHEMA_DEPTH_MAX);
    if (size->values > SCHEMA_VALUES_MAX || size->bytes > SCHEMA_BYTES_MAX)
        return fail(err, "it is too large: at most %d values and %d bytes of text", SCHEMA_VALUES_MAX,
                    SCHEMA_BYTES_MAX);
    json_array_foreach (json, i, value)
        if (!check_size(value, depth + 1, size, err))
            return false;
    json_object_foreach ((json_t *)json, name, value) {
        size->bytes += strlen(name);
        if (!check_size(value, depth + 1, size, err))
            return false;
    }
    return true;
}

bool schema_open(struct schema *schema, struct grammar *grammar, const json_t *json, struct error *err)
{
    struct size size = { 0 };
    *schema = (struct schema){ .grammar = grammar, .root = json, .err = err };
    if (!check_size(json, 0, &size, err))
        return fail_within(err, "schema");
    schema->made = json_array();
    strbuf_add_text(&schema->path, "#");
    return true;
}

uint32_t schema_close(struct schema *schema, uint32_t node)
{
    if (node == RULES_NONE)
        fail_within(schema->err, "schema at %s", schema->path.data);
    json_decref(schema->made);
    map_free(&schema->refs);
    strbuf_free(&schema->path);
    return node;
}

uint32_t schema_compile(struct grammar *grammar, const json_t *json, struct error *err)
{
    struct schema schema;
    if (!schema_open(&schema, grammar, json, err))
        return RULES_NONE;
    return schema_close(&schema, schema_value(&schema, json));
}
