// SPDX-License-Identifier: Apache-2.0
// Schemas of one type, and lists of values.
#include <stdlib.h>

#include "format/json.h"
#include "text/grammar/number.h"
#include "text/grammar/schema.h"

// ---- objects ----

struct property {
    const char *name;
    bool required;
    uint32_t value;
};

struct properties {
    struct property *items;
    uint32_t count;
};

static struct property *find_property(struct properties *properties, const char *name)
{
    for (uint32_t i = 0; i < properties->count; i++)
        if (strcmp(properties->items[i].name, name) == 0)
            return &properties->items[i];
    return NULL;
}

static bool add_property(struct schema *schema, struct properties *properties, const char *name, const json_t *json)
{
    if (properties->count == SCHEMA_PROPERTIES_MAX)
        return fail(schema->err, "an object of more than %d properties", SCHEMA_PROPERTIES_MAX);
    size_t mark = schema_enter(schema, "properties", name);
    uint32_t value = schema_value(schema, json);
    if (value == RULES_NONE)
        return false;
    schema_leave(schema, mark);
    properties->items[properties->count++] = (struct property){ name, false, value };
    return true;
}

// What the schema names, in its order; then what is required without being described.
static bool read_properties(struct schema *schema, const json_t *json, struct properties *properties)
{
    const json_t *named = json_object_get(json, "properties"), *required = json_object_get(json, "required");
    const json_t *additional = json_object_get(json, "additionalProperties");
    const char *name;
    json_t *value;
    size_t i;
    if (named && !json_is_object(named))
        return fail(schema->err, "'properties' is not an object");
    if (required && (!json_is_array(required) || json_array_size(required) > SCHEMA_PROPERTIES_MAX))
        return fail(schema->err, "'required' is not a list of at most %d names", SCHEMA_PROPERTIES_MAX);
    json_object_foreach((json_t *)named, name, value)
        if (!add_property(schema, properties, name, value))
            return false;
    json_array_foreach(required, i, value) {
        if (!json_is_string(value))
            return fail(schema->err, "'required' is not a list of names");
        name = json_string_value(value);
        if (!find_property(properties, name)
            && !add_property(schema, properties, name, additional ? additional : json_true()))
            return false;
        find_property(properties, name)->required = true;
    }
    return true;
}

static struct bytes key_text(const char *name, struct strbuf *out)
{
    json_t *text = json_string_nocheck(name);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    json_decref(text);
    strbuf_add_text(out, quoted ? quoted : "\"\"");
    free(quoted);
    return strbuf_bytes(out);
}

// The keys of an object. What follows them is told later.
static uint32_t key_words(struct schema *schema, const struct properties *properties)
{
    struct word *words = memory_new(properties->count, sizeof *words);
    struct strbuf *texts = memory_new(properties->count, sizeof *texts);
    for (uint32_t i = 0; i < properties->count; i++)
        words[i] = (struct word){ key_text(properties->items[i].name, &texts[i]), i, RULES_NONE };
    uint32_t node = rules_words(schema->grammar, words, properties->count, schema->err);
    for (uint32_t i = 0; i < properties->count; i++)
        strbuf_free(&texts[i]);
    free(texts);
    free(words);
    return node;
}

// From the last property to the first: a key of property i or a later one, up to the next that is required; a colon and
// its value; then a comma and a later key, or the end.
static uint32_t compile_members(struct schema *schema, const struct properties *properties)
{
    struct grammar *grammar = schema->grammar;
    struct error *err = schema->err;
    uint32_t comma = schema_mark(grammar, ',', err), colon = schema_mark(grammar, ':', err);
    uint32_t close = schema_mark(grammar, '}', err);
    uint32_t words = key_words(schema, properties), pick = RULES_NONE, tail = close, last = properties->count - 1;
    bool closable = true;
    if (words == RULES_NONE)
        return RULES_NONE;
    const struct word_table *table = &grammar->tables[grammar->nodes[words].table];
    uint32_t *places = memory_new(properties->count, sizeof *places); // of keys in the table
    for (uint32_t k = 0; k < table->count; k++)
        places[table->words[k].index] = k;
    for (uint32_t i = properties->count; i-- > 0 && tail != RULES_NONE;) {
        bool required = properties->items[i].required;
        uint32_t after = rules_sequence(grammar, properties->items[i].value, tail, err), k = places[i];
        table->words[k].next = rules_sequence(grammar, colon, after, err);
        last = required ? i : last;
        closable &= !required;
        struct node part = { .first = k, .count = 1, .rest = required ? RULES_NONE : pick, .low = i, .high = last };
        pick = rules_words_part(grammar, words, part, err);
        uint32_t ways[] = { rules_sequence(grammar, comma, pick, err), close };
        tail = rules_choice(grammar, ways, closable ? 2 : 1, err);
    }
    free(places);
    uint32_t begin[] = { pick, close };
    return tail == RULES_NONE ? RULES_NONE : rules_choice(grammar, begin, closable ? 2 : 1, err);
}

