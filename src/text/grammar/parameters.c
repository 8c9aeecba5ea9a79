// SPDX-License-Identifier: Apache-2.0
// text/grammar/parameters.c: the arguments of a call as tagged parameters, Python's keyword arguments or Gemma's
// members: properties in the order given, with strings as raw text up to their closing text.
#include <stdlib.h>

#include "text/grammar/raw.h"
#include "text/grammar/schema.h"
#include "text/grammar/validate.h"

struct parameter {
    const char *name;
    bool required;
    uint32_t text, json; // the value and its close; RULES_NONE: it is never of that kind
};

struct object {
    struct schema *schema;
    const struct grammar_parameters *syntax;
    struct parameter *parameters;
    uint32_t count;
    struct arena arena; // texts
};

// ---- values -------------------------------------------------------------------------------------------------------

enum { WAYS_MAX = 64 };

// The ways to write a value, as they are collected.
struct ways {
    const char *text_close, *json_close, *name;
    bool plain; // strings must differ from JSON by how they begin
    bool mixed; // other values may come, too
    uint32_t texts[WAYS_MAX], jsons[WAYS_MAX];
    size_t text_count, json_count;
};

static bool add_way(struct schema *schema, uint32_t node, uint32_t *nodes, size_t *count)
{
    if (node != RULES_NONE && *count == WAYS_MAX)
        return fail(schema->err, "a parameter of more than %d kinds", WAYS_MAX);
    return schema_add_way(schema, node, nodes, count);
}

// The closing text of a parameter: %k stands for its name.
static struct bytes close_head(const char *close)
{
    const char *key = strstr(close, "%k");
    return (struct bytes){ close, key ? (size_t)(key - close) : strlen(close) };
}

static const char *close_tail(struct schema *schema, const char *close, const char *name)
{
    const char *key = strstr(close, "%k");
    return key ? arena_format(&schema->grammar->arena, "%s%s", name, key + 2) : "";
}

static const char *close_text(struct schema *schema, const char *close, const char *name)
{
    struct bytes head = close_head(close);
    return arena_format(&schema->grammar->arena, "%.*s%s", (int)head.len, head.data, close_tail(schema, close, name));
}

// Strings that are listed, each with what closes it.
static uint32_t compile_listed(struct schema *schema, const json_t *json, const struct ways *ways)
{
    json_t *listed = schema_listed(json), *value;
    struct word *words = memory_new(json_array_size(listed) + 1, sizeof *words);
    const char *close = close_text(schema, ways->text_close, ways->name), *inner = close + strspn(close, "\n");
    struct map seen = { 0 };
    struct error ignored;
    uint32_t count = 0, node = RULES_NONE;
    int64_t index;
    size_t i;
    json_array_foreach (listed, i, value) {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value) || strstr(text, inner)
            || map_get(&seen, bytes_of(text), &index) || validate(schema->root, json, value, &ignored) == INVALID)
            continue;
        words[count] = (struct word){ bytes_of(arena_format(&schema->grammar->arena, "%s%s", text, close)), count,
                                      RULES_NONE };
        map_put(&seen, bytes_of(text), count++);
    }
    if (count)
        node = rules_words(schema->grammar, words, count, schema->err);
    else
        schema_fail_unmet(schema, "no value of the enum or const is valid");
    map_free(&seen);
    json_decref(listed);
    free(words);
    return node;
}

// Any string; RULES_NONE with a sentence.
static uint32_t any_text(struct schema *schema, struct bytes close, bool plain)
{
    struct strbuf name = { 0 };
    struct dfa dfa = { 0 };
    uint32_t node;
    strbuf_add_format(&name, "raw %d %.*s", plain, (int)close.len, close.data);
    if (!rules_find(schema->grammar, name.data, &node)) {
        node = schema_any_string(schema, &dfa) ? raw_node(schema->grammar, &dfa, close, plain) : RULES_NONE;
        if (node == RULES_NONE)
            fail(schema->err, "the tools' schemas are too intricate together; leave some patterns or lengths out");
        rules_name(schema->grammar, name.data, node);
    }
    dfa_free(&dfa);
    strbuf_free(&name);
    return node;
}

static const char *const narrowing[] = { "pattern", "format", "minLength", "maxLength" };

