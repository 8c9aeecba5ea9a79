// SPDX-License-Identifier: Apache-2.0
// Subset construction, products, counting and minimisation of automata. Each explores its states breadth first.
#include "text/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "text/grammar/string.h"

void dfa_free(struct dfa *dfa)
{
    free(dfa->states);
    *dfa = (struct dfa){ 0 };
}

// ---- nondeterministic automata ----

uint32_t nfa_state(struct nfa *nfa)
{
    if (!nfa->state_count)
        nfa->state_count = NFA_FIRST_FREE;
    nfa->full |= nfa->state_count >= NFA_STATES_MAX;
    return nfa->full ? NFA_END : nfa->state_count++;
}

void nfa_bytes(struct nfa *nfa, uint32_t from, uint32_t to, uint8_t low, uint8_t high)
{
    nfa->full |= nfa->edge_count >= NFA_EDGES_MAX;
    if (nfa->full)
        return;
    MEMORY_RESERVE(nfa->edges, nfa->edge_count, nfa->edge_capacity);
    nfa->edges[nfa->edge_count++] = (struct nfa_edge){ from, to, low, high };
}

void nfa_skip(struct nfa *nfa, uint32_t from, uint32_t to) { nfa_bytes(nfa, from, to, 1, 0); }

void nfa_free(struct nfa *nfa)
{
    free(nfa->edges);
    *nfa = (struct nfa){ 0 };
}

// ---- states found so far ----

// Every state of the automaton is numbered when it is first reached, by a key that says what it stands for.
struct discovery {
    struct dfa dfa;
    uint32_t capacity;
    struct map ids;     // key -> number
    struct bytes *keys; // by number
    struct arena arena;
};

// The number of a key, a new one if need be; DFA_DEAD when there are too many.
static uint32_t discover(struct discovery *found, struct bytes key)
{
    int64_t id;
    if (map_get(&found->ids, key, &id))
        return (uint32_t)id;
    struct dfa *dfa = &found->dfa;
    if (!dfa->count)
        dfa->count = DFA_START;
    if (dfa->count >= DFA_STATES_MAX)
        return DFA_DEAD;
    if (dfa->count >= found->capacity) {
        found->capacity = found->capacity ? found->capacity * 2 : 16;
        dfa->states = memory_grow(dfa->states, found->capacity, sizeof *dfa->states);
        found->keys = memory_grow(found->keys, found->capacity, sizeof *found->keys);
    }
    struct bytes kept = { arena_text(&found->arena, key.data, key.len), key.len };
    if (dfa->count == DFA_START)
        memset(dfa->states, 0, sizeof *dfa->states);
    memset(&dfa->states[dfa->count], 0, sizeof *dfa->states);
    found->keys[dfa->count] = kept;
    map_put(&found->ids, kept, dfa->count);
    return dfa->count++;
}

static void discovery_free(struct discovery *found)
{
    map_free(&found->ids);
    free(found->keys);
    arena_free(&found->arena);
}

// ---- distances to an accepting state ----

// The predecessors of each state, as linked lists; an edge for a run of bytes counts once.
struct backward {
    uint32_t *heads, *links, *sources;
    uint32_t count;
};

static void backward_open(struct backward *backward, const struct dfa *dfa)
{
    size_t most = (size_t)dfa->count * 256 + 1;
    *backward = (struct backward){ memory_new(dfa->count, sizeof(uint32_t)), memory_new(most, sizeof(uint32_t)),
                                   memory_new(most, sizeof(uint32_t)), 1 };
    for (uint32_t s = DFA_START; s < dfa->count; s++)
        for (int byte = 0; byte < 256; byte++) {
            uint16_t to = dfa->states[s].next[byte];
            if (!to || (byte && to == dfa->states[s].next[byte - 1]))
                continue;
            backward->sources[backward->count] = s;
            backward->links[backward->count] = backward->heads[to];
            backward->heads[to] = backward->count++;
        }
}

static void backward_close(struct backward *backward)
{
    free(backward->heads);
    free(backward->links);
    free(backward->sources);
}

