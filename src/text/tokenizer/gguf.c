// SPDX-License-Identifier: Apache-2.0
// A GGUF's tokenizer, from its tokenizer.ggml.* keys. Defaults are llama.cpp's, for which the files are made: ids of
// BOS and EOS, names of tokens that end an answer, the longest added token first.
#include <math.h>

#include "format/gguf.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/parts.h"

#define KEY(name) "tokenizer.ggml." name

enum token_type { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_BYTE = 6 };

static const struct model {
    const char *name;
    bool scored;     // scores decide what is merged, else ranks
    const char *pre; // its pre-tokenizer whatever the file says; NULL: as the file says
    int bos, eos;    // when the file is silent; -1: none
} models[] = {
    { "gpt2", false, NULL, 11, 11 },
    { "gemma4", false, "gemma4", -1, -1 },
    { "llama", true, NULL, 1, 2 },
};

static const struct model *find_model(const struct gguf *gguf, struct error *err)
{
    struct bytes name = { 0 };
    if (!gguf_get_string(gguf, KEY("model"), &name, err))
        return NULL;
    if (!name.data || bytes_equal(name, bytes_of("none")) || bytes_equal(name, bytes_of("no_vocab")))
        return fail(err, "the file carries no tokenizer"), NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (bytes_equal(name, bytes_of(models[i].name)))
            return &models[i];
    return fail(err, "the tokenizer is of the type \"%.*s\"; nibble reads gpt2, llama and gemma4",
                name.len < 64 ? (int)name.len : 64, name.data),
           NULL;
}

static const struct gguf_pre *find_pre(const struct gguf *gguf, const struct model *model, struct error *err)
{
    struct bytes name = bytes_of("default");
    if (!gguf_get_string(gguf, KEY("pre"), &name, err))
        return NULL;
    if (model->pre)
        name = bytes_of(model->pre);
    const struct gguf_pre *pre = gguf_pre_find(name);
    if (!pre)
        fail(err, "the pre-tokenizer \"%.*s\" is unknown, and another would split words wrongly; try a newer nibble",
             name.len < 64 ? (int)name.len : 64, name.data);
    return pre;
}

// ---- the vocabulary ----

static uint8_t flags_of_type(int64_t type)
{
    switch (type) {
    case TYPE_UNKNOWN:
    case TYPE_CONTROL: return VOCAB_SPECIAL | VOCAB_ADDED | VOCAB_VERBATIM;
    case TYPE_USER_DEFINED: return VOCAB_ADDED | VOCAB_VERBATIM;
    case TYPE_BYTE: return VOCAB_BYTE;
    default: return 0;
    }
}

static bool read_vocab(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *pieces, *types;
    if (!gguf_get_array(gguf, KEY("tokens"), GGUF_STRING, &pieces, err)
        || !gguf_get_array(gguf, KEY("token_type"), GGUF_I32, &types, err))
        return false;
    if (!pieces || !pieces->count || pieces->count > VOCAB_COUNT_MAX)
        return fail(err, "%s has %zu tokens; from 1 to %d were expected", KEY("tokens"), pieces ? pieces->count : 0,
                    VOCAB_COUNT_MAX);
    if (types && types->count < pieces->count)
        return fail(err, "%s has %zu entries for %zu tokens", KEY("token_type"), types->count, pieces->count);
    vocab_open(&tokenizer->vocab, pieces->count);
    for (size_t i = 0; i < pieces->count; i++) {
        if (!pieces->strings[i].len)
            continue; // an id without a token
        if (!vocab_set(&tokenizer->vocab, (int32_t)i, pieces->strings[i], err))
            return false;
        tokenizer->vocab.flags[i] = types ? flags_of_type(gguf_array_int(types, i)) : 0;
    }
    return true;
}

static bool read_scores(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *scores;
    size_t count = tokenizer->vocab.count;
    if (!gguf_get_array(gguf, KEY("scores"), GGUF_F32, &scores, err))
        return false;
    if (!scores || scores->count < count)
        return fail(err, "%s has %zu entries for %zu tokens", KEY("scores"), scores ? scores->count : 0, count);
    float *values = ARENA_NEW(&tokenizer->arena, float, count);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)gguf_array_real(scores, i);
        if (isnan(values[i]))
            return fail(err, "%s: the score of token %zu is not a number; the file is damaged", KEY("scores"), i);
    }
    tokenizer->bpe.scores = values;
    return true;
}

