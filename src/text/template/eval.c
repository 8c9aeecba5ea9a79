// SPDX-License-Identifier: Apache-2.0
// text/template/eval.c: evaluation of expressions.
#include "text/template/eval.h"

#include "text/template/print.h"
#include "text/template/unicode.h"

struct value *eval_variable(struct render *render, struct reference at)
{
    if (at.hops == REFERENCE_OUTSIDE)
        return &render->outside[at.slot];
    struct activation *frame = render->frame;
    for (int i = 0; i < at.hops; i++)
        frame = frame->parent;
    return &frame->slots[at.slot];
}

static struct value eval_constant(struct render *render, const struct node *node)
{
    (void)render;
    return node->constant;
}

static struct value eval_name(struct render *render, const struct node *node)
{
    struct value value = *eval_variable(render, node->name.at);
    return value_given(value) ? value : value_undefined(UNDEFINED_VARIABLE, node->name.name);
}

static struct list *eval_items(struct render *render, const struct node *items)
{
    struct list *list = list_new(render, 0);
    for (; items && items->type != NODE_KEYWORD && !render->failed; items = items->next)
        list_add(render, list, eval_expression(render, items));
    return list;
}

static struct value eval_list(struct render *render, const struct node *node)
{
    return value_list(eval_items(render, node->items));
}

static struct value eval_tuple(struct render *render, const struct node *node)
{
    return value_tuple(eval_items(render, node->items));
}

static struct value eval_dict(struct render *render, const struct node *node)
{
    struct dict *dict = dict_new(render, 0);
    for (const struct node *item = node->items; item && !render->failed; item = item->next->next) {
        struct value key = eval_expression(render, item);
        dict_put(render, dict, key, eval_expression(render, item->next));
    }
    return value_dict(dict);
}

static struct value eval_attribute(struct render *render, const struct node *node)
{
    struct value of = eval_expression(render, node->items);
    render->line = node->line;
    return attribute_get(render, of, node->name.name);
}

static struct value eval_item(struct render *render, const struct node *node)
{
    struct value of = eval_expression(render, node->items);
    const struct node *index = node->items->next;
    if (index->type == NODE_SLICE) {
        struct list *parts = eval_items(render, index->items);
        render->line = node->line;
        return render->failed ? value_none()
                              : attribute_slice(render, of, parts->items[0], parts->items[1], parts->items[2]);
    }
    struct value key = eval_expression(render, index);
    render->line = node->line;
    return attribute_item(render, of, key);
}

static struct value eval_slice(struct render *render, const struct node *node)
{
    render->line = node->line;
    return render_fail(render, "a slice stands alone between its brackets");
}

static void eval_arguments(struct render *render, const struct node *nodes, struct arguments *out)
{
    struct list *values = eval_items(render, nodes);
    *out = (struct arguments){ .values = values->items, .count = values->count };
    size_t count = 0;
    while (nodes && nodes->type != NODE_KEYWORD)
        nodes = nodes->next;
    for (const struct node *keyword = nodes; keyword; keyword = keyword->next)
        count++;
    out->keywords = count ? render_room(render, count, sizeof *out->keywords) : NULL;
    for (const struct node *keyword = nodes; keyword && out->keywords; keyword = keyword->next)
        out->keywords[out->keyword_count++] = (struct keyword){
            .name = keyword->name.name,
            .value = eval_expression(render, keyword->items),
        };
}

static struct value eval_call(struct render *render, const struct node *node)
{
    struct value callee = eval_expression(render, node->items);
    struct arguments arguments;
    eval_arguments(render, node->items->next, &arguments);
    render->line = node->line;
    return render->failed ? value_none() : call_value(render, callee, &arguments);
}

static struct value eval_apply(struct render *render, const struct node *node)
{
    struct value self = eval_expression(render, node->items);
    struct arguments arguments;
    eval_arguments(render, node->items->next, &arguments);
    render->line = node->line;
    if (render->failed)
        return value_none();
    if (!node->name.builtin)
        return render_fail(render, "there is no %s called '%.*s'", node->type == NODE_FILTER ? "filter" : "test",
                           shown_length(node->name.name), node->name.name.data);
    return builtin_call(render, node->name.builtin, self, &arguments);
}

static struct value eval_captured(struct render *render, const struct node *node)
{
    (void)node;
    return render->captured;
}

struct value eval_filters(struct render *render, const struct node *filters, struct value text)
{
    render->captured = text; // the first thing that is evaluated
    return filters ? eval_expression(render, filters) : text;
}

