// SPDX-License-Identifier: Apache-2.0
// text/template_eval.h: running a tree. Expressions give values, statements put text.
#ifndef TEXT_TEMPLATE_EVAL_H
#define TEXT_TEMPLATE_EVAL_H

#include "text/template_builtin.h"
#include "text/template_tree.h"

struct value eval(struct render *render, const struct node *node);
void eval_arguments(struct render *render, const struct node_arguments *nodes, struct arguments *out);
struct value eval_filter(struct render *render, const struct node *node, struct value text); // `text` where a block's is meant

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow run(struct render *render, const struct node *statements);
void scope_enter(struct render *render, const struct scope *scope);
struct activation *activation_new(struct render *render, struct activation *parent, int slot_count);
void assign(struct render *render, const struct node *target, struct value value);
struct value loop_recurse(struct render *render, struct loop *loop, struct value iterable); // the text of a recursive loop

struct value get_attribute(struct render *render, struct value of, struct bytes name); // a.name
struct value get_item(struct render *render, struct value of, struct value key);       // a[key]
bool has_attribute(struct render *render, struct value of, struct bytes name);         // without looking for items
struct value get_slice(struct render *render, struct value of, struct value start, struct value stop, struct value step);

struct value operate(struct render *render, enum token_type op, struct value left, struct value right);
struct value negate(struct render *render, struct value value, bool negative);
bool compare(struct render *render, enum token_type op, struct value left, struct value right);
bool contains(struct render *render, struct value container, struct value item);

#endif
