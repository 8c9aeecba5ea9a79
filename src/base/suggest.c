// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.h"

enum { WORD_BYTES_MAX = 64, PREFIX_BYTES_MIN = 3 };

static char fold(char c) { return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

// Strips leading dashes and folds case and `_`, for comparison. False if the word is too long.
static bool normalise(struct bytes word, char folded[WORD_BYTES_MAX], struct bytes *out)
{
    while (word.len && *word.data == '-')
        word.data++, word.len--;
    if (word.len > WORD_BYTES_MAX)
        return false;
    for (size_t i = 0; i < word.len; i++)
        folded[i] = fold(word.data[i]);
    *out = (struct bytes){ folded, word.len };
    return true;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Edits from a to b: insertions, deletions, replacements, and transpositions of neighbours (optimal string alignment).
// Typos seldom hit the first letter, and short words that differ in it are different words (cpu, gpu), so an edit there
// costs 2.
static size_t distance(struct bytes a, struct bytes b)
{
    size_t cost[WORD_BYTES_MAX + 1][WORD_BYTES_MAX + 1];
    for (size_t i = 0; i <= a.len; i++)
        cost[i][0] = i ? i + 1 : 0;
    for (size_t j = 0; j <= b.len; j++)
        cost[0][j] = j ? j + 1 : 0;
    for (size_t i = 1; i <= a.len; i++)
        for (size_t j = 1; j <= b.len; j++) {
            size_t first = i == 1 && j == 1;
            size_t replaced = cost[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1] ? 1 + first : 0);
            cost[i][j] = least(replaced, least(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    return cost[a.len][b.len];
}

// True if the shorter word is a prefix or suffix of the longer one that ends at a dash.
static bool is_part(struct bytes a, struct bytes b)
{
    struct bytes part = a.len < b.len ? a : b, whole = a.len < b.len ? b : a;
    size_t rest = whole.len - part.len;
    if (part.len < PREFIX_BYTES_MIN || !rest)
        return false;
    return (whole.data[part.len] == '-' && bytes_start_with(whole, part))
        || (whole.data[rest - 1] == '-' && !memcmp(whole.data + rest, part.data, part.len));
}

// The candidate's rank, lower is nearer, SIZE_MAX for no match. The three rules of suggest.h have disjoint ranges.
static size_t rank(struct bytes word, struct bytes candidate)
{
    size_t edits = distance(word, candidate), edits_max = word.len < 4 ? word.len > 1 : word.len / 4;
    if (edits <= edits_max)
        return edits;
    if (word.len >= PREFIX_BYTES_MIN && bytes_start_with(candidate, word))
        return WORD_BYTES_MAX + candidate.len;
    return is_part(word, candidate) ? 3 * WORD_BYTES_MAX + edits : SIZE_MAX;
}

const char *suggest(struct bytes word, const char *const *words, size_t count)
{
    char typed_folded[WORD_BYTES_MAX], folded[WORD_BYTES_MAX];
    struct bytes typed, candidate;
    const char *nearest = NULL;
    size_t rank_of_nearest = SIZE_MAX;
    if (!normalise(word, typed_folded, &typed))
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t found = normalise(bytes_of(words[i]), folded, &candidate) ? rank(typed, candidate) : SIZE_MAX;
        if (found < rank_of_nearest) {
            rank_of_nearest = found;
            nearest = words[i];
        }
    }
    return nearest;
}
