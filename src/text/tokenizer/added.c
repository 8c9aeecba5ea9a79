// SPDX-License-Identifier: Apache-2.0
// Search for added tokens in a text, by length and first byte.
#include "text/tokenizer/added.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "text/tokenizer/normalize.h"

struct added_length {
    size_t bytes;
    bool starts[256]; // bytes that tokens of this length start with
};

void added_add(struct added *added, struct added_token token)
{
    int64_t taken;
    if (!token.content.len || map_get(&added->index, token.content, &taken))
        return;
    if ((added->count & (added->count - 1)) == 0)
        added->tokens = memory_grow(added->tokens, added->count ? added->count * 2 : 1, sizeof *added->tokens);
    map_put(&added->index, token.content, (int64_t)added->count);
    added->tokens[added->count++] = token;
}

static int by_length_downwards(const void *left, const void *right)
{
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return (a < b) - (a > b);
}

bool added_finish(struct added *added, struct error *err)
{
    size_t *lengths = memory_new(added->count, sizeof *lengths), distinct = 0;
    for (size_t i = 0; i < added->count; i++)
        lengths[i] = added->tokens[i].content.len;
    qsort(lengths, added->count, sizeof *lengths, by_length_downwards);
    for (size_t i = 0; i < added->count; i++)
        if (i == 0 || lengths[i] != lengths[i - 1])
            lengths[distinct++] = lengths[i];
    if (distinct > ADDED_LENGTHS_MAX || (distinct && lengths[0] > ADDED_BYTES_MAX)) {
        size_t longest = lengths[0];
        free(lengths);
        return fail(err, "the added tokens have %zu different lengths and up to %zu bytes; %d and %d are the limits",
                    distinct, longest, ADDED_LENGTHS_MAX, ADDED_BYTES_MAX);
    }
    added->lengths = memory_new(distinct, sizeof *added->lengths);
    added->length_count = distinct;
    for (size_t i = 0; i < distinct; i++)
        added->lengths[i].bytes = lengths[i];
    for (size_t i = 0; i < added->count; i++) {
        struct bytes content = added->tokens[i].content;
        const size_t *at = bsearch(&content.len, lengths, distinct, sizeof *lengths, by_length_downwards);
        added->lengths[at - lengths].starts[(unsigned char)content.data[0]] = true;
        added->starts[(unsigned char)content.data[0]] = true;
    }
    free(lengths);
    return true;
}

void added_free(struct added *added)
{
    free(added->tokens);
    free(added->lengths);
    map_free(&added->index);
    *added = (struct added){ 0 };
}

void added_matches_free(struct added_matches *matches)
{
    free(matches->items);
    *matches = (struct added_matches){ 0 };
}

static void add_match(struct added_matches *matches, struct added_match match)
{
    MEMORY_RESERVE(matches->items, matches->count, matches->capacity);
    matches->items[matches->count++] = match;
}

// The token of this length at this place, NULL when there is none.
static const struct added_token *token_at(const struct added *added, const struct added_length *length,
                                          struct bytes text, size_t at)
{
    int64_t index;
    if (length->bytes > text.len - at || !length->starts[(unsigned char)text.data[at]]
        || !map_get(&added->index, (struct bytes){ text.data + at, length->bytes }, &index))
        return NULL;
    return &added->tokens[index];
}

// ---- what stands around a match ----

static uint32_t character_before(struct bytes text, size_t at, size_t *begin)
{
    uint32_t codepoint;
    for (size_t back = 1; back <= UTF8_BYTES_MAX && back <= at; back++)
        if (utf8_decode((struct bytes){ text.data + at - back, back }, &codepoint) == back)
            return *begin = at - back, codepoint;
    return *begin = at, UTF8_REPLACEMENT;
}

static uint32_t character_behind(struct bytes text, size_t at, size_t *end)
{
    uint32_t codepoint;
    size_t length = utf8_decode(bytes_from(text, at), &codepoint);
    *end = at + length;
    return length ? codepoint : UTF8_REPLACEMENT;
}

static bool is_word_of_its_own(struct bytes text, size_t begin, size_t end)
{
    size_t edge;
    return (begin == 0 || !normalize_is_word(character_before(text, begin, &edge)))
        && (end == text.len || !normalize_is_word(character_behind(text, end, &edge)));
}

// The match with the white space that lstrip and rstrip add, but not before `taken`. A token that is white space itself
// may become empty.
static struct added_match widen(const struct added_token *token, struct bytes text, size_t at, size_t taken)
{
    struct added_match match = { at, at + token->content.len, token->id };
    size_t edge;
    while (token->lstrip && match.begin > taken && normalize_is_space(character_before(text, match.begin, &edge)))
        match.begin = edge;
    if (token->lstrip && match.begin < taken)
        match.begin = taken;
    while (token->rstrip && match.end < text.len && normalize_is_space(character_behind(text, match.end, &edge)))
        match.end = edge;
    return match;
}

// ---- the two orders ----

static void find_leftmost_first(const struct added *added, const struct vocab *vocab, struct bytes text, bool special,
                                struct added_matches *out)
{
    size_t done = 0;
    for (size_t at = 0; at < text.len;) {
        const struct added_token *token = NULL;
        if (added->starts[(unsigned char)text.data[at]])
            for (size_t i = 0; i < added->length_count && !token; i++)
                token = token_at(added, &added->lengths[i], text, at);
        if (!token) {
            at++;
            continue;
        }
        size_t end = at + token->content.len;
        bool wanted = (special || !(vocab->flags[token->id] & VOCAB_SPECIAL))
            && (!token->single_word || is_word_of_its_own(text, at, end));
        if (wanted) {
            struct added_match match = widen(token, text, at, done);
            if (match.begin < match.end)
                add_match(out, match);
            done = match.end;
        }
        at = end;
    }
}

static int by_begin(const void *left, const void *right)
{
    const struct added_match *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

// Lengths are tried from the longest down, so a match that overlaps an earlier one has an end inside of it.
static void find_longest_first(const struct added *added, const struct vocab *vocab, struct bytes text, bool special,
                               struct added_matches *out)
{
    size_t *places = memory_new(text.len, sizeof *places), place_count = 0;
    bool *covered = memory_new(text.len, sizeof *covered);
    for (size_t at = 0; at < text.len; at++)
        if (added->starts[(unsigned char)text.data[at]])
            places[place_count++] = at;
    for (size_t i = 0; i < added->length_count; i++) {
        for (size_t j = 0; j < place_count; j++) {
            size_t at = places[j];
            const struct added_token *token = covered[at] ? NULL : token_at(added, &added->lengths[i], text, at);
            if (!token || covered[at + token->content.len - 1] || (!special && vocab->flags[token->id] & VOCAB_SPECIAL))
                continue;
            struct added_match match = widen(token, text, at, 0);
            memset(covered + match.begin, true, match.end - match.begin);
            add_match(out, match);
        }
    }
    free(places);
    free(covered);
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_begin);
}

void added_find(const struct added *added, const struct vocab *vocab, struct bytes text, bool special,
                struct added_matches *out)
{
    out->count = 0;
    if (!added->count || !text.len)
        return;
    if (added->order == ADDED_LONGEST_FIRST)
        find_longest_first(added, vocab, text, special, out);
    else
        find_leftmost_first(added, vocab, text, special, out);
}
