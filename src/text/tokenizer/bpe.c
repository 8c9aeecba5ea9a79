// SPDX-License-Identifier: Apache-2.0
// BPE with a heap of candidate merges over a linked list of symbols: O(n log n) for n characters. Stale candidates are
// dropped when they are popped.
#include "text/tokenizer/bpe.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/utf8.h"

struct bpe_merge {
    int32_t left, right; // ids; left is -1 in an empty slot
    int32_t id;          // what they make
    float rank;
};

struct bpe_symbol {
    int32_t id;         // -1: a character without a token
    uint32_t begin;     // in the piece
    uint32_t bytes;     // 0: merged into the one before
    int32_t prev, next; // -1: none
};

struct bpe_candidate {
    float cost;
    int32_t left, right; // symbols
    int32_t id;          // what they make
    uint32_t bytes;      // of both when this was found: anything else now means that one of them has changed
};

static const char separator[] = "\xE2\x96\x81"; // U+2581, SentencePiece's space
enum { SEPARATOR_BYTES = sizeof separator - 1 };

void bpe_open(struct bpe *bpe, const struct vocab *vocab)
{
    *bpe = (struct bpe){ .vocab = vocab, .unknown = -1 };
    for (int i = 0; i < 256; i++)
        bpe->bytes[i] = -1;
}

void bpe_close(struct bpe *bpe)
{
    free(bpe->merges);
    *bpe = (struct bpe){ 0 };
}

// ---- the list of merges ----

static struct bpe_merge *slot_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = key * 0x9E3779B97F4A7C15u >> 32;; i++) {
        struct bpe_merge *slot = &bpe->merges[i & (bpe->merge_capacity - 1)];
        if (slot->left < 0 || (slot->left == left && slot->right == right))
            return slot;
    }
}

void bpe_reserve(struct bpe *bpe, size_t merges)
{
    assert(!bpe->merges && merges <= BPE_MERGES_MAX);
    for (bpe->merge_capacity = 16; bpe->merge_capacity < merges * 2;)
        bpe->merge_capacity *= 2;
    bpe->merges = memory_new(bpe->merge_capacity, sizeof *bpe->merges);
    for (size_t i = 0; i < bpe->merge_capacity; i++)
        bpe->merges[i].left = -1;
}

bool bpe_add_merge(struct bpe *bpe, struct bytes left, struct bytes right, struct error *err)
{
    enum { JOINED_BYTES_MAX = 4096 };
    char joined[JOINED_BYTES_MAX];
    if (left.len + right.len > sizeof joined)
        return fail(err, "merge %zu makes a token of %zu bytes; %d is the limit", bpe->merge_count,
                    left.len + right.len, JOINED_BYTES_MAX);
    memcpy(joined, left.data, left.len);
    memcpy(joined + left.len, right.data, right.len);
    struct bytes pieces[] = { left, right, { joined, left.len + right.len } };
    int32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = vocab_find_inside(bpe->vocab, pieces[i]);
        if (ids[i] < 0)
            return fail(err, "merge %zu names \"%.*s\", which is not in the vocabulary", bpe->merge_count,
                        pieces[i].len < 64 ? (int)pieces[i].len : 64, pieces[i].data);
    }
    assert(bpe->merge_count * 2 < bpe->merge_capacity);
    struct bpe_merge *slot = slot_of(bpe, ids[0], ids[1]);
    if (slot->left < 0)
        *slot = (struct bpe_merge){ ids[0], ids[1], ids[2], (float)bpe->merge_count };
    bpe->merge_count++;
    return true;
}

// ---- words ----
// SentencePiece vocabularies have no pre-tokenizer, so a whole text comes as one piece. Hardly any token has a
// separator behind another character. Where no token has it behind this character, no merge reaches across, so the
// piece is split into words there, with the same result in far less time.

static bool is_separator(struct bytes text, size_t at)
{
    return text.len - at >= SEPARATOR_BYTES && memcmp(text.data + at, separator, SEPARATOR_BYTES) == 0;
}

static void note_glued(struct bpe *bpe, struct bytes piece)
{
    bool behind = false; // behind something that is no separator
    for (size_t at = 0; at < piece.len;) {
        bool here = is_separator(piece, at);
        if (here && behind)
            bpe->glued[(unsigned char)piece.data[at - 1]] = true;
        behind = !here;
        at += here ? SEPARATOR_BYTES : 1;
    }
}

