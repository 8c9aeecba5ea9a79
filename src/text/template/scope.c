// SPDX-License-Identifier: Apache-2.0
// text/template/scope.c: name resolution by jinja2's rules (its idtracking.py), in two passes over each scope (loop
// body, macro, captured block): the first collects the names that it loads and sets, the second resolves them.
//   - A name that an enclosing scope has is that variable.
//   - Setting it in an inner scope makes a variable of that scope, which starts with the outer one's value.
//   - A name that no scope has is a template variable. If the scope sets it inside an if, it starts with the variable's
//     value; if the scope sets it in any case, it starts unset.
// Names of filters, tests, functions and methods are looked up here, too: an unknown one fails at once, or, within an
// if, when it is used.
#include <assert.h>
#include <stdlib.h>

#include "base/map.h"
#include "text/template/builtin.h"
#include "text/template/tree.h"
#include "text/template/unicode.h"

struct function { // under construction
    int level;
    int slot_count;
};

struct symbol {
    struct load load;
    bool parameter;  // set by the code that enters the scope
    bool is_outside; // never set here: no slot, load.from is the outside name
};

struct names { // of one scope, under construction
    struct names *parent;
    struct function *function;
    struct map map; // to symbols
    struct symbol *symbols;
    size_t count, capacity;
};

struct resolver {
    struct template *template;
    struct map outside;
    size_t outside_capacity;
    struct names *names; // of the scope at hand
    bool declaring;      // the first pass over a scope: collect its names. The second resolves and enters inner scopes
    bool conditional;    // an if is around, in this scope
    int guards;          // ifs, ands and ors around here, in any scope: the code may be meant not to run
    struct error *err;
    bool failed;
};

static void visit(struct resolver *resolver, struct node *node);
static void visit_each(struct resolver *resolver, struct node *node);

static struct symbol *find_here(const struct names *names, struct bytes name)
{
    int64_t index;
    return map_get(&names->map, name, &index) ? &names->symbols[index] : NULL;
}

// The symbol in this scope or around it, with the number of function borders in between.
static struct symbol *find(const struct names *names, struct bytes name, int *hops)
{
    for (const struct names *at = names; at; at = at->parent) {
        struct symbol *symbol = find_here(at, name);
        *hops = names->function->level - at->function->level;
        if (symbol)
            return symbol;
    }
    return NULL;
}

static struct reference refer(const struct symbol *symbol, int hops)
{
    return symbol->is_outside ? symbol->load.from : (struct reference){ hops, symbol->load.slot };
}

static struct symbol *add_symbol(struct names *names, struct bytes name, struct symbol symbol)
{
    MEMORY_RESERVE(names->symbols, names->count, names->capacity);
    map_put(&names->map, name, (int64_t)names->count);
    names->symbols[names->count] = symbol;
    return &names->symbols[names->count++];
}

static struct reference outside_name(struct resolver *resolver, struct bytes name)
{
    int64_t index;
    struct template *template = resolver->template;
    if (!map_get(&resolver->outside, name, &index)) {
        MEMORY_RESERVE(template->outside, template->outside_count, resolver->outside_capacity);
        index = (int64_t)template->outside_count++;
        template->outside[index] = arena_text(&template->arena, name.data, name.len);
        map_put(&resolver->outside, name, index);
    }
    return (struct reference){ REFERENCE_OUTSIDE, (int)index };
}

static void declare_load(struct resolver *resolver, struct bytes name)
{
    int hops;
    if (find(resolver->names, name, &hops))
        return;
    struct reference outside = outside_name(resolver, name);
    add_symbol(resolver->names, name, (struct symbol){ .is_outside = true, .load.from = outside });
}

static void declare_parameter(struct resolver *resolver, struct bytes name)
{
    struct names *names = resolver->names;
    if (!find_here(names, name))
        add_symbol(names, name, (struct symbol){ .parameter = true, .load.slot = names->function->slot_count++ });
}

static void declare_set(struct resolver *resolver, struct bytes name)
{
    struct names *names = resolver->names;
    struct symbol *symbol = find_here(names, name);
    if (symbol) {
        if (symbol->is_outside) {
            symbol->is_outside = false;
            symbol->load.slot = names->function->slot_count++;
        }
        return;
    }
    int hops;
    struct symbol *outer = names->parent ? find(names->parent, name, &hops) : NULL;
    struct load load = { .slot = names->function->slot_count++ };
    if (outer)
        load.from = refer(outer, hops + names->function->level - names->parent->function->level);
    else if (resolver->conditional)
        load.from = outside_name(resolver, name);
    else
        load.unset = true;
    add_symbol(names, name, (struct symbol){ .load = load });
}