// A string with a pattern, format or length; where that takes too many states, it is left to the validator.
static uint32_t narrow_text(struct schema *schema, const json_t *json, struct bytes close, bool plain)
{
    struct dfa dfa = { 0 };
    if (!schema_string_dfa(schema, json, &dfa)) {
        dfa_free(&dfa);
        return RULES_NONE;
    }
    uint32_t node = dfa.count ? raw_node(schema->grammar, &dfa, close, plain) : RULES_NONE;
    dfa_free(&dfa);
    if (node != RULES_NONE)
        return node;
    for (size_t i = 0; i < sizeof narrowing / sizeof *narrowing; i++)
        if (json_object_get(json, narrowing[i]))
            schema_defer(schema, narrowing[i]);
    return any_text(schema, close, plain);
}

static uint32_t compile_text(struct schema *schema, const json_t *json, const struct ways *ways, bool plain)
{
    static const char *const known[] = { "type", "pattern", "format", "minLength", "maxLength", "nullable", NULL };
    const char *other = schema_constraint_beside(json, known), *tail;
    struct bytes close = close_head(ways->text_close);
    bool narrows = false;
    if (json_object_get(json, "enum") || json_object_get(json, "const"))
        return compile_listed(schema, json, ways);
    if (other)
        schema_defer(schema, other);
    for (size_t i = 0; i < sizeof narrowing / sizeof *narrowing; i++)
        narrows |= json_object_get(json, narrowing[i]) != NULL;
    uint32_t node = narrows ? narrow_text(schema, json, close, plain) : any_text(schema, close, plain);
    tail = close_tail(schema, ways->text_close, ways->name);
    if (node == RULES_NONE || !*tail)
        return node;
    return rules_sequence(schema->grammar, node, schema_token(schema->grammar, tail, schema->err), schema->err);
}

static uint32_t compile_json(struct schema *schema, const json_t *json, const char *close)
{
    uint32_t node = schema_value(schema, json);
    if (node == RULES_NONE || !*close)
        return node;
    return rules_sequence(schema->grammar, node, schema_token(schema->grammar, close, schema->err), schema->err);
}

// A schema narrowed to types; NULL with a sentence.
static const json_t *narrow(struct schema *schema, const json_t *json, unsigned types)
{
    json_t *names = schema_type_names(types);
    const json_t *other = schema_keep(schema, json_pack("{s:o}", "type", names));
    if (json_is_true(json) || !other)
        return other;
    return schema_merge(schema, json, other);
}

static bool collect(struct schema *schema, const json_t *json, struct ways *ways);

static bool collect_any(struct schema *schema, const json_t *json, const char *keyword, struct ways *ways)
{
    const json_t *parts = json_object_get(json, keyword), *beside = NULL;
    json_t *part;
    size_t i;
    if (schema_constraint_beside(json, (const char *const[]){ keyword, NULL }))
        beside = schema_without(schema, json, keyword);
    if (!strcmp(keyword, "oneOf"))
        schema_defer(schema, keyword);
    ways->mixed = true;
    json_array_foreach (parts, i, part) {
        const json_t *both = beside ? schema_merge(schema, beside, part) : part;
        if (both ? !collect(schema, both, ways) : !schema->unmet)
            return false;
        schema->unmet = false;
    }
    return true;
}

static bool collect_types(struct schema *schema, const json_t *json, struct ways *ways)
{
    unsigned types = SCHEMA_ALL;
    if (json_is_object(json) && !schema_read_types(json, &types, schema->err))
        return false;
    if (types == SCHEMA_ALL && json_is_object(json) && !json_object_get(json, "type"))
        types = schema_implied_types(json);
    unsigned others = types & ~(unsigned)SCHEMA_STRING;
    if (types & SCHEMA_STRING) {
        const json_t *text = narrow(schema, json, SCHEMA_STRING);
        uint32_t node = text ? compile_text(schema, text, ways, ways->plain && (others || ways->mixed)) : RULES_NONE;
        if (!add_way(schema, node, ways->texts, &ways->text_count))
            return false;
    }
    if (!others)
        return true;
    const json_t *value = types & SCHEMA_STRING ? narrow(schema, json, others) : json;
    return add_way(schema, value ? compile_json(schema, value, ways->json_close) : RULES_NONE, ways->jsons,
                   &ways->json_count);
}