static struct value eval_not(struct render *render, const struct node *node)
{
    return value_bool(!value_truth(render, eval_expression(render, node->items)));
}

static struct value eval_negate(struct render *render, const struct node *node)
{
    struct value value = eval_expression(render, node->items);
    render->line = node->line;
    return operator_sign(render, value, node->type == NODE_NEGATE);
}

static struct value eval_binary(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->items), right = eval_expression(render, node->items->next);
    render->line = node->line;
    return operator_apply(render, node->op, left, right);
}

static struct value eval_and(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->items);
    return value_truth(render, left) ? eval_expression(render, node->items->next) : left;
}

static struct value eval_or(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->items);
    return value_truth(render, left) ? left : eval_expression(render, node->items->next);
}

static struct value eval_concat(struct render *render, const struct node *node)
{
    size_t mark = text_mark(render);
    for (const struct node *item = node->items; item && !render->failed; item = item->next)
        print_value(render, eval_expression(render, item));
    return text_take(render, mark);
}

static struct value eval_compare(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->items);
    bool holds = true;
    const struct node *operand = node->items->next;
    for (; operand && holds && !render->failed; operand = operand->next) {
        struct value right = eval_expression(render, operand->items);
        render->line = operand->line;
        if (operand->op == TOKEN_NAME)
            holds = operator_contains(render, right, left) != operand->negated;
        else
            holds = operator_compare(render, operand->op, left, right);
        left = right;
    }
    return value_bool(holds);
}

static struct value eval_condition(struct render *render, const struct node *node)
{
    const struct node *then = node->items->next;
    if (value_truth(render, eval_expression(render, node->items)))
        return eval_expression(render, then);
    if (then->next)
        return eval_expression(render, then->next);
    return value_undefined(UNDEFINED_NO_ELSE, bytes_of(""));
}

struct value eval_expression(struct render *render, const struct node *node)
{
    static struct value (*const evaluators[NODE_TYPE_COUNT])(struct render *, const struct node *) = {
        [NODE_CONSTANT] = eval_constant,
        [NODE_NAME] = eval_name,
        [NODE_TUPLE] = eval_tuple,
        [NODE_LIST] = eval_list,
        [NODE_DICT] = eval_dict,
        [NODE_ATTRIBUTE] = eval_attribute,
        [NODE_ITEM] = eval_item,
        [NODE_SLICE] = eval_slice,
        [NODE_CALL] = eval_call,
        [NODE_FILTER] = eval_apply,
        [NODE_TEST] = eval_apply,
        [NODE_NOT] = eval_not,
        [NODE_NEGATE] = eval_negate,
        [NODE_POSITIVE] = eval_negate,
        [NODE_BINARY] = eval_binary,
        [NODE_AND] = eval_and,
        [NODE_OR] = eval_or,
        [NODE_CONCAT] = eval_concat,
        [NODE_COMPARE] = eval_compare,
        [NODE_CONDITION] = eval_condition,
        [NODE_CAPTURED] = eval_captured,
    };
    if (!render_step(render, 1) || !render_enter(render))
        return value_none();
    render->line = node->line;
    struct value value = evaluators[node->type](render, node);
    render_leave(render);
    return render->failed ? value_none() : value; // unfinished values are dropped after an error
}

void eval_assign(struct render *render, const struct node *target, struct value value)
{
    if (target->type == NODE_NAME) {
        *eval_variable(render, target->name.at) = value;
        return;
    }
    if (target->type == NODE_NAMESPACE_ATTRIBUTE) {
        struct value *namespace = eval_variable(render, target->name.at);
        render->line = target->line;
        if (namespace->type != VALUE_NAMESPACE)
            render_fail(render, "attributes can be set on a namespace only, not on %s", value_kind(*namespace));
        else if (target->name.attribute.data[0] == '_')
            render_fail(render, "attributes of a namespace cannot start with an underscore");
        else
            dict_put(render, namespace->dict, value_string(target->name.attribute), value);
        return;
    }
    size_t wanted = 0;
    for (const struct node *item = target->items; item; item = item->next)
        wanted++;
    struct list *items = list_from(render, value);
    if (items->count != wanted)
        render_fail(render, "%zu values cannot be unpacked into %zu names", items->count, wanted);
    size_t index = 0;
    for (const struct node *item = target->items; item && !render->failed; item = item->next)
        eval_assign(render, item, items->items[index++]);
}
