// SPDX-License-Identifier: Apache-2.0
// Token masks (XGrammar, llguidance): the vocabulary's trie is walked with the threads of the matcher, and a subtree is
// skipped when no thread accepts its byte.
#include <stddef.h>

#include "text/grammar/leaf.h"
#include "text/grammar/matcher.h"

// A walk allows tokens of a trie that have low .. high characters, where a thread accepts them.
struct walk {
    struct matcher *matcher;
    const struct trie *trie;
    uint32_t low, high;
};

static void allow(const struct walk *walk, uint32_t begin, uint32_t end)
{
    const struct trie_token *tokens = walk->trie->tokens;
    for (uint32_t i = begin; i < end; i++)
        if (tokens[i].characters >= walk->low && tokens[i].characters <= walk->high)
            mask_set(walk->matcher->allowed, tokens[i].id);
}

// The threads at one level of the trie, and the sizes to cut match's arrays back to.
struct level {
    struct thread_set set;
    uint32_t threads, stacks;
};

static struct level level_here(const struct match *match, struct thread_set set)
{
    return (struct level){ set, match->thread_count, match->stack_count };
}

static void return_to(struct match *match, const struct level *level)
{
    match->thread_count = level->threads;
    match->stack_count = level->stacks;
}

static void walk_from(const struct walk *walk, uint32_t begin, uint32_t end, struct thread_set start);

// ---- a thread that is alone ----

// The place of a thread inside its leaf.
struct place {
    uint32_t at, end, count;
};

// The threads behind the leaf of a thread. They are the same wherever it ends, so a walk finds them once.
struct behind {
    bool known;
    struct thread_set set;
    uint8_t first[256]; // may the set begin with this byte?
};

enum { BYTE_UNKNOWN, BYTE_DEAD, BYTE_ALIVE };

static bool may_begin(struct match *match, struct behind *behind, uint8_t byte)
{
    if (behind->first[byte] == BYTE_UNKNOWN) {
        struct level before = level_here(match, behind->set);
        struct thread_set set = match_byte(match, behind->set, byte);
        behind->first[byte] = match_is_dead(&set) ? BYTE_DEAD : BYTE_ALIVE;
        return_to(match, &before);
    }
    return behind->first[byte] == BYTE_ALIVE;
}

// The leaf may end at trie node `at`: allows the tokens below it that go on with what is behind. Few bytes begin that,
// as a rule.
static void walk_behind(const struct walk *walk, struct behind *behind, uint32_t at)
{
    struct match *match = &walk->matcher->match;
    const struct trie_node *nodes = walk->trie->nodes;
    for (uint32_t i = at + 1; i < nodes[at].skip && behind->set.count && match->work < MATCHER_WORK_MAX;
         i = nodes[i].skip, match->work++)
        if (may_begin(match, behind, nodes[i].byte))
            walk_from(walk, i, nodes[i].skip, behind->set);
}

// As walk_from, but without sets of threads while the thread stays inside its leaf: strings and patterns accept most of
// the vocabulary.
static void walk_alone(const struct walk *walk, uint32_t begin, uint32_t end, struct thread thread)
{
    struct match *match = &walk->matcher->match;
    const struct trie_node *nodes = walk->trie->nodes;
    struct place at[VOCABULARY_TOKEN_BYTES_MAX + 1]; // by depth
    struct level start = level_here(match, (struct thread_set){ 0 }), before = start;
    struct behind behind;
    behind.known = false;
    if (begin < end)
        at[nodes[begin].depth - 1] = (struct place){ thread.at, thread.end, thread.count };
    for (uint32_t i = begin; i < end && match->work < MATCHER_WORK_MAX; match->work++) {
        struct place from = at[nodes[i].depth - 1];
        struct thread here = { thread.node, thread.stack, from.at, from.end, from.count }, next = here;
        enum leaf_result step = leaf_step(match->grammar, &next, nodes[i].byte);
        if (step == LEAF_MAY_END && !behind.known) {
            behind = (struct behind){ .known = true, .set = match_behind(match, thread.stack) };
            before = level_here(match, behind.set);
        }
        if (step == LEAF_INSIDE || step == LEAF_MAY_END) {
            at[nodes[i].depth] = (struct place){ next.at, next.end, next.count };
            allow(walk, nodes[i].tokens, nodes[i + 1].tokens);
            if (step == LEAF_MAY_END)
                walk_behind(walk, &behind, i);
            i++;
            continue;
        }
        if (step != LEAF_DEAD) {
            struct thread_set set = { .begin = match->thread_count };
            match_add(match, &set, here);
            walk_from(walk, i, nodes[i].skip, set);
            return_to(match, &before);
        }
        i = nodes[i].skip;
    }
    return_to(match, &start);
}

