// SPDX-License-Identifier: Apache-2.0
#include "text/grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "text/grammar/string.h"

void machine_free(struct machine *machine)
{
    free(machine->states);
    *machine = (struct machine){ 0 };
}

// ---- automata in the making ----

uint32_t nfa_state(struct nfa *nfa)
{
    if (!nfa->state_count)
        nfa->state_count = NFA_FIRST_FREE;
    nfa->full |= nfa->state_count >= MACHINE_NFA_MAX;
    return nfa->full ? NFA_END : nfa->state_count++;
}

void nfa_bytes(struct nfa *nfa, uint32_t from, uint32_t to, uint8_t low, uint8_t high)
{
    nfa->full |= nfa->edge_count >= MACHINE_EDGES_MAX;
    if (nfa->full)
        return;
    if (nfa->edge_count == nfa->edge_capacity) {
        nfa->edge_capacity = nfa->edge_capacity ? nfa->edge_capacity * 2 : 64;
        nfa->edges = memory_grow(nfa->edges, nfa->edge_capacity, sizeof *nfa->edges);
    }
    nfa->edges[nfa->edge_count++] = (struct nfa_edge){ from, to, low, high };
}

void nfa_skip(struct nfa *nfa, uint32_t from, uint32_t to) { nfa_bytes(nfa, from, to, 1, 0); }

void nfa_free(struct nfa *nfa)
{
    free(nfa->edges);
    *nfa = (struct nfa){ 0 };
}

// ---- tables of states, grown while new ones are found ----

// Which states were met, by what they stand for.
struct discovery {
    struct machine machine;
    uint32_t capacity;
    struct map ids;     // what a state stands for -> its number
    struct bytes *keys; // by number
    struct arena arena;
};

// The number of what `key` stands for; 0: there are too many.
static uint32_t discover(struct discovery *found, struct bytes key)
{
    int64_t id;
    if (map_get(&found->ids, key, &id))
        return (uint32_t)id;
    struct machine *machine = &found->machine;
    if (!machine->count)
        machine->count = MACHINE_START;
    if (machine->count >= MACHINE_STATES_MAX)
        return MACHINE_DEAD;
    if (machine->count >= found->capacity) {
        found->capacity = found->capacity ? found->capacity * 2 : 16;
        machine->states = memory_grow(machine->states, found->capacity, sizeof *machine->states);
        found->keys = memory_grow(found->keys, found->capacity, sizeof *found->keys);
    }
    struct bytes kept = { arena_text(&found->arena, key.data, key.len), key.len };
    if (machine->count == MACHINE_START)
        memset(machine->states, 0, sizeof *machine->states);
    memset(&machine->states[machine->count], 0, sizeof *machine->states);
    found->keys[machine->count] = kept;
    map_put(&found->ids, kept, machine->count);
    return machine->count++;
}

static void discovery_free(struct discovery *found)
{
    map_free(&found->ids);
    free(found->keys);
    arena_free(&found->arena);
}

// ---- what leads to the end ----

// The states before each state, as lists; a state counts once per stretch of bytes.
struct backward {
    uint32_t *heads, *links, *sources;
    uint32_t count;
};

