// SPDX-License-Identifier: Apache-2.0
// Streaming detokenizer: each token is decoded alone; only an incomplete UTF-8 sequence waits for the next token.
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/parts.h"

void decoder_add(struct decoder *decoder, struct decode_step step)
{
    decoder->steps = memory_grow(decoder->steps, decoder->count + 1, sizeof *decoder->steps);
    decoder->steps[decoder->count++] = step;
}

// An added token is written in plain text, not in the byte alphabet, but nothing tells the two apart when all of its
// letters are in the alphabet: if its bytes make no text, it was plain.
static bool decode_byte_level(struct bytes piece, bool added, struct strbuf *out)
{
    return bytemap_decode(piece, out) && (!added || utf8_is_valid(strbuf_bytes(out)));
}

static void decode_strip(const struct decode_step *step, struct bytes text, struct strbuf *out)
{
    struct bytes content = step->content;
    for (size_t i = 0; i < step->start && bytes_start_with(text, content); i++)
        text = bytes_from(text, content.len);
    for (size_t i = 0; i < step->stop && text.len >= content.len; i++) {
        if (memcmp(text.data + text.len - content.len, content.data, content.len) != 0)
            break;
        text.len -= content.len;
    }
    strbuf_add(out, text.data, text.len);
}

// One step. True: it applies, and *out is its result. *final: the result is bytes, and no step follows.
static bool decode_step(const struct decode_step *step, struct bytes piece, bool added, bool first, bool *final,
                        struct strbuf *out)
{
    struct error ignored; // a piece that a regex gives up on is written as it is
    switch (step->kind) {
    case DECODE_BYTE_LEVEL: return *final = decode_byte_level(piece, added, out);
    case DECODE_BYTE_FALLBACK: {
        int byte = bytemap_hex(piece);
        if (byte >= 0)
            strbuf_add_byte(out, (char)byte);
        return *final = byte >= 0;
    }
    case DECODE_REPLACE: {
        struct regex_scan *scan = regex_scan_open(step->regex);
        struct bytes content = first && step->drop_at_start ? bytes_of("") : step->content;
        size_t bytes_max = piece.len * NORMALIZE_GROWTH_MAX + NORMALIZE_GROWTH_FREE_BYTES;
        bool ok = regex_replace(scan, piece, content, bytes_max, out, &ignored);
        regex_scan_close(scan);
        return ok;
    }
    case DECODE_STRIP: decode_strip(step, piece, out); return true;
    }
    return false;
}

static struct bytes spelling(const struct tokenizer *tokenizer, int32_t id)
{
    const struct added *added = &tokenizer->normalized;
    for (size_t i = 0; tokenizer->vocab.flags[id] & VOCAB_RESPELT && i < added->count; i++)
        if (added->tokens[i].id == id)
            return added->tokens[i].content;
    return tokenizer->vocab.pieces[id];
}

static void decode_piece(const struct tokenizer *tokenizer, int32_t id, bool first, struct strbuf *out)
{
    struct bytes piece = spelling(tokenizer, id);
    uint8_t flags = tokenizer->vocab.flags[id];
    int byte = flags & VOCAB_BYTE ? bytemap_hex(piece) : -1;
    if (byte >= 0) {
        strbuf_add_byte(out, (char)byte);
        return;
    }
    strbuf_add(out, piece.data, piece.len);
    if (flags & VOCAB_VERBATIM || !utf8_is_valid(piece)) // a GGUF may hold any bytes
        return;
    struct strbuf next = { 0 };
    bool final = false;
    for (size_t i = 0; i < tokenizer->decoder.count && !final; i++) {
        next.len = 0;
        if (!decode_step(&tokenizer->decoder.steps[i], strbuf_bytes(out), flags & VOCAB_ADDED, first, &final, &next))
            continue;
        struct strbuf spare = *out;
        *out = next;
        next = spare;
    }
    strbuf_free(&next);
}

// Writes whole characters and keeps an incomplete one for the next token.
static void write_certain(struct detokenizer *state, struct bytes text, struct strbuf *out)
{
    struct strbuf all = { 0 };
    strbuf_add(&all, state->pending, state->pending_count);
    strbuf_add(&all, text.data, text.len);
    state->pending_count = 0;
    for (size_t at = 0; at < all.len;) {
        struct bytes rest = bytes_from(strbuf_bytes(&all), at);
        uint32_t codepoint;
        size_t length = utf8_decode(rest, &codepoint);
        if (!length && utf8_is_partial(rest)) {
            memcpy(state->pending, rest.data, rest.len);
            state->pending_count = rest.len;
            break;
        }
        length = length ? length : 1;
        strbuf_add(out, rest.data, length);
        at += length;
    }
    strbuf_free(&all);
}

static bool is_shown(const struct tokens *shown, int32_t id)
{
    size_t i = 0;
    while (shown && i < shown->count && shown->ids[i] != id)
        i++;
    return shown && i < shown->count;
}

void detokenizer_add(struct detokenizer *state, int32_t id, struct strbuf *out)
{
    const struct tokenizer *tokenizer = state->tokenizer;
    if (!tokenizer_piece(tokenizer, id).data
        || (state->skip_special && tokenizer_is_special(tokenizer, id) && !is_shown(state->shown, id)))
        return;
    struct strbuf decoded = { 0 };
    decode_piece(tokenizer, id, !state->started, &decoded);
    struct bytes text = strbuf_bytes(&decoded), strip = tokenizer->decoder.strip;
    if (state->started)
        write_certain(state, tokenizer->decoder.between, out);
    else if (strip.len && bytes_start_with(text, strip))
        text = bytes_from(text, strip.len);
    state->started |= decoded.len || !strip.len;
    write_certain(state, text, out);
    strbuf_free(&decoded);
}

void detokenizer_finish(struct detokenizer *state, struct strbuf *out)
{
    strbuf_add(out, state->pending, state->pending_count);
    state->pending_count = 0;
}
