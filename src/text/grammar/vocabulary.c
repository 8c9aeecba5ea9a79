// SPDX-License-Identifier: Apache-2.0
// Tries over a vocabulary, and a cut of a text into as few tokens as possible (dynamic programming).
#include "text/grammar/vocabulary.h"

#include <stdlib.h>

#include "base/memory.h"
#include "text/grammar/string.h"
#include "text/tokenizer/parts.h"

struct entry {
    struct bytes text;
    struct trie_token token;
};

struct entries {
    struct entry *items;
    size_t count;
};

void vocabulary_write(const struct tokenizer *tokenizer, int32_t id, bool first, struct strbuf *out)
{
    struct detokenizer state = { .tokenizer = tokenizer, .started = !first };
    detokenizer_add(&state, id, out);
    detokenizer_finish(&state, out);
}

// ---- tries ----

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = bytes_order(x->text, y->text);
    return order ? order : (x->token.id > y->token.id) - (x->token.id < y->token.id);
}

static size_t common_length(struct bytes a, struct bytes b)
{
    size_t len = 0;
    while (len < a.len && len < b.len && a.data[len] == b.data[len])
        len++;
    return len;
}

static void trie_finish(struct trie *trie)
{
    trie->nodes[trie->node_count] = (struct trie_node){ .tokens = trie->token_count, .skip = trie->node_count };
    trie->roots[256] = trie->node_count;
    for (int byte = 0; byte < 256; byte++)
        trie->roots[byte] = trie->node_count;
    for (uint32_t i = 0; i < trie->node_count; i = trie->nodes[i].skip)
        trie->roots[trie->nodes[i].byte] = i;
    for (int byte = 255; byte >= 0; byte--)
        if (trie->roots[byte] == trie->node_count)
            trie->roots[byte] = trie->roots[byte + 1];
}

static void trie_build(struct trie *trie, struct entries *entries)
{
    uint32_t path[VOCABULARY_TOKEN_BYTES_MAX]; // the nodes of the current text
    size_t bytes = 0, depth = 0;
    struct bytes last = { 0 };
    qsort(entries->items, entries->count, sizeof *entries->items, compare_entries);
    for (size_t i = 0; i < entries->count; i++)
        bytes += entries->items[i].text.len;
    trie->nodes = memory_new(bytes + 1, sizeof *trie->nodes);
    trie->tokens = memory_new(entries->count + 1, sizeof *trie->tokens);
    for (size_t i = 0; i < entries->count; i++) {
        struct bytes text = entries->items[i].text;
        size_t common = common_length(last, text);
        while (depth > common)
            trie->nodes[path[--depth]].skip = trie->node_count;
        for (; depth < text.len; depth++) {
            path[depth] = trie->node_count;
            trie->nodes[trie->node_count++] = (struct trie_node){ .tokens = trie->token_count,
                                                                  .byte = (uint8_t)text.data[depth],
                                                                  .depth = (uint8_t)(depth + 1) };
        }
        trie->tokens[trie->token_count++] = entries->items[i].token;
        last = text;
    }
    while (depth > 0)
        trie->nodes[path[--depth]].skip = trie->node_count;
    trie->nodes = memory_grow(trie->nodes, trie->node_count + 1, sizeof *trie->nodes);
    trie_finish(trie);
}

static void trie_free(struct trie *trie)
{
    free(trie->nodes);
    free(trie->tokens);
}

// The sibling of a byte among those from `at` to `end`; `end`: there is none.
static uint32_t trie_find(const struct trie *trie, uint32_t at, uint32_t end, uint8_t byte)
{
    while (at < end && trie->nodes[at].byte != byte)
        at = trie->nodes[at].skip;
    return at;
}

// ---- opening ----

static bool is_usable(const struct tokenizer *tokenizer, int32_t id, size_t len)
{
    return len && len <= VOCABULARY_TOKEN_BYTES_MAX && !tokenizer_is_special(tokenizer, id)
        && !tokenizer_is_end(tokenizer, id);
}

