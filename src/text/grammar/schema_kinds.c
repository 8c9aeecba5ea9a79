// SPDX-License-Identifier: Apache-2.0
// JSON Schema arrays, numbers, enum and const as grammar rules.
#include <stdlib.h>

#include "format/json.h"
#include "text/grammar/number.h"
#include "text/grammar/schema.h"
#include "text/grammar/validate.h"

enum { VALIDATE_COST = 256 }; // of one value, in comparisons

// ---- arrays ----

static uint32_t compile_item(struct schema *schema, const json_t *json, const char *keyword)
{
    size_t mark = schema_enter(schema, keyword, NULL);
    uint32_t node = schema_value(schema, json);
    if (node != RULES_NONE)
        schema_leave(schema, mark);
    return node;
}

// From the last item to the first: item i behind a comma, or the end where there are enough items.
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

// ---- arrays without equal items ----

enum { UNIQUE_VALUES_MAX = 8 };

// The values under enum or const of the items, if they are few; NULL otherwise. A new reference.
static json_t *few_values(struct schema *schema, const json_t *items)
{
    const json_t *target = schema_follow(schema, items);
    static const char *const known[] = { "enum", "const", "type", NULL };
    json_t *listed = json_is_object(target) && !schema_constraint_beside(target, known) ? schema_listed(target) : NULL;
    if (listed && json_array_size(listed) <= UNIQUE_VALUES_MAX)
        return listed;
    json_decref(listed);
    return NULL;
}

// A state is the set of values that have been used; each value that has not may follow. From the full set to the empty
// one.
static uint32_t compile_unique(struct schema *schema, const json_t *values, uint32_t low, uint32_t high)
{
    struct grammar *grammar = schema->grammar;
    struct error *err = schema->err;
    uint32_t comma = schema_mark(grammar, ',', err), close = schema_mark(grammar, ']', err);
    uint32_t count = (uint32_t)json_array_size(values), items[UNIQUE_VALUES_MAX];
    uint32_t tails[1 << UNIQUE_VALUES_MAX], ways[UNIQUE_VALUES_MAX + 1];
    for (uint32_t i = 0; i < count; i++) {
        const json_t *one = schema_keep(schema, json_pack("{sO}", "const", json_array_get(values, i)));
        if (!one || (items[i] = schema_value(schema, one)) == RULES_NONE)
            return RULES_NONE;
    }
    for (uint32_t set = (1u << count); set-- > 0;) {
        uint32_t have = (uint32_t)__builtin_popcount(set);
        size_t way_count = 0;
        for (uint32_t i = 0; i < count && have < high; i++)
            if (!(set >> i & 1)) {
                uint32_t item = rules_sequence(grammar, items[i], tails[set | 1u << i], err);
                ways[way_count++] = set ? rules_sequence(grammar, comma, item, err) : item;
            }
        if (have >= low)
            ways[way_count++] = close;
        tails[set] = rules_choice(grammar, ways, way_count, err);
        if (tails[set] == RULES_NONE)
            return RULES_NONE;
    }
    return rules_sequence(grammar, schema_mark(grammar, '[', err), tails[0], err);
}

// ---- arrays ----

struct array_rule {
    const json_t *prefix, *items;
    uint32_t low, high;
};

static bool read_array(struct schema *schema, const json_t *json, struct array_rule *rule)
{
    *rule = (struct array_rule){ json_object_get(json, "prefixItems"), json_object_get(json, "items"), 0, 0 };
    if (json_is_array(rule->items)) { // the older spelling
        rule->prefix = rule->items;
        rule->items = json_object_get(json, "additionalItems");
    }
    if (rule->prefix && (!json_is_array(rule->prefix) || json_array_size(rule->prefix) > SCHEMA_PREFIX_MAX))
        return fail(schema->err, "'prefixItems' is not a list of at most %d schemas", SCHEMA_PREFIX_MAX);
    rule->items = rule->items ? rule->items : json_true();
    return schema_counts(schema, json, "minItems", &rule->low, "maxItems", &rule->high);
}

// The items that `contains` requires come first, as a prefix.
static bool read_contains(struct schema *schema, const json_t *json, struct array_rule *rule)
{
    enum { CONTAINED_MAX = 8 };
    const json_t *contains = json_object_get(json, "contains"), *least = json_object_get(json, "minContains");
    json_int_t count = least ? json_integer_value(least) : 1;
    if (!contains || (!count && !json_object_get(json, "maxContains")))
        return true;
    if (count > CONTAINED_MAX || json_array_size(rule->prefix) || json_object_get(json, "maxContains"))
        schema_defer(schema, "contains");
    if (count > CONTAINED_MAX || json_array_size(rule->prefix))
        return true;
    json_t *first = json_array();
    for (json_int_t i = 0; i < count; i++)
        json_array_append_new(first, json_pack("{s[OO]}", "allOf", contains, rule->items));
    rule->low = rule->low > count ? rule->low : (uint32_t)count;
    if (rule->low > rule->high)
        return json_decref(first), schema_fail_unmet(schema, "'contains' asks for more items than 'maxItems' allows");
    rule->prefix = schema_keep(schema, first);
    return rule->prefix;
}

