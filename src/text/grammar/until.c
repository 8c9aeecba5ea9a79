// SPDX-License-Identifier: Apache-2.0
// The trie of the literals with its failure links, run beside a check of UTF-8.
#include "text/grammar/until.h"

#include <stdlib.h>

#include "base/memory.h"
#include "text/grammar/string.h"

enum { ROOT = 0, NO_LITERAL = 0xFFFF };

struct trie {
    uint16_t (*next)[256];
    uint16_t *fails, *hits; // hits: the literal that ends here, the first of those that do
    size_t count, wanted;
};

static void add_literal(struct trie *trie, struct bytes literal, size_t index)
{
    uint16_t at = ROOT;
    for (size_t i = 0; i < literal.len; i++) {
        uint16_t *next = &trie->next[at][(uint8_t)literal.data[i]];
        if (!*next) {
            *next = (uint16_t)trie->count;
            trie->hits[trie->count++] = NO_LITERAL;
        }
        at = *next;
    }
    if (trie->hits[at] == NO_LITERAL)
        trie->hits[at] = (uint16_t)index;
}

// Breadth first: a missing edge becomes that of the longest suffix that is in the trie.
static void link_failures(struct trie *trie)
{
    uint16_t *queue = memory_new(trie->count, sizeof *queue);
    size_t head = 0, tail = 0;
    for (int byte = 0; byte < 256; byte++)
        if (trie->next[ROOT][byte])
            queue[tail++] = trie->next[ROOT][byte];
    while (head < tail) {
        uint16_t at = queue[head++], fail = trie->fails[at];
        if (trie->hits[fail] < trie->hits[at])
            trie->hits[at] = trie->hits[fail];
        for (int byte = 0; byte < 256; byte++) {
            uint16_t *next = &trie->next[at][byte];
            if (*next) {
                trie->fails[*next] = trie->next[fail][byte];
                queue[tail++] = *next;
            } else {
                *next = trie->next[fail][byte];
            }
        }
    }
    free(queue);
}

struct state {
    uint16_t node;
    uint8_t character; // enum string_state: BODY, or within a UTF-8 sequence
    uint8_t is;        // what has been read
};

enum { IS_START, IS_INSIDE, IS_OVER };

// As a string of JSON has its characters, but all of ASCII is text.
static enum string_state step_character(enum string_state state, uint8_t byte)
{
    return state == STRING_BODY && byte && byte < 0x80 ? STRING_BODY : string_step(state, byte);
}

static bool accepts(const void *context, const void *state)
{
    const struct trie *trie = context;
    const struct state *at = state;
    return trie->wanted ? at->is == IS_OVER : at->character == STRING_BODY;
}

static bool step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct trie *trie = context;
    const struct state *at = state;
    enum string_state character = step_character(at->character, byte);
    struct state to = { trie->next[at->node][byte], (uint8_t)character, IS_INSIDE };
    if (at->is == IS_OVER || character == STRING_DEAD || character == STRING_CLOSED)
        return false;
    if (trie->hits[to.node] != NO_LITERAL) {
        if (trie->hits[to.node] >= trie->wanted)
            return false;
        to = (struct state){ ROOT, STRING_BODY, IS_OVER };
    }
    memcpy(next, &to, sizeof to);
    return true;
}

bool until_build(const struct bytes *literals, size_t count, size_t wanted, size_t *work, struct dfa *out,
                 struct error *err)
{
    size_t bytes = 0;
    *out = (struct dfa){ 0 };
    for (size_t i = 0; i < count; i++)
        bytes += literals[i].len;
    if (bytes > UNTIL_BYTES_MAX || count > UNTIL_LITERALS_MAX)
        return fail(err, "markers in free text are more than %d, or have more than %d bytes together",
                    UNTIL_LITERALS_MAX, UNTIL_BYTES_MAX);
    struct trie trie = { .next = memory_new(bytes + 1, sizeof *trie.next),
                         .fails = memory_new(bytes + 1, sizeof *trie.fails),
                         .hits = memory_new(bytes + 1, sizeof *trie.hits),
                         .count = 1,
                         .wanted = wanted };
    trie.hits[ROOT] = NO_LITERAL;
    for (size_t i = 0; i < count; i++)
        add_literal(&trie, literals[i], i);
    link_failures(&trie);
    struct dfa_source source = { &trie, sizeof(struct state), accepts, step };
    bool ok = dfa_build(&source, &(struct state){ ROOT, STRING_BODY, IS_START }, work, out)
        || fail(err, "the markers in free text are too intricate together");
    free(trie.next);
    free(trie.fails);
    free(trie.hits);
    return ok;
}