static void bind(struct resolver *resolver, struct bytes name, struct reference *at)
{
    int hops;
    const struct symbol *symbol = find(resolver->names, name, &hops);
    assert(symbol); // the first pass has seen it
    *at = refer(symbol, hops);
}

// A target of set, or, as parameters, of for.
static void visit_target(struct resolver *resolver, struct node *target, bool parameters)
{
    if (target->type == NODE_TUPLE) {
        for (struct node *item = target->items; item; item = item->next)
            visit_target(resolver, item, parameters);
        return;
    }
    if (!resolver->declaring)
        bind(resolver, target->name.name, &target->name.at);
    else if (target->type == NODE_NAMESPACE_ATTRIBUTE)
        declare_load(resolver, target->name.name);
    else if (parameters)
        declare_parameter(resolver, target->name.name);
    else
        declare_set(resolver, target->name.name);
}

// Visits the contents of a scope.
typedef void visit_scope(struct resolver *resolver, const void *context);

static void collect_loads(const struct names *names, struct arena *arena, struct scope *scope)
{
    scope->loads = ARENA_NEW(arena, struct load, names->count);
    for (size_t i = 0; i < names->count; i++)
        if (!names->symbols[i].parameter && !names->symbols[i].is_outside)
            scope->loads[scope->count++] = names->symbols[i].load;
}

// Resolves a scope inside the current one: the first pass collects its names, the second resolves them.
static void resolve_scope(struct resolver *resolver, struct function *function, struct scope *scope, visit_scope *visit,
                          const void *context)
{
    struct names names = { .parent = resolver->names, .function = function };
    bool conditional = resolver->conditional;
    resolver->names = &names;
    resolver->declaring = true;
    resolver->conditional = false;
    visit(resolver, context);
    collect_loads(&names, &resolver->template->arena, scope);
    resolver->declaring = false;
    resolver->conditional = false;
    visit(resolver, context);
    resolver->conditional = conditional;
    resolver->names = names.parent;
    map_free(&names.map);
    free(names.symbols);
}

static void unknown(struct resolver *resolver, int line, const char *kind, struct bytes name)
{
    if (!resolver->failed)
        fail(resolver->err, "chat template, line %d: there is no %s called '%.*s'", line, kind, shown_length(name),
             name.data);
    resolver->failed = true;
}

static void visit_apply(struct resolver *resolver, struct node *node)
{
    bool filter = node->type == NODE_FILTER;
    node->name.builtin = filter ? filter_find(node->name.name) : test_find(node->name.name);
    if (!node->name.builtin && !resolver->conditional && !resolver->declaring)
        unknown(resolver, node->line, filter ? "filter" : "test", node->name.name);
    visit_each(resolver, node->items);
}

// No variable from outside can be called, so a function that neither the template nor the environment has is found
// here, as is a method that no type has.
static void visit_call(struct resolver *resolver, struct node *node)
{
    const struct node *callee = node->items;
    visit_each(resolver, node->items);
    if (resolver->declaring || resolver->guards)
        return;
    if (callee->type == NODE_NAME && callee->name.at.hops == REFERENCE_OUTSIDE && !global_find(callee->name.name))
        unknown(resolver, node->line, "function", callee->name.name);
    if (callee->type == NODE_ATTRIBUTE && !method_exists(callee->name.name))
        unknown(resolver, node->line, "method", callee->name.name);
}

// The body of a captured block, behind its filter.
struct block {
    struct node *filter, *body;
};

static void visit_block(struct resolver *resolver, const void *context)
{
    const struct block *block = context;
    visit(resolver, block->filter);
    visit_each(resolver, block->body);
}

static void visit_loop_test(struct resolver *resolver, const void *context)
{
    const struct node_for *loop = context;
    visit_target(resolver, loop->test_target, true);
    visit(resolver, loop->test);
}

static void visit_loop_body(struct resolver *resolver, const void *context)
{
    const struct node_for *loop = context;
    if (resolver->declaring)
        declare_parameter(resolver, bytes_of("loop"));
    visit_target(resolver, loop->target, true);
    visit_each(resolver, loop->body);
}