static bool collect(struct schema *schema, const json_t *json, struct ways *ways)
{
    if (schema->depth >= SCHEMA_DEPTH_MAX)
        return fail(schema->err, "the schema nests more than %d deep", SCHEMA_DEPTH_MAX);
    json = schema_merge_all(schema, schema_follow(schema, json));
    if (!json)
        return schema->unmet;
    schema->depth++;
    const char *keyword = json_object_get(json, "anyOf") ? "anyOf" : json_object_get(json, "oneOf") ? "oneOf" : NULL;
    bool ok = json_is_false(json)
        || (keyword ? collect_any(schema, json, keyword, ways) : collect_types(schema, json, ways));
    schema->depth--;
    return ok;
}

// ---- properties ---------------------------------------------------------------------------------------------------

static bool can_write(const struct grammar_parameters *syntax, const char *name)
{
    bool tags = *syntax->before;
    return (tags || *name) && strlen(name) < 128 && !strpbrk(name, tags ? "<>\"\n\r/" : " \t\n\r()[]{}\"',=:<>|");
}

static uint32_t choose(struct schema *schema, const uint32_t *nodes, size_t count)
{
    return count ? rules_choice(schema->grammar, nodes, count, schema->err) : RULES_NONE;
}

static bool compile_value(struct object *object, struct parameter *parameter, const json_t *json)
{
    const struct grammar_parameters *syntax = object->syntax;
    struct schema *schema = object->schema;
    struct ways ways = { .json_close = close_text(schema, syntax->json_close, parameter->name),
                         .text_close = syntax->text_close,
                         .name = parameter->name };
    if (!syntax->text_behind)
        return add_way(schema, compile_json(schema, json, ways.json_close), &parameter->json, &(size_t){ 0 });
    ways.plain = !strcmp(syntax->text_behind, syntax->json_behind);
    if (!collect(schema, json, &ways))
        return false;
    parameter->text = choose(schema, ways.texts, ways.text_count);
    parameter->json = choose(schema, ways.jsons, ways.json_count);
    if (ways.plain && parameter->text != RULES_NONE && parameter->json != RULES_NONE) {
        uint32_t both[] = { parameter->text, parameter->json };
        parameter->text = rules_choice(schema->grammar, both, 2, schema->err);
        parameter->json = RULES_NONE;
    }
    return true;
}

static bool add_parameter(struct object *object, const char *name, const json_t *json, bool required)
{
    struct schema *schema = object->schema;
    struct schema_savepoint attempt = schema_begin(schema);
    struct parameter *parameter = &object->parameters[object->count];
    if (object->count == SCHEMA_PROPERTIES_MAX)
        return fail(schema->err, "an object of more than %d properties", SCHEMA_PROPERTIES_MAX);
    *parameter = (struct parameter){ name, required, RULES_NONE, RULES_NONE };
    if (!can_write(object->syntax, name))
        return !required
            || fail(schema->err, "the name \"%.60s\" cannot be written in the model's form of calls", name);
    schema_enter(schema, "properties", name);
    if (!compile_value(object, parameter, json))
        return false;
    bool possible = parameter->text != RULES_NONE || parameter->json != RULES_NONE;
    if (!possible && required)
        return schema_fail_unmet(schema, "no value of \"%.60s\" is valid", name);
    if (!possible)
        schema_undo(schema, &attempt);
    else
        schema_leave(schema, attempt.path);
    object->count += possible;
    return true;
}

static bool read_properties(struct object *object, const json_t *json)
{
    static const char *const known[] = { "type", "properties", "required", "additionalProperties", NULL };
    const json_t *properties = json_object_get(json, "properties"), *required = json_object_get(json, "required");
    const char *name, *other = schema_constraint_beside(json, known);
    json_t *value;
    size_t i;
    if (other)
        schema_defer(object->schema, other);
    json_object_foreach ((json_t *)properties, name, value)
        if (!add_parameter(object, name, value, schema_requires(json, name)))
            return false;
    json_array_foreach (required, i, value) {
        name = json_string_value(value);
        if (!name)
            return fail(object->schema->err, "'required' is not a list of names");
        if (!json_object_get(properties, name) && !add_parameter(object, name, json_true(), true))
            return false;
    }
    return true;
}