static uint32_t compile_object(struct schema *schema, const json_t *json, struct properties *properties)
{
    const json_t *additional = json_object_get(json, "additionalProperties");
    if (!read_properties(schema, json, properties))
        return RULES_NONE;
    if (properties->count)
        return rules_sequence(schema->grammar, schema_mark(schema->grammar, '{', schema->err),
                              compile_members(schema, properties), schema->err);
    if (json_is_false(additional))
        return rules_sequence(schema->grammar, schema_mark(schema->grammar, '{', schema->err),
                              schema_mark(schema->grammar, '}', schema->err), schema->err);
    size_t mark = schema_enter(schema, "additionalProperties", NULL);
    uint32_t value = schema_value(schema, additional ? additional : json_true());
    if (value == RULES_NONE)
        return RULES_NONE;
    schema_leave(schema, mark);
    return schema_any_object(schema->grammar, value, schema->err);
}

uint32_t schema_object(struct schema *schema, const json_t *json)
{
    struct properties properties = { memory_new(SCHEMA_PROPERTIES_MAX, sizeof *properties.items), 0 };
    uint32_t node = compile_object(schema, json, &properties);
    free(properties.items);
    return node;
}

// ---- arrays ----

static uint32_t compile_item(struct schema *schema, const json_t *json, const char *keyword)
{
    size_t mark = schema_enter(schema, keyword, NULL);
    uint32_t node = schema_value(schema, json);
    if (node != RULES_NONE)
        schema_leave(schema, mark);
    return node;
}

// From the last to the first: item i with a comma before it, or the end, where there are enough.
static uint32_t compile_prefix(struct schema *schema, const json_t *prefix, uint32_t rest, uint32_t low, uint32_t high)
{
    struct grammar *grammar = schema->grammar;
    struct error *err = schema->err;
    uint32_t comma = schema_mark(grammar, ',', err), close = schema_mark(grammar, ']', err);
    uint32_t count = (uint32_t)json_array_size(prefix);
    uint32_t high_rest = high == RULES_UNBOUNDED ? high : high > count ? high - count : 0;
    uint32_t tail = rules_repeat(grammar, rules_sequence(grammar, comma, rest, err), RULES_NONE,
                                 low > count ? low - count : 0, high_rest, err);
    tail = rules_sequence(grammar, tail, close, err);
    for (uint32_t i = count; i-- > 0;) {
        uint32_t item = compile_item(schema, json_array_get(prefix, i), "prefixItems");
        if (item == RULES_NONE)
            return RULES_NONE;
        uint32_t ways[] = { rules_sequence(grammar, item, tail, err), close };
        if (i)
            ways[0] = rules_sequence(grammar, comma, ways[0], err);
        bool more = i < high, enough = i >= low;
        tail = rules_choice(grammar, more ? ways : ways + 1, (size_t)more + enough, err);
    }
    return rules_sequence(grammar, schema_mark(grammar, '[', err), tail, err);
}

uint32_t schema_array(struct schema *schema, const json_t *json)
{
    const json_t *prefix = json_object_get(json, "prefixItems"), *items = json_object_get(json, "items");
    uint32_t low, high;
    if (json_is_array(items)) { // the older spelling
        prefix = items;
        items = json_object_get(json, "additionalItems");
    }
    if (prefix && (!json_is_array(prefix) || json_array_size(prefix) > SCHEMA_PREFIX_MAX))
        return fail(schema->err, "'prefixItems' is not a list of at most %d schemas", SCHEMA_PREFIX_MAX), RULES_NONE;
    if (!schema_counts(schema, json, "minItems", &low, "maxItems", &high))
        return RULES_NONE;
    uint32_t item = items ? compile_item(schema, items, "items") : schema_any(schema->grammar, schema->err);
    if (item == RULES_NONE)
        return RULES_NONE;
    if (json_array_size(prefix))
        return compile_prefix(schema, prefix, item, low, high);
    return schema_any_array(schema->grammar, item, low, high, schema->err);
}

