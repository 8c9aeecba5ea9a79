// SPDX-License-Identifier: Apache-2.0
// Encoding: added tokens, normalizer, pre-tokenizer, BPE, and invalid bytes as byte tokens.
#include "text/tokenizer.h"

#include <assert.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/parts.h"

void tokens_add(struct tokens *tokens, int32_t id)
{
    MEMORY_RESERVE(tokens->ids, tokens->count, tokens->capacity);
    tokens->ids[tokens->count++] = id;
}

void tokens_free(struct tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct tokens){ 0 };
}

// clang-format off
const char tokenizer_end_names[] =
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> [e~[ <eos> <end_of_utterance> <turn|> <|tool_response> "
    TOKENIZER_DEEPSEEK("end" TOKENIZER_SIGN "of" TOKENIZER_SIGN "sentence");
// clang-format on

// ---- open and close ----

static void find_bytes(struct tokenizer *tokenizer)
{
    bool byte_level = false;
    for (size_t i = 0; i < tokenizer->pretokenizer.count; i++)
        byte_level |= tokenizer->pretokenizer.steps[i].kind == PRETOKENIZE_BYTES;
    for (int byte = 0; byte < 256; byte++) {
        int32_t id = tokenizer->bpe.bytes[byte];
        char letter[UTF8_BYTES_MAX];
        if (id < 0 && byte_level)
            id = vocab_find(&tokenizer->vocab,
                            (struct bytes){ letter, utf8_encode(bytemap_letter((unsigned char)byte), letter) });
        tokenizer->bytes[byte] = id >= 0 ? id : tokenizer->bpe.unknown;
    }
}

struct tokenizer *tokenizer_open(const struct checkpoint *checkpoint, struct error *err)
{
    struct tokenizer *tokenizer = memory_new(1, sizeof *tokenizer);
    tokenizer->bos = tokenizer->eos = -1;
    bool ok = checkpoint->gguf ? tokenizer_read_gguf(tokenizer, checkpoint->gguf, err)
                               : tokenizer_read_json(tokenizer, checkpoint, err);
    if (!ok || !added_finish(&tokenizer->raw, err) || !added_finish(&tokenizer->normalized, err)) {
        tokenizer_close(tokenizer);
        return NULL;
    }
    bpe_finish(&tokenizer->bpe);
    find_bytes(tokenizer);
    return tokenizer;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (size_t i = 0; i < tokenizer->decoder.count; i++)
        regex_free(tokenizer->decoder.steps[i].regex);
    free(tokenizer->decoder.steps);
    bpe_close(&tokenizer->bpe);
    pretokenizer_free(&tokenizer->pretokenizer);
    normalizer_free(&tokenizer->normalizer);
    added_free(&tokenizer->raw);
    added_free(&tokenizer->normalized);
    vocab_close(&tokenizer->vocab);
    tokens_free(&tokenizer->prefix);
    tokens_free(&tokenizer->suffix);
    arena_free(&tokenizer->arena);
    free(tokenizer);
}

// ---- encoding ----

struct encoding {
    const struct tokenizer *tokenizer;
    bool special; // recognise special tokens
    struct tokens *out;
    struct error *err;
    // buffers reused from one part of the text to the next
    struct strbuf normalized;
    struct added_matches in_raw, in_normalized;
    struct pieces pieces;
    struct bpe_work work;
};

// Normalised text without added tokens.
static bool encode_plain(struct encoding *encoding, struct bytes text, int where)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct pieces *pieces = &encoding->pieces;
    if (!text.len)
        return true;
    if (!pretokenizer_apply(&tokenizer->pretokenizer, text, where, pieces, encoding->err))
        return false;
    if (pieces->text.len > INT32_MAX)
        return fail(encoding->err, "the text is %zu bytes long once it is normalised; cut it into parts",
                    pieces->text.len);
    for (size_t i = 0; i < pieces->count; i++) {
        struct piece piece = pieces->items[i];
        bpe_encode(&tokenizer->bpe, (struct bytes){ pieces->text.data + piece.begin, piece.end - piece.begin },
                   &encoding->work, encoding->out);
        if (bpe_is_cancelled(&encoding->work))
            return fail(encoding->err, "nobody waits for these tokens any more");
    }
    return true;
}

// Valid UTF-8 without the added tokens that are looked for in raw text.
static bool encode_valid(struct encoding *encoding, struct bytes text, int where)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    encoding->normalized.len = 0;
    if (!normalizer_apply(&tokenizer->normalizer, text, where & PRETOKENIZE_CONTINUES, &encoding->normalized,
                          encoding->err))
        return false;
    struct bytes normalized = strbuf_bytes(&encoding->normalized);
    added_find(&tokenizer->normalized, &tokenizer->vocab, normalized, encoding->special, &encoding->in_normalized);
    size_t done = 0;
    for (size_t i = 0; i < encoding->in_normalized.count; i++) {
        struct added_match match = encoding->in_normalized.items[i];
        if (match.begin > done
            && !encode_plain(encoding, (struct bytes){ normalized.data + done, match.begin - done }, done ? 0 : where))
            return false;
        tokens_add(encoding->out, match.id);
        done = match.end;
    }
    return encode_plain(encoding, bytes_from(normalized, done), done ? 0 : where);
}

