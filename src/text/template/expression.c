// SPDX-License-Identifier: Apache-2.0
// text/template/expression.c: a recursive-descent parser of Jinja expressions, with jinja2's precedences: ~ binds
// tighter than + and -.
#include "text/template/parser.h"

static struct node *parse_unary(struct parser *parser, bool with_filters);

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
    while (!parser->failed && !token_is(parser, TOKEN_BRACKET_CLOSE)) {
        node_add(parser, node, parse_expression(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_BRACKET_CLOSE);
    return node;
}

static struct node *parse_dict(struct parser *parser)
{
    struct node *node = node_new(parser, NODE_DICT, token_expect(parser, TOKEN_BRACE_OPEN).line);
    while (!parser->failed && !token_is(parser, TOKEN_BRACE_CLOSE)) {
        node_add(parser, node, parse_expression(parser));
        token_expect(parser, TOKEN_COLON);
        node_add(parser, node, parse_expression(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_BRACE_CLOSE);
    return node;
}

// Items up to where a tuple may end; one item without a comma is itself.
static struct node *parse_items(struct parser *parser, struct node *(*parse)(struct parser *), bool may_be_empty)
{
    struct node *tuple = node_new(parser, NODE_TUPLE, parser->token->line);
    bool commas = false;
    while (!parser->failed) {
        enum token_type type = parser->token->type;
        if (type == TOKEN_PAREN_CLOSE || type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END)
            break;
        node_add(parser, tuple, parse(parser));
        if (!token_skip(parser, TOKEN_COMMA))
            break;
        commas = true;
    }
    if (!commas && tuple->items)
        return tuple->items;
    if (!commas && !may_be_empty)
        token_unexpected(parser);
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
    int line = parser->token->line, count = 0;
    struct node *part[3] = { 0 };
    do {
        bool left_out = token_is(parser, TOKEN_COLON)
            || (count && (token_is(parser, TOKEN_BRACKET_CLOSE) || token_is(parser, TOKEN_COMMA)));
        part[count++] = left_out ? NULL : parse_expression(parser);
    } while (count < 3 && token_skip(parser, TOKEN_COLON));
    if (count == 1)
        return part[0];
    struct node *node = node_new(parser, NODE_SLICE, line);
    for (int i = 0; i < 3; i++)
        node_add(parser, node, part[i] ? part[i] : constant(parser, line, value_none()));
    return node;
}

static struct node *parse_subscript(struct parser *parser, struct node *of)
{
    struct token token = token_next(parser);
    bool named = token.type == TOKEN_DOT && token_is(parser, TOKEN_NAME);
    struct node *node = node_new(parser, named ? NODE_ATTRIBUTE : NODE_ITEM, token.line);
    node_add(parser, node, of);
    if (named) {
        node->name.name = token_next(parser).text;
        return node;
    }
    if (token.type == TOKEN_DOT) {
        struct token number = token_expect(parser, TOKEN_INTEGER);
        node_add(parser, node, constant(parser, number.line, value_int(number.integer)));
        return node;
    }
    struct node *tuple = node_new(parser, NODE_TUPLE, token.line);
    do
        node_add(parser, tuple, parse_index(parser));
    while (token_skip(parser, TOKEN_COMMA));
    token_expect(parser, TOKEN_BRACKET_CLOSE);
    node_add(parser, node, tuple->items->next ? tuple : tuple->items);
    return node;
}

static void parse_keyword(struct parser *parser, struct node *call)
{
    struct token name = token_next(parser);
    int count = 0;
    token_next(parser); // =
    for (const struct node *other = call->items; other; other = other->next) {
        if (other->type == NODE_KEYWORD && bytes_equal(other->name.name, name.text))
            parser_fail(parser, name.line, "argument '%.*s' is given twice", (int)name.text.len, name.text.data);
        count += other->type == NODE_KEYWORD;
    }
    if (count == TEMPLATE_KEYWORDS_MAX)
        parser_fail(parser, name.line, "a call has more than %d arguments with names", TEMPLATE_KEYWORDS_MAX);
    struct node *keyword = node_new(parser, NODE_KEYWORD, name.line);
    keyword->name.name = name.text;
    node_add(parser, keyword, parse_expression(parser));
    node_add(parser, call, keyword);
}

static void parse_arguments(struct parser *parser, struct node *call)
{
    bool keywords = false;
    token_expect(parser, TOKEN_PAREN_OPEN);
    while (!parser->failed && !token_is(parser, TOKEN_PAREN_CLOSE)) {
        int line = parser->token->line;
        bool named = token_is(parser, TOKEN_NAME) && parser->token[1].type == TOKEN_ASSIGN;
        if (named)
            parse_keyword(parser, call);
        else if (keywords)
            parser_fail(parser, line, "the arguments of a call are in the wrong order");
        else
            node_add(parser, call, parse_expression(parser));
        keywords |= named;
        if (!token_skip(parser, TOKEN_COMMA))
            break;
    }
    token_expect(parser, TOKEN_PAREN_CLOSE);
}

static struct node *parse_call(struct parser *parser, struct node *callee)
{
    struct node *node = node_new(parser, NODE_CALL, parser->token->line);
    node_add(parser, node, callee);
    parse_arguments(parser, node);
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
        node_add(parser, node, of);
        node->name.name = name.text;
        if (token_is(parser, TOKEN_PAREN_OPEN))
            parse_arguments(parser, node);
        of = node;
        bare = false;
    }
    return of;
}

struct node *parse_block_filters(struct parser *parser, bool bare)
{
    struct node *captured = node_new(parser, NODE_CAPTURED, parser->token->line);
    struct node *filters = parse_filters(parser, captured, bare);
    return filters == captured ? NULL : filters;
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
    node_add(parser, node, of);
    node->name.name = token_expect(parser, TOKEN_NAME).text;
    if (token_is(parser, TOKEN_PAREN_OPEN)) {
        parse_arguments(parser, node);
    } else if (starts_test_argument(parser)) {
        if (token_is_name(parser, "is"))
            parser_fail(parser, line, "tests cannot be chained with 'is'");
        node_add(parser, node, parse_postfix(parser, parse_primary(parser)));
    }
    if (!negated)
        return node;
    struct node *not = node_new(parser, NODE_NOT, line);
    node_add(parser, not, node);
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
    node_add(parser, node, parse_unary(parser, false));
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

static struct node *parse_operand(struct parser *parser) { return parse_unary(parser, true); }

// Binary operators of one precedence, from left to right: words, or tokens up to a TOKEN_END.
static struct node *parse_left(struct parser *parser, struct node *(*operand)(struct parser *), enum node_type type,
                               const enum token_type *tokens, const char *word)
{
    struct node *left = operand(parser);
    for (;;) {
        bool here = word && token_is_name(parser, word);
        for (const enum token_type *token = tokens; token && *token != TOKEN_END; token++)
            here |= token_is(parser, *token);
        if (!here)
            return left;
        struct token op = token_next(parser);
        struct node *node = node_new(parser, type, op.line);
        node->op = op.type;
        node_add(parser, node, left);
        node_add(parser, node, operand(parser));
        left = node;
    }
}

static struct node *parse_product(struct parser *parser)
{
    static const enum token_type tokens[] = { TOKEN_MULTIPLY, TOKEN_DIVIDE, TOKEN_FLOOR_DIVIDE, TOKEN_MODULO,
                                              TOKEN_END };
    return parse_left(parser, parse_operand, NODE_BINARY, tokens, NULL);
}

static struct node *parse_concat(struct parser *parser)
{
    struct node *first = parse_product(parser);
    if (!token_is(parser, TOKEN_TILDE))
        return first;
    struct node *node = node_new(parser, NODE_CONCAT, first->line);
    node_add(parser, node, first);
    while (token_skip(parser, TOKEN_TILDE))
        node_add(parser, node, parse_product(parser));
    return node;
}

static struct node *parse_sum(struct parser *parser)
{
    static const enum token_type tokens[] = { TOKEN_ADD, TOKEN_SUBTRACT, TOKEN_END };
    return parse_left(parser, parse_concat, NODE_BINARY, tokens, NULL);
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
    enum token_type op;
    bool negated;
    int line = parser->token->line;
    while (comparison(parser, &op, &negated)) {
        if (!node) {
            node = node_new(parser, NODE_COMPARE, line);
            node_add(parser, node, first);
        }
        struct node *operand = node_new(parser, NODE_OPERAND, line);
        operand->op = op;
        operand->negated = negated;
        node_add(parser, operand, parse_sum(parser));
        node_add(parser, node, operand);
    }
    return node ? node : first;
}

static struct node *parse_not(struct parser *parser)
{
    if (!token_is_name(parser, "not"))
        return parse_comparison(parser);
    struct node *node = node_new(parser, NODE_NOT, token_next(parser).line);
    if (parser_enter(parser)) {
        node_add(parser, node, parse_not(parser));
        parser_leave(parser);
    }
    return node;
}

static struct node *parse_and(struct parser *parser) { return parse_left(parser, parse_not, NODE_AND, NULL, "and"); }

static struct node *parse_without_condition(struct parser *parser)
{
    return parse_left(parser, parse_and, NODE_OR, NULL, "or");
}

struct node *parse_expression(struct parser *parser)
{
    if (!parser_enter(parser))
        return constant(parser, 0, value_none());
    struct node *node = parse_without_condition(parser);
    while (token_is_name(parser, "if")) {
        struct node *condition = node_new(parser, NODE_CONDITION, token_next(parser).line);
        node_add(parser, condition, parse_without_condition(parser));
        node_add(parser, condition, node);
        if (token_skip_name(parser, "else"))
            node_add(parser, condition, parse_expression(parser));
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