static void backward_open(struct backward *backward, const struct machine *machine)
{
    size_t most = (size_t)machine->count * 256 + 1;
    *backward = (struct backward){ memory_new(machine->count, sizeof(uint32_t)), memory_new(most, sizeof(uint32_t)),
                                   memory_new(most, sizeof(uint32_t)), 1 };
    for (uint32_t s = MACHINE_START; s < machine->count; s++)
        for (int byte = 0; byte < 256; byte++) {
            uint16_t to = machine->states[s].next[byte];
            if (!to || (byte && to == machine->states[s].next[byte - 1]))
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

// Distances to the end, by widening rings; then every edge to a state without one is cut.
static void measure(struct machine *machine)
{
    struct backward backward;
    backward_open(&backward, machine);
    uint32_t *queue = memory_new(machine->count, sizeof *queue), queued = 0;
    bool *reached = memory_new(machine->count, sizeof *reached);
    for (uint32_t s = MACHINE_START; s < machine->count; s++)
        if (machine->states[s].accepts)
            reached[s] = true, queue[queued++] = s;
    for (uint32_t i = 0; i < queued; i++)
        for (uint32_t link = backward.heads[queue[i]]; link; link = backward.links[link]) {
            uint32_t source = backward.sources[link];
            if (reached[source])
                continue;
            reached[source] = true;
            machine->states[source].closing = (uint16_t)(machine->states[queue[i]].closing + 1);
            queue[queued++] = source;
        }
    for (uint32_t s = MACHINE_START; s < machine->count; s++)
        for (int byte = 255; byte >= 0; byte--) {
            struct machine_state *state = &machine->states[s];
            if (!reached[state->next[byte]])
                state->next[byte] = MACHINE_DEAD;
            state->continues |= state->next[byte] != MACHINE_DEAD;
            if (state->next[byte] && machine->states[state->next[byte]].closing + 1 == state->closing)
                state->toward = (uint8_t)byte;
        }
    bool possible = machine->count > MACHINE_START && reached[MACHINE_START];
    free(queue);
    free(reached);
    backward_close(&backward);
    if (!possible)
        machine_free(machine);
}

static bool finish(struct discovery *found, bool ok, struct machine *out)
{
    discovery_free(found);
    if (!ok) {
        machine_free(&found->machine);
        return false;
    }
    measure(&found->machine);
    *out = found->machine;
    return true;
}

// ---- sets of states become states ----

struct subset {
    struct nfa_edge *edges; // by `from`
    uint32_t *begins;       // where those of a state begin; one more at the end
    size_t set_bytes;
    uint8_t *target; // the set in the making, a bit per state
    uint32_t *stack;
    size_t *work;
    bool cut[257]; // bytes at which some edge begins or has ended
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

static bool put(struct subset *subset, uint32_t state) // false: it is there
{
    uint8_t *byte = &subset->target[state / 8], bit = (uint8_t)(1 << state % 8);
    bool absent = !(*byte & bit);
    *byte |= bit;
    return absent;
}

// Puts a state into the target set, with all that is reached from it without a byte.
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

// The target set of one byte out of `set`; false: it is empty.
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
    found->machine.states[s].accepts = (uint8_t)set.data[0] >> NFA_END & 1;
    uint32_t to = MACHINE_DEAD;
    for (int byte = 0; byte < 256; byte++) {
        if (subset->cut[byte]) {
            to = MACHINE_DEAD;
            if (follow(subset, set, byte))
                to = discover(found, (struct bytes){ (char *)subset->target, subset->set_bytes });
            if (*subset->work > MACHINE_WORK_MAX || found->machine.count >= MACHINE_STATES_MAX)
                return false;
        }
        found->machine.states[s].next[byte] = (uint16_t)to;
    }
    return true;
}

bool machine_from_nfa(const struct nfa *nfa, size_t *work, struct machine *out)
{
    struct discovery found = { 0 };
    struct subset subset;
    bool ok = !nfa->full;
    subset_open(&subset, nfa, work);
    include(&subset, NFA_START);
    discover(&found, (struct bytes){ (char *)subset.target, subset.set_bytes });
    for (uint32_t s = MACHINE_START; ok && s < found.machine.count; s++)
        ok = expand(&subset, &found, s);
    subset_close(&subset);
    return finish(&found, ok, out);
}

// ---- two machines side by side ----

// What one state of a machine that follows two things stands for. The second is another machine's state, or how far the
// string has come.
struct pair {
    uint16_t machine, other, characters;
};

static struct bytes pair_key(const struct pair *pair) { return (struct bytes){ (const char *)pair, sizeof *pair }; }

// The state that `byte` leads to; false: there are too many.
static bool lead_to(struct discovery *found, uint32_t from, int byte, const struct pair *pair, size_t *work)
{
    uint32_t to = discover(found, pair_key(pair));
    found->machine.states[from].next[byte] = (uint16_t)to;
    return to != MACHINE_DEAD && ++*work < MACHINE_WORK_MAX;
}

// What `a` accepts, and `b` does or (`with` false) does not. Where `b` accepts nothing any more, its state is
// MACHINE_DEAD.
static bool combine(const struct machine *a, const struct machine *b, bool with, size_t *work, struct machine *out)
{
    struct discovery found = { 0 };
    bool ok = true;
    *out = (struct machine){ 0 };
    if (!a->count || (with && !b->count))
        return true;
    discover(&found, pair_key(&(struct pair){ MACHINE_START, b->count ? MACHINE_START : MACHINE_DEAD, 0 }));
    for (uint32_t s = MACHINE_START; ok && s < found.machine.count; s++) {
        struct pair at;
        memcpy(&at, found.keys[s].data, sizeof at);
        const struct machine_state *x = &a->states[at.machine], *y = at.other ? &b->states[at.other] : NULL;
        found.machine.states[s].accepts = x->accepts && (y && y->accepts) == with;
        for (int byte = 0; ok && byte < 256; byte++) {
            uint16_t other = y ? y->next[byte] : MACHINE_DEAD;
            if (x->next[byte] && (other || !with))
                ok = lead_to(&found, s, byte, &(struct pair){ x->next[byte], other, 0 }, work);
        }
    }
    return finish(&found, ok, out);
}

bool machine_intersect(const struct machine *a, const struct machine *b, size_t *work, struct machine *out)
{
    return combine(a, b, true, work, out);
}

bool machine_subtract(const struct machine *a, const struct machine *b, size_t *work, struct machine *out)
{
    return combine(a, b, false, work, out);
}

bool machine_limit_length(const struct machine *machine, uint32_t low, uint32_t high, size_t *work, struct machine *out)
{
    struct discovery found = { 0 };
    bool ok = true;
    *out = (struct machine){ 0 };
    if (!machine->count)
        return true;
    discover(&found, pair_key(&(struct pair){ MACHINE_START, STRING_OPEN, 0 }));
    for (uint32_t s = MACHINE_START; ok && s < found.machine.count; s++) {
        struct pair at;
        memcpy(&at, found.keys[s].data, sizeof at);
        const struct machine_state *state = &machine->states[at.machine];
        found.machine.states[s].accepts = state->accepts && at.characters >= low;
        for (int byte = 0; ok && byte < 256; byte++) {
            if (!state->next[byte])
                continue;
            enum string_state string = string_step(at.other, (uint8_t)byte);
            struct pair next = { state->next[byte], (uint16_t)string, at.characters };
            if (string_begins_character(at.other, string) && (high != UINT32_MAX || next.characters < low))
                next.characters++; // without an end, counting stops when there are enough
            if (next.characters <= high)
                ok = lead_to(&found, s, byte, &next, work);
        }
    }
    return finish(&found, ok, out);
}
