// SPDX-License-Identifier: Apache-2.0
// A vocabulary: pieces by id, and ids by piece.
#include "text/tokenizer/vocab.h"

#include <assert.h>

void vocab_open(struct vocab *vocab, size_t count)
{
    assert(count <= VOCAB_COUNT_MAX);
    *vocab = (struct vocab){ .count = count };
    vocab->pieces = ARENA_NEW(&vocab->arena, struct bytes, count);
    vocab->flags = ARENA_NEW(&vocab->arena, uint8_t, count);
}

void vocab_close(struct vocab *vocab)
{
    map_free(&vocab->ids);
    arena_free(&vocab->arena);
    *vocab = (struct vocab){ 0 };
}

bool vocab_set(struct vocab *vocab, int32_t id, struct bytes piece, struct error *err)
{
    assert(id >= 0 && (size_t)id < vocab->count);
    int shown = piece.len < 64 ? (int)piece.len : 64;
    if (vocab->pieces[id].data)
        return fail(err, "two tokens have the id %d; the second is \"%.*s\"", id, shown, piece.data);
    int32_t other = vocab_find(vocab, piece);
    if (other >= 0)
        return fail(err, "the token \"%.*s\" has two ids, %d and %d", shown, piece.data, other, id);
    vocab->pieces[id] = (struct bytes){ arena_text(&vocab->arena, piece.data, piece.len), piece.len };
    map_put(&vocab->ids, vocab->pieces[id], id);
    return true;
}

int32_t vocab_find(const struct vocab *vocab, struct bytes piece)
{
    int64_t id = -1;
    map_get(&vocab->ids, piece, &id);
    return (int32_t)id;
}

int32_t vocab_find_inside(const struct vocab *vocab, struct bytes piece)
{
    int32_t id = vocab_find(vocab, piece);
    return id >= 0 && vocab->flags[id] & VOCAB_OUTSIDE ? -1 : id;
}