static void visit_for(struct resolver *resolver, struct node_for *loop)
{
    visit(resolver, loop->iterable);
    if (resolver->declaring)
        return;
    struct function *function = resolver->names->function;
    if (loop->test)
        resolve_scope(resolver, function, &loop->test_scope, visit_loop_test, loop);
    loop->loop_slot = function->slot_count; // of the first name that the body declares
    resolve_scope(resolver, function, &loop->scope, visit_loop_body, loop);
    resolve_scope(resolver, function, &loop->otherwise_scope, visit_block, &(struct block){ NULL, loop->otherwise });
}

static void visit_function(struct resolver *resolver, const void *context)
{
    const struct node_function *function = context;
    for (struct node_parameter *parameter = function->parameters; parameter && resolver->declaring;
         parameter = parameter->next) {
        parameter->slot = resolver->names->function->slot_count;
        declare_parameter(resolver, parameter->name);
    }
    for (struct node_parameter *parameter = function->parameters; parameter; parameter = parameter->next)
        visit(resolver, parameter->otherwise);
    visit_each(resolver, function->body);
}

// An if, as a statement or an expression.
static void visit_guarded(struct resolver *resolver, struct node *node)
{
    bool conditional = resolver->conditional;
    resolver->conditional = true;
    resolver->guards++;
    visit_each(resolver, node->items);
    resolver->guards--;
    resolver->conditional = conditional;
}

static void visit_definition(struct resolver *resolver, struct node *node)
{
    if (node->type == NODE_MACRO && resolver->declaring)
        declare_set(resolver, node->define.function->name);
    if (resolver->declaring)
        return;
    if (node->type == NODE_MACRO)
        bind(resolver, node->define.function->name, &node->define.at);
    struct function own = { .level = resolver->names->function->level + 1 };
    resolve_scope(resolver, &own, &node->define.function->scope, visit_function, node->define.function);
    node->define.function->slot_count = own.slot_count;
}

static void visit_capture(struct resolver *resolver, struct node *node)
{
    if (!resolver->declaring)
        resolve_scope(resolver, resolver->names->function, &node->block.scope, visit_block,
                      &(struct block){ node->block.filter, node->block.body });
}

static void visit_each(struct resolver *resolver, struct node *node)
{
    for (; node; node = node->next)
        visit(resolver, node);
}

static void visit_name(struct resolver *resolver, struct node *node)
{
    if (resolver->declaring)
        declare_load(resolver, node->name.name);
    else
        bind(resolver, node->name.name, &node->name.at);
}

// `and` and `or`: their second operand may be meant not to run.
static void visit_either(struct resolver *resolver, struct node *node)
{
    visit(resolver, node->items);
    resolver->guards++;
    visit_each(resolver, node->items->next);
    resolver->guards--;
}

static void visit(struct resolver *resolver, struct node *node)
{
    if (!node)
        return;
    switch (node->type) {
    case NODE_NAME: visit_name(resolver, node); break;
    case NODE_CALL: visit_call(resolver, node); break;
    case NODE_FILTER:
    case NODE_TEST: visit_apply(resolver, node); break;
    case NODE_AND:
    case NODE_OR: visit_either(resolver, node); break;
    case NODE_CONDITION:
    case NODE_IF: visit_guarded(resolver, node); break;
    case NODE_BRANCH:
        visit_each(resolver, node->items);
        visit_each(resolver, node->body);
        break;
    case NODE_FOR: visit_for(resolver, node->loop); break;
    case NODE_SET:
        visit_each(resolver, node->items);
        visit_target(resolver, node->block.target, false);
        break;
    case NODE_SET_BLOCK:
        visit_target(resolver, node->block.target, false);
        visit_capture(resolver, node);
        break;
    case NODE_FILTER_BLOCK: visit_capture(resolver, node); break;
    case NODE_MACRO:
    case NODE_GENERATION: visit_definition(resolver, node); break;
    default: visit_each(resolver, node->items); break;
    }
}

bool template_resolve(struct template *template, struct error *err)
{
    struct resolver resolver = { .template = template, .err = err };
    struct function root = { 0 };
    resolve_scope(&resolver, &root, &template->scope, visit_block, &(struct block){ NULL, template->body });
    template->slot_count = root.slot_count;
    map_free(&resolver.outside);
    return !resolver.failed;
}
