// SPDX-License-Identifier: Apache-2.0
// text/template/parse.c: a recursive-descent parser of Jinja statements, and the token helpers of both parsers.
#include <stdarg.h>
#include <stdio.h>

#include "text/template/parser.h"
#include "text/template/unicode.h"

void parser_fail(struct parser *parser, int line, const char *format, ...)
{
    if (parser->failed)
        return;
    struct error sentence;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence.text, sizeof sentence.text, format, args);
    va_end(args);
    fail(parser->err, "chat template, line %d: %s", line, sentence.text);
    parser->failed = true;
    parser->token = parser->end;
}

bool parser_enter(struct parser *parser)
{
    if (parser->nesting == TEMPLATE_NESTING_MAX) {
        parser_fail(parser, parser->token->line, "it nests deeper than %d levels", TEMPLATE_NESTING_MAX);
        return false;
    }
    parser->nesting++;
    return true;
}

void parser_leave(struct parser *parser) { parser->nesting--; }

bool token_is(const struct parser *parser, enum token_type type) { return parser->token->type == type; }

bool token_is_name(const struct parser *parser, const char *name)
{
    return token_is(parser, TOKEN_NAME) && bytes_equal(parser->token->text, bytes_of(name));
}

struct token token_next(struct parser *parser)
{
    struct token token = *parser->token;
    if (parser->token != parser->end)
        parser->token++;
    return token;
}

bool token_skip(struct parser *parser, enum token_type type)
{
    bool there = token_is(parser, type);
    if (there)
        token_next(parser);
    return there;
}

bool token_skip_name(struct parser *parser, const char *name)
{
    bool there = token_is_name(parser, name);
    if (there)
        token_next(parser);
    return there;
}

// The current token, for error messages.
static struct bytes described(const struct parser *parser)
{
    const struct token *token = parser->token;
    struct bytes text = token->type == TOKEN_NAME ? token->text : bytes_of(token_name(token->type));
    return (struct bytes){ text.data, (size_t)shown_length(text) };
}

void token_unexpected(struct parser *parser)
{
    struct bytes found = described(parser);
    parser_fail(parser, parser->token->line, "unexpected '%.*s'", (int)found.len, found.data);
}

struct token token_expect(struct parser *parser, enum token_type type)
{
    if (!token_is(parser, type)) {
        struct bytes found = described(parser);
        parser_fail(parser, parser->token->line, "expected '%s', found '%.*s'", token_name(type), (int)found.len,
                    found.data);
    }
    return token_next(parser);
}

struct node *node_new(struct parser *parser, enum node_type type, int line)
{
    struct node *node = ARENA_NEW(parser->arena, struct node, 1);
    node->type = type;
    node->line = line;
    return node;
}

struct node *node_adopt(struct parser *parser, struct node *parent, struct node *child)
{
    if (child && child->height >= parent->height) {
        parent->height = child->height + 1;
        if (parent->height > TEMPLATE_HEIGHT_MAX)
            parser_fail(parser, parent->line, "it chains or nests more than %d operations", TEMPLATE_HEIGHT_MAX);
    }
    return child;
}

void node_append(struct node *list, struct node *item)
{
    if (list->last)
        list->last->next = item;
    else
        list->items = item;
    list->last = item;
}

void node_add(struct parser *parser, struct node *parent, struct node *operand)
{
    node_append(parent, node_adopt(parser, parent, operand));
}

static struct node *parse_statement(struct parser *parser);

// Statements up to a tag with one of the names in `ends` (NULL-terminated); returns its index and passes its name.
// Without `ends`, up to the end of the template.
static size_t parse_statements(struct parser *parser, struct node *parent, const char *const *ends, struct node **body)
{
    struct node statements = { 0 };
    size_t end = 0;
    bool closed = false;
    while (!closed && !token_is(parser, TOKEN_END)) {
        struct token token = token_next(parser);
        struct node *node = NULL;
        if (token.type == TOKEN_DATA) {
            node = node_new(parser, NODE_DATA, token.line);
            node->data = token.text;
        } else if (token.type == TOKEN_VARIABLE_BEGIN) {
            node = node_new(parser, NODE_OUTPUT, token.line);
            node_add(parser, node, parse_tuple(parser));
            token_expect(parser, TOKEN_VARIABLE_END);
        } else {
            for (end = 0; ends && ends[end] && !closed; end += !closed)
                closed = token_skip_name(parser, ends[end]);
            if (!closed) {
                node = parse_statement(parser);
                token_expect(parser, TOKEN_BLOCK_END);
            }
        }
        if (node)
            node_append(&statements, node_adopt(parser, parent, node));
    }
    if (ends && !closed)
        parser_fail(parser, parent->line, "the template ends without the %s that belongs here", ends[0]);
    *body = statements.items;
    return end;
}

