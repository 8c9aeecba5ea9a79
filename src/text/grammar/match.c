// SPDX-License-Identifier: Apache-2.0
// Simulation of a pushdown automaton with many threads (as a Pike VM, each thread with a stack; stacks are shared as a
// graph-structured stack).
#include "text/grammar/match.h"

#include <assert.h>
#include <stdlib.h>

#include "text/grammar/leaf.h"

void match_open(struct match *match, const struct grammar *grammar)
{
    *match = (struct match){ .grammar = grammar };
    match->stacks = memory_new(64, sizeof *match->stacks);
    match->stack_count = 1;
    match->stack_capacity = 64;
}

void match_close(struct match *match)
{
    free(match->threads);
    free(match->stacks);
}

// ---- entering and leaving nodes ----

static void enter(struct match *match, struct thread_set *set, uint32_t id, uint32_t done, uint32_t stack);

static uint32_t waiting_cost(const struct grammar *grammar, uint32_t id, uint32_t done)
{
    const struct node *node = &grammar->nodes[id];
    return node->kind == NODE_REPEAT ? rules_repeat_cost(grammar, node, done) : node->cost;
}

static uint32_t push(struct match *match, uint32_t node, uint32_t done, uint32_t parent)
{
    if (match->stack_count == match->stack_capacity) {
        match->stack_capacity *= 2;
        match->stacks = memory_grow(match->stacks, match->stack_capacity, sizeof *match->stacks);
    }
    struct stack_entry *below = &match->stacks[parent];
    match->stacks[match->stack_count] = (struct stack_entry){
        .node = node,
        .done = done,
        .parent = parent,
        .depth = below->depth + 1,
        .closing = rules_add(waiting_cost(match->grammar, node, done), below->closing),
    };
    return match->stack_count++;
}

void match_add(struct match *match, struct thread_set *set, struct thread thread)
{
    if (set->count == MATCH_THREADS_MAX)
        return;
    MEMORY_RESERVE(match->threads, match->thread_count, match->thread_capacity);
    match->threads[match->thread_count++] = thread;
    set->count++;
}

// The top of the stack has ended: the node below is entered. One entry per step is enough.
static void leave(struct match *match, struct thread_set *set, uint32_t stack)
{
    struct stack_entry *entry = &match->stacks[stack];
    if (entry->seen == match->step)
        return;
    entry->seen = match->step;
    if (!stack)
        set->final = true;
    else
        enter(match, set, entry->node, entry->done, entry->parent);
}

static void enter_repeat(struct match *match, struct thread_set *set, uint32_t id, uint32_t done, uint32_t stack)
{
    const struct node *node = &match->grammar->nodes[id];
    bool separated = done && node->rest != RULES_NONE;
    uint32_t depth = match->stacks[stack].depth;
    if (done >= node->low)
        leave(match, set, stack);
    if (done >= node->high || !rules_fit(match->grammar, node->first, depth + 1)
        || (node->rest != RULES_NONE && depth + 2 > RULES_HEIGHT_MAX))
        return;
    // Without a maximum, counting stops at the minimum, so that later items share one stack entry.
    uint32_t next = node->high == RULES_UNBOUNDED && done > node->low ? done : done + 1;
    uint32_t again = push(match, id, next, stack);
    if (separated)
        enter(match, set, node->rest, 0, push(match, node->first, 0, again));
    else
        enter(match, set, node->first, 0, again);
}

// Enters a node: adds a thread for each leaf that can come first.
static void enter(struct match *match, struct thread_set *set, uint32_t id, uint32_t done, uint32_t stack)
{
    const struct grammar *grammar = match->grammar;
    const struct node *node = &grammar->nodes[id];
    match->work += MATCH_WORK_PER_THREAD;
    switch (node->kind) {
    case NODE_WORDS:
        match_add(match, set, (struct thread){ id, stack, 0, grammar->tables[node->table].count, 0 });
        return;
    case NODE_STRING: match_add(match, set, (struct thread){ id, stack, STRING_OPEN, 0, 0 }); return;
    case NODE_DFA: match_add(match, set, (struct thread){ id, stack, DFA_START, 0, 0 }); return;
    case NODE_MARK: match_add(match, set, (struct thread){ id, stack, false, 0, 0 }); return;
    case NODE_SEQUENCE: enter(match, set, node->first, 0, push(match, node->rest, 0, stack)); return;
    case NODE_CHOICE:
        for (uint32_t i = 0; i < node->count && set->count < MATCH_THREADS_MAX; i++)
            if (rules_fit(grammar, grammar->links[node->first + i], match->stacks[stack].depth))
                enter(match, set, grammar->links[node->first + i], 0, stack);
        return;
    case NODE_REPEAT: enter_repeat(match, set, id, done, stack); return;
    }
}