// The bytes of all usable tokens.
static struct entries read_tokens(const struct grammar_vocabulary *vocabulary, struct arena *arena)
{
    struct entries entries = { memory_new((size_t)vocabulary->size + 1, sizeof *entries.items), 0 };
    struct strbuf text = { 0 };
    for (int32_t id = 0; id < vocabulary->size; id++) {
        text.len = 0;
        vocabulary_write(vocabulary->tokenizer, id, false, &text);
        if (!is_usable(vocabulary->tokenizer, id, text.len))
            continue;
        struct bytes kept = { arena_text(arena, text.data, text.len), text.len };
        entries.items[entries.count++] = (struct entry){ kept, { id, 0 } };
    }
    strbuf_free(&text);
    return entries;
}

static bool begins_differently(const struct tokenizer *tokenizer)
{
    const struct decoder *decoder = &tokenizer->decoder;
    bool differently = decoder->between.len || decoder->strip.len;
    for (size_t i = 0; i < decoder->count; i++)
        differently |= decoder->steps[i].drop_at_start;
    return differently;
}

// The tokens at the beginning of a text, where SentencePiece drops a leading space.
static void read_first(struct grammar_vocabulary *vocabulary, const struct entries *inside, struct arena *arena)
{
    struct entries first = { memory_new(inside->count + 1, sizeof *first.items), inside->count };
    struct strbuf text = { 0 };
    for (size_t i = 0; i < inside->count; i++) {
        text.len = 0;
        vocabulary_write(vocabulary->tokenizer, inside->items[i].token.id, true, &text);
        struct bytes kept = { arena_text(arena, text.data, text.len), text.len };
        first.items[i] = (struct entry){ kept, inside->items[i].token };
    }
    trie_build(&vocabulary->first, &first);
    strbuf_free(&text);
    free(first.items);
}