static bool is_alone(const struct match *match, const struct thread_set *set)
{
    return set->count == 1 && match->grammar->nodes[match->threads[set->begin].node].kind != NODE_WORDS;
}

// ---- any threads ----

// Walks the trie nodes from `begin` to `end`, siblings and their subtrees; `start` has the threads before them.
static void walk_from(const struct walk *walk, uint32_t begin, uint32_t end, struct thread_set start)
{
    struct match *match = &walk->matcher->match;
    const struct trie_node *nodes = walk->trie->nodes;
    struct level levels[VOCABULARY_TOKEN_BYTES_MAX + 1];
    uint32_t top = begin < end ? nodes[begin].depth - 1 : 0;
    levels[top] = level_here(match, start);
    for (uint32_t i = begin; i < end && match->work < MATCHER_WORK_MAX;) {
        const struct level *above = &levels[nodes[i].depth - 1];
        return_to(match, above);
        struct thread_set set = match_byte(match, above->set, nodes[i].byte);
        levels[nodes[i].depth] = level_here(match, set);
        if (!match_is_dead(&set))
            allow(walk, nodes[i].tokens, nodes[i + 1].tokens);
        bool alone = is_alone(match, &set);
        if (alone)
            walk_alone(walk, i + 1, nodes[i].skip, match->threads[set.begin]);
        i = set.count && !alone ? i + 1 : nodes[i].skip;
    }
    return_to(match, &levels[top]);
}

// ---- inside strings ----

// Allows tokens that stay inside the string and have no more than `room` characters.
static void allow_plain(struct matcher *matcher, uint32_t room)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    const struct plain_token *plains = vocabulary->plains;
    uint32_t begin = 0, end = vocabulary->plain_count; // of those that fit
    matcher->match.work += vocabulary->mask_words;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (plains[middle].characters > room)
            begin = middle + 1;
        else
            end = middle;
    }
    if (begin > vocabulary->plain_count / 2) {
        for (uint32_t i = begin; i < vocabulary->plain_count; i++)
            mask_set(matcher->allowed, plains[i].id);
        return;
    }
    memcpy(matcher->spare, vocabulary->plain, vocabulary->mask_words * sizeof *matcher->spare);
    for (uint32_t i = 0; i < begin; i++)
        matcher->spare[plains[i].id / 32] &= ~((uint32_t)1 << plains[i].id % 32);
    for (size_t i = 0; i < vocabulary->mask_words; i++)
        matcher->allowed[i] |= matcher->spare[i];
}

// A thread between two characters of a string: tokens have been sorted by what they do there, so only those that end it
// are walked.
static void allow_in_string(struct matcher *matcher, const struct thread *thread)
{
    const struct node *node = &matcher->match.grammar->nodes[thread->node];
    uint32_t missing = node->low > thread->count ? node->low - thread->count : 0;
    uint32_t room = node->high == RULES_UNBOUNDED ? RULES_UNBOUNDED : node->high - thread->count;
    struct level before = level_here(&matcher->match, matcher->now);
    allow_plain(matcher, room);
    struct walk closers = { matcher, &matcher->vocabulary->closers, missing, room };
    struct thread_set behind = match_behind(&matcher->match, thread->stack);
    allow(&closers, 0, closers.trie->nodes[0].tokens);
    walk_from(&closers, 0, closers.trie->node_count, behind);
    return_to(&matcher->match, &before);
}

