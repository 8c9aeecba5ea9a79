// SPDX-License-Identifier: Apache-2.0
// text/template/parser.h: shared by the parsers of statements and expressions. Errors are sticky: the first message
// stays, and from then on the current token is the end of the template.
#ifndef TEXT_TEMPLATE_PARSER_H
#define TEXT_TEMPLATE_PARSER_H

#include "text/template/tree.h"

struct parser {
    struct arena *arena;
    const struct token *token;
    const struct token *end;
    int nesting;
    int loops;     // around here in the same function, for break and continue
    int for_depth; // around here at all: `loop` is theirs
    bool failed;
    struct error *err;
};

void parser_fail(struct parser *parser, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool parser_enter(struct parser *parser); // one level deeper; pair with parser_leave
void parser_leave(struct parser *parser);

bool token_is(const struct parser *parser, enum token_type type);
bool token_is_name(const struct parser *parser, const char *name);
struct token token_next(struct parser *parser);               // passes it
bool token_skip(struct parser *parser, enum token_type type); // true when it was there
bool token_skip_name(struct parser *parser, const char *name);
struct token token_expect(struct parser *parser, enum token_type type); // an error when it is not there
void token_unexpected(struct parser *parser);                           // an error about the current one

struct node *node_new(struct parser *parser, enum node_type type, int line);
struct node *node_adopt(struct parser *parser, struct node *parent, struct node *child); // returns the child
void node_append(struct node *list, struct node *item);
void node_add(struct parser *parser, struct node *parent, struct node *operand); // adopts and appends it

// Expressions.
struct node *parse_expression(struct parser *parser);
struct node *parse_tuple(struct parser *parser);                               // commas make a tuple
struct node *parse_tuple_without_condition(struct parser *parser);             // an inline if ends it
struct node *parse_target(struct parser *parser, bool namespaces);             // what can be assigned to
struct node *parse_filters(struct parser *parser, struct node *of, bool bare); // `bare`: the first has no |
struct node *parse_block_filters(struct parser *parser, bool bare);            // NULL: there are none

#endif
