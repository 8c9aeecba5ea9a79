// SPDX-License-Identifier: Apache-2.0
// Building of the syntax tree of a grammar.
#include "text/grammar/ebnf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

void ebnf_free(struct ebnf *tree)
{
    for (uint32_t i = 0; i < tree->dfa_count; i++)
        dfa_free(&tree->dfas[i]);
    free(tree->dfas);
    free(tree->nodes);
    free(tree->rules);
    free(tree->ranges);
    free(tree->links);
    free(tree->schemas);
    free(tree->pending);
    strbuf_free(&tree->texts);
    map_free(&tree->names);
    arena_free(&tree->arena);
    *tree = (struct ebnf){ 0 };
}

bool ebnf_fail(struct ebnf *tree, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tree->line ? fail(tree->err, "line %u: %s", tree->line, text) : fail(tree->err, "%s", text);
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

static uint32_t add_node(struct ebnf *tree, struct ebnf_node node)
{
    if (tree->node_count == EBNF_NODES_MAX)
        return ebnf_fail(tree, "the grammar has more than %d parts; make it smaller", EBNF_NODES_MAX), EBNF_NONE;
    MEMORY_RESERVE(tree->nodes, tree->node_count, tree->node_capacity);
    node.line = tree->line;
    node.parent = node.body_of = EBNF_NONE;
    tree->nodes[tree->node_count] = node;
    return tree->node_count++;
}

uint32_t ebnf_text(struct ebnf *tree, struct bytes text)
{
    struct ebnf_node node = { .kind = EBNF_TEXT, .first = (uint32_t)tree->texts.len, .count = (uint32_t)text.len };
    if (text.len > RULES_TEXT_BYTES_MAX - tree->texts.len)
        return ebnf_fail(tree, "the texts of the grammar take more than %d bytes", RULES_TEXT_BYTES_MAX), EBNF_NONE;
    strbuf_add(&tree->texts, text.data, text.len);
    return add_node(tree, node);
}

uint32_t ebnf_class(struct ebnf *tree, struct range *ranges, size_t count)
{
    struct ebnf_node node = { .kind = EBNF_CLASS, .first = tree->range_count };
    count = class_join(ranges, count);
    if (!count)
        return ebnf_fail(tree, "a character class that no character is in"), EBNF_NONE;
    if (tree->range_count + count > EBNF_RANGES_MAX)
        return ebnf_fail(tree, "the grammar's character classes have more than %d ranges", EBNF_RANGES_MAX), EBNF_NONE;
    for (size_t i = 0; i < count; i++) {
        MEMORY_RESERVE(tree->ranges, tree->range_count, tree->range_capacity);
        tree->ranges[tree->range_count++] = ranges[i];
    }
    node.count = (uint32_t)count;
    return add_node(tree, node);
}

uint32_t ebnf_character(struct ebnf *tree, uint32_t codepoint)
{
    char text[UTF8_BYTES_MAX];
    return ebnf_text(tree, (struct bytes){ text, utf8_encode(codepoint, text) });
}

uint32_t ebnf_reference(struct ebnf *tree, struct bytes name)
{
    uint32_t rule = ebnf_rule(tree, name);
    return rule == EBNF_NONE ? EBNF_NONE : add_node(tree, (struct ebnf_node){ .kind = EBNF_RULE, .first = rule });
}

uint32_t ebnf_repeat(struct ebnf *tree, uint32_t item, uint32_t low, uint32_t high)
{
    if (item == EBNF_NONE)
        return EBNF_NONE;
    if (!high)
        return ebnf_text(tree, (struct bytes){ "", 0 });
    return add_node(tree, (struct ebnf_node){ .kind = EBNF_REPEAT, .first = item, .low = low, .high = high });
}

uint32_t ebnf_schema(struct ebnf *tree, const json_t *schema)
{
    MEMORY_RESERVE(tree->schemas, tree->schema_count, tree->schema_capacity);
    tree->schemas[tree->schema_count] = schema;
    return add_node(tree, (struct ebnf_node){ .kind = EBNF_SCHEMA, .first = tree->schema_count++ });
}

uint32_t ebnf_dfa(struct ebnf *tree, struct dfa *dfa)
{
    MEMORY_RESERVE(tree->dfas, tree->dfa_count, tree->dfa_capacity);
    tree->dfas[tree->dfa_count] = *dfa;
    *dfa = (struct dfa){ 0 };
    return add_node(tree, (struct ebnf_node){ .kind = EBNF_DFA, .first = tree->dfa_count++ });
}

// ---- lists ----------------------------------------------------------------------------------------------------------

uint32_t ebnf_begin(const struct ebnf *tree) { return tree->pending_count; }

bool ebnf_add(struct ebnf *tree, uint32_t node)
{
    if (node == EBNF_NONE)
        return false;
    MEMORY_RESERVE(tree->pending, tree->pending_count, tree->pending_capacity);
    tree->pending[tree->pending_count++] = node;
    return true;
}

uint32_t ebnf_end(struct ebnf *tree, uint32_t begin, enum ebnf_kind kind)
{
    struct ebnf_node node = { .kind = kind, .first = tree->link_count, .count = tree->pending_count - begin };
    tree->pending_count = begin;
    if (node.count == 1)
        return tree->pending[begin];
    if (!node.count)
        return ebnf_text(tree, (struct bytes){ "", 0 });
    for (uint32_t i = 0; i < node.count; i++) {
        MEMORY_RESERVE(tree->links, tree->link_count, tree->link_capacity);
        tree->links[tree->link_count++] = tree->pending[begin + i];
    }
    return add_node(tree, node);
}

// ---- rules ----------------------------------------------------------------------------------------------------------

uint32_t ebnf_rule(struct ebnf *tree, struct bytes name)
{
    int64_t known;
    if (map_get(&tree->names, name, &known))
        return (uint32_t)known;
    if (tree->rule_count == EBNF_RULES_MAX)
        return ebnf_fail(tree, "the grammar has more than %d rules; make it smaller", EBNF_RULES_MAX), EBNF_NONE;
    struct bytes kept = { arena_text(&tree->arena, name.data, name.len), name.len };
    MEMORY_RESERVE(tree->rules, tree->rule_count, tree->rule_capacity);
    tree->rules[tree->rule_count] = (struct ebnf_rule){ .name = kept, .line = tree->line, .body = EBNF_NONE };
    map_put(&tree->names, kept, tree->rule_count);
    return tree->rule_count++;
}

bool ebnf_define(struct ebnf *tree, uint32_t rule, uint32_t line, uint32_t body)
{
    if (rule == EBNF_NONE || body == EBNF_NONE)
        return false;
    struct ebnf_rule *defined = &tree->rules[rule];
    if (defined->body != EBNF_NONE) {
        tree->line = line;
        return ebnf_fail(tree, "the rule \"%.60s\" is defined a second time; it was in line %u", defined->name.data,
                         defined->line);
    }
    defined->body = body;
    defined->line = line;
    return true;
}

bool ebnf_fail_rule(struct ebnf *tree, uint32_t rule, const char *what)
{
    tree->line = tree->rules[rule].line;
    return ebnf_fail(tree, "the rule \"%.60s\" %s", tree->rules[rule].name.data, what);
}