// The body of a block: its tag is ended here, the tag that ends the body is left for the caller to end.
static size_t parse_body(struct parser *parser, struct node *parent, const char *const *ends, struct node **body)
{
    token_skip(parser, TOKEN_COLON);
    token_expect(parser, TOKEN_BLOCK_END);
    return parse_statements(parser, parent, ends, body);
}

static struct node *parse_if(struct parser *parser, int line)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL }, *const last[] = { "endif", NULL };
    enum { ENDIF, ELIF, ELSE };
    struct node *node = node_new(parser, NODE_IF, line);
    for (size_t end = ELIF; end != ENDIF && !parser->failed;) {
        bool otherwise = end == ELSE;
        struct node *branch = node_new(parser, NODE_BRANCH, otherwise ? line : parser->token->line);
        if (!otherwise)
            node_add(parser, branch, parse_tuple_without_condition(parser));
        end = parse_body(parser, branch, otherwise ? last : ends, &branch->body);
        node_add(parser, node, branch);
    }
    return node;
}

static struct node *copy_target(struct parser *parser, const struct node *target)
{
    struct node *copy = node_new(parser, target->type, target->line);
    *copy = *target;
    copy->next = copy->items = copy->last = NULL;
    for (const struct node *item = target->items; item; item = item->next)
        node_add(parser, copy, copy_target(parser, item));
    return copy;
}

static struct node *parse_for(struct parser *parser, int line)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    struct node *node = node_new(parser, NODE_FOR, line);
    struct node_for *loop = node->loop = ARENA_NEW(parser->arena, struct node_for, 1);
    parser->for_depth++;
    loop->target = node_adopt(parser, node, parse_target(parser, false));
    if (!token_skip_name(parser, "in"))
        token_unexpected(parser);
    loop->iterable = node_adopt(parser, node, parse_tuple_without_condition(parser));
    if (token_skip_name(parser, "if")) {
        loop->test = node_adopt(parser, node, parse_expression(parser));
        loop->test_target = copy_target(parser, loop->target);
    }
    parser->loops++;
    size_t end = parse_body(parser, node, ends, &loop->body);
    parser->loops--;
    if (end == 1)
        parse_body(parser, node, (const char *const[]){ "endfor", NULL }, &loop->otherwise);
    parser->for_depth--;
    return node;
}

static struct node *parse_set(struct parser *parser, int line)
{
    struct node *target = parse_target(parser, true);
    bool block = !token_skip(parser, TOKEN_ASSIGN);
    struct node *node = node_new(parser, block ? NODE_SET_BLOCK : NODE_SET, line);
    node->block.target = node_adopt(parser, node, target);
    if (!block) {
        node_add(parser, node, parse_tuple(parser));
        return node;
    }
    node->block.filter = node_adopt(parser, node, parse_block_filters(parser, false));
    parse_body(parser, node, (const char *const[]){ "endset", NULL }, &node->block.body);
    return node;
}

const struct node_parameter *node_find_parameter(const struct node_function *function, struct bytes name)
{
    const struct node_parameter *parameter = function->parameters;
    while (parameter && !bytes_equal(parameter->name, name))
        parameter = parameter->next;
    return parameter;
}

