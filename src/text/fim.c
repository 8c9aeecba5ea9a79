// SPDX-License-Identifier: Apache-2.0
#include "text/fim.h"

#include <string.h>

#define SIGN "\xE2\x96\x81"                                 // U+2581, SentencePiece's space
#define DEEPSEEK(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>" // in full-width bars

// ---- the tokens -----------------------------------------------------------------------------------------------------

static const struct family {
    const char *prefix, *suffix, *middle; // middle NULL: none
    const char *repositories[2], *file;
    const char *ends[FIM_ENDS_MAX];
    bool suffix_first;
} families[] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", // Qwen Coder, CodeGemma
      .repositories = { "<|repo_name|>" }, .file = "<|file_sep|>",
      .ends = { "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>" } },
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", // StarCoder, Granite
      .repositories = { "<repo_name>", "<reponame>" }, .file = "<file_sep>", .ends = { "<fim_pad>", "<file_sep>" } },
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", .ends = { "<fim-pad>" } }, // SantaCoder
    { DEEPSEEK("fim" SIGN "begin"), DEEPSEEK("fim" SIGN "hole"), DEEPSEEK("fim" SIGN "end") },
    { SIGN "<PRE>", SIGN "<SUF>", SIGN "<MID>", .ends = { SIGN "<EOT>" } }, // Code Llama
    { "<PRE>", "<SUF>", "<MID>", .ends = { "<EOT>" } },
    { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>" }, // GLM
    { "<|prefix|>", "<|suffix|>", "<|middle|>" },                // Falcon Coder
    { "[PREFIX]", "[SUFFIX]", NULL, .suffix_first = true },      // Codestral
};

static int32_t find(const struct tokenizer *tokenizer, const char *piece)
{
    return piece ? tokenizer_find(tokenizer, bytes_of(piece)) : -1;
}

static bool find_family(const struct tokenizer *tokenizer, const struct family *family, struct fim *out)
{
    *out = (struct fim){ .prefix = find(tokenizer, family->prefix),
                         .suffix = find(tokenizer, family->suffix),
                         .middle = find(tokenizer, family->middle),
                         .repository = find(tokenizer, family->repositories[0]),
                         .file = find(tokenizer, family->file),
                         .suffix_first = family->suffix_first };
    if (out->repository < 0)
        out->repository = find(tokenizer, family->repositories[1]);
    for (int i = 0; i < FIM_ENDS_MAX; i++) {
        int32_t id = find(tokenizer, family->ends[i]);
        if (id >= 0)
            out->ends[out->end_count++] = id;
    }
    return out->prefix >= 0 && out->suffix >= 0 && (out->middle >= 0 || !family->middle);
}

static bool adds_space(const struct tokenizer *tokenizer)
{
    struct tokens tokens = { 0 };
    struct error ignored;
    bool adds = tokenizer_encode(tokenizer, bytes_of("a"), 0, &tokens, &ignored) && tokens.count
        && bytes_start_with(tokenizer_piece(tokenizer, tokens.ids[0]), bytes_of(SIGN));
    tokens_free(&tokens);
    return adds;
}

bool fim_find(const struct tokenizer *tokenizer, struct fim *out)
{
    bool found = false;
    int32_t named[3];
    for (size_t i = 0; i < sizeof families / sizeof *families && !found; i++)
        found = find_family(tokenizer, &families[i], out);
    tokenizer_fim(tokenizer, named);
    if (named[0] >= 0 && named[1] >= 0 && named[2] >= 0) {
        if (!found)
            *out = (struct fim){ .repository = -1, .file = -1 };
        out->prefix = named[0];
        out->suffix = named[1];
        if (!found || !out->suffix_first)
            out->middle = named[2];
        found = true;
    }
    out->adds_space = found && adds_space(tokenizer);
    return found;
}

// ---- the prompt -----------------------------------------------------------------------------------------------------

struct encoder {
    const struct tokenizer *tokenizer;
    const struct fim *fim;
    const atomic_bool *cancelled;
    struct tokens *out;
    struct error *err;
};

