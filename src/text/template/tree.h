// SPDX-License-Identifier: Apache-2.0
// text/template/tree.h: the abstract syntax tree of a template. parse.c and expression.c build it, scope.c resolves its
// names; after that it is immutable, and renderings share it.
//   (1) The operands of a node are chained by `next`, in the order in which they are evaluated; so are statements.
//   (2) No tree is higher than TEMPLATE_HEIGHT_MAX, so walking it recursively is safe.
//   (3) A name is a slot in the activation `hops` definitions further out, or a slot in the table of outside names.
#ifndef TEXT_TEMPLATE_TREE_H
#define TEXT_TEMPLATE_TREE_H

#include "text/template/lex.h"
#include "text/template/value.h"

enum {
    TEMPLATE_HEIGHT_MAX = 300,
    TEMPLATE_NESTING_MAX = 200,
    TEMPLATE_KEYWORDS_MAX = 1000,  // of one call
    TEMPLATE_PARAMETERS_MAX = 255, // of one macro
};

enum node_type {
    NODE_CONSTANT,
    NODE_NAME,
    NODE_TUPLE,
    NODE_LIST,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEGATE,
    NODE_POSITIVE,
    NODE_BINARY,
    NODE_AND,
    NODE_OR,
    NODE_CONCAT,
    NODE_COMPARE,
    NODE_OPERAND, // of a comparison
    NODE_CONDITION,
    NODE_KEYWORD,             // argument with a name, behind those without
    NODE_CAPTURED,            // the text of a block, which its filters are applied to
    NODE_NAMESPACE_ATTRIBUTE, // only as a target of set

    NODE_DATA, // statements from here on
    NODE_OUTPUT,
    NODE_IF,
    NODE_BRANCH, // of an if
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_GENERATION,
    NODE_FILTER_BLOCK,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_TYPE_COUNT
};

struct reference {
    int hops; // REFERENCE_OUTSIDE: the slot is one of the outside names
    int slot;
};

enum { REFERENCE_OUTSIDE = -1 };

// The value of a variable when its scope is entered.
struct load {
    int slot;
    bool unset;            // nothing, until it is set
    struct reference from; // else what this holds
};

struct scope {
    struct load *loads;
    size_t count;
};

struct node_parameter {
    struct node_parameter *next;
    struct bytes name;
    int slot;
    struct node *otherwise; // NULL: no default
};

// A macro or a generation block, which runs in its own activation.
struct node_function {
    struct bytes name;
    struct node_parameter *parameters;
    size_t parameter_count;
    struct scope scope;
    int slot_count;
    struct node *body;
};

struct node_for {
    struct node *target, *iterable, *body, *otherwise;
    struct node *test, *test_target; // NULL: no test. The test has variables of its own
    struct scope scope, test_scope, otherwise_scope;
    int loop_slot;
};

struct node {
    enum node_type type;
    int line;
    int height;
    struct node *next;
    // Operands: the items of a list, tuple or ~; keys and values of a dict in turn; start, stop and step of a slice,
    // none where they are left out; a callee, or what a filter or test is applied to, and its arguments; test, then and
    // perhaps otherwise of a condition; branches of an if; the test of a branch, which `else` has not.
    struct node *items, *last;
    union {
        struct bytes data;
        struct value constant;
        struct node_for *loop;
        struct node *body; // of a branch
        struct {           // name, attribute, keyword, filter, test
            struct bytes name;
            struct reference at;
            struct bytes attribute; // of a namespace
            const struct builtin *builtin;
        } name;
        struct {                // binary, operand
            enum token_type op; // TOKEN_NAME: in
            bool negated;
        };
        struct { // set, set block, filter block
            struct node *target;
            struct node *filter; // the outermost one, at NODE_CAPTURED in the end; NULL: none
            struct node *body;
            struct scope scope;
        } block;
        struct { // macro, generation
            struct node_function *function;
            struct reference at;
        } define;
    };
};

struct template
{
    struct arena arena;
    struct node *body;
    struct scope scope;
    int slot_count;
    const char **outside; // names that are looked up among the variables, then the global functions
    size_t outside_count;
};

const struct node_parameter *node_find_parameter(const struct node_function *function, struct bytes name); // or NULL

// Both return false with the sentence in *err.
bool template_build(struct template *template, const struct token *tokens, struct error *err);
bool template_resolve(struct template *template, struct error *err);

#endif
