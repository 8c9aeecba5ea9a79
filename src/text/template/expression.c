// SPDX-License-Identifier: Apache-2.0
// text/template/expression.c: a recursive-descent parser of Jinja expressions, with jinja2's precedences: ~ binds
// tighter than + and -.
#include "text/template/parser.h"

static struct node *parse_unary(struct parser *parser, bool with_filters);

static struct node *binary(struct parser *parser, enum node_type type, struct token op, struct node *left,
                           struct node *right)
{
    struct node *node = node_new(parser, type, op.line);
    node->binary.op = op.type;
    node->binary.left = node_adopt(parser, node, left);
    node->binary.right = node_adopt(parser, node, right);
    return node;
}

static struct node *constant(struct parser *parser, int line, struct value value)
{
    struct node *node = node_new(parser, NODE_CONSTANT, line);
    node->constant = value;
    return node;
}

// Adjacent string literals are one string.
static struct node *parse_strings(struct parser *parser)
{
    struct token first = token_next(parser);
    if (!token_is(parser, TOKEN_STRING))
        return constant(parser, first.line, value_string(first.text));
    struct strbuf text = { 0 };
    strbuf_add(&text, first.text.data, first.text.len);
    while (token_is(parser, TOKEN_STRING)) {
        struct token token = token_next(parser);
        strbuf_add(&text, token.text.data, token.text.len);
    }
    struct bytes joined = { arena_text(parser->arena, text.data, text.len), text.len };
    strbuf_free(&text);
    return constant(parser, first.line, value_string(joined));
}

static struct node *parse_name(struct parser *parser, bool namespaces)
{
    static const struct {
        const char *word;
        struct value value;
    } words[] = {
        { "true", { .type = VALUE_BOOL, .truth = true } },
        { "True", { .type = VALUE_BOOL, .truth = true } },
        { "false", { .type = VALUE_BOOL } },
        { "False", { .type = VALUE_BOOL } },
        { "none", { .type = VALUE_NONE } },
        { "None", { .type = VALUE_NONE } },
    };
    struct token token = token_next(parser);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bytes_equal(token.text, bytes_of(words[i].word)))
            return constant(parser, token.line, words[i].value);
    bool dotted = namespaces && token_skip(parser, TOKEN_DOT);
    struct node *node = node_new(parser, dotted ? NODE_NAMESPACE_ATTRIBUTE : NODE_NAME, token.line);
    node->name.name = token.text;
    if (dotted)
        node->name.attribute = token_expect(parser, TOKEN_NAME).text;
    return node;
}