// True when characters may be dropped or fused as unknown tokens, so that merges may reach across a separator anyway.
static bool loses_characters(const struct bpe *bpe)
{
    bool all_bytes = true, any_glued = false;
    for (int i = 0; i < 256; i++) {
        all_bytes &= bpe->bytes[i] >= 0;
        any_glued |= bpe->glued[i];
    }
    bool leaves_out = !bpe->scores && bpe->unknown < 0 && !all_bytes;
    return (leaves_out && any_glued) || vocab_find_inside(bpe->vocab, (struct bytes){ separator, SEPARATOR_BYTES }) < 0;
}

void bpe_finish(struct bpe *bpe)
{
    for (size_t id = 0; bpe->scores && id < bpe->vocab->count; id++)
        note_glued(bpe, bpe->vocab->pieces[id]);
    for (size_t i = 0; i < bpe->merge_capacity; i++)
        if (bpe->merges[i].left >= 0)
            note_glued(bpe, bpe->vocab->pieces[bpe->merges[i].id]);
    if (loses_characters(bpe))
        memset(bpe->glued, true, sizeof bpe->glued);
}

static size_t word_end(const struct bpe *bpe, struct bytes text, size_t at)
{
    bool behind = false;
    while (at < text.len) {
        bool here = is_separator(text, at);
        if (here && behind && !bpe->glued[(unsigned char)text.data[at - 1]])
            return at;
        behind = !here;
        at += here ? SEPARATOR_BYTES : 1;
    }
    return at;
}

// ---- the heap ----

static bool is_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->left < b->left);
}

static void push(struct bpe_work *work, struct bpe_candidate candidate)
{
    MEMORY_RESERVE(work->queue, work->queue_count, work->queue_capacity);
    size_t at = work->queue_count++;
    for (size_t parent; at > 0 && is_before(&candidate, &work->queue[parent = (at - 1) / 2]); at = parent)
        work->queue[at] = work->queue[parent];
    work->queue[at] = candidate;
}

