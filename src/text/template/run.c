// SPDX-License-Identifier: Apache-2.0
// text/template/run.c: execution of statements.
#include <assert.h>

#include "text/template/eval.h"
#include "text/template/print.h"

struct activation *activation_new(struct render *render, struct activation *parent, int slot_count)
{
    struct activation *frame = render_room(render, 1, sizeof *frame + (size_t)slot_count * sizeof *frame->slots);
    if (frame)
        frame->parent = parent;
    return frame;
}

void scope_enter(struct render *render, const struct scope *scope)
{
    enum { LOADS_PER_STEP = 8 };
    render_step(render, scope->count / LOADS_PER_STEP);
    for (size_t i = 0; i < scope->count; i++) {
        const struct load *load = &scope->loads[i];
        struct value *slot = &render->frame->slots[load->slot];
        *slot = load->unset ? value_missing() : *eval_variable(render, load->from);
    }
}

static enum flow run_data(struct render *render, const struct node *node)
{
    text_put(render, node->data);
    return FLOW_ON;
}

static enum flow run_output(struct render *render, const struct node *node)
{
    struct value value = eval_expression(render, node->items);
    render->line = node->line;
    print_value(render, value);
    return FLOW_ON;
}

static enum flow run_if(struct render *render, const struct node *node)
{
    for (const struct node *branch = node->items; branch; branch = branch->next)
        if (!branch->items || value_truth(render, eval_expression(render, branch->items)))
            return run_statements(render, branch->body);
    return FLOW_ON;
}

struct tested { // the items of a loop that pass its test
    const struct node_for *loop;
    struct activation *frame;
};

static bool next_tested(struct render *render, struct iterator *iterator, struct value *item)
{
    const struct tested *tested = iterator->state;
    const struct node_for *loop = tested->loop;
    if (!iterator->from)
        iterator->from = iterator_of(render, iterator->source);
    while (iterator_next(render, iterator->from, item)) {
        struct activation *outer = render->frame;
        render->frame = tested->frame;
        scope_enter(render, &loop->test_scope);
        eval_assign(render, loop->test_target, *item);
        bool pass = value_truth(render, eval_expression(render, loop->test));
        render->frame = outer;
        if (pass)
            return true;
    }
    return false;
}

static struct value filtered(struct render *render, const struct node_for *loop, struct activation *frame,
                             struct value iterable)
{
    struct tested *tested = render_new(render, sizeof *tested);
    *tested = (struct tested){ loop, frame };
    struct iterator *iterator = render_new(render, sizeof *iterator);
    *iterator = (struct iterator){ .next = next_tested, .source = iterable, .state = tested };
    return value_iterator(iterator);
}

static enum flow run_for(struct render *render, const struct node *node)
{
    const struct node_for *code = node->loop;
    struct value iterable = eval_expression(render, code->iterable), item;
    render->line = node->line;
    if (code->test)
        iterable = filtered(render, code, render->frame, iterable);
    struct loop *loop = render_new(render, sizeof *loop);
    *loop = (struct loop){ .iterable = iterable, .iterator = iterator_of(render, iterable) };
    bool completed = false; // a body that was jumped out of does not count, as in jinja2
    enum flow flow = FLOW_ON;
    while (flow != FLOW_BREAK && loop_next(render, loop, &item)) {
        scope_enter(render, &code->scope);
        render->frame->slots[code->loop_slot] = (struct value){ .type = VALUE_LOOP, .loop = loop };
        eval_assign(render, code->target, item);
        flow = run_statements(render, code->body);
        completed |= flow == FLOW_ON;
    }
    if (completed || render->failed)
        return FLOW_ON;
    scope_enter(render, &code->otherwise_scope);
    return run_statements(render, code->otherwise);
}

static enum flow run_set(struct render *render, const struct node *node)
{
    struct value value = eval_expression(render, node->items);
    render->line = node->line;
    eval_assign(render, node->block.target, value);
    return FLOW_ON;
}

// The text of a block behind its filters. A jump out of it throws the text away.
static enum flow capture(struct render *render, const struct node *block, struct value *text)
{
    size_t mark = text_mark(render);
    scope_enter(render, &block->block.scope);
    enum flow flow = run_statements(render, block->block.body);
    *text = text_take(render, mark);
    if (flow == FLOW_ON)
        *text = eval_filters(render, block->block.filter, *text);
    render->line = block->line;
    return flow;
}

static enum flow run_set_block(struct render *render, const struct node *node)
{
    struct value text;
    enum flow flow = capture(render, node, &text);
    if (flow == FLOW_ON)
        eval_assign(render, node->block.target, text);
    return flow;
}

static enum flow run_filter_block(struct render *render, const struct node *node)
{
    struct value text;
    enum flow flow = capture(render, node, &text);
    if (flow != FLOW_ON)
        return flow;
    if (text.type == VALUE_STRING) // only {{ }} turns other values into text
        text_put(render, text.string);
    else
        render_fail(render, "a filter block gives %s instead of a string", value_kind(text));
    return flow;
}

static enum flow run_macro(struct render *render, const struct node *node)
{
    assert(node->define.at.hops == 0);
    render->frame->slots[node->define.at.slot] = macro_new(render, node->define.function);
    return FLOW_ON;
}

static enum flow run_generation(struct render *render, const struct node *node)
{
    print_value(render, call_value(render, macro_new(render, node->define.function), &(struct arguments){ 0 }));
    return FLOW_ON;
}

static enum flow run_break(struct render *render, const struct node *node)
{
    (void)render, (void)node;
    return FLOW_BREAK;
}

static enum flow run_continue(struct render *render, const struct node *node)
{
    (void)render, (void)node;
    return FLOW_CONTINUE;
}

enum flow run_statements(struct render *render, const struct node *statements)
{
    static enum flow (*const runners[NODE_TYPE_COUNT])(struct render *, const struct node *) = {
        [NODE_DATA] = run_data,
        [NODE_OUTPUT] = run_output,
        [NODE_IF] = run_if,
        [NODE_FOR] = run_for,
        [NODE_SET] = run_set,
        [NODE_SET_BLOCK] = run_set_block,
        [NODE_MACRO] = run_macro,
        [NODE_GENERATION] = run_generation,
        [NODE_FILTER_BLOCK] = run_filter_block,
        [NODE_BREAK] = run_break,
        [NODE_CONTINUE] = run_continue,
    };
    enum flow flow = FLOW_ON;
    if (!render_enter(render))
        return FLOW_ON;
    for (; statements && flow == FLOW_ON && render_step(render, 1); statements = statements->next) {
        render->line = statements->line;
        flow = runners[statements->type](render, statements);
    }
    render_leave(render);
    return flow;
}
