// SPDX-License-Identifier: Apache-2.0
// JSON Schema objects as grammar rules: properties in the order given, then those that a pattern names
// (patternProperties, additionalProperties), with as many members as minProperties and maxProperties ask for.
#include <stdlib.h>

#include "text/grammar/ecma.h"
#include "text/grammar/schema.h"
#include "text/grammar/validate.h"

enum { OBJECT_STATES_MAX = 4096 }; // properties x how many members may have been before

struct property {
    const char *name;
    bool required;
    uint32_t value;
};

struct object {
    struct schema *schema;
    const json_t *json;
    struct property *properties;
    uint32_t count, required;
    uint32_t low, high; // members
    uint32_t extra;     // a member whose name is only described; RULES_NONE: there are none
};

static struct property *find_property(struct object *object, const char *name)
{
    for (uint32_t i = 0; i < object->count; i++)
        if (strcmp(object->properties[i].name, name) == 0)
            return &object->properties[i];
    return NULL;
}

// ---- properties that are named ----

static bool is_match(const char *pattern, const char *name)
{
    struct error ignored;
    struct ecma *regex = ecma_new(bytes_of(pattern), NULL, &ignored);
    bool found = regex && ecma_search(regex, bytes_of(name)) == ECMA_FOUND;
    ecma_free(regex);
    return found;
}

// Does propertyNames allow the name?
static bool is_allowed_name(struct object *object, const char *name)
{
    const json_t *names = json_object_get(object->json, "propertyNames");
    struct error ignored;
    if (!names)
        return true;
    json_t *text = json_string_nocheck(name);
    bool allowed = validate(object->schema->root, names, text, &ignored) != INVALID;
    json_decref(text);
    return allowed;
}

// The schema of a property's value: its own, merged with those of all patterns that its name matches; without any, that
// of additional properties. NULL with a sentence.
static const json_t *schema_of(struct object *object, const char *name, const json_t *own)
{
    const json_t *all = own, *additional = json_object_get(object->json, "additionalProperties");
    const char *pattern;
    json_t *part;
    if (!is_allowed_name(object, name))
        return json_false();
    json_object_foreach (json_object_get(object->json, "patternProperties"), pattern, part)
        if (is_match(pattern, name) && !(all = all ? schema_merge(object->schema, all, part) : part))
            return NULL;
    return all ? all : additional ? additional : json_true();
}