static struct node *parse_list(struct parser *parser)
{
    struct node *node = node_new(parser, NODE_LIST, token_expect(parser, TOKEN_BRACKET_OPEN).line);
    struct node_list items = { 0 };
    while (!parser->failed && !token_is(parser, TOKEN_BRACKET_CLOSE)) {
        node_list_add(parser, node, &items, parse_expression(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_BRACKET_CLOSE);
    node->items = items.first;
    return node;
}

static struct node *parse_dict(struct parser *parser)
{
    struct node *node = node_new(parser, NODE_DICT, token_expect(parser, TOKEN_BRACE_OPEN).line);
    struct node_list items = { 0 };
    while (!parser->failed && !token_is(parser, TOKEN_BRACE_CLOSE)) {
        node_list_add(parser, node, &items, parse_expression(parser));
        token_expect(parser, TOKEN_COLON);
        node_list_add(parser, node, &items, parse_expression(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_BRACE_CLOSE);
    node->items = items.first;
    return node;
}

// Items up to where a tuple may end; one item without a comma is itself.
static struct node *parse_items(struct parser *parser, struct node *(*parse)(struct parser *), bool may_be_empty)
{
    struct node *tuple = node_new(parser, NODE_TUPLE, parser->token->line);
    struct node_list items = { 0 };
    bool commas = false;
    while (!parser->failed) {
        enum token_type type = parser->token->type;
        if (type == TOKEN_PAREN_CLOSE || type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END)
            break;
        node_list_add(parser, tuple, &items, parse(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
        commas = true;
    }
    if (!commas && items.first)
        return items.first;
    if (!commas && !may_be_empty)
        token_unexpected(parser);
    tuple->items = items.first;
    return tuple;
}

static struct node *parse_primary_or_namespace(struct parser *parser, bool namespaces)
{
    struct token token = *parser->token;
    switch (token.type) {
    case TOKEN_NAME: return parse_name(parser, namespaces);
    case TOKEN_STRING: return parse_strings(parser);
    case TOKEN_INTEGER: return token_next(parser), constant(parser, token.line, value_int(token.integer));
    case TOKEN_FLOAT: return token_next(parser), constant(parser, token.line, value_float(token.number));
    case TOKEN_BRACKET_OPEN: return parse_list(parser);
    case TOKEN_BRACE_OPEN: return parse_dict(parser);
    case TOKEN_PAREN_OPEN: {
        token_next(parser);
        struct node *node = parse_items(parser, parse_expression, true);
        token_expect(parser, TOKEN_PAREN_CLOSE);
        return node;
    }
    default: token_unexpected(parser); return constant(parser, token.line, value_none());
    }
}

static struct node *parse_primary(struct parser *parser) { return parse_primary_or_namespace(parser, false); }

static struct node *parse_primary_or_attribute(struct parser *parser)
{
    return parse_primary_or_namespace(parser, true);
}

// The inside of the brackets behind a value: an index or a slice.
static struct node *parse_index(struct parser *parser)
{
    int line = parser->token->line;
    struct node *part[3] = { 0 };
    size_t colons = 0;
    for (;;) {
        bool left_out = token_is(parser, TOKEN_COLON)
            || (colons && (token_is(parser, TOKEN_BRACKET_CLOSE) || token_is(parser, TOKEN_COMMA)));
        part[colons] = left_out ? NULL : parse_expression(parser);
        if (colons == 2 || !token_skip(parser, TOKEN_COLON))
            break;
        colons++;
    }
    if (!colons)
        return part[0];
    struct node *node = node_new(parser, NODE_SLICE, line);
    node->slice.start = node_adopt(parser, node, part[0]);
    node->slice.stop = node_adopt(parser, node, part[1]);
    node->slice.step = node_adopt(parser, node, part[2]);
    return node;
}

static struct node *parse_subscript(struct parser *parser, struct node *of)
{
    struct token token = token_next(parser);
    if (token.type == TOKEN_DOT && token_is(parser, TOKEN_NAME)) {
        struct node *node = node_new(parser, NODE_ATTRIBUTE, token.line);
        node->attribute.of = node_adopt(parser, node, of);
        node->attribute.name = token_next(parser).text;
        return node;
    }
    struct node *node = node_new(parser, NODE_ITEM, token.line);
    node->item.of = node_adopt(parser, node, of);
    if (token.type == TOKEN_DOT) {
        struct token number = token_expect(parser, TOKEN_INTEGER);
        node->item.index = constant(parser, number.line, value_int(number.integer));
        return node;
    }
    struct node *tuple = node_new(parser, NODE_TUPLE, token.line);
    struct node_list indices = { 0 };
    do
        node_list_add(parser, tuple, &indices, parse_index(parser));
    while (token_skip(parser, TOKEN_COMMA));
    token_expect(parser, TOKEN_BRACKET_CLOSE);
    tuple->items = indices.first;
    node->item.index = node_adopt(parser, node, indices.count == 1 ? indices.first : tuple);
    return node;
}

static void parse_keyword(struct parser *parser, struct node *parent, struct node_list *keywords)
{
    struct token name = token_next(parser);
    token_next(parser); // =
    for (const struct node *other = keywords->first; other; other = other->next)
        if (bytes_equal(other->keyword.name, name.text))
            parser_fail(parser, name.line, "argument '%.*s' is given twice", (int)name.text.len, name.text.data);
    if (keywords->count == TEMPLATE_KEYWORDS_MAX)
        parser_fail(parser, name.line, "a call has more than %d arguments with names", TEMPLATE_KEYWORDS_MAX);
    struct node *keyword = node_new(parser, NODE_KEYWORD, name.line);
    keyword->keyword.name = name.text;
    keyword->keyword.value = node_adopt(parser, keyword, parse_expression(parser));
    node_list_add(parser, parent, keywords, keyword);
}

static void parse_arguments(struct parser *parser, struct node *parent, struct node_arguments *out)
{
    struct node_list positional = { 0 }, keywords = { 0 };
    token_expect(parser, TOKEN_PAREN_OPEN);
    while (!parser->failed && !token_is(parser, TOKEN_PAREN_CLOSE)) {
        int line = parser->token->line;
        bool named = token_is(parser, TOKEN_NAME) && parser->token[1].type == TOKEN_ASSIGN;
        if (named)
            parse_keyword(parser, parent, &keywords);
        else if (keywords.first)
            parser_fail(parser, line, "the arguments of a call are in the wrong order");
        else
            node_list_add(parser, parent, &positional, parse_expression(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_PAREN_CLOSE);
    out->positional = positional.first;
    out->keywords = keywords.first;
}

static struct node *parse_call(struct parser *parser, struct node *callee)
{
    struct node *node = node_new(parser, NODE_CALL, parser->token->line);
    node->call.callee = node_adopt(parser, node, callee);
    parse_arguments(parser, node, &node->call.arguments);
    return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
    while (!parser->failed) {
        if (token_is(parser, TOKEN_DOT) || token_is(parser, TOKEN_BRACKET_OPEN))
            node = parse_subscript(parser, node);
        else if (token_is(parser, TOKEN_PAREN_OPEN))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

struct node *parse_filters(struct parser *parser, struct node *of, bool bare)
{
    while (!parser->failed && (bare || token_skip(parser, TOKEN_PIPE))) {
        struct token name = token_expect(parser, TOKEN_NAME);
        struct node *node = node_new(parser, NODE_FILTER, name.line);
        node->apply.of = node_adopt(parser, node, of);
        node->apply.name = name.text;
        if (token_is(parser, TOKEN_PAREN_OPEN))
            parse_arguments(parser, node, &node->apply.arguments);
        of = node;
        bare = false;
    }
    return of;
}

static bool starts_test_argument(const struct parser *parser)
{
    switch (parser->token->type) {
    case TOKEN_NAME:
        return !token_is_name(parser, "else") && !token_is_name(parser, "or") && !token_is_name(parser, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_BRACKET_OPEN:
    case TOKEN_BRACE_OPEN: return true;
    default: return false;
    }
}

static struct node *parse_test(struct parser *parser, struct node *of)
{
    int line = token_next(parser).line; // is
    bool negated = token_skip_name(parser, "not");
    struct node *node = node_new(parser, NODE_TEST, line);
    node->apply.of = node_adopt(parser, node, of);
    node->apply.name = token_expect(parser, TOKEN_NAME).text;
    if (token_is(parser, TOKEN_PAREN_OPEN)) {
        parse_arguments(parser, node, &node->apply.arguments);
    } else if (starts_test_argument(parser)) {
        if (token_is_name(parser, "is"))
            parser_fail(parser, line, "tests cannot be chained with 'is'");
        struct node *argument = parse_postfix(parser, parse_primary(parser));
        node->apply.arguments.positional = node_adopt(parser, node, argument);
    }
    if (!negated)
        return node;
    struct node *not = node_new(parser, NODE_NOT, line);
    not->inner = node_adopt(parser, not, node);
    return not;
}

static struct node *parse_filters_and_tests(struct parser *parser, struct node *node)
{
    while (!parser->failed) {
        if (token_is(parser, TOKEN_PIPE))
            node = parse_filters(parser, node, false);
        else if (token_is_name(parser, "is"))
            node = parse_test(parser, node);
        else if (token_is(parser, TOKEN_PAREN_OPEN))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

static struct node *parse_signed(struct parser *parser)
{
    struct token sign = token_next(parser);
    struct node *node = node_new(parser, sign.type == TOKEN_SUBTRACT ? NODE_NEGATE : NODE_POSITIVE, sign.line);
    node->inner = node_adopt(parser, node, parse_unary(parser, false));
    return node;
}

static struct node *parse_unary(struct parser *parser, bool with_filters)
{
    struct node *node = NULL;
    if (parser_enter(parser)) {
        bool sign = token_is(parser, TOKEN_SUBTRACT) || token_is(parser, TOKEN_ADD);
        node = parse_postfix(parser, sign ? parse_signed(parser) : parse_primary(parser));
        if (with_filters)
            node = parse_filters_and_tests(parser, node);
        parser_leave(parser);
    }
    return node ? node : constant(parser, 0, value_none());
}

static struct node *parse_product(struct parser *parser)
{
    struct node *left = parse_unary(parser, true);
    while (token_is(parser, TOKEN_MULTIPLY) || token_is(parser, TOKEN_DIVIDE) || token_is(parser, TOKEN_FLOOR_DIVIDE)
           || token_is(parser, TOKEN_MODULO)) {
        struct token op = token_next(parser);
        left = binary(parser, NODE_BINARY, op, left, parse_unary(parser, true));
    }
    return left;
}

static struct node *parse_concat(struct parser *parser)
{
    struct node *first = parse_product(parser);
    if (!token_is(parser, TOKEN_TILDE))
        return first;
    struct node *node = node_new(parser, NODE_CONCAT, first->line);
    struct node_list items = { 0 };
    node_list_add(parser, node, &items, first);
    while (token_skip(parser, TOKEN_TILDE))
        node_list_add(parser, node, &items, parse_product(parser));
    node->items = items.first;
    return node;
}

static struct node *parse_sum(struct parser *parser)
{
    struct node *left = parse_concat(parser);
    while (token_is(parser, TOKEN_ADD) || token_is(parser, TOKEN_SUBTRACT)) {
        struct token op = token_next(parser);
        left = binary(parser, NODE_BINARY, op, left, parse_concat(parser));
    }
    return left;
}

// Skips a comparison operator; false when there is none.
static bool comparison(struct parser *parser, enum token_type *op, bool *negated)
{
    *op = parser->token->type;
    *negated = false;
    switch (*op) {
    case TOKEN_EQUAL:
    case TOKEN_NOT_EQUAL:
    case TOKEN_LESS:
    case TOKEN_LESS_EQUAL:
    case TOKEN_GREATER:
    case TOKEN_GREATER_EQUAL: token_next(parser); return true;
    case TOKEN_NAME: break;
    default: return false;
    }
    if (token_is_name(parser, "not") && parser->token[1].type == TOKEN_NAME
        && bytes_equal(parser->token[1].text, bytes_of("in"))) {
        token_next(parser);
        *negated = true;
    }
    return token_skip_name(parser, "in");
}

static struct node *parse_comparison(struct parser *parser)
{
    struct node *first = parse_sum(parser), *node = NULL;
    struct node_list operands = { 0 };
    enum token_type op;
    bool negated;
    int line = parser->token->line;
    while (comparison(parser, &op, &negated)) {
        if (!node) {
            node = node_new(parser, NODE_COMPARE, line);
            node->compare.first = node_adopt(parser, node, first);
        }
        struct node *operand = node_new(parser, NODE_OPERAND, line);
        operand->operand.op = op;
        operand->operand.negated = negated;
        operand->operand.value = node_adopt(parser, operand, parse_sum(parser));
        node_list_add(parser, node, &operands, operand);
    }
    if (!node)
        return first;
    node->compare.operands = operands.first;
    return node;
}

static struct node *parse_not(struct parser *parser)
{
    if (!token_is_name(parser, "not"))
        return parse_comparison(parser);
    struct node *node = node_new(parser, NODE_NOT, token_next(parser).line);
    if (parser_enter(parser)) {
        node->inner = node_adopt(parser, node, parse_not(parser));
        parser_leave(parser);
    }
    return node;
}

static struct node *parse_and(struct parser *parser)
{
    struct node *left = parse_not(parser);
    while (token_is_name(parser, "and")) {
        struct token op = token_next(parser);
        left = binary(parser, NODE_AND, op, left, parse_not(parser));
    }
    return left;
}

static struct node *parse_without_condition(struct parser *parser)
{
    struct node *left = parse_and(parser);
    while (token_is_name(parser, "or")) {
        struct token op = token_next(parser);
        left = binary(parser, NODE_OR, op, left, parse_and(parser));
    }
    return left;
}

struct node *parse_expression(struct parser *parser)
{
    if (!parser_enter(parser))
        return constant(parser, 0, value_none());
    struct node *node = parse_without_condition(parser);
    while (token_is_name(parser, "if")) {
        struct node *condition = node_new(parser, NODE_CONDITION, token_next(parser).line);
        condition->condition.then = node_adopt(parser, condition, node);
        condition->condition.test = node_adopt(parser, condition, parse_without_condition(parser));
        if (token_skip_name(parser, "else"))
            condition->condition.otherwise = node_adopt(parser, condition, parse_expression(parser));
        node = condition;
    }
    parser_leave(parser);
    return node;
}

struct node *parse_tuple(struct parser *parser) { return parse_items(parser, parse_expression, false); }

struct node *parse_tuple_without_condition(struct parser *parser)
{
    return parse_items(parser, parse_without_condition, false);
}

static void check_target(struct parser *parser, const struct node *target)
{
    if (target->type == NODE_TUPLE) {
        for (const struct node *item = target->items; item; item = item->next)
            check_target(parser, item);
    } else if (target->type != NODE_NAME && target->type != NODE_NAMESPACE_ATTRIBUTE) {
        parser_fail(parser, target->line, "only names, tuples of them and attributes of namespaces can be assigned to");
    } else if (target->type == NODE_NAME && parser->for_depth && bytes_equal(target->name.name, bytes_of("loop"))) {
        parser_fail(parser, target->line, "inside a for loop, 'loop' cannot be assigned to");
    }
}

struct node *parse_target(struct parser *parser, bool namespaces)
{
    struct node *target = parse_items(parser, namespaces ? parse_primary_or_attribute : parse_primary, false);
    check_target(parser, target);
    return target;
}