static int by_characters(const void *a, const void *b)
{
    const struct plain_token *x = a, *y = b;
    if (x->characters != y->characters)
        return x->characters > y->characters ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

// Sorts tokens by what they do inside a JSON string: stay inside, end it, or break it.
static void sort_by_string(struct grammar_vocabulary *vocabulary, const struct entries *tokens)
{
    struct entries closers = { memory_new(tokens->count + 1, sizeof *closers.items), 0 };
    vocabulary->plain = memory_new(vocabulary->mask_words, sizeof *vocabulary->plain);
    vocabulary->plains = memory_new(tokens->count + 1, sizeof *vocabulary->plains);
    for (size_t i = 0; i < tokens->count; i++) {
        struct entry entry = tokens->items[i];
        enum string_state state = STRING_BODY;
        size_t at = 0;
        uint32_t characters = 0;
        for (; at < entry.text.len && state != STRING_DEAD && state != STRING_CLOSED; at++) {
            enum string_state next = string_step(state, (uint8_t)entry.text.data[at]);
            characters += string_begins_character(state, next);
            state = next;
        }
        if (state == STRING_CLOSED) {
            struct bytes behind = bytes_from(entry.text, at);
            closers.items[closers.count++] = (struct entry){ behind, { entry.token.id, characters } };
        } else if (state != STRING_DEAD) {
            mask_set(vocabulary->plain, entry.token.id);
            vocabulary->plains[vocabulary->plain_count++] = (struct plain_token){ entry.token.id, characters };
        }
    }
    qsort(vocabulary->plains, vocabulary->plain_count, sizeof *vocabulary->plains, by_characters);
    trie_build(&vocabulary->closers, &closers);
    free(closers.items);
}

static void find_ends(struct grammar_vocabulary *vocabulary)
{
    vocabulary->end = -1;
    vocabulary->ends = memory_new(vocabulary->mask_words, sizeof *vocabulary->ends);
    for (int32_t id = 0; id < vocabulary->size; id++) {
        if (!tokenizer_is_end(vocabulary->tokenizer, id))
            continue;
        mask_set(vocabulary->ends, id);
        vocabulary->end = vocabulary->end < 0 ? id : vocabulary->end;
    }
    int32_t eos = tokenizer_eos(vocabulary->tokenizer);
    if (eos >= 0 && tokenizer_is_end(vocabulary->tokenizer, eos))
        vocabulary->end = eos;
}

static void find_bytes(struct grammar_vocabulary *vocabulary)
{
    const struct trie *trie = &vocabulary->tokens;
    for (uint32_t i = 0; i < trie->node_count; i = trie->nodes[i].skip)
        if (trie->nodes[i].tokens < trie->nodes[i + 1].tokens)
            byte_set_add(&vocabulary->bytes, trie->nodes[i].byte);
}

bool vocabulary_suffices(const struct grammar_vocabulary *vocabulary, const struct grammar *grammar)
{
    bool suffices = vocabulary->end >= 0;
    for (size_t i = 0; i < 8; i++)
        suffices &= !(grammar->needs.bits[i] & ~vocabulary->bytes.bits[i]);
    return suffices;
}

struct grammar_vocabulary *grammar_vocabulary_open(const struct tokenizer *tokenizer)
{
    struct grammar_vocabulary *vocabulary = memory_new(1, sizeof *vocabulary);
    struct arena arena = { 0 };
    vocabulary->tokenizer = tokenizer;
    vocabulary->size = tokenizer_size(tokenizer);
    vocabulary->mask_words = ((size_t)vocabulary->size + 31) / 32;
    struct entries inside = read_tokens(vocabulary, &arena);
    if (begins_differently(tokenizer))
        read_first(vocabulary, &inside, &arena);
    sort_by_string(vocabulary, &inside);
    trie_build(&vocabulary->tokens, &inside);
    find_ends(vocabulary);
    find_bytes(vocabulary);
    for (size_t i = 0; i < inside.count; i++)
        vocabulary->longest = inside.items[i].text.len > vocabulary->longest ? inside.items[i].text.len
                                                                             : vocabulary->longest;
    free(inside.items);
    arena_free(&arena);
    return vocabulary;
}

void grammar_vocabulary_close(struct grammar_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    trie_free(&vocabulary->tokens);
    trie_free(&vocabulary->first);
    trie_free(&vocabulary->closers);
    free(vocabulary->plain);
    free(vocabulary->plains);
    free(vocabulary->ends);
    free(vocabulary);
}

// ---- texts into tokens ----

struct cut {
    uint32_t tokens; // from here to the end; UINT32_MAX: there is no way
    int32_t id;      // the first of them
    uint32_t len;    // and its bytes
};

static void cut_at(const struct trie *trie, struct bytes text, size_t at, struct cut *cuts)
{
    uint32_t node = trie->roots[(uint8_t)text.data[at]], end = trie->roots[(uint8_t)text.data[at] + 1];
    cuts[at].tokens = UINT32_MAX;
    for (size_t i = at; i < text.len; i++) {
        node = trie_find(trie, node, end, (uint8_t)text.data[i]);
        if (node == end)
            return;
        uint32_t rest = cuts[i + 1].tokens;
        // A later, longer token wins a tie.
        if (trie->nodes[node].tokens < trie->nodes[node + 1].tokens && rest < cuts[at].tokens)
            cuts[at] = (struct cut){ rest + 1, trie->tokens[trie->nodes[node].tokens].id, (uint32_t)(i + 1 - at) };
        end = trie->nodes[node++].skip;
    }
}

bool vocabulary_cut(const struct grammar_vocabulary *vocabulary, struct bytes text, bool first, struct tokens *out)
{
    struct cut *cuts = memory_new(text.len + 1, sizeof *cuts);
    for (size_t at = text.len; at-- > 0;)
        cut_at(vocabulary_trie(vocabulary, first && !at), text, at, cuts);
    bool ok = cuts[0].tokens != UINT32_MAX;
    for (size_t at = 0; ok && at < text.len; at += cuts[at].len)
        tokens_add(out, cuts[at].id);
    free(cuts);
    return ok;
}