static bool read_merges(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *merges;
    if (!gguf_get_array(gguf, KEY("merges"), GGUF_STRING, &merges, err))
        return false;
    if (!merges || merges->count > BPE_MERGES_MAX)
        return fail(err, "%s is %s", KEY("merges"), merges ? "longer than any list of merges" : "absent");
    bpe_reserve(&tokenizer->bpe, merges->count);
    for (size_t i = 0; i < merges->count; i++) {
        struct bytes merge = merges->strings[i];
        // the left piece may begin with a space
        const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
        if (!space)
            return fail(err, "%s: entry %zu is not two pieces with a space between", KEY("merges"), i);
        size_t left = (size_t)(space - merge.data);
        if (!bpe_add_merge(&tokenizer->bpe, (struct bytes){ merge.data, left },
                           (struct bytes){ space + 1, merge.len - left - 1 }, err))
            return fail_within(err, "%s", KEY("merges"));
    }
    return true;
}

static void find_byte_tokens(struct tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[BYTEMAP_HEX_BYTES + 1], itself = (char)byte;
        bytemap_hex_name((unsigned char)byte, name);
        int32_t id = vocab_find(&tokenizer->vocab, bytes_of(name));
        tokenizer->bpe.bytes[byte] = id >= 0 ? id : vocab_find(&tokenizer->vocab, (struct bytes){ &itself, 1 });
    }
}

// ---- special tokens ----

// An id by its key; absent, or written as -1, leaves the default, which counts only if there is such a token.
static bool read_id(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *key, int32_t *id,
                    struct error *err)
{
    int64_t none = UINT32_MAX, value = none, count = (int64_t)tokenizer->vocab.count;
    if (!gguf_get_int(gguf, key, -1, none, &value, err))
        return false;
    if (value >= count && value != none)
        return fail(err, "%s is %lld, and the vocabulary has %lld tokens", key, (long long)value, (long long)count);
    if (value >= 0 && value != none)
        *id = (int32_t)value;
    if (*id >= count)
        *id = -1;
    return true;
}

// Tokens that are special by their names, whatever type the file gives them.
static const char special_names[] =
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <PRE> " TOKENIZER_SIGN "<PRE> <|code_prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <SUF> " TOKENIZER_SIGN "<SUF> <|code_suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <MID> " TOKENIZER_SIGN "<MID> <|code_middle|> "
    "<|prefix|> <|suffix|> <|middle|> " TOKENIZER_DEEPSEEK("fim" TOKENIZER_SIGN "begin") " " TOKENIZER_DEEPSEEK(
        "fim" TOKENIZER_SIGN "hole") " " TOKENIZER_DEEPSEEK("fim" TOKENIZER_SIGN "end");

// Fill-in-the-middle tokens that end an answer: another file would follow.
static const char code_end_names[] = "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> "
                                     "<fim-repo> <REPO> <reponame> <|file_sep|>";

static void flag(struct tokenizer *tokenizer, int32_t id, int flags)
{
    if (id >= 0)
        tokenizer->vocab.flags[id] |= (uint8_t)flags;
}

static int32_t find(const struct tokenizer *tokenizer, const char *name)
{
    return vocab_find(&tokenizer->vocab, bytes_of(name));
}

static void flag_names(struct tokenizer *tokenizer, const char *names, int flags)
{
    for (struct bytes name; bytes_next_word(&names, &name);)
        flag(tokenizer, vocab_find(&tokenizer->vocab, name), flags);
}

static void flag_by_name(struct tokenizer *tokenizer)
{
    const int special = VOCAB_SPECIAL | VOCAB_ADDED | VOCAB_VERBATIM;
    flag_names(tokenizer, special_names, special);
    flag_names(tokenizer, code_end_names, special | VOCAB_END);
    flag_names(tokenizer, tokenizer_end_names, special | VOCAB_END);
}