// ---- the order of properties --------------------------------------------------------------------------------------

// The words that begin each parameter, and the end; those of parameters that are not the first have `between` in front.
static uint32_t begin_words(struct object *object, bool first)
{
    const struct grammar_parameters *syntax = object->syntax;
    const char *between = first ? "" : syntax->between;
    struct word *words = memory_new(2 * (size_t)object->count + 1, sizeof *words);
    uint32_t count = 0;
    for (uint32_t i = 0; i < object->count; i++) {
        const struct parameter *parameter = &object->parameters[i];
        const char *const behind[] = { syntax->text_behind, syntax->json_behind };
        for (int json = 0; json < 2; json++)
            if ((json ? parameter->json : parameter->text) != RULES_NONE)
                words[count++] = (struct word){ bytes_of(arena_format(&object->arena, "%s%s%s%s", between,
                                                                      syntax->before, parameter->name, behind[json])),
                                                2 * i + (uint32_t)json, RULES_NONE };
    }
    const char *end = syntax->end + (first && *syntax->end == '\n');
    words[count++] = (struct word){ bytes_of(end), 2 * object->count, RULES_NONE };
    uint32_t node = rules_words(object->schema->grammar, words, count, object->schema->err);
    free(words);
    return node;
}

// From the last parameter to the first: picks[i] is what may come where parameter i or a later one is next. The words'
// indices are 2 i for strings and 2 i + 1 for other values, and the end's is the last.
static bool compile_order(struct object *object, uint32_t words, const uint32_t *after, uint32_t *picks)
{
    struct grammar *grammar = object->schema->grammar;
    struct error *err = object->schema->err;
    const uint32_t end = 2 * object->count;
    uint32_t last = end, pick = RULES_NONE;
    const struct word_table table = grammar->tables[grammar->nodes[words].table];
    uint32_t *places = memory_new((size_t)end + 1, sizeof *places);
    for (uint32_t k = 0; k < table.count; k++)
        places[table.words[k].index] = k + 1;
    for (uint32_t i = end + 1; i-- > 0;) {
        const struct parameter *parameter = i < end ? &object->parameters[i / 2] : NULL;
        if (places[i]) {
            uint32_t k = places[i] - 1, rest = pick;
            if (parameter) {
                uint32_t value = i % 2 ? parameter->json : parameter->text;
                table.words[k].next = rules_sequence(grammar, value, after[i / 2 + 1], err);
                bool twin = i % 2 == 0 && places[i + 1];
                rest = parameter->required && !twin ? RULES_NONE : pick;
                last = parameter->required ? (i | 1) : last;
            }
            struct node part = { .first = k, .count = 1, .rest = rest, .low = i, .high = last };
            pick = rules_words_part(grammar, words, part, err);
        }
        if (i % 2 == 0)
            picks[i / 2] = pick;
    }
    free(places);
    return pick != RULES_NONE;
}

static uint32_t compile_object(struct object *object, const json_t *json)
{
    if (!read_properties(object, json))
        return RULES_NONE;
    uint32_t *picks[2] = { memory_new(object->count + 1, sizeof(uint32_t)),
                           memory_new(object->count + 1, sizeof(uint32_t)) };
    uint32_t rest = begin_words(object, false), first = begin_words(object, true), node = RULES_NONE;
    if (rest != RULES_NONE && first != RULES_NONE && compile_order(object, rest, picks[0], picks[0])
        && compile_order(object, first, picks[0], picks[1]))
        node = picks[1][0];
    free(picks[0]);
    free(picks[1]);
    return node;
}

uint32_t parameters_compile(struct grammar *grammar, const struct grammar_parameters *parameters, struct error *err)
{
    struct schema schema;
    if (!schema_open(&schema, grammar, parameters->schema, err))
        return RULES_NONE;
    struct object object = { .schema = &schema,
                             .syntax = parameters,
                             .parameters = memory_new(SCHEMA_PROPERTIES_MAX, sizeof *object.parameters) };
    grammar->python = parameters->python;
    uint32_t node = compile_object(&object, schema_follow(&schema, parameters->schema));
    grammar->python = false;
    free(object.parameters);
    arena_free(&object.arena);
    return schema_close(&schema, node);
}