uint32_t schema_array(struct schema *schema, const json_t *json)
{
    struct array_rule rule;
    if (!read_array(schema, json, &rule) || !read_contains(schema, json, &rule))
        return RULES_NONE;
    bool unique = json_is_true(json_object_get(json, "uniqueItems")) && rule.high > 1;
    json_t *values = unique && !json_array_size(rule.prefix) ? few_values(schema, rule.items) : NULL;
    if (values) {
        uint32_t node = compile_unique(schema, values, rule.low, rule.high);
        json_decref(values);
        return node;
    }
    if (unique)
        schema_defer(schema, "uniqueItems");
    struct schema_savepoint attempt = schema_begin(schema);
    uint32_t item = compile_item(schema, rule.items, "items");
    if (item == RULES_NONE && schema->unmet) { // an array without items may be valid all the same
        schema_undo(schema, &attempt);
        item = schema_never(schema);
    }
    if (item == RULES_NONE)
        return RULES_NONE;
    if (json_array_size(rule.prefix))
        return compile_prefix(schema, rule.prefix, item, rule.low, rule.high);
    return schema_any_array(schema->grammar, item, rule.low, rule.high, schema->err);
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
        return schema_fail_unmet(schema, "the minimum is greater than the maximum"), RULES_NONE;
    const json_t *multiple = json_object_get(json, "multipleOf");
    if (multiple && number_read_multiple(multiple, &range.multiple)) {
        struct number_range whole = range;
        struct error why;
        whole.integer |= !range.multiple.places;
        uint32_t node = number_rule(schema->grammar, &whole, &why);
        if (node != RULES_NONE)
            return node;
        range.multiple = (struct number_multiple){ 0 };
    }
    if (multiple)
        schema_defer(schema, "multipleOf");
    uint32_t node = number_rule(schema->grammar, &range, schema->err);
    if (node != RULES_NONE)
        return node;
    static const char *const bounds[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum" };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (json_object_get(json, bounds[i]))
            schema_defer(schema, bounds[i]);
    return number_rule(schema->grammar, &(struct number_range){ .integer = integer }, schema->err);
}

// ---- values that are listed ----

// The shortest JSON text that reads back as the same value.
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
    json_array_foreach (list, i, item)
        if (schema->work++ < SCHEMA_WORK_MAX && json_equal(item, value))
            return true;
    return false;
}

// The texts of values that have one of the types, for the caller to free.
static uint32_t list_words(const json_t *values, unsigned types, struct word *words)
{
    struct map seen = { 0 };
    json_t *value;
    size_t i;
    uint32_t count = 0;
    json_array_foreach (values, i, value) {
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

// Is the value invalid against the keywords beside enum and const?
static bool is_sifted_out(struct schema *schema, const json_t *beside, const json_t *value)
{
    struct error ignored;
    enum validity verdict = validate(schema->root, beside, value, &ignored);
    schema->work += VALIDATE_COST;
    if (verdict == UNDECIDED)
        schema_defer(schema, "enum");
    return verdict == INVALID;
}

// The listed values that are valid against the rest of the schema, as a new list; NULL with a sentence.
static json_t *sifted_values(struct schema *schema, const json_t *json)
{
    json_t *listed = json_object_get(json, "enum"), *constant = json_object_get(json, "const");
    static const char *const plain[] = { "enum", "const", "type", "nullable", NULL };
    if (listed && !json_is_array(listed))
        return fail(schema->err, "'enum' is not a list of values"), NULL;
    json_t *values = constant ? json_pack("[O]", constant) : json_copy(listed);
    if (constant && listed && !is_in(schema, listed, constant))
        json_array_clear(values);
    if (!schema_constraint_beside(json, plain))
        return values;
    const json_t *beside = schema_without(schema, json, "enum");
    if (!beside || !(beside = schema_without(schema, beside, "const")))
        return json_decref(values), NULL;
    for (size_t i = json_array_size(values); i-- > 0 && schema->work < SCHEMA_WORK_MAX;)
        if (is_sifted_out(schema, beside, json_array_get(values, i)))
            json_array_remove(values, i);
    if (schema->work >= SCHEMA_WORK_MAX)
        schema_defer(schema, "enum");
    return values;
}

uint32_t schema_enum(struct schema *schema, const json_t *json)
{
    unsigned types;
    if (!schema_read_types(json, &types, schema->err))
        return RULES_NONE;
    json_t *values = sifted_values(schema, json);
    if (!values)
        return RULES_NONE;
    struct word *words = memory_new(json_array_size(values) + 1, sizeof *words);
    uint32_t node = RULES_NONE, count = list_words(values, types, words);
    if (count)
        node = rules_words(schema->grammar, words, count, schema->err);
    else
        schema_fail_unmet(schema, "no value of the enum or const is valid");
    for (uint32_t i = 0; i < count; i++)
        free((char *)words[i].text.data);
    free(words);
    json_decref(values);
    return node;
}