static void parse_parameters(struct parser *parser, struct node *parent, struct node_function *function)
{
    struct node_parameter **end = &function->parameters;
    bool defaults = false;
    token_expect(parser, TOKEN_PAREN_OPEN);
    while (!parser->failed && !token_is(parser, TOKEN_PAREN_CLOSE)) {
        if (function->parameter_count)
            token_expect(parser, TOKEN_COMMA);
        struct token name = token_expect(parser, TOKEN_NAME);
        if (node_find_parameter(function, name.text))
            parser_fail(parser, name.line, "parameter '%.*s' is there twice", (int)name.text.len, name.text.data);
        if (function->parameter_count++ == TEMPLATE_PARAMETERS_MAX)
            parser_fail(parser, name.line, "a macro has more than %d parameters", TEMPLATE_PARAMETERS_MAX);
        struct node_parameter *parameter = *end = ARENA_NEW(parser->arena, struct node_parameter, 1);
        end = &parameter->next;
        parameter->name = name.text;
        if (token_skip(parser, TOKEN_ASSIGN))
            parameter->otherwise = node_adopt(parser, parent, parse_expression(parser));
        else if (defaults)
            parser_fail(parser, name.line, "a parameter without a default follows one that has a default");
        defaults = parameter->otherwise;
    }
    token_expect(parser, TOKEN_PAREN_CLOSE);
}

static void parse_function_body(struct parser *parser, struct node *parent, struct node_function *function,
                                const char *end)
{
    int loops = parser->loops;
    parser->loops = 0;
    parse_body(parser, parent, (const char *const[]){ end, NULL }, &function->body);
    parser->loops = loops;
}

static struct node *parse_macro(struct parser *parser, int line)
{
    struct node *node = node_new(parser, NODE_MACRO, line);
    struct node_function *function = node->define.function = ARENA_NEW(parser->arena, struct node_function, 1);
    function->name = token_expect(parser, TOKEN_NAME).text;
    parse_parameters(parser, node, function);
    parse_function_body(parser, node, function, "endmacro");
    return node;
}

static struct node *parse_generation(struct parser *parser, int line)
{
    struct node *node = node_new(parser, NODE_GENERATION, line);
    struct node_function *function = node->define.function = ARENA_NEW(parser->arena, struct node_function, 1);
    parse_function_body(parser, node, function, "endgeneration");
    return node;
}

static struct node *parse_filter_block(struct parser *parser, int line)
{
    struct node *node = node_new(parser, NODE_FILTER_BLOCK, line);
    node->block.filter = node_adopt(parser, node, parse_block_filters(parser, true));
    parse_body(parser, node, (const char *const[]){ "endfilter", NULL }, &node->block.body);
    return node;
}

static struct node *parse_jump(struct parser *parser, int line, enum node_type type)
{
    if (!parser->loops)
        parser_fail(parser, line, "{%% %s %%} is not in a loop", type == NODE_BREAK ? "break" : "continue");
    return node_new(parser, type, line);
}

static struct node *parse_break(struct parser *parser, int line) { return parse_jump(parser, line, NODE_BREAK); }

static struct node *parse_continue(struct parser *parser, int line) { return parse_jump(parser, line, NODE_CONTINUE); }

static struct node *parse_tag(struct parser *parser)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *, int line);
    } tags[] = {
        { "if", parse_if },
        { "for", parse_for },
        { "set", parse_set },
        { "macro", parse_macro },
        { "filter", parse_filter_block },
        { "generation", parse_generation },
        { "break", parse_break },
        { "continue", parse_continue },
    };
    struct token name = token_expect(parser, TOKEN_NAME);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (bytes_equal(name.text, bytes_of(tags[i].name)))
            return tags[i].parse(parser, name.line);
    parser_fail(parser, name.line, "unknown tag '%.*s', or one that belongs to no open block", shown_length(name.text),
                name.text.data);
    return node_new(parser, NODE_DATA, name.line);
}

static struct node *parse_statement(struct parser *parser)
{
    if (!parser_enter(parser))
        return node_new(parser, NODE_DATA, 0);
    struct node *node = parse_tag(parser);
    parser_leave(parser);
    return node;
}

bool template_build(struct template *template, const struct token *tokens, struct error *err)
{
    const struct token *end = tokens;
    while (end->type != TOKEN_END)
        end++;
    struct parser parser = { .arena = &template->arena, .token = tokens, .end = end, .err = err };
    struct node *root = node_new(&parser, NODE_DATA, 1);
    parse_statements(&parser, root, NULL, &template->body);
    return !parser.failed;
}