static struct bpe_candidate pop(struct bpe_work *work)
{
    struct bpe_candidate *queue = work->queue, first = queue[0], last = queue[--work->queue_count];
    size_t at = 0, child;
    while ((child = at * 2 + 1) < work->queue_count) {
        child += child + 1 < work->queue_count && is_before(&queue[child + 1], &queue[child]);
        if (!is_before(&queue[child], &last))
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = last;
    return first;
}

void bpe_work_free(struct bpe_work *work)
{
    free(work->symbols);
    free(work->queue);
    *work = (struct bpe_work){ 0 };
}

bool bpe_is_cancelled(const struct bpe_work *work)
{
    return work->cancelled && atomic_load_explicit(work->cancelled, memory_order_relaxed);
}

// ---- merging ----

static void consider(const struct bpe *bpe, struct bytes text, struct bpe_work *work, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct bpe_symbol *a = &work->symbols[left], *b = &work->symbols[right];
    struct bpe_candidate candidate = { .left = left, .right = right, .bytes = a->bytes + b->bytes };
    if (bpe->scores) {
        candidate.id = vocab_find_inside(bpe->vocab, (struct bytes){ text.data + a->begin, candidate.bytes });
        if (candidate.id < 0)
            return;
        candidate.cost = -bpe->scores[candidate.id];
    } else {
        if (!bpe->merge_count || a->id < 0 || b->id < 0)
            return;
        const struct bpe_merge *merge = slot_of(bpe, a->id, b->id);
        if (merge->left < 0)
            return;
        candidate.id = merge->id;
        candidate.cost = merge->rank;
    }
    push(work, candidate);
}

static void merge_all(const struct bpe *bpe, struct bytes text, struct bpe_work *work, int32_t count)
{
    enum { MERGES_PER_LOOK = 4096 };
    work->queue_count = 0;
    for (int32_t i = 1; i < count; i++)
        consider(bpe, text, work, i - 1, i);
    for (unsigned turn = 1; work->queue_count; turn++) {
        if (turn % MERGES_PER_LOOK == 0 && bpe_is_cancelled(work))
            return;
        struct bpe_candidate best = pop(work);
        struct bpe_symbol *left = &work->symbols[best.left], *right = &work->symbols[best.right];
        if (!left->bytes || !right->bytes || left->bytes + right->bytes != best.bytes)
            continue;
        left->id = best.id;
        left->bytes = best.bytes;
        left->next = right->next;
        right->bytes = 0;
        if (left->next >= 0)
            work->symbols[left->next].prev = best.left;
        consider(bpe, text, work, left->prev, best.left);
        consider(bpe, text, work, best.left, left->next);
    }
}

// ---- characters ----

static int32_t add_symbol(struct bpe_work *work, int32_t count, int32_t id, size_t begin, size_t bytes)
{
    MEMORY_RESERVE(work->symbols, (size_t)count, work->symbol_capacity);
    work->symbols[count] = (struct bpe_symbol){ id, (uint32_t)begin, (uint32_t)bytes, count - 1, count + 1 };
    return count + 1;
}

// A character that is no token, when ranks decide: its bytes if all of them are tokens, else the unknown token.
static int32_t add_foreign(const struct bpe *bpe, struct bytes text, size_t at, size_t length, struct bpe_work *work,
                           int32_t count)
{
    bool all = true;
    for (size_t i = 0; i < length; i++)
        all &= bpe->bytes[(unsigned char)text.data[at + i]] >= 0;
    if (all) {
        for (size_t i = 0; i < length; i++)
            count = add_symbol(work, count, bpe->bytes[(unsigned char)text.data[at + i]], at + i, 1);
        return count;
    }
    if (bpe->unknown < 0)
        return count;
    struct bpe_symbol *last = count ? &work->symbols[count - 1] : NULL;
    if (bpe->fuse_unknown && last && last->id == bpe->unknown && last->begin + last->bytes == at) {
        last->bytes += (uint32_t)length;
        return count;
    }
    return add_symbol(work, count, bpe->unknown, at, length);
}

static int32_t take_characters(const struct bpe *bpe, struct bytes text, struct bpe_work *work)
{
    int32_t count = 0;
    uint32_t codepoint;
    size_t length;
    for (size_t at = 0; at < text.len; at += length) {
        length = utf8_decode(bytes_from(text, at), &codepoint);
        assert(length);
        int32_t id = vocab_find_inside(bpe->vocab, (struct bytes){ text.data + at, length });
        if (id >= 0 || bpe->scores)
            count = add_symbol(work, count, id, at, length);
        else
            count = add_foreign(bpe, text, at, length, work, count);
    }
    if (count)
        work->symbols[count - 1].next = -1;
    return count;
}

static void emit(const struct bpe *bpe, struct bytes text, const struct bpe_symbol *symbol, struct tokens *out)
{
    if (symbol->id >= 0) {
        tokens_add(out, symbol->id);
        return;
    }
    for (size_t i = 0; i < symbol->bytes; i++) {
        int32_t byte = bpe->bytes[(unsigned char)text.data[symbol->begin + i]];
        int32_t id = byte >= 0 ? byte : bpe->unknown;
        if (id >= 0)
            tokens_add(out, id);
    }
}

static void encode_word(const struct bpe *bpe, struct bytes word, struct bpe_work *work, struct tokens *out)
{
    int32_t count = take_characters(bpe, word, work);
    merge_all(bpe, word, work, count);
    for (int32_t i = count ? 0 : -1; i >= 0; i = work->symbols[i].next)
        emit(bpe, word, &work->symbols[i], out);
}

// ---- pieces ----

static bool is_newlines(struct bytes piece)
{
    for (size_t i = 0; i < piece.len; i++)
        if (piece.data[i] != '\n')
            return false;
    return true;
}

void bpe_encode(const struct bpe *bpe, struct bytes piece, struct bpe_work *work, struct tokens *out)
{
    if (bpe->whole_first || (bpe->whole_newlines && is_newlines(piece))) {
        int32_t id = vocab_find_inside(bpe->vocab, piece);
        if (id >= 0) {
            tokens_add(out, id);
            return;
        }
    }
    for (size_t at = 0; at < piece.len;) {
        size_t end = word_end(bpe, piece, at);
        encode_word(bpe, (struct bytes){ piece.data + at, end - at }, work, out);
        at = end;
    }
}