// Breadth-first search from the accepting states backwards; then edges to states that reach none are cut.
static void measure(struct dfa *dfa)
{
    struct backward backward;
    backward_open(&backward, dfa);
    uint32_t *queue = memory_new(dfa->count, sizeof *queue), queued = 0;
    bool *reached = memory_new(dfa->count, sizeof *reached);
    for (uint32_t s = DFA_START; s < dfa->count; s++)
        if (dfa->states[s].accepts)
            reached[s] = true, queue[queued++] = s;
    for (uint32_t i = 0; i < queued; i++)
        for (uint32_t link = backward.heads[queue[i]]; link; link = backward.links[link]) {
            uint32_t source = backward.sources[link];
            if (reached[source])
                continue;
            reached[source] = true;
            dfa->states[source].closing = (uint16_t)(dfa->states[queue[i]].closing + 1);
            queue[queued++] = source;
        }
    for (uint32_t s = DFA_START; s < dfa->count; s++)
        for (int byte = 255; byte >= 0; byte--) {
            struct dfa_state *state = &dfa->states[s];
            if (!reached[state->next[byte]])
                state->next[byte] = DFA_DEAD;
            state->continues |= state->next[byte] != DFA_DEAD;
            if (state->next[byte] && dfa->states[state->next[byte]].closing + 1 == state->closing)
                state->toward = (uint8_t)byte;
        }
    bool possible = dfa->count > DFA_START && reached[DFA_START];
    free(queue);
    free(reached);
    backward_close(&backward);
    if (!possible)
        dfa_free(dfa);
}

static bool finish(struct discovery *found, bool ok, struct dfa *out)
{
    discovery_free(found);
    if (!ok) {
        dfa_free(&found->dfa);
        return false;
    }
    measure(&found->dfa);
    *out = found->dfa;
    return true;
}

// ---- subset construction ----

struct subset {
    struct nfa_edge *edges; // by `from`
    uint32_t *begins;       // by state: its first edge; one more at the end
    size_t set_bytes;
    uint8_t *target; // the set under construction, a bit per state
    uint32_t *stack;
    size_t *work;
    bool cut[257]; // bytes at which some edge begins, or behind which it ends
};

static void subset_open(struct subset *subset, const struct nfa *nfa, size_t *work)
{
    uint32_t states = nfa->state_count > NFA_FIRST_FREE ? nfa->state_count : NFA_FIRST_FREE;
    *subset = (struct subset){ .set_bytes = (states + 7) / 8, .work = work };
    *work += nfa->edge_count + states;
    subset->edges = memory_new(nfa->edge_count + 1, sizeof *subset->edges);
    subset->begins = memory_new(states + 2, sizeof *subset->begins);
    subset->target = memory_new(subset->set_bytes, 1);
    subset->stack = memory_new(states, sizeof *subset->stack);
    for (uint32_t i = 0; i < nfa->edge_count; i++) {
        subset->begins[nfa->edges[i].from + 2]++;
        if (nfa->edges[i].low <= nfa->edges[i].high)
            subset->cut[nfa->edges[i].low] = subset->cut[nfa->edges[i].high + 1] = true;
    }
    for (uint32_t s = 0; s < states; s++)
        subset->begins[s + 2] += subset->begins[s + 1];
    for (uint32_t i = 0; i < nfa->edge_count; i++)
        subset->edges[subset->begins[nfa->edges[i].from + 1]++] = nfa->edges[i];
}

static void subset_close(struct subset *subset)
{
    free(subset->edges);
    free(subset->begins);
    free(subset->target);
    free(subset->stack);
}

static bool put(struct subset *subset, uint32_t state) // false: the set has it already
{
    uint8_t *byte = &subset->target[state / 8], bit = (uint8_t)(1 << state % 8);
    bool absent = !(*byte & bit);
    *byte |= bit;
    return absent;
}

// Adds a state and its epsilon closure to the target set.
static void include(struct subset *subset, uint32_t state)
{
    uint32_t depth = 0;
    if (put(subset, state))
        subset->stack[depth++] = state;
    while (depth) {
        uint32_t s = subset->stack[--depth];
        for (uint32_t i = subset->begins[s]; i < subset->begins[s + 1]; i++, ++*subset->work) {
            const struct nfa_edge *edge = &subset->edges[i];
            if (edge->low > edge->high && put(subset, edge->to))
                subset->stack[depth++] = edge->to;
        }
    }
}