// ---- one byte ----

// The first word from `at` on whose byte at place `count` is at least `byte`; words that end there come before.
static uint32_t lower_bound(const struct word *words, const struct thread *thread, uint32_t at, int byte)
{
    uint32_t end = thread->end;
    while (at < end) {
        uint32_t middle = at + (end - at) / 2;
        const struct bytes *text = &words[middle].text;
        if (text->len <= thread->count || (uint8_t)text->data[thread->count] < byte)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

static void step_words(struct match *match, struct thread_set *set, struct thread thread, uint8_t byte)
{
    const struct grammar *grammar = match->grammar;
    const struct node *node = &grammar->nodes[thread.node];
    const struct word *words = grammar->tables[node->table].words;
    uint32_t depth = match->stacks[thread.stack].depth;
    uint32_t at = lower_bound(words, &thread, thread.at, byte), end = lower_bound(words, &thread, at, byte + 1);
    if (at == end)
        return;
    thread.count++;
    if (words[at].text.len == thread.count) {
        const struct word *word = &words[at++];
        bool fits = rules_word_fits(grammar, node, word, depth);
        if (fits && word->next == RULES_NONE)
            leave(match, set, thread.stack);
        else if (fits)
            enter(match, set, word->next, 0, thread.stack);
    }
    thread.at = at;
    thread.end = end;
    for (; at < end; at++, match->work++)
        if (rules_word_fits(grammar, node, &words[at], depth)) {
            match_add(match, set, thread);
            return;
        }
}

static struct thread_set begin_set(struct match *match)
{
    match->step++;
    return (struct thread_set){ .begin = match->thread_count };
}

struct thread_set match_start(struct match *match)
{
    struct thread_set set = begin_set(match);
    enter(match, &set, match->grammar->root, 0, 0);
    return set;
}

struct thread_set match_behind(struct match *match, uint32_t stack)
{
    struct thread_set set = begin_set(match);
    leave(match, &set, stack);
    return set;
}

static bool is_left(const struct match *match, struct thread thread, uint8_t byte)
{
    return match->grammar->nodes[thread.node].kind == NODE_MARK
        && leaf_step(match->grammar, &thread, byte) == LEAF_LEFT;
}

// Enters the nodes behind marks that this byte ends.
static struct thread_set enter_behind_marks(struct match *match, struct thread_set from, uint8_t byte)
{
    struct thread_set set = begin_set(match);
    for (uint32_t i = 0; i < from.count; i++)
        if (is_left(match, match->threads[from.begin + i], byte))
            leave(match, &set, match->threads[from.begin + i].stack);
    return set;
}

static void step_threads(struct match *match, struct thread_set *set, struct thread_set from, uint8_t byte)
{
    match->work += from.count * MATCH_WORK_PER_THREAD;
    for (uint32_t i = 0; i < from.count; i++) {
        struct thread thread = match->threads[from.begin + i];
        if (match->grammar->nodes[thread.node].kind == NODE_WORDS) {
            step_words(match, set, thread, byte);
            continue;
        }
        enum leaf_result step = leaf_step(match->grammar, &thread, byte);
        if (step == LEAF_MAY_END || step == LEAF_ENDS)
            leave(match, set, thread.stack);
        if (step == LEAF_MAY_END || step == LEAF_INSIDE)
            match_add(match, set, thread);
    }
}

struct thread_set match_byte(struct match *match, struct thread_set from, uint8_t byte)
{
    struct thread_set entered = enter_behind_marks(match, from, byte), set = begin_set(match);
    step_threads(match, &set, from, byte);
    step_threads(match, &set, entered, byte);
    if (entered.count) { // they have been stepped: their place is free
        memmove(match->threads + entered.begin, match->threads + set.begin, set.count * sizeof *match->threads);
        match->thread_count -= entered.count;
        set.begin = entered.begin;
    }
    return set;
}

// ---- the way to the end ----

// The word with the shortest completion.
static const struct word *nearest_word(const struct match *match, const struct thread *thread)
{
    const struct node *node = &match->grammar->nodes[thread->node];
    const struct word *words = match->grammar->tables[node->table].words, *best = NULL;
    uint32_t best_cost = RULES_NEVER;
    for (uint32_t i = thread->at; i < thread->end; i++) {
        uint32_t cost = rules_word_cost(match->grammar, &words[i]);
        if (words[i].index >= node->low && words[i].index <= node->high && cost < best_cost)
            best = &words[i], best_cost = cost;
    }
    assert(best);
    return best;
}

static uint32_t thread_closing(const struct match *match, const struct thread *thread)
{
    const struct node *node = &match->grammar->nodes[thread->node];
    uint32_t here = 0;
    switch (node->kind) {
    case NODE_WORDS: here = rules_word_cost(match->grammar, nearest_word(match, thread)) - thread->count; break;
    case NODE_STRING:
        here = (uint32_t)strlen(string_closings[thread->at]) + 1;
        here += node->low > thread->count ? node->low - thread->count : 0;
        break;
    case NODE_MARK: here = !thread->at; break;
    default: here = match->grammar->dfas[node->table].states[thread->at].closing;
    }
    return rules_add(here, match->stacks[thread->stack].closing);
}

uint32_t match_closing(const struct match *match, struct thread_set set, uint32_t *thread)
{
    uint32_t fewest = RULES_NEVER;
    for (uint32_t i = 0; i < set.count && !set.final; i++) {
        uint32_t bytes = thread_closing(match, &match->threads[set.begin + i]);
        if (bytes < fewest)
            fewest = bytes, *thread = set.begin + i;
    }
    return set.final ? 0 : fewest;
}

static void write_here(const struct match *match, const struct thread *thread, struct strbuf *out)
{
    const struct node *node = &match->grammar->nodes[thread->node];
    switch (node->kind) {
    case NODE_WORDS: {
        const struct word *word = nearest_word(match, thread);
        strbuf_add(out, word->text.data + thread->count, word->text.len - thread->count);
        if (word->next != RULES_NONE)
            rules_write_shortest(match->grammar, word->next, 0, out);
        return;
    }
    case NODE_STRING:
        strbuf_add_text(out, string_closings[thread->at]);
        for (uint32_t i = thread->count; i < node->low; i++)
            strbuf_add_byte(out, ' ');
        strbuf_add_byte(out, '"');
        return;
    case NODE_MARK: strbuf_add(out, (const char[]){ (char)node->first }, !thread->at); return;
    default:
        for (const struct dfa_state *states = match->grammar->dfas[node->table].states, *state = &states[thread->at];
             state->closing; state = &states[state->next[state->toward]])
            strbuf_add_byte(out, (char)state->toward);
    }
}

void match_write_closing(const struct match *match, const struct thread *thread, struct strbuf *out)
{
    write_here(match, thread, out);
    for (uint32_t i = thread->stack; i; i = match->stacks[i].parent)
        rules_write_shortest(match->grammar, match->stacks[i].node, match->stacks[i].done, out);
}

// ---- throwing away ----

// Mark and compact: parents stand before their children, so one backward pass marks and one forward pass moves.
static void keep_stacks(struct match *match, struct thread_set set)
{
    uint32_t *moved = memory_new(match->stack_count, sizeof *moved), count = 0;
    for (uint32_t i = 0; i < set.count; i++)
        moved[match->threads[set.begin + i].stack] = 1;
    for (uint32_t i = match->stack_count; i-- > 1;)
        if (moved[i])
            moved[match->stacks[i].parent] = 1;
    moved[0] = 1;
    for (uint32_t i = 0; i < match->stack_count; i++) {
        if (!moved[i])
            continue;
        struct stack_entry entry = match->stacks[i];
        entry.parent = i ? moved[entry.parent] : 0;
        match->stacks[count] = entry;
        moved[i] = count++;
    }
    for (uint32_t i = 0; i < set.count; i++)
        match->threads[set.begin + i].stack = moved[match->threads[set.begin + i].stack];
    match->stack_count = count;
    free(moved);
}

struct thread_set match_keep(struct match *match, struct thread_set set)
{
    keep_stacks(match, set);
    if (set.count)
        memmove(match->threads, match->threads + set.begin, set.count * sizeof *match->threads);
    match->thread_count = set.count;
    set.begin = 0;
    return set;
}
