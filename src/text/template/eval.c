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
    for (; items && !render->failed; items = items->next)
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
    struct value of = eval_expression(render, node->attribute.of);
    render->line = node->line;
    return attribute_get(render, of, node->attribute.name);
}

static struct value eval_optional(struct render *render, const struct node *node)
{
    return node ? eval_expression(render, node) : value_none();
}

static struct value eval_item(struct render *render, const struct node *node)
{
    struct value of = eval_expression(render, node->item.of);
    const struct node *index = node->item.index;
    if (index->type == NODE_SLICE) {
        struct value start = eval_optional(render, index->slice.start), stop = eval_optional(render, index->slice.stop);
        struct value step = eval_optional(render, index->slice.step);
        render->line = node->line;
        return attribute_slice(render, of, start, stop, step);
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

static void eval_arguments(struct render *render, const struct node_arguments *nodes, struct arguments *out)
{
    struct list *values = eval_items(render, nodes->positional);
    *out = (struct arguments){ .values = values->items, .count = values->count };
    size_t count = 0;
    for (const struct node *keyword = nodes->keywords; keyword; keyword = keyword->next)
        count++;
    out->keywords = count ? render_room(render, count, sizeof *out->keywords) : NULL;
    for (const struct node *keyword = nodes->keywords; keyword && out->keywords; keyword = keyword->next)
        out->keywords[out->keyword_count++] = (struct keyword){
            .name = keyword->keyword.name,
            .value = eval_expression(render, keyword->keyword.value),
        };
}

static struct value eval_call(struct render *render, const struct node *node)
{
    struct value callee = eval_expression(render, node->call.callee);
    struct arguments arguments;
    eval_arguments(render, &node->call.arguments, &arguments);
    render->line = node->line;
    return render->failed ? value_none() : call_value(render, callee, &arguments);
}

static struct value apply(struct render *render, const struct node *node, struct value self)
{
    struct arguments arguments;
    eval_arguments(render, &node->apply.arguments, &arguments);
    render->line = node->line;
    if (render->failed)
        return value_none();
    if (!node->apply.builtin)
        return render_fail(render, "there is no %s called '%.*s'", node->type == NODE_FILTER ? "filter" : "test",
                           shown_length(node->apply.name), node->apply.name.data);
    return builtin_call(render, node->apply.builtin, self, &arguments);
}

struct value eval_filter(struct render *render, const struct node *node, struct value text)
{
    if (!node)
        return text;
    if (!render_enter(render))
        return value_none();
    struct value self = node->apply.of ? eval_filter(render, node->apply.of, text) : text;
    struct value value = apply(render, node, self);
    render_leave(render);
    return value;
}

static struct value eval_apply(struct render *render, const struct node *node)
{
    return apply(render, node, eval_expression(render, node->apply.of));
}

static struct value eval_not(struct render *render, const struct node *node)
{
    return value_bool(!value_truth(render, eval_expression(render, node->inner)));
}

static struct value eval_negate(struct render *render, const struct node *node)
{
    struct value value = eval_expression(render, node->inner);
    render->line = node->line;
    return operator_sign(render, value, node->type == NODE_NEGATE);
}

static struct value eval_binary(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->binary.left), right = eval_expression(render, node->binary.right);
    render->line = node->line;
    return operator_apply(render, node->binary.op, left, right);
}

static struct value eval_and(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->binary.left);
    return value_truth(render, left) ? eval_expression(render, node->binary.right) : left;
}

static struct value eval_or(struct render *render, const struct node *node)
{
    struct value left = eval_expression(render, node->binary.left);
    return value_truth(render, left) ? left : eval_expression(render, node->binary.right);
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
    struct value left = eval_expression(render, node->compare.first);
    bool holds = true;
    const struct node *operand = node->compare.operands;
    for (; operand && holds && !render->failed; operand = operand->next) {
        struct value right = eval_expression(render, operand->operand.value);
        render->line = operand->line;
        if (operand->operand.op == TOKEN_NAME)
            holds = operator_contains(render, right, left) != operand->operand.negated;
        else
            holds = operator_compare(render, operand->operand.op, left, right);
        left = right;
    }
    return value_bool(holds);
}

static struct value eval_condition(struct render *render, const struct node *node)
{
    if (value_truth(render, eval_expression(render, node->condition.test)))
        return eval_expression(render, node->condition.then);
    if (node->condition.otherwise)
        return eval_expression(render, node->condition.otherwise);
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