// Families whose tokens look like those above and are not.
static void unflag_by_name(struct tokenizer *tokenizer)
{
    static const char *const shown[] = { "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>" };
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        int32_t id = find(tokenizer, shown[i]);
        if (id >= 0)
            tokenizer->vocab.flags[id] = VOCAB_ADDED | VOCAB_VERBATIM;
    }
    bool call = find(tokenizer, "<|call|>") >= 0 || find(tokenizer, "<|calls|>") >= 0;
    bool other = find(tokenizer, "<|return|>") >= 0 || find(tokenizer, "<|flush|>") >= 0;
    int32_t end = find(tokenizer, "<|end|>"), s = find(tokenizer, "</s>");
    if (call && other && end >= 0) // ends a message there, not the answer
        tokenizer->vocab.flags[end] = VOCAB_ADDED | VOCAB_VERBATIM;
    if ((find(tokenizer, "<|tool_response>") >= 0 || find(tokenizer, "<|plamo:eos|>") >= 0) && s >= 0)
        tokenizer->vocab.flags[s] = 0; // a tag of HTML there
}

// Tokens of fill in the middle. Files of two ages have two names for them.
static bool read_fim(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    static const char *const keys[3][2] = { { KEY("prefix_token_id"), KEY("fim_pre_token_id") },
                                            { KEY("suffix_token_id"), KEY("fim_suf_token_id") },
                                            { KEY("middle_token_id"), KEY("fim_mid_token_id") } };
    tokenizer->fim.named = true;
    for (int i = 0; i < 3; i++) {
        tokenizer->fim.ids[i] = -1;
        for (int j = 0; j < 2; j++)
            if (!read_id(tokenizer, gguf, keys[i][j], &tokenizer->fim.ids[i], err))
                return false;
    }
    return true;
}

static bool read_special(struct tokenizer *tokenizer, const struct gguf *gguf, const struct model *model, int pre_flags,
                         struct error *err)
{
    tokenizer->bos = pre_flags & GGUF_PRE_NO_BOS ? -1 : model->bos;
    tokenizer->eos = model->eos;
    if (!read_id(tokenizer, gguf, KEY("bos_token_id"), &tokenizer->bos, err)
        || !read_id(tokenizer, gguf, KEY("eos_token_id"), &tokenizer->eos, err))
        return false;
    flag_by_name(tokenizer);
    static const char *const end_keys[] = {
        KEY("eot_token_id"),     KEY("eom_token_id"),     KEY("fim_pad_token_id"),
        KEY("fim_rep_token_id"), KEY("fim_sep_token_id"),
    };
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id = -1;
        if (!read_id(tokenizer, gguf, end_keys[i], &id, err))
            return false;
        flag(tokenizer, id, VOCAB_END);
    }
    unflag_by_name(tokenizer);
    flag(tokenizer, tokenizer->eos, VOCAB_END);
    return read_fim(tokenizer, gguf, err);
}

static bool read_bos_rule(struct tokenizer *tokenizer, const struct gguf *gguf, bool add_bos, bool always,
                          struct error *err)
{
    bool add_eos = false;
    if (!gguf_get_bool(gguf, KEY("add_bos_token"), &add_bos, err)
        || !gguf_get_bool(gguf, KEY("add_eos_token"), &add_eos, err))
        return false;
    add_bos |= always;
    if (add_bos && tokenizer->bos < 0)
        return fail(err, "the tokenizer adds a BOS token, but %s names none", KEY("bos_token_id"));
    if (add_eos && tokenizer->eos < 0)
        return fail(err, "the tokenizer adds an EOS token, but %s names none", KEY("eos_token_id"));
    if (add_bos)
        tokens_add(&tokenizer->prefix, tokenizer->bos);
    if (add_eos)
        tokens_add(&tokenizer->suffix, tokenizer->eos);
    return true;
}

static bool contains_ignoring_case(struct bytes text, const char *word)
{
    for (size_t i = 0; i + strlen(word) <= text.len; i++)
        if (strncasecmp(text.data + i, word, strlen(word)) == 0)
            return true;
    return false;
}