static bool add_text(struct encoder *encoder, struct bytes text)
{
    return tokenizer_encode_while(encoder->tokenizer, text, 0, encoder->cancelled, encoder->out, encoder->err);
}

static void add_token(struct encoder *encoder, int32_t id)
{
    if (id >= 0)
        tokens_add(encoder->out, id);
}

// A text without the space that the tokenizer would put before it: it stands before another character, whose tokens
// come off. Where they have grown together with the text's, the text is taken as it is.
static bool add_continued(struct encoder *encoder, struct bytes text)
{
    struct bytes mark = bytes_of("\xE2\x98\xBA"); // U+263A
    struct strbuf marked = { 0 };
    struct tokens alone = { 0 }, both = { 0 };
    if (!encoder->fim->adds_space || !text.len)
        return add_text(encoder, text);
    strbuf_add(&marked, mark.data, mark.len);
    strbuf_add(&marked, text.data, text.len);
    bool ok = tokenizer_encode(encoder->tokenizer, mark, 0, &alone, encoder->err)
        && tokenizer_encode_while(encoder->tokenizer, strbuf_bytes(&marked), 0, encoder->cancelled, &both,
                                  encoder->err);
    bool apart = ok && both.count > alone.count && !memcmp(both.ids, alone.ids, alone.count * sizeof *both.ids);
    for (size_t i = alone.count; apart && i < both.count; i++)
        add_token(encoder, both.ids[i]);
    ok = ok && (apart || add_text(encoder, text));
    strbuf_free(&marked);
    tokens_free(&alone);
    tokens_free(&both);
    return ok;
}

static bool add_line(struct encoder *encoder, int32_t token, const char *before, struct bytes line)
{
    struct strbuf text = { 0 };
    add_token(encoder, token);
    strbuf_add_text(&text, before);
    strbuf_add(&text, line.data, line.len);
    strbuf_add_byte(&text, '\n');
    bool ok = add_text(encoder, strbuf_bytes(&text));
    strbuf_free(&text);
    return ok;
}

// The pattern of a repository (Qwen2.5-Coder, arXiv 2409.12186) where there are tokens for it; else a line between two
// files says where one ends.
static bool add_files(struct encoder *encoder, const struct fim_text *text)
{
    const struct fim *fim = encoder->fim;
    if (!text->file_count)
        return true;
    if (fim->repository >= 0 && !add_line(encoder, fim->repository, "", bytes_of("project")))
        return false;
    for (size_t i = 0; i < text->file_count; i++) {
        const struct fim_file *file = &text->files[i];
        if (!add_line(encoder, fim->file, fim->file >= 0 ? "" : "\n--- ", file->name) || !add_text(encoder, file->text))
            return false;
    }
    return add_line(encoder, fim->file, fim->file >= 0 ? "" : "\n--- ", bytes_of("current file"));
}

static bool add_prefix(struct encoder *encoder, struct bytes prefix)
{
    add_token(encoder, encoder->fim->prefix);
    return add_text(encoder, prefix);
}

static bool add_suffix(struct encoder *encoder, struct bytes suffix)
{
    add_token(encoder, encoder->fim->suffix);
    return add_continued(encoder, suffix);
}

bool fim_encode(const struct tokenizer *tokenizer, const struct fim *fim, const struct fim_text *text, bool add_bos,
                const atomic_bool *cancelled, struct tokens *out, struct error *err)
{
    struct encoder encoder = { tokenizer, fim, cancelled, out, err };
    if (add_bos && tokenizer_adds_bos(tokenizer))
        add_token(&encoder, tokenizer_bos(tokenizer));
    bool ok = add_files(&encoder, text)
        && (fim->suffix_first ? add_suffix(&encoder, text->suffix) && add_prefix(&encoder, text->prefix)
                              : add_prefix(&encoder, text->prefix) && add_suffix(&encoder, text->suffix));
    add_token(&encoder, fim->middle);
    return ok && add_continued(&encoder, text->begun);
}