static bool is_required(const struct object *object, const char *name)
{
    json_t *item;
    size_t i;
    json_array_foreach (json_object_get(object->json, "required"), i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    return false;
}

static bool add_property(struct object *object, const char *name, const json_t *own)
{
    struct schema *schema = object->schema;
    struct schema_savepoint attempt = schema_begin(schema);
    if (object->count == SCHEMA_PROPERTIES_MAX)
        return fail(schema->err, "an object of more than %d properties", SCHEMA_PROPERTIES_MAX);
    schema_enter(schema, "properties", name);
    const json_t *json = schema_of(object, name, own);
    uint32_t value = json ? schema_value(schema, json) : RULES_NONE;
    if (value == RULES_NONE && schema->unmet && !is_required(object, name)) { // then it never comes
        schema_undo(schema, &attempt);
        value = schema_never(schema);
    }
    if (value == RULES_NONE)
        return false;
    schema_leave(schema, attempt.path);
    object->properties[object->count++] = (struct property){ name, false, value };
    return true;
}

static bool read_required(struct object *object)
{
    struct schema *schema = object->schema;
    const json_t *required = json_object_get(object->json, "required");
    json_t *value;
    size_t i;
    if (required && (!json_is_array(required) || json_array_size(required) > SCHEMA_PROPERTIES_MAX))
        return fail(schema->err, "'required' is not a list of at most %d names", SCHEMA_PROPERTIES_MAX);
    json_array_foreach (required, i, value) {
        const char *name = json_string_value(value);
        if (!name)
            return fail(schema->err, "'required' is not a list of names");
        if (!find_property(object, name) && !add_property(object, name, NULL))
            return false;
        struct property *property = find_property(object, name);
        object->required += !property->required;
        property->required = true;
    }
    return true;
}

// The names that propertyNames lists, as a new list; NULL: it lists none.
static json_t *listed_names(struct object *object)
{
    const json_t *names = schema_follow(object->schema, json_object_get(object->json, "propertyNames"));
    return json_is_object(names) ? schema_listed(names) : NULL;
}

// Properties come in this order: those under `properties`, other required ones, others that propertyNames lists.
static bool read_properties(struct object *object)
{
    const json_t *named = json_object_get(object->json, "properties");
    json_t *listed = listed_names(object), *value;
    const char *name;
    size_t i;
    bool ok = !named || json_is_object(named) || fail(object->schema->err, "'properties' is not an object");
    json_object_foreach ((json_t *)named, name, value)
        ok = ok && add_property(object, name, value);
    ok = ok && read_required(object);
    json_array_foreach (listed, i, value)
        if (ok && json_is_string(value) && !find_property(object, json_string_value(value)))
            ok = add_property(object, json_string_value(value), NULL);
    json_decref(listed);
    return ok;
}

// ---- properties whose names are only described ----

// Subtracts named properties, and names that another pattern matches, from an automaton of names.
static bool leave_out(struct object *object, const char *own, struct dfa *names)
{
    struct schema *schema = object->schema;
    const char *pattern;
    json_t *part, *named = json_array();
    bool ok = true;
    json_object_foreach (json_object_get(object->json, "patternProperties"), pattern, part)
        ok = ok && ((own && strcmp(own, pattern) == 0) || schema_keep_matching(schema, pattern, false, names));
    for (uint32_t k = 0; k < object->count; k++)
        json_array_append_new(named, json_string_nocheck(object->properties[k].name));
    ok = ok && (!object->count || schema_drop_strings(schema, named, names));
    json_decref(named);
    return ok;
}

// Does propertyNames allow any string at all?
static bool has_names(struct object *object)
{
    const json_t *target = schema_follow(object->schema, json_object_get(object->json, "propertyNames"));
    struct error ignored;
    unsigned types;
    return !json_is_false(target) && (!schema_read_types(target, &types, &ignored) || types & SCHEMA_STRING);
}

// The automaton of names that propertyNames allows; without states where it allows all.
static void read_names(struct object *object, struct dfa *names)
{
    static const char *const simple[] = { "type", "pattern", "format", "minLength", "maxLength", NULL };
    const json_t *json = json_object_get(object->json, "propertyNames");
    const json_t *target = schema_follow(object->schema, json);
    if (!json || json_is_true(target))
        return;
    if (json_is_object(target) && !schema_constraint_beside(target, simple)
        && schema_string_dfa(object->schema, target, names) && names->count)
        return;
    dfa_free(names);
    object->schema->unmet = false;
    schema_defer(object->schema, "propertyNames");
}

// The node of a name: one that matches the pattern (NULL: any) and no other; any string where that is too much.
// RULES_NONE without a failure (*ok) where there is none.
static uint32_t name_node(struct object *object, const char *pattern, bool *ok)
{
    struct schema *schema = object->schema;
    struct dfa names = { 0 };
    struct error why, *err = schema->err;
    const char *keyword = pattern ? "patternProperties" : "additionalProperties";
    read_names(object, &names);
    schema->err = &why;
    bool patterns = json_object_size(json_object_get(object->json, "patternProperties"));
    bool plain = !patterns && !object->count && !names.count;
    bool enforced = !plain && (names.count || schema_any_string(schema, &names))
        && (!pattern || schema_keep_matching(schema, pattern, true, &names)) && leave_out(object, pattern, &names);
    bool none = enforced && !names.count;
    uint32_t node = enforced && !none ? rules_dfa(schema->grammar, &names, &why) : RULES_NONE;
    schema->err = err;
    if (!enforced)
        dfa_free(&names);
    if (node != RULES_NONE || none)
        return node;
    if (!plain)
        schema_defer(schema, keyword);
    node = rules_string(schema->grammar, 0, RULES_UNBOUNDED, schema->err);
    *ok = node != RULES_NONE;
    return node;
}

// Adds "name: value" as an alternative for extra members, unless its value cannot be met.
static bool add_extra(struct object *object, const char *pattern, const json_t *json, uint32_t *ways, size_t *count)
{
    struct schema *schema = object->schema;
    struct schema_savepoint attempt = schema_begin(schema);
    bool ok = true;
    schema_enter(schema, pattern ? "patternProperties" : "additionalProperties", pattern);
    uint32_t value = schema_value(schema, json);
    if (value == RULES_NONE && schema->unmet)
        return schema_undo(schema, &attempt), true;
    if (value == RULES_NONE)
        return false;
    schema_leave(schema, attempt.path);
    uint32_t name = name_node(object, pattern, &ok);
    if (name == RULES_NONE)
        return ok;
    value = rules_sequence(schema->grammar, schema_mark(schema->grammar, ':', schema->err), value, schema->err);
    ways[*count] = rules_sequence(schema->grammar, name, value, schema->err);
    return ways[(*count)++] != RULES_NONE;
}

static bool check_patterns(struct object *object, const json_t *patterns)
{
    const char *pattern;
    json_t *part;
    if (json_object_size(patterns) >= RULES_CHOICES_MAX)
        return fail(object->schema->err, "more than %d patternProperties", RULES_CHOICES_MAX - 1);
    json_object_foreach ((json_t *)patterns, pattern, part) {
        struct ecma *regex = ecma_new(bytes_of(pattern), NULL, object->schema->err);
        if (!regex)
            return fail_within(object->schema->err, "patternProperties: \"%.100s\"", pattern);
        ecma_free(regex);
    }
    return true;
}

// Additional properties come only in objects without named ones, or where minProperties asks for more than are named.
static bool read_extra(struct object *object)
{
    struct schema *schema = object->schema;
    const json_t *patterns = json_object_get(object->json, "patternProperties");
    const json_t *additional = json_object_get(object->json, "additionalProperties");
    uint32_t *ways = memory_new(json_object_size(patterns) + 1, sizeof *ways);
    size_t count = 0;
    const char *pattern;
    json_t *part;
    bool ok = check_patterns(object, patterns);
    bool open = has_names(object);
    json_object_foreach ((json_t *)patterns, pattern, part)
        ok = ok && (!open || add_extra(object, pattern, part, ways, &count));
    json_t *listed = listed_names(object);
    bool wanted = json_object_size(patterns) ? additional != NULL : !object->count || object->low > object->count;
    if (ok && open && wanted && !listed && !json_is_false(additional))
        ok = add_extra(object, NULL, additional ? additional : json_true(), ways, &count);
    object->extra = ok && count ? rules_choice(schema->grammar, ways, count, schema->err) : RULES_NONE;
    if (ok && count && object->low > 1 && object->low > object->required)
        schema_defer(schema, "minProperties"); // nothing keeps two names from being the same
    json_decref(listed);
    free(ways);
    return ok;
}

// ---- members ----

static struct bytes key_text(const char *name, struct strbuf *out)
{
    json_t *text = json_string_nocheck(name);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    json_decref(text);
    strbuf_add_text(out, quoted ? quoted : "\"\"");
    free(quoted);
    return strbuf_bytes(out);
}

// The keys of an object. The nodes behind them are set later.
static uint32_t key_words(const struct object *object)
{
    struct word *words = memory_new(object->count, sizeof *words);
    struct strbuf *texts = memory_new(object->count, sizeof *texts);
    for (uint32_t i = 0; i < object->count; i++)
        words[i] = (struct word){ key_text(object->properties[i].name, &texts[i]), i, RULES_NONE };
    uint32_t node = rules_words(object->schema->grammar, words, object->count, object->schema->err);
    for (uint32_t i = 0; i < object->count; i++)
        strbuf_free(&texts[i]);
    free(texts);
    free(words);
    return node;
}

// The end of an object that has `have` members, behind all named ones: extra members, as many as allowed or required,
// and the brace.
static uint32_t compile_end(const struct object *object, uint32_t have, bool first)
{
    struct grammar *grammar = object->schema->grammar;
    struct error *err = object->schema->err;
    uint32_t close = schema_mark(grammar, '}', err), comma = schema_mark(grammar, ',', err);
    uint32_t low = object->low > have ? object->low - have : 0;
    uint32_t high = object->high == RULES_UNBOUNDED ? object->high : object->high - have;
    if (object->extra == RULES_NONE || !high)
        return low ? schema_never(object->schema) : close;
    uint32_t extras = first
        ? rules_repeat(grammar, object->extra, comma, low, high, err)
        : rules_repeat(grammar, rules_sequence(grammar, comma, object->extra, err), RULES_NONE, low, high, err);
    return rules_sequence(grammar, extras, close, err);
}

// The rest of an object that has `have` members, built from the last property to the first. tails[i] is the rest where
// property i or a later one is next: a comma, one of the keys from i up to the next required one, a colon and the
// value; or the end. `after` has the tails for one member more, and is `tails` itself where members are no longer
// counted. Returns the node of the first key, RULES_NONE on failure.
static uint32_t compile_level(const struct object *object, uint32_t have, const uint32_t *after, uint32_t *tails)
{
    struct grammar *grammar = object->schema->grammar;
    struct error *err = object->schema->err;
    uint32_t comma = schema_mark(grammar, ',', err), colon = schema_mark(grammar, ':', err);
    uint32_t end = compile_end(object, have, false), words = key_words(object), pick = RULES_NONE;
    uint32_t last = object->count - 1;
    bool closable = true;
    tails[object->count] = end;
    if (words == RULES_NONE || end == RULES_NONE)
        return RULES_NONE;
    const struct word_table *table = &grammar->tables[grammar->nodes[words].table];
    uint32_t *places = memory_new(object->count, sizeof *places); // of keys in the table
    for (uint32_t k = 0; k < table->count; k++)
        places[table->words[k].index] = k;
    for (uint32_t i = object->count; i-- > 0 && tails[i + 1] != RULES_NONE;) {
        bool required = object->properties[i].required;
        uint32_t value = rules_sequence(grammar, object->properties[i].value, after[i + 1], err), k = places[i];
        table->words[k].next = rules_sequence(grammar, colon, value, err);
        last = required ? i : last;
        closable &= !required;
        struct node part = { .first = k, .count = 1, .rest = required ? RULES_NONE : pick, .low = i, .high = last };
        pick = rules_words_part(grammar, words, part, err);
        uint32_t ways[] = { rules_sequence(grammar, comma, pick, err), end };
        tails[i] = rules_choice(grammar, ways, closable ? 2 : 1, err);
    }
    free(places);
    return tails[0] == RULES_NONE ? RULES_NONE : pick;
}

// The object is full: the end, unless a required member is missing.
static void compile_full(const struct object *object, uint32_t *tails)
{
    uint32_t end = compile_end(object, object->high, false), never = schema_never(object->schema);
    bool closable = true;
    tails[object->count] = end;
    for (uint32_t i = object->count; i-- > 0;) {
        closable &= !object->properties[i].required;
        tails[i] = closable ? end : never;
    }
}

// One level of states for each number of members that minProperties and maxProperties distinguish.
static uint32_t compile_members(const struct object *object)
{
    bool bounded = object->high != RULES_UNBOUNDED;
    uint32_t levels = bounded ? object->high : object->low, pick = RULES_NONE;
    uint32_t *tails[2] = { memory_new(object->count + 1, sizeof(uint32_t)),
                           memory_new(object->count + 1, sizeof(uint32_t)) };
    bool ok = true;
    for (uint32_t have = levels + 1; ok && have-- > 0;) {
        uint32_t *own = tails[have % 2], *more = have == levels ? own : tails[(have + 1) % 2];
        if (bounded && have == levels)
            compile_full(object, own);
        else
            ok = (pick = compile_level(object, have, more, own)) != RULES_NONE;
    }
    free(tails[0]);
    free(tails[1]);
    if (!ok)
        return RULES_NONE;
    uint32_t ways[2];
    size_t count = 0;
    if (pick != RULES_NONE)
        ways[count++] = pick;
    if (!object->required)
        ways[count++] = compile_end(object, 0, true);
    return rules_choice(object->schema->grammar, ways, count, object->schema->err);
}

// Drops counts that every object meets, and those that would take too many states.
static void simplify_counts(struct object *object)
{
    if (object->required >= object->low)
        object->low = 0;
    if (object->extra == RULES_NONE && object->high >= object->count)
        object->high = RULES_UNBOUNDED;
    uint32_t levels = object->high != RULES_UNBOUNDED ? object->high : object->low;
    if ((uint64_t)levels * object->count <= OBJECT_STATES_MAX)
        return;
    if (object->low)
        schema_defer(object->schema, "minProperties");
    if (object->high != RULES_UNBOUNDED)
        schema_defer(object->schema, "maxProperties");
    object->low = 0;
    object->high = RULES_UNBOUNDED;
}

static uint32_t compile_object(struct object *object)
{
    struct grammar *grammar = object->schema->grammar;
    struct error *err = object->schema->err;
    if (!schema_counts(object->schema, object->json, "minProperties", &object->low, "maxProperties", &object->high)
        || !read_properties(object) || !read_extra(object))
        return RULES_NONE;
    if (object->extra == RULES_NONE && object->low > object->count)
        return schema_fail_unmet(object->schema, "minProperties is more than there are properties"), RULES_NONE;
    simplify_counts(object);
    uint32_t members = object->count ? compile_members(object) : compile_end(object, 0, true);
    return rules_sequence(grammar, schema_mark(grammar, '{', err), members, err);
}

uint32_t schema_object(struct schema *schema, const json_t *json)
{
    struct object object = { .schema = schema,
                             .json = json,
                             .extra = RULES_NONE,
                             .properties = memory_new(SCHEMA_PROPERTIES_MAX, sizeof *object.properties) };
    uint32_t node = compile_object(&object);
    free(object.properties);
    return node;
}