static bool collect_added(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    // Phi-3's special tokens swallow the white space behind them; a GGUF has no way to say so but its name.
    struct bytes name = { 0 };
    if (!gguf_get_string(gguf, "general.name", &name, err))
        return false;
    bool phi3 = contains_ignoring_case(name, "phi-3") || contains_ignoring_case(name, "phi3");
    const int32_t plain[] = { find(tokenizer, "<unk>"), find(tokenizer, "<s>"), find(tokenizer, "<|endoftext|>") };
    tokenizer->raw.order = ADDED_LONGEST_FIRST;
    for (size_t i = 0; i < tokenizer->vocab.count; i++) {
        int32_t id = (int32_t)i;
        bool rstrip = phi3 && id != plain[0] && id != plain[1] && id != plain[2];
        if (tokenizer->vocab.flags[i] & VOCAB_ADDED)
            added_add(&tokenizer->raw, (struct added_token){ tokenizer->vocab.pieces[i], id, .rstrip = rstrip });
    }
    return true;
}

// ---- the parts ----

static bool add_spaces(struct tokenizer *tokenizer, bool prefix, struct error *err)
{
    static const struct bytes separator = { TOKENIZER_SIGN, 3 }, space = { " ", 1 };
    struct regex *in = regex_new_literal(space, err), *out = regex_new_literal(separator, err);
    if (prefix) {
        normalizer_add(&tokenizer->normalizer, (struct normalize_step){ .kind = NORMALIZE_PREPEND, .content = space });
        tokenizer->decoder.strip = space;
    }
    normalizer_add(&tokenizer->normalizer,
                   (struct normalize_step){ .kind = NORMALIZE_REPLACE, .regex = in, .content = separator });
    decoder_add(&tokenizer->decoder, (struct decode_step){ .kind = DECODE_REPLACE, .regex = out, .content = space });
    return in && out;
}

static bool add_splits(struct tokenizer *tokenizer, const struct gguf_pre *pre, struct error *err)
{
    for (const char *const *split = pre->splits; *split; split++)
        if (!pretokenizer_add_split(&tokenizer->pretokenizer, bytes_of(*split), SPLIT_ISOLATED, false, err))
            return false;
    return true;
}

static bool read_scored(struct tokenizer *tokenizer, const struct gguf *gguf, const struct model *model,
                        struct error *err)
{
    bool prefix = true, add_bos = true;
    tokenizer->bpe.unknown = 0;
    find_byte_tokens(tokenizer);
    return read_scores(tokenizer, gguf, err) && gguf_get_bool(gguf, KEY("add_space_prefix"), &prefix, err)
        && add_spaces(tokenizer, prefix, err) && read_special(tokenizer, gguf, model, 0, err)
        && read_id(tokenizer, gguf, KEY("unknown_token_id"), &tokenizer->bpe.unknown, err)
        && read_bos_rule(tokenizer, gguf, add_bos, false, err);
}

static bool read_ranked(struct tokenizer *tokenizer, const struct gguf *gguf, const struct model *model,
                        struct error *err)
{
    const struct gguf_pre *pre = find_pre(gguf, model, err);
    if (!pre || !read_merges(tokenizer, gguf, err) || !add_splits(tokenizer, pre, err))
        return false;
    tokenizer->bpe.whole_first = pre->flags & GGUF_PRE_WHOLE;
    tokenizer->bpe.whole_newlines = pre->flags & GGUF_PRE_NEWLINES_WHOLE;
    if (pre->flags & GGUF_PRE_SPACES) {
        find_byte_tokens(tokenizer);
        if (!add_spaces(tokenizer, false, err))
            return false;
    } else {
        pretokenizer_add(&tokenizer->pretokenizer, (struct pretokenize_step){ .kind = PRETOKENIZE_BYTES });
        decoder_add(&tokenizer->decoder, (struct decode_step){ .kind = DECODE_BYTE_LEVEL });
    }
    return read_special(tokenizer, gguf, model, pre->flags, err)
        && read_bos_rule(tokenizer, gguf, pre->flags & GGUF_PRE_BOS, pre->flags & GGUF_PRE_BOS_ALWAYS, err);
}

bool tokenizer_read_gguf(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct model *model = find_model(gguf, err);
    if (!model || !read_vocab(tokenizer, gguf, err))
        return false;
    bpe_open(&tokenizer->bpe, &tokenizer->vocab);
    bool ok = model->scored ? read_scored(tokenizer, gguf, model, err) : read_ranked(tokenizer, gguf, model, err);
    return ok && collect_added(tokenizer, gguf, err);
}