// The target set becomes what one byte leads to from `set`; false: nothing.
static bool follow(struct subset *subset, struct bytes set, int byte)
{
    bool any = false;
    memset(subset->target, 0, subset->set_bytes);
    *subset->work += subset->set_bytes / 8;
    for (uint32_t s = 0; s < set.len * 8; s++) {
        if (!set.data[s / 8])
            s |= 7;
        else if ((uint8_t)set.data[s / 8] >> s % 8 & 1)
            for (uint32_t i = subset->begins[s]; i < subset->begins[s + 1]; i++, ++*subset->work)
                if (byte >= subset->edges[i].low && byte <= subset->edges[i].high)
                    any = true, include(subset, subset->edges[i].to);
    }
    return any;
}

static bool expand(struct subset *subset, struct discovery *found, uint32_t s)
{
    struct bytes set = found->keys[s];
    found->dfa.states[s].accepts = (uint8_t)set.data[0] >> NFA_END & 1;
    uint32_t to = DFA_DEAD;
    for (int byte = 0; byte < 256; byte++) {
        if (subset->cut[byte]) {
            to = DFA_DEAD;
            if (follow(subset, set, byte))
                to = discover(found, (struct bytes){ (char *)subset->target, subset->set_bytes });
            if (*subset->work > DFA_WORK_MAX || found->dfa.count >= DFA_STATES_MAX)
                return false;
        }
        found->dfa.states[s].next[byte] = (uint16_t)to;
    }
    return true;
}

bool dfa_from_nfa(const struct nfa *nfa, size_t *work, struct dfa *out)
{
    struct discovery found = { 0 };
    struct subset subset;
    bool ok = !nfa->full;
    subset_open(&subset, nfa, work);
    include(&subset, NFA_START);
    discover(&found, (struct bytes){ (char *)subset.target, subset.set_bytes });
    for (uint32_t s = DFA_START; ok && s < found.dfa.count; s++)
        ok = expand(&subset, &found, s);
    subset_close(&subset);
    return finish(&found, ok, out);
}

// ---- automata given by a step function ----

bool dfa_build(const struct dfa_source *source, const void *start, size_t *work, struct dfa *out)
{
    struct discovery found = { 0 };
    size_t bytes = source->state_bytes;
    bool ok = true;
    discover(&found, (struct bytes){ start, bytes });
    for (uint32_t s = DFA_START; ok && s < found.dfa.count; s++) {
        uint64_t state[DFA_STATE_BYTES_MAX / 8], next[DFA_STATE_BYTES_MAX / 8] = { 0 }; // aligned for any state
        memcpy(state, found.keys[s].data, bytes);
        found.dfa.states[s].accepts = source->accepts(source->context, state);
        for (int byte = 0; ok && byte < 256; byte++) {
            if (!source->step(source->context, state, (uint8_t)byte, next))
                continue;
            uint32_t to = discover(&found, (struct bytes){ (char *)next, bytes });
            found.dfa.states[s].next[byte] = (uint16_t)to;
            ok = to != DFA_DEAD && ++*work < DFA_WORK_MAX;
        }
    }
    return finish(&found, ok, out);
}

// Two automata side by side. Where b accepts nothing any more, its state is DFA_DEAD.
struct product {
    const struct dfa *a, *b;
    bool both; // accepted by both, else by a alone
};

struct pair {
    uint16_t a, b;
};

static bool product_accepts(const void *context, const void *state)
{
    const struct product *product = context;
    const struct pair *at = state;
    bool b = at->b && product->b->states[at->b].accepts;
    return product->a->states[at->a].accepts && b == product->both;
}

static bool product_step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct product *product = context;
    const struct pair *at = state;
    struct pair to = { product->a->states[at->a].next[byte], at->b ? product->b->states[at->b].next[byte] : DFA_DEAD };
    memcpy(next, &to, sizeof to);
    return to.a && (to.b || !product->both);
}

static bool combine(struct product product, size_t *work, struct dfa *out)
{
    struct dfa_source source = { &product, sizeof(struct pair), product_accepts, product_step };
    *out = (struct dfa){ 0 };
    if (!product.a->count || (product.both && !product.b->count))
        return true;
    struct pair start = { DFA_START, product.b->count ? DFA_START : DFA_DEAD };
    return dfa_build(&source, &start, work, out);
}

