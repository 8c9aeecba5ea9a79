// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.h"

enum { WORD_BYTES_MAX = 64 };

// Edits (insert, delete, replace) from a to b, row by row.
static size_t distance(struct bytes a, struct bytes b)
{
    size_t row[WORD_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t replace = diagonal + (a.data[i - 1] != b.data[j - 1]);
            size_t insert = row[j - 1] + 1, remove = row[j] + 1;
            diagonal = row[j];
            row[j] = replace < insert ? replace : insert;
            row[j] = remove < row[j] ? remove : row[j];
        }
    }
    return row[b.len];
}

const char *suggest(struct bytes word, const char *const *words, size_t count)
{
    const char *nearest = NULL;
    size_t edits_of_nearest = word.len / 3 + 2; // more edits than that are another word
    if (word.len > WORD_BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        struct bytes candidate = bytes_of(words[i]);
        size_t edits = candidate.len > WORD_BYTES_MAX ? WORD_BYTES_MAX : distance(word, candidate);
        if (edits < edits_of_nearest) {
            edits_of_nearest = edits;
            nearest = words[i];
        }
    }
    return nearest;
}