static size_t valid_length(struct bytes text)
{
    size_t at = 0, length;
    uint32_t codepoint;
    while ((length = utf8_decode(bytes_from(text, at), &codepoint)))
        at += length;
    return at;
}

// Text between added tokens. Bytes that are not UTF-8 become byte tokens directly.
static bool encode_between(struct encoding *encoding, struct bytes text, int where)
{
    for (size_t at = 0; at < text.len; where = PRETOKENIZE_CONTINUES) {
        size_t length = valid_length(bytes_from(text, at));
        if (length && !encode_valid(encoding, (struct bytes){ text.data + at, length }, where))
            return false;
        at += length;
        for (; at < text.len && !valid_length(bytes_from(text, at)); at++) {
            int32_t id = encoding->tokenizer->bytes[(unsigned char)text.data[at]];
            if (id >= 0)
                tokens_add(encoding->out, id);
        }
    }
    return true;
}

static bool encode_text(struct encoding *encoding, struct bytes text)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    added_find(&tokenizer->raw, &tokenizer->vocab, text, encoding->special, &encoding->in_raw);
    size_t done = 0;
    for (size_t i = 0; i < encoding->in_raw.count; i++) {
        struct added_match match = encoding->in_raw.items[i];
        if (match.begin > done
            && !encode_between(encoding, (struct bytes){ text.data + done, match.begin - done },
                               done ? 0 : PRETOKENIZE_AT_START))
            return false;
        tokens_add(encoding->out, match.id);
        done = match.end;
    }
    return encode_between(encoding, bytes_from(text, done), done ? 0 : PRETOKENIZE_AT_START);
}

static void add_all(struct tokens *out, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++)
        tokens_add(out, tokens->ids[i]);
}

bool tokenizer_encode(const struct tokenizer *tokenizer, struct bytes text, int flags, struct tokens *out,
                      struct error *err)
{
    return tokenizer_encode_while(tokenizer, text, flags, NULL, out, err);
}

bool tokenizer_encode_while(const struct tokenizer *tokenizer, struct bytes text, int flags,
                            const atomic_bool *cancelled, struct tokens *out, struct error *err)
{
    if (text.len > TOKENIZER_TEXT_BYTES_MAX)
        return fail(err, "the text is %zu bytes long, and %d is the limit; cut it into parts", text.len,
                    TOKENIZER_TEXT_BYTES_MAX);
    bool special = flags & TOKENIZE_PARSE_SPECIAL;
    struct encoding encoding = {
        .tokenizer = tokenizer, .special = special, .out = out, .err = err, .work.cancelled = cancelled
    };
    if (flags & TOKENIZE_ADD_SPECIAL)
        add_all(out, &tokenizer->prefix);
    bool ok = !text.len || encode_text(&encoding, text);
    if (flags & TOKENIZE_ADD_SPECIAL)
        add_all(out, &tokenizer->suffix);
    strbuf_free(&encoding.normalized);
    added_matches_free(&encoding.in_raw);
    added_matches_free(&encoding.in_normalized);
    pieces_free(&encoding.pieces);
    bpe_work_free(&encoding.work);
    return ok;
}

// ---- what the vocabulary says ----

static bool exists(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (size_t)id < tokenizer->vocab.count;
}

int tokenizer_size(const struct tokenizer *tokenizer) { return (int)tokenizer->vocab.count; }

struct bytes tokenizer_piece(const struct tokenizer *tokenizer, int32_t id)
{
    return exists(tokenizer, id) ? tokenizer->vocab.pieces[id] : (struct bytes){ 0 };
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    return exists(tokenizer, id) && tokenizer->vocab.flags[id] & VOCAB_SPECIAL;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id)
{
    return exists(tokenizer, id) && tokenizer->vocab.flags[id] & VOCAB_END;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) { return tokenizer->bos; }

int32_t tokenizer_eos(const struct tokenizer *tokenizer) { return tokenizer->eos; }

void tokenizer_fim(const struct tokenizer *tokenizer, int32_t out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = tokenizer->fim.named ? tokenizer->fim.ids[i] : -1;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->prefix.count && tokenizer->prefix.ids[0] == tokenizer->bos;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, struct bytes piece)
{
    return vocab_find(&tokenizer->vocab, piece);
}