bool dfa_intersect(const struct dfa *a, const struct dfa *b, size_t *work, struct dfa *out)
{
    return combine((struct product){ a, b, true }, work, out);
}

bool dfa_subtract(const struct dfa *a, const struct dfa *b, size_t *work, struct dfa *out)
{
    return combine((struct product){ a, b, false }, work, out);
}

// An automaton of JSON strings beside a count of their characters.
struct counting {
    const struct dfa *dfa;
    uint32_t low, high;
};

struct counted {
    uint16_t at, string, characters; // string: enum string_state
};

static bool counting_accepts(const void *context, const void *state)
{
    const struct counting *counting = context;
    const struct counted *at = state;
    return counting->dfa->states[at->at].accepts && at->characters >= counting->low;
}

static bool counting_step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct counting *counting = context;
    const struct counted *at = state;
    enum string_state string = string_step(at->string, byte);
    struct counted to = { counting->dfa->states[at->at].next[byte], (uint16_t)string, at->characters };
    bool counts = counting->high != UINT32_MAX || to.characters < counting->low; // enough is enough without an end
    if (to.at && string_begins_character(at->string, string) && counts)
        to.characters++;
    memcpy(next, &to, sizeof to);
    return to.at && to.characters <= counting->high;
}

bool dfa_limit_length(const struct dfa *dfa, uint32_t low, uint32_t high, size_t *work, struct dfa *out)
{
    struct counting counting = { dfa, low, high };
    struct dfa_source source = { &counting, sizeof(struct counted), counting_accepts, counting_step };
    *out = (struct dfa){ 0 };
    return !dfa->count || dfa_build(&source, &(struct counted){ DFA_START, STRING_OPEN, 0 }, work, out);
}

// ---- minimisation ----

// Bytes whose successors differ from those of the byte before, in any state.
static size_t distinct_bytes(const struct dfa *dfa, uint8_t bytes[256])
{
    size_t count = 0;
    for (int byte = 0; byte < 256; byte++) {
        bool differs = byte == 0;
        for (uint32_t s = DFA_START; s < dfa->count && !differs; s++)
            differs = dfa->states[s].next[byte] != dfa->states[s].next[byte - 1];
        if (differs)
            bytes[count++] = (uint8_t)byte;
    }
    return count;
}

// Splits classes of states by the classes that their edges lead to; returns how many there are then, with DFA_DEAD's.
static uint32_t split_classes(const struct dfa *dfa, const uint8_t *bytes, size_t byte_count, uint32_t *classes)
{
    size_t width = byte_count + 1;
    uint32_t *keys = memory_new(dfa->count * width, sizeof *keys), count = 1;
    struct map known = { 0 };
    for (uint32_t s = DFA_START; s < dfa->count; s++) {
        for (size_t i = 0; i < byte_count; i++)
            keys[s * width + i] = classes[dfa->states[s].next[bytes[i]]];
        keys[s * width + byte_count] = classes[s];
    }
    for (uint32_t s = DFA_START; s < dfa->count; s++) {
        struct bytes key = { (const char *)(keys + s * width), width * sizeof *keys };
        int64_t class = count;
        if (!map_get(&known, key, &class))
            map_put(&known, key, count++);
        classes[s] = (uint32_t)class;
    }
    map_free(&known);
    free(keys);
    return count;
}

void dfa_minimise(struct dfa *dfa, size_t *work)
{
    uint8_t bytes[256];
    size_t byte_count = distinct_bytes(dfa, bytes);
    uint32_t *classes = memory_new(dfa->count + 1, sizeof *classes), before = 0, count = 1;
    for (uint32_t s = DFA_START; s < dfa->count; s++)
        classes[s] = dfa->states[s].accepts ? 2 : 1;
    for (; before != count; *work += dfa->count * byte_count) {
        before = count;
        count = split_classes(dfa, bytes, byte_count, classes);
    }
    for (uint32_t s = DFA_START; s < dfa->count;
         s++) { // a class is numbered by its first state, so none is overwritten
        struct dfa_state state = dfa->states[s];
        for (int byte = 0; byte < 256; byte++)
            state.next[byte] = (uint16_t)classes[state.next[byte]];
        dfa->states[classes[s]] = state;
    }
    dfa->count = dfa->count ? count : 0;
    free(classes);
}
