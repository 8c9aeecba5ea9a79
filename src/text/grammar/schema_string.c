// SPDX-License-Identifier: Apache-2.0
// JSON Schema strings as automata: pattern, format and length intersected, strings under `not` subtracted.
#include <stdlib.h>

#include "format/json.h"
#include "text/grammar/ecma.h"
#include "text/grammar/formats.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"

// The keywords of a string.
struct string_rule {
    uint32_t low, high;
    const char *pattern;
    const struct string_format *format;
    const json_t *not;
};

static bool read_rule(struct schema *schema, const json_t *json, struct string_rule *rule)
{
    *rule = (struct string_rule){ .format = format_find(json_string_value(json_object_get(json, "format"))),
                                  .not = json_object_get(json, "not") };
    return schema_counts(schema, json, "minLength", &rule->low, "maxLength", &rule->high)
        && json_get_text(json, "pattern", &rule->pattern, schema->err);
}

// ---- dfas ----

// A pattern that masks cannot enforce is left to the validator, if PCRE2 compiles it. One that is beyond PCRE2 is left
// out.
static bool add_pattern(struct schema *schema, const char *pattern, struct dfa *dfa, bool *enforced)
{
    bool loose = false, beyond;
    struct error why;
    struct bytes text = bytes_of(pattern);
    *enforced = pattern_compile(text, PATTERN_STRING, false, &schema->grammar->work, dfa, &loose, &why);
    if (*enforced && !loose)
        return true;
    struct ecma *regex = ecma_new(text, &beyond, schema->err);
    if (!regex && !beyond)
        return fail_within(schema->err, "'pattern'");
    (regex ? schema_defer : schema_ignore)(schema, "pattern");
    ecma_free(regex);
    return true;
}

bool schema_any_string(struct schema *schema, struct dfa *dfa)
{
    return pattern_compile(bytes_of(""), PATTERN_STRING, false, &schema->grammar->work, dfa, NULL, schema->err);
}

bool schema_keep_matching(struct schema *schema, const char *pattern, bool matching, struct dfa *dfa)
{
    bool loose = false;
    if (!matching)
        return pattern_exclude(bytes_of(pattern), &schema->grammar->work, dfa, schema->err);
    if (!pattern_compile(bytes_of(pattern), PATTERN_STRING, true, &schema->grammar->work, dfa, &loose, schema->err))
        return false;
    return !loose || fail(schema->err, "the pattern '%s' cannot be masked", pattern);
}

static void add_escaped(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\^$.|?*+()[]{}/-", *text))
            strbuf_add_byte(out, '\\');
        strbuf_add_byte(out, *text);
    }
}

bool schema_drop_strings(struct schema *schema, const json_t *list, struct dfa *dfa)
{
    struct strbuf pattern = { 0 };
    json_t *item;
    size_t i;
    strbuf_add_text(&pattern, "^(?:");
    json_array_foreach (list, i, item) {
        strbuf_add_text(&pattern, i ? "|" : "");
        add_escaped(&pattern, json_string_value(item));
    }
    strbuf_add_text(&pattern, ")$");
    bool ok = pattern_exclude(strbuf_bytes(&pattern), &schema->grammar->work, dfa, schema->err);
    strbuf_free(&pattern);
    return ok;
}

// ---- what `not` excludes ----

static bool is_exclusion(const json_t *json, int depth)
{
    const json_t *listed = json_object_get(json, "enum"), *any = json_object_get(json, "anyOf");
    json_t *item;
    size_t i;
    if (depth > 4 || json_object_size(json) != 1)
        return false;
    json_array_foreach (listed, i, item)
        if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item))
            return false;
    json_array_foreach (any, i, item)
        if (!is_exclusion(item, depth + 1))
            return false;
    return json_array_size(listed) || json_array_size(any) || json_is_string(json_object_get(json, "pattern"));
}

bool schema_excludes_strings(const json_t *json)
{
    struct error ignored;
    unsigned types;
    return schema_read_types(json, &types, &ignored) && types == SCHEMA_STRING
        && is_exclusion(json_object_get(json, "not"), 0);
}

static bool exclude(struct schema *schema, const json_t *exclusion, struct dfa *dfa)
{
    const char *pattern = json_string_value(json_object_get(exclusion, "pattern"));
    json_t *listed = json_object_get(exclusion, "enum"), *item;
    size_t i;
    if (pattern)
        return schema_keep_matching(schema, pattern, false, dfa);
    if (listed)
        return schema_drop_strings(schema, listed, dfa);
    json_array_foreach (json_object_get(exclusion, "anyOf"), i, item)
        if (!exclude(schema, item, dfa))
            return false;
    return true;
}

// ---- strings ----