// ---- numbers ----

static bool read_bound(struct schema *schema, const json_t *json, const char *keyword, const char *exclusive,
                       double direction, struct number_bound *out)
{
    double value;
    const json_t *flag = json_object_get(json, exclusive);
    if (json_object_get(json, keyword)) {
        if (!json_get_real(json, keyword, &value, schema->err))
            return false;
        *out = (struct number_bound){ true, json_is_true(flag), value }; // true: the older spelling
    }
    if (!flag || json_is_boolean(flag))
        return true;
    if (!json_get_real(json, exclusive, &value, schema->err))
        return false;
    if (!out->present || value * direction >= out->value * direction)
        *out = (struct number_bound){ true, true, value };
    return true;
}

uint32_t schema_number(struct schema *schema, const json_t *json, bool integer)
{
    struct number_range range = { .integer = integer };
    if (!read_bound(schema, json, "minimum", "exclusiveMinimum", 1, &range.low)
        || !read_bound(schema, json, "maximum", "exclusiveMaximum", -1, &range.high))
        return RULES_NONE;
    if (range.low.present && range.high.present && range.low.value > range.high.value)
        return fail(schema->err, "it cannot be met: the minimum is greater than the maximum"), RULES_NONE;
    return number_rule(schema->grammar, &range, schema->err);
}

// ---- values that are listed ----

// As a person would write it: a real with as few digits as bring it back.
static char *value_text(const json_t *value)
{
    static const size_t precisions[] = { JSON_REAL_PRECISION(15), JSON_REAL_PRECISION(17) };
    char *text = NULL;
    bool same = false;
    for (size_t i = 0; i < 2 && !same; i++) {
        free(text);
        text = json_dumps(value, JSON_ENCODE_ANY | precisions[i]);
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        same = again && json_equal(again, value);
        json_decref(again);
    }
    return text;
}

static bool is_in(struct schema *schema, const json_t *list, const json_t *value)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
        if (schema->work++ < SCHEMA_WORK_MAX && json_equal(item, value))
            return true;
    return false;
}

// The words of those values that have one of the types; texts are the caller's to free.
static uint32_t list_words(const json_t *values, unsigned types, struct word *words)
{
    struct map seen = { 0 };
    json_t *value;
    size_t i;
    uint32_t count = 0;
    json_array_foreach(values, i, value) {
        int64_t ignored;
        char *text = schema_type_of(value) & types ? value_text(value) : NULL;
        if (!text || map_get(&seen, bytes_of(text), &ignored)) {
            free(text);
            continue;
        }
        words[count] = (struct word){ bytes_of(text), count, RULES_NONE };
        map_put(&seen, words[count].text, 0);
        count++;
    }
    map_free(&seen);
    return count;
}

uint32_t schema_enum(struct schema *schema, const json_t *json)
{
    json_t *listed = json_object_get(json, "enum"), *constant = json_object_get(json, "const");
    static const char *const known[] = { "enum", "const", "type", "nullable", NULL };
    const char *beside = schema_constraint_beside(json, known);
    unsigned types;
    if (beside)
        return fail(schema->err, "'%s' beside enum or const cannot be enforced", beside), RULES_NONE;
    if (listed && !json_is_array(listed))
        return fail(schema->err, "'enum' is not a list of values"), RULES_NONE;
    if (!schema_types(schema, json, &types))
        return RULES_NONE;
    json_t *values = constant ? json_pack("[O]", constant) : json_incref(listed);
    if (constant && listed && !is_in(schema, listed, constant))
        json_array_clear(values);
    struct word *words = memory_new(json_array_size(values) + 1, sizeof *words);
    uint32_t node = RULES_NONE, count = list_words(values, types, words);
    if (count)
        node = rules_words(schema->grammar, words, count, schema->err);
    else
        fail(schema->err, "it cannot be met: no value of the enum or const is valid");
    for (uint32_t i = 0; i < count; i++)
        free((char *)words[i].text.data);
    free(words);
    json_decref(values);
    return node;
}
