// SPDX-License-Identifier: Apache-2.0
// text/template/eval.h: a tree-walking interpreter. Expressions give values, statements append text.
#ifndef TEXT_TEMPLATE_EVAL_H
#define TEXT_TEMPLATE_EVAL_H

#include "text/template/builtin.h"
#include "text/template/tree.h"

struct value *eval_variable(struct render *render, struct reference at);
struct value eval_expression(struct render *render, const struct node *node);
struct value eval_filters(struct render *render, const struct node *filters, struct value text); // of a block's text

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow run_statements(struct render *render, const struct node *statements);
void scope_enter(struct render *render, const struct scope *scope);
struct activation *activation_new(struct render *render, struct activation *parent, int slot_count);
void eval_assign(struct render *render, const struct node *target, struct value value);

struct value attribute_get(struct render *render, struct value of, struct bytes name); // a.name
struct value attribute_item(struct render *render, struct value of, struct value key); // a[key]
struct value attribute_slice(struct render *render, struct value of, struct value start, struct value stop,
                             struct value step); // each none when left out

struct value operator_apply(struct render *render, enum token_type op, struct value left, struct value right);
struct value operator_sign(struct render *render, struct value value, bool negative);
bool operator_compare(struct render *render, enum token_type op, struct value left, struct value right);
bool operator_contains(struct render *render, struct value container, struct value item);

struct macro {
    const struct node_function *function;
    struct activation *frame; // where it was defined
};

struct value macro_new(struct render *render, const struct node_function *function);
struct value call_value(struct render *render, struct value callee, const struct arguments *arguments);

#endif