// ---- masks ----

// The key of the mask cache: all that the mask depends on, as bytes.
static void write_state(struct matcher *matcher)
{
    const struct match *match = &matcher->match;
    struct strbuf *out = &matcher->state;
    out->len = 0;
    strbuf_add_byte(out, (char)(matcher->first | matcher->now.final << 1));
    strbuf_add(out, (const char *)(match->threads + matcher->now.begin), matcher->now.count * sizeof *match->threads);
    for (uint32_t i = 1; i < match->stack_count; i++)
        strbuf_add(out, (const char *)&match->stacks[i], offsetof(struct stack_entry, depth));
}

// Threads between two characters of a string use the sorted tokens; other threads in strings and automata walk the trie
// alone; those in words walk it together.
static void allow_by_threads(struct matcher *matcher)
{
    struct match *match = &matcher->match;
    struct level before = level_here(match, matcher->now);
    struct walk all = { matcher, vocabulary_trie(matcher->vocabulary, matcher->first), 0, 0 };
    struct thread_set words = { .begin = match->thread_count };
    for (uint32_t i = 0; i < matcher->now.count && match->work < MATCHER_WORK_MAX; i++) {
        struct thread thread = match->threads[matcher->now.begin + i];
        enum node_kind kind = match->grammar->nodes[thread.node].kind;
        if (kind == NODE_WORDS)
            match_add(match, &words, thread);
        else if (kind == NODE_STRING && thread.at == STRING_BODY)
            allow_in_string(matcher, &thread);
        else
            walk_alone(&all, 0, all.trie->node_count, thread);
    }
    allow(&all, 0, all.trie->nodes[0].tokens);
    if (words.count)
        walk_from(&all, 0, all.trie->node_count, words);
    return_to(match, &before);
}

// Computes the mask into matcher->allowed.
static void compute(struct matcher *matcher)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    memset(matcher->allowed, 0, vocabulary->mask_words * sizeof *matcher->allowed);
    matcher->match.work = 0;
    allow_by_threads(matcher);
    for (size_t i = 0; i < vocabulary->mask_words && matcher->now.final; i++)
        matcher->allowed[i] |= vocabulary->ends[i];
    struct tokens rest = { 0 };
    if (matcher->match.work >= MATCHER_WORK_MAX && matcher_write_rest(matcher, matcher->now, matcher->first, &rest)
        && rest.count)
        mask_set(matcher->allowed, rest.ids[0]); // one way at least is known
    tokens_free(&rest);
}

static void restrict_to(uint32_t *mask, const uint32_t *allowed, size_t words)
{
    for (size_t i = 0; i < words; i++)
        mask[i] &= allowed[i];
}

uint64_t matcher_restrict(struct matcher *matcher, uint32_t *mask)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    size_t words = vocabulary->mask_words;
    int slot;
    if (matcher_done(matcher)) {
        restrict_to(mask, vocabulary->ends, words);
        return 0;
    }
    if (matcher->forced) {
        memset(matcher->allowed, 0, words * sizeof *matcher->allowed);
        mask_set(matcher->allowed, matcher->rest.ids[matcher->rest_at]);
        restrict_to(mask, matcher->allowed, words);
        return 0;
    }
    struct mask_cache *cache = matcher->match.grammar->masks;
    write_state(matcher);
    if (mask_cache_apply(cache, strbuf_bytes(&matcher->state), mask, words, &slot))
        return 0;
    compute(matcher);
    mask_cache_put(cache, slot, matcher->allowed, words);
    restrict_to(mask, matcher->allowed, words);
    return matcher->match.work;
}