// The enforced regex of a format is narrower than the format. Where nothing is left beside other keywords, the format
// is left to the validator.
static bool add_format(struct schema *schema, const struct string_rule *rule, struct dfa *dfa)
{
    struct dfa both = { 0 }, own = { 0 }, limited = { 0 };
    bool bounded = rule->low || rule->high != RULES_UNBOUNDED;
    size_t *work = &schema->grammar->work;
    bool ok = rule->format->enforced
        && pattern_compile(bytes_of(rule->format->enforced), PATTERN_STRING, false, work, &own, NULL, schema->err)
        && (!dfa->count || dfa_intersect(dfa, &own, work, &both));
    struct dfa *result = dfa->count ? &both : &own;
    ok = ok && result->count
        && (!bounded || (dfa_limit_length(result, rule->low, rule->high, work, &limited) && limited.count));
    dfa_free(&limited);
    if (ok) {
        struct dfa old = *dfa;
        *dfa = *result;
        *result = old;
    } else {
        schema_defer(schema, "format");
    }
    dfa_free(&both);
    dfa_free(&own);
    return ok;
}

static void limit_length(struct schema *schema, const struct string_rule *rule, struct dfa *dfa)
{
    struct dfa limited;
    if (dfa_limit_length(dfa, rule->low, rule->high, &schema->grammar->work, &limited)) {
        dfa_free(dfa);
        *dfa = limited;
        return;
    }
    if (rule->low)
        schema_defer(schema, "minLength");
    if (rule->high != RULES_UNBOUNDED)
        schema_defer(schema, "maxLength");
}

// *enforced: the automaton enforces all keywords; else the lengths are still to be enforced.
static bool build_dfa(struct schema *schema, const struct string_rule *rule, struct dfa *dfa, bool *enforced)
{
    *enforced = false;
    if (rule->pattern && !add_pattern(schema, rule->pattern, dfa, enforced))
        return false;
    if (*enforced && !dfa->count)
        return schema_fail_unmet(schema, "no string has that pattern");
    if (rule->format)
        *enforced |= add_format(schema, rule, dfa);
    if (rule->not) {
        bool excluded = (dfa->count || schema_any_string(schema, dfa)) && exclude(schema, rule->not, dfa);
        if (!excluded)
            schema_defer(schema, "not");
        *enforced |= excluded;
    }
    if (*enforced && dfa->count && (rule->low || rule->high != RULES_UNBOUNDED))
        limit_length(schema, rule, dfa);
    if (*enforced && !dfa->count)
        return schema_fail_unmet(schema, "no string has that pattern, format and length");
    return true;
}

bool schema_string_dfa(struct schema *schema, const json_t *json, struct dfa *out)
{
    struct string_rule rule;
    bool enforced;
    if (!read_rule(schema, json, &rule) || !build_dfa(schema, &rule, out, &enforced)
        || (!enforced && !out->count && !schema_any_string(schema, out)))
        return false;
    if (!enforced && (rule.low || rule.high != RULES_UNBOUNDED))
        limit_length(schema, &rule, out);
    return true;
}

static uint32_t compile_dfa(struct schema *schema, const json_t *json, const struct string_rule *rule)
{
    struct dfa dfa = { 0 };
    struct error why;
    bool enforced;
    if (!build_dfa(schema, rule, &dfa, &enforced)) {
        dfa_free(&dfa);
        return RULES_NONE;
    }
    uint32_t node = enforced ? rules_dfa(schema->grammar, &dfa, &why) : RULES_NONE;
    if (node != RULES_NONE)
        return node;
    if (!enforced)
        dfa_free(&dfa);
    static const char *const keywords[] = { "pattern", "format", "not" };
    for (size_t i = 0; enforced && i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(json, keywords[i]))
            schema_defer(schema, keywords[i]);
    return rules_string(schema->grammar, rule->low, rule->high, schema->err);
}

uint32_t schema_string(struct schema *schema, const json_t *json)
{
    struct string_rule rule;
    struct strbuf name = { 0 };
    uint32_t node;
    if (!read_rule(schema, json, &rule))
        return RULES_NONE;
    if (!rule.pattern && !rule.format && !rule.not)
        return rules_string(schema->grammar, rule.low, rule.high, schema->err);
    char *excluded = json_dumps(rule.not, JSON_ENCODE_ANY | JSON_COMPACT);
    size_t before = schema->grammar->unenforced.len;
    strbuf_add_format(&name, "string %u %u %s %s %s", rule.low, rule.high, rule.format ? rule.format->name : "",
                      excluded ? excluded : "", rule.pattern ? rule.pattern : "");
    if (!rules_find(schema->grammar, name.data, &node)) {
        node = compile_dfa(schema, json, &rule);
        if (node != RULES_NONE
            && schema->grammar->unenforced.len == before) // a deferred keyword is listed at each place
            rules_name(schema->grammar, name.data, node);
    }
    strbuf_free(&name);
    free(excluded);
    return node;
}
