// SPDX-License-Identifier: Apache-2.0
// Tokenizers with vocabularies of a handful of tokens. test/e2e/test_tokenizer.py holds the real ones to what llama.cpp
// and the `tokenizers` package make of the same text.
#include <time.h>

#include "tokenizer_open.h"
#include "sanitized.h"
#include "base/utf8.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pretokenize.h"

enum { BOTH = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL };

#ifdef SANITIZED
enum { SECONDS_MAX = 60 };
#else
enum { SECONDS_MAX = 5 };
#endif

static struct tokens encode(const struct tokenizer *tokenizer, struct bytes text, int flags)
{
    struct bytes exact = exact_copy(text.data ? text : bytes_of(""));
    struct tokens tokens = { 0 };
    struct error err;
    if (!tokenizer_encode(tokenizer, exact, flags, &tokens, &err))
        fail_msg("%s", err.text);
    free((char *)exact.data);
    return tokens;
}

static void check_ids(const struct tokenizer *tokenizer, struct bytes text, int flags, const char *expected)
{
    struct tokens tokens = encode(tokenizer, text, flags);
    struct strbuf got = { 0 };
    strbuf_add_text(&got, "");
    for (size_t i = 0; i < tokens.count; i++)
        strbuf_add_format(&got, "%s%d", i ? " " : "", tokens.ids[i]);
    assert_string_equal(got.data, expected);
    strbuf_free(&got);
    tokens_free(&tokens);
}

// Decodes token by token: whatever has come out is whole characters as long as the text itself is.
static struct strbuf decode(const struct tokenizer *tokenizer, const struct tokens *tokens, bool skip_special,
                            bool whole)
{
    struct detokenizer state = { .tokenizer = tokenizer, .skip_special = skip_special };
    struct strbuf out = { 0 };
    strbuf_add_text(&out, "");
    for (size_t i = 0; i < tokens->count; i++) {
        size_t start = out.len;
        detokenizer_add(&state, tokens->ids[i], &out);
        uint32_t codepoint;
        for (size_t at = start, length; whole && at < out.len; at += length) {
            length = utf8_decode((struct bytes){ out.data + at, out.len - at }, &codepoint);
            assert_int_not_equal(length, 0);
        }
    }
    detokenizer_finish(&state, &out);
    return out;
}

static void check_round_trip(const struct tokenizer *tokenizer, struct bytes text, bool whole)
{
    struct tokens tokens = encode(tokenizer, text, 0);
    struct strbuf out = decode(tokenizer, &tokens, false, whole);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data, text.data, text.len);
    strbuf_free(&out);
    tokens_free(&tokens);
}

static void check_decoded(const struct tokenizer *tokenizer, const char *text, bool skip_special, const char *expected)
{
    struct tokens tokens = encode(tokenizer, bytes_of(text), BOTH);
    struct strbuf out = decode(tokenizer, &tokens, skip_special, true);
    assert_string_equal(out.data, expected);
    strbuf_free(&out);
    tokens_free(&tokens);
}

// ---- merging ----

static void merges_by_rank_then_leftmost(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = must_open("{'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'bc':3,'ab':4,'aa':5,'"
                                            "abc':6},"
                                            "'merges':['b c',['a','b'],'a a','a bc']}}",
                                            NULL);
    check_ids(tokenizer, bytes_of("abc"), 0, "6");
    check_ids(tokenizer, bytes_of("abab"), 0, "4 4");
    check_ids(tokenizer, bytes_of("aaa"), 0, "5 0");
    check_ids(tokenizer, bytes_of("aaabc"), 0, "5 6");
    check_ids(tokenizer, bytes_of("azb"), 0, "4"); // a character without a token is left out before anything merges
    check_ids(tokenizer, bytes_of(""), BOTH, "");
    tokenizer_close(tokenizer);
}

static void merges_by_score(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<unk>",
        "<s>",
        "</s>",
        "a",
        "b",
        "\xE2\x96\x81",
        "ab",
        "\xE2\x96\x81"
        "a",
        "aba",
        "<0xC3>",
        "<0xA9>",
        NULL,
    };
    static const int32_t types[] = { 2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6 };
    struct gguf_vocabulary vocabulary = { "llama", NULL, pieces, types, NULL, -1, -1 };
    struct tokenizer *tokenizer = must_open_gguf(&vocabulary);
    assert_true(tokenizer_adds_bos(tokenizer));
    check_ids(tokenizer, bytes_of("ab"), 0, "7 4"); // the sign and a have the better score
    check_ids(tokenizer, bytes_of("bab"), BOTH, "1 5 4 6");
    check_ids(tokenizer, bytes_of("\xC3\xA9"), 0, "5 9 10");
    check_ids(tokenizer, bytes_of("z"), 0, "5 0");
    check_ids(tokenizer, bytes_of(""), BOTH, "1");
    check_ids(tokenizer, bytes_of("a</s>a"), BOTH, "1 7 2 7"); // text behind a special token is a beginning again
    check_decoded(tokenizer, "ab ab", true, "ab ab");
    check_decoded(tokenizer, " ab", true, " ab");
    check_decoded(tokenizer, "ab", false, "<s> ab");
    tokenizer_close(tokenizer);
}

static void falls_back_to_bytes_then_unknown(void **state)
{
    (void)state;
    const char *json = "{'model':{'vocab':{'<unk>':0,'a':1,'<0xC3>':2,'<0xA9>':3},'merges':[],"
                       "'unk_token':'<unk>','byte_fallback':true,'fuse_unk':%s}}";
    struct strbuf text = { 0 };
    strbuf_add_format(&text, json, "false");
    struct tokenizer *tokenizer = must_open(text.data, NULL);
    check_ids(tokenizer, bytes_of("a\xC3\xA9zza"), 0, "1 2 3 0 0 1");
    tokenizer_close(tokenizer);
    text.len = 0;
    strbuf_add_format(&text, json, "true");
    tokenizer = must_open(text.data, NULL);
    check_ids(tokenizer, bytes_of("a\xC3\xA9zza"), 0, "1 2 3 0 1");
    tokenizer_close(tokenizer);
    strbuf_free(&text);
}

static void takes_whole_pieces_first(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = must_open("{'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':[],"
                                            "'ignore_merges':true},'pre_tokenizer':{'type':'WhitespaceSplit'}}",
                                            NULL);
    check_ids(tokenizer, bytes_of("ab abb"), 0, "2 0 1 1");
    tokenizer_close(tokenizer);
}

// ---- added tokens ----

#define ADDED(id, content, more) "{'id':" #id ",'content':'" content "'" more "}"

static void finds_added_tokens(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_byte_level(
        "", "",
        "'added_tokens':[" ADDED(256, "<a>", ",'special':true") "," ADDED(257, "<a>b", ",'normalized':false") "," ADDED(
            258, "word", ",'single_word':true") "," ADDED(259, "[l]", ",'lstrip':true") "," ADDED(260, "[r]",
                                                                                                  ",'rstrip':true,'"
                                                                                                  "special':true") "]"
                                                                                                                   ",");
    check_ids(tokenizer, bytes_of("x<a>y"), TOKENIZE_PARSE_SPECIAL, "120 256 121");
    check_ids(tokenizer, bytes_of("<a>b"), TOKENIZE_PARSE_SPECIAL, "257"); // the longest of those that start here
    check_ids(tokenizer, bytes_of("<a>"), 0, "60 97 62");
    check_ids(tokenizer, bytes_of("<a>b"), 0, "257");
    check_ids(tokenizer, bytes_of("word xword"), 0, "258 32 120 119 111 114 100");
    check_ids(tokenizer, bytes_of("x \t[l]  [r] \n y"), TOKENIZE_PARSE_SPECIAL, "120 259 32 32 260 121");
    assert_true(tokenizer_is_special(tokenizer, 256));
    assert_false(tokenizer_is_special(tokenizer, 257));
    assert_int_equal(tokenizer_size(tokenizer), 261);
    assert_int_equal(tokenizer_find(tokenizer, bytes_of("word")), 258);
    assert_null(tokenizer_piece(tokenizer, 261).data);
    assert_null(tokenizer_piece(tokenizer, -1).data);
    check_decoded(tokenizer, "x<a>y", false, "x<a>y");
    check_decoded(tokenizer, "x<a>y", true, "xy");
    tokenizer_close(tokenizer);
}

static void longest_added_token_wins_in_a_gguf(void **state)
{
    (void)state;
    static const char *const pieces[] = { "a", "b", "c", "d", "ab", "bcd", "<|im_end|>", NULL };
    static const int32_t types[] = { 1, 1, 1, 1, 4, 4, 1 };
    static const char *const merges[] = { NULL };
    struct gguf_vocabulary vocabulary = { "gpt2", "gpt-2", pieces, types, merges, -1, -1 };
    struct tokenizer *tokenizer = must_open_gguf(&vocabulary);
    check_ids(tokenizer, bytes_of("abcd"), 0, "0 5");
    check_ids(tokenizer, bytes_of("abab"), 0, "4 4");
    check_ids(tokenizer, bytes_of("a<|im_end|>b"), TOKENIZE_PARSE_SPECIAL, "0 6 1"); // special by its name
    assert_true(tokenizer_is_end(tokenizer, 6));
    assert_false(tokenizer_adds_bos(tokenizer));
    tokenizer_close(tokenizer);
}

// ---- BOS and EOS ----

static void bos_is_added_as_the_files_say(void **state)
{
    (void)state;
#define MODEL "'model':{'vocab':{'a':0,'<s>':1,'</s>':2},'merges':[]}"
#define TEMPLATE(tokens)                                                                                 \
    "{'type':'TemplateProcessing','single':[" tokens "],'special_tokens':{'<s>':{'id':'<s>','ids':[1]}," \
    "'</s>':{'id':'</s>','ids':[2]}}}"
#define TEXT "{'Sequence':{'id':'A','type_id':0}}"
    static const char both[] = "{'bos_token':'<s>','eos_token':{'content':'</s>'},'add_bos_token':true,"
                               "'add_eos_token':true}";
    static const struct {
        const char *json, *config, *expected;
    } cases[] = {
        { "{" MODEL "}", NULL, "0" },
        { "{" MODEL "}", both, "1 0 2" },
        { "{" MODEL "}", "{'bos_token':'<s>'}", "0" },
        { "{" MODEL ",'post_processor':" TEMPLATE("{'SpecialToken':{'id':'<s>','type_id':0}}," TEXT) "}", NULL, "1 0" },
        { "{" MODEL ",'post_processor':" TEMPLATE(TEXT ",{'SpecialToken':{'id':'</s>'}}") "}", both, "0 2" },
        { "{" MODEL ",'post_processor':" TEMPLATE(TEXT) "}", both, "0" },
        { "{" MODEL ",'post_processor':{'type':'ByteLevel'}}", both, "1 0 2" }, // says nothing about it
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tokenizer *tokenizer = must_open(cases[i].json, cases[i].config);
        check_ids(tokenizer, bytes_of("a"), BOTH, cases[i].expected);
        check_ids(tokenizer, bytes_of("a"), TOKENIZE_PARSE_SPECIAL, "0");
        assert_int_equal(tokenizer_adds_bos(tokenizer), cases[i].expected[0] == '1');
        assert_int_equal(tokenizer_is_end(tokenizer, 2), cases[i].config == both);
        tokenizer_close(tokenizer);
    }
}

static void bos_of_a_gguf_has_defaults(void **state)
{
    (void)state;
    static const char *const pieces[] = { "a", "<s>", "</s>", NULL };
    static const char *const merges[] = { NULL };
    static const struct {
        struct gguf_vocabulary vocabulary;
        bool adds;
        int bos;
    } cases[] = {
        { { "llama", NULL, pieces, NULL, NULL, -1, -1 }, true, 1 },
        { { "llama", NULL, pieces, NULL, NULL, 0, -1 }, false, 1 },
        { { "gpt2", "gpt-2", pieces, NULL, merges, -1, -1 }, false, -1 }, // the default, 11, is no token here
        { { "gpt2", "gpt-2", pieces, NULL, merges, 1, 1 }, true, 1 },
        { { "gpt2", "llama-bpe", pieces, NULL, merges, -1, 1 }, true, 1 },
        { { "gpt2", "llama-bpe", pieces, NULL, merges, 0, 1 }, false, 1 },
        { { "gpt2", NULL, pieces, NULL, merges, -1, 1 }, false, 1 },
        { { "gemma4", NULL, pieces, NULL, merges, 0, 1 }, true, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tokenizer *tokenizer = must_open_gguf(&cases[i].vocabulary);
        assert_int_equal(tokenizer_adds_bos(tokenizer), cases[i].adds);
        assert_int_equal(tokenizer_bos(tokenizer), cases[i].bos);
        tokenizer_close(tokenizer);
    }
}

// ---- bytes ----

static void streams_whole_characters(void **state)
{
    (void)state;
    // each byte is a token of its own, so every character is cut in every place
    struct tokenizer *tokenizer = open_byte_level("", "", "");
    static const char text[] = "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 e\xCC\x81\xEF\xBB\xBF\n";
    check_round_trip(tokenizer, bytes_of(text), true);
    struct detokenizer stream = { .tokenizer = tokenizer };
    struct strbuf out = { 0 };
    static const struct {
        int32_t id;
        size_t length;
    } steps[] = {
        { 0xF0, 0 }, { 0x9F, 0 }, { 0x98, 0 }, { 0x80, 4 }, // whole at its last byte
        { 0xE2, 4 }, { 0x41, 6 },                           // E2 can no longer become a character
        { 0xED, 6 }, { 0xA0, 8 },                           // nor can half a surrogate
        { 0xFF, 9 }, { 0xC3, 9 },
    };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        detokenizer_add(&stream, steps[i].id, &out);
        assert_int_equal(out.len, steps[i].length);
    }
    detokenizer_finish(&stream, &out);
    assert_int_equal(out.len, 10);
    assert_memory_equal(out.data,
                        "\xF0\x9F\x98\x80\xE2"
                        "A\xED\xA0\xFF\xC3",
                        10);
    detokenizer_add(&stream, -5, &out);
    detokenizer_add(&stream, 100000, &out);
    assert_int_equal(out.len, 10);
    strbuf_free(&out);
    tokenizer_close(tokenizer);
}

static void keeps_bytes_that_are_no_text(void **state)
{
    (void)state;
    static const char bytes[] = "a\xFF\xFE b\xC3(\xE2\x82 \xF0\x9F\x98\0\x80z\xC0\xAF\xED\xA0\x80";
    struct bytes text = { bytes, sizeof bytes - 1 };
    struct tokenizer *tokenizer = open_byte_level("", "", "");
    check_round_trip(tokenizer, text, false);
    tokenizer_close(tokenizer);

    struct strbuf json = { 0 };
    strbuf_add_text(&json,
                    "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'_'},"
                    "{'type':'Replace','pattern':{'String':' '},'content':'_'}]},'decoder':{'type':'Sequence',"
                    "'decoders':[{'type':'Replace','pattern':{'String':'_'},'content':' '},{'type':'ByteFallback'},"
                    "{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]},"
                    "'model':{'byte_fallback':true,'merges':[],'vocab':{'_':256");
    for (int byte = 0; byte < 256; byte++)
        strbuf_add_format(&json, ",'<0x%02X>':%d", byte, byte);
    strbuf_add_text(&json, "}}}");
    tokenizer = must_open(json.data, NULL);
    check_round_trip(tokenizer, text, false); // nothing is put in front of what follows a bad byte
    check_ids(tokenizer, bytes_of("a b"), 0, "256 97 256 98");
    strbuf_free(&json);
    tokenizer_close(tokenizer);
}

static void byte_alphabet_has_256_letters(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(bytemap_byte(bytemap_letter((unsigned char)byte)), byte);
    assert_int_equal(bytemap_letter(' '), 0x120);
    assert_int_equal(bytemap_letter('\n'), 0x10A);
    assert_int_equal(bytemap_byte(0x144), -1);
    assert_int_equal(bytemap_byte(' '), -1);
    assert_int_equal(bytemap_hex(bytes_of("<0x0a>")), 10);
    assert_int_equal(bytemap_hex(bytes_of("<0x0G>")), -1);
}

// ---- bounded time ----

static void check_quick(const struct tokenizer *tokenizer, const char *unit)
{
    enum { BYTES = 1000000 };
    struct strbuf text = { 0 };
    while (text.len < BYTES)
        strbuf_add_text(&text, unit);
    clock_t start = clock();
    check_round_trip(tokenizer, strbuf_bytes(&text), true);
    assert_true(clock() - start < (clock_t)SECONDS_MAX * CLOCKS_PER_SEC);
    strbuf_free(&text);
}

static void long_runs_take_bounded_time(void **state)
{
    (void)state;
    static const char *const units[] = { "a", " ", "\n", "1", "!", "'", "\xCC\x81", "\xE6\xBC\xA2", "a ", "<", "<a" };
    struct tokenizer *plain = open_byte_level(",'aa':256,'aaaa':257,'\xC4\xA0\xC4\xA0':258",
                                              "'a a','aa aa','\xC4\xA0 \xC4\xA0'",
                                              "'added_tokens':[" ADDED(259, "<ab>", "") "," ADDED(260, "   ", "") "],");
    for (size_t i = 0; i < COUNT_OF(units); i++)
        check_quick(plain, units[i]);
    tokenizer_close(plain);
    struct tokenizer *threes = must_open("{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'\\\\d{1,3}(?=(?:\\\\d{3}"
                                         ")*\\\\b)'}},"
                                         "'decoder':{'type':'Fuse'},'model':{'vocab':{'1':0,'11':1,'111':2,' "
                                         "':3},'merges':['1 1','11 1']}}",
                                         NULL);
    check_ids(threes, bytes_of("1 11 1111 11111"), 0, "0 3 1 3 0 2 3 1 2");
    check_quick(threes, "1");
    tokenizer_close(threes);
}

static void marks_are_ordered_in_bounded_time(void **state)
{
    (void)state;
    enum { MARKS = 200000 };
    struct normalizer normalizer = { 0 };
    normalizer_add(&normalizer, (struct normalize_step){ .kind = NORMALIZE_NFC });
    struct strbuf text = { 0 }, out = { 0 };
    for (int i = 0; i < MARKS; i++)
        strbuf_add_text(&text, i < MARKS / 2 ? "\xCC\x81" : "\xCC\xA3"); // above, then below
    struct error err;
    clock_t start = clock();
    assert_true(normalizer_apply(&normalizer, strbuf_bytes(&text), false, &out, &err));
    assert_true(clock() - start < (clock_t)SECONDS_MAX * CLOCKS_PER_SEC);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data, "\xCC\xA3\xCC\xA3", 4);
    strbuf_free(&text);
    strbuf_free(&out);
    normalizer_free(&normalizer);
}

// ---- normalizers ----

static void normalizes(void **state)
{
    (void)state;
    static const struct {
        enum normalize_kind kind;
        const char *text, *expected;
    } cases[] = {
        { NORMALIZE_NFC, "e\xCC\x81 \xE2\x84\xA6", "\xC3\xA9 \xCE\xA9" },
        { NORMALIZE_NFC, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C" },
        { NORMALIZE_NFC, "q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87" },
        { NORMALIZE_NFD, "\xC3\xA9 \xED\x95\x9C", "e\xCC\x81 \xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB" },
        { NORMALIZE_NFKC, "\xEF\xAC\x81 \xE2\x91\xA0 \xEF\xBC\xA1", "fi 1 A" },
        { NORMALIZE_NFKD, "\xC3\xA9\xEF\xAC\x81",
          "e\xCC\x81"
          "fi" },
        { NORMALIZE_LOWERCASE, "A\xC3\x89\xC4\xB0\xCE\xA3", "a\xC3\xA9i\xCC\x87\xCF\x83" },
        { NORMALIZE_STRIP_ACCENTS, "e\xCC\x81\xC3\xA9", "e\xC3\xA9" },
        { NORMALIZE_STRIP,
          " \t\xE3\x80\x80"
          "a b\xC2\xA0\n",
          "a b" },
        { NORMALIZE_STRIP, " \n ", "" },
        { NORMALIZE_PREPEND, "a", "_a" },
        { NORMALIZE_PREPEND, "", "" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct normalizer normalizer = { 0 };
        struct strbuf out = { 0 };
        struct error err;
        normalizer_add(&normalizer, (struct normalize_step){ cases[i].kind, true, true, .content = bytes_of("_") });
        assert_true(normalizer_apply(&normalizer, bytes_of(cases[i].text), false, &out, &err));
        assert_string_equal(strbuf_text(&out), cases[i].expected);
        strbuf_free(&out);
        normalizer_free(&normalizer);
    }
}

static void normalizers_cannot_explode(void **state)
{
    (void)state;
    struct strbuf json = { 0 };
    strbuf_add_text(&json, "{'normalizer':{'type':'Sequence','normalizers':[");
    for (int i = 0; i < 40; i++)
        strbuf_add_format(&json, "%s{'type':'Replace','pattern':{'String':'a'},'content':'aa'}", i ? "," : "");
    strbuf_add_text(&json, "]},'model':{'vocab':{'a':0},'merges':[]}}");
    struct tokenizer *tokenizer = must_open(json.data, NULL);
    struct tokens tokens = { 0 };
    struct error err;
    assert_false(tokenizer_encode(tokenizer, bytes_of("aaaa"), 0, &tokens, &err));
    assert_says(err, "makes the text longer");
    tokens_free(&tokens);
    strbuf_free(&json);
    tokenizer_close(tokenizer);
}

// ---- regexes ----

// The pieces that splitting makes, with | between them.
static void check_split(const char *pattern, enum split_behavior behavior, const char *text, const char *expected)
{
    struct pretokenizer pretokenizer = { 0 };
    struct pieces pieces = { 0 };
    struct strbuf got = { 0 };
    struct error err = { "" };
    if (!pretokenizer_add_split(&pretokenizer, bytes_of(pattern), behavior, false, &err)
        || !pretokenizer_apply(&pretokenizer, bytes_of(text), 0, &pieces, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < pieces.count; i++) {
        strbuf_add_text(&got, i ? "|" : "");
        strbuf_add(&got, pieces.text.data + pieces.items[i].begin, pieces.items[i].end - pieces.items[i].begin);
    }
    assert_string_equal(strbuf_text(&got), expected);
    strbuf_free(&got);
    pieces_free(&pieces);
    pretokenizer_free(&pretokenizer);
}

static void splits_in_five_ways(void **state)
{
    (void)state;
    static const char *const expected[] = {
        [SPLIT_REMOVED] = "a|b|c",
        [SPLIT_ISOLATED] = "-|a|-|-|b|-|c|-",
        [SPLIT_CONTIGUOUS] = "-|a|--|b|-|c|-",
        [SPLIT_WITH_PREVIOUS] = "-|a-|-|b-|c-",
        [SPLIT_WITH_NEXT] = "-a|-|-b|-c|-",
    };
    for (size_t i = 0; i < COUNT_OF(expected); i++)
        check_split("-", (enum split_behavior)i, "-a--b-c-", expected[i]);
}

// What Oniguruma makes of each, where PCRE2 left to itself would do something else.
static void reads_the_dialect_of_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *expected;
    } cases[] = {
        { "\\p{N}{1,3}+", "a1234567", "a|1234567" }, // not possessive: repeated again
        { "a{,2}", "baaa", "b|aa|a" },
        { "\\h+", "xyz12ab zz", "xyz|12ab| zz" }, // hexadecimal digits
        { "\\v", "a\vb\nc", "a|\v|b\nc" },        // one character, not a class
        { "\\s",
          "a\xE1\xA0\x8E"
          "b c",
          "a\xE1\xA0\x8E"
          "b| |c" },                                    // U+180E is no space
        { "\\w+", "a\xCC\x81_1-b", "a\xCC\x81_1|-|b" }, // marks are of the word
        { "\\bb",
          "a\xCC\x81"
          "b b",
          "a\xCC\x81"
          "b |b" },
        { "[a-z&&[^aeiou]]+", "abcde", "a|bcd|e" },
        { "[^(\\s|[.,])]+", "a(b. c", "a|(|b|. |c" }, // a class within a class
        { "[]a]+", "b]a", "b|]a" },
        { "[\\W\\d]+", "ab-1c", "ab|-1|c" },
        { "\\p{Han}", "\xE3\x80\x82\xE6\xBC\xA2", "\xE3\x80\x82|\xE6\xBC\xA2" }, // the script, not its extensions
        { "\\p{Letter}+", "a1", "a|1" },
        { "\\p{^L}", "a1b", "a|1|b" },
        { "a(?i)b|c", "aC ab AB aB", "aC| |ab| AB |aB" }, // reaches across the bar
        { "\\s+$", "a  \nb  ", "a|  |\nb|  " },           // at every line's end
        { "(?m:.+)", "a\nb", "a\nb" },
        { "a++a", "aaa", "aaa" },
        { "(?=[A-Z])", "aBcD", "a|Bc|D" },
        { "(?=(\\d{3})+(?!\\d))", "1234567", "1|234|567" },
        { "\\u0061|\\x62|\\x{63}", "xabcx", "x|a|b|c|x" },
        { "[\\x{41}-\\x{43}\\-]+", "xAB-Cx", "x|AB-C|x" },
        { "\\S", "\xF0\xB1\x8D\x90", "\xF0\xB1\x8D\x90" },
        { "\\p{L}", "-\xF0\xB1\x8D\x90", "-|\xF0\xB1\x8D\x90" }, // a letter since Unicode 15
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_split(cases[i].pattern, SPLIT_ISOLATED, cases[i].text, cases[i].expected);
}

static void refuses_regexes_by_name(void **state)
{
    (void)state;
    struct strbuf deep = { 0 }, nested = { 0 };
    for (int i = 0; i < 200; i++)
        strbuf_add_text(&deep, "("), strbuf_add_text(&nested, "[");
    const struct {
        const char *pattern, *says;
    } cases[] = {
        { "(a", "a group is not closed" },
        { "a)", "a closing parenthesis too many" },
        { "[a", "ends too early" },
        { "(a)\\1", "\\1 is not supported" },
        { "\\K", "\\K is not supported" },
        { "(?~a)", "(?~ is not supported" },
        { "[[:alpha:]]", "POSIX brackets" },
        { "\\pL", "without braces" },
        { "\\p{Nonsense}", "unknown property" },
        { "\\x{110000}", "character code point value" },
        { "*", "quantifier" },
        { "a\\", "\\" },
        { "[z-a]", "range" },
        { "\xFF", "not UTF-8" },
        { deep.data, "levels deep" },
        { nested.data, "levels deep" },
        { "(?<=a+)b", "lookbehind" },
        { "[a&&]", "nothing behind" },
        { "[&&a]", "nothing in front" },
        { "\\x{}", "no digits" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = { "" };
        struct regex *regex = regex_new(bytes_of(cases[i].pattern), &err);
        if (regex)
            fail_msg("%s was taken", cases[i].pattern);
        assert_says(err, cases[i].says);
    }
    strbuf_free(&deep);
    strbuf_free(&nested);
}

// ---- what is refused ----

static void broken_files_end_in_a_sentence(void **state)
{
    (void)state;
#define WITH(more) "{'model':{'type':'BPE','vocab':{'a':0,'b':1},'merges':[]}," more "}"
#define VOCAB(vocab) "{'model':{'type':'BPE','vocab':" vocab ",'merges':[]}}"
#define MERGES(merges) "{'model':{'type':'BPE','vocab':{'a':0,'b':1},'merges':" merges "}}"
#define SETTING(setting) "{'model':{'type':'BPE','vocab':{'a':0},'merges':[]," setting "}}"
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "{}", "\"model\" is absent" },
        { "[]", "\"model\" is absent" },
        { "{'model':[]}", "\"model\" is absent or not an object" },
        { "{'model':{'type':'Unigram','vocab':[]}}", "\"Unigram\"; nibble reads BPE" },
        { "{'model':{'type':'WordPiece','vocab':{}}}", "\"WordPiece\"; nibble reads BPE" },
        { "{'model':{'type':7}}", "expected a string" },
        { "{'model':{'type':'BPE','merges':[]}}", "\"vocab\" is absent" },
        { VOCAB("[]"), "\"vocab\" is absent or not an object" },
        { VOCAB("{}"), "the vocabulary is empty" },
        { VOCAB("{'a':'0'}"), "is not an integer" },
        { VOCAB("{'a':-1}"), "is not an integer from 0" },
        { VOCAB("{'a':1.5}"), "is not an integer" },
        { VOCAB("{'a':2147483648}"), "is not an integer from 0" },
        { VOCAB("{'a':99999999999999999999}"), "is not an integer" },
        { VOCAB("{'a':4000000}"), "but there are only 1 tokens" },
        { VOCAB("{'a':0,'b':0}"), "two tokens have the id 0" },
        { MERGES("null"), "\"merges\" is absent" },
        { MERGES("['ab']"), "merge 0 is not two pieces" },
        { MERGES("[['a']]"), "merge 0 is not two pieces" },
        { MERGES("[['a',1]]"), "merge 0 is not two pieces" },
        { MERGES("['a c']"), "merge 0 names \"c\"" },
        { MERGES("['a b']"), "merge 0 names \"ab\"" },
        { SETTING("'unk_token':'<unk>'"), "which is not in the vocabulary" },
        { SETTING("'end_of_word_suffix':'</w>'"), "\"end_of_word_suffix\" is set" },
        { SETTING("'continuing_subword_prefix':'##'"), "\"continuing_subword_prefix\" is set" },
        { SETTING("'dropout':0.1"), "\"dropout\" is set" },
        { SETTING("'byte_fallback':1"), "expected true or false" },
        { WITH("'added_tokens':{}"), "\"added_tokens\" is not an array" },
        { WITH("'added_tokens':[7]"), "entry 0 of \"added_tokens\" has no \"content\"" },
        { WITH("'added_tokens':[{'content':'c'}]"), "is not an integer" },
        { WITH("'added_tokens':[{'content':'a','id':5}]"), "has two ids, 0 and 5" },
        { WITH("'added_tokens':[{'content':'c','id':1}]"), "two tokens have the id 1" },
        { WITH("'added_tokens':[{'content':'c','id':2,'special':'yes'}]"), "expected true or false" },
        { WITH("'normalizer':{'type':'Precompiled'}"), "normalizer \"Precompiled\" is not supported" },
        { WITH("'normalizer':[]"), "a normalizer is not an object" },
        { WITH("'normalizer':{'type':'Sequence'}"), "\"normalizers\" is absent" },
        { WITH("'normalizer':{'type':'Replace','content':''}"), "neither a \"String\" nor a \"Regex\"" },
        { WITH("'normalizer':{'type':'Prepend'}"), "\"prepend\" is absent" },
        { WITH("'pre_tokenizer':{'type':'BertPreTokenizer'}"), "pre-tokenizer \"BertPreTokenizer\" is not supported" },
        { WITH("'pre_tokenizer':{'type':'Split','pattern':{'Regex':'('},'behavior':'Isolated'}"), "not closed" },
        { WITH("'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},'behavior':'Lost'}"), "behavior \"Lost\"" },
        { WITH("'pre_tokenizer':{'type':'Metaspace','replacement':'_','prepend_scheme':'maybe'}"), "\"maybe\"" },
        { WITH("'decoder':{'type':'CTC'}"), "decoder \"CTC\" is not supported" },
        { WITH("'decoder':{'type':'Sequence','decoders':[{'type':'Fuse'},{'type':'ByteFallback'}]}"), "joins" },
        { WITH("'decoder':{'type':'Strip','content':' ','start':-1,'stop':0}"), "\"start\"" },
        { WITH("'decoder':{'type':'Strip','content':'','start':1,'stop':0}"), "expected one character" },
        { WITH("'post_processor':{'type':'BertProcessing'}"), "post-processor \"BertProcessing\" is not supported" },
        { WITH("'post_processor':{'type':'TemplateProcessing'}"), "0 texts" },
        { WITH("'post_processor':" TEMPLATE("{'SpecialToken':{'id':'x'}}," TEXT)), "\"x\", which is not among" },
        { WITH("'post_processor':" TEMPLATE("{'SpecialToken':{'id':'</s>'}}," TEXT)), "the id 2, which is not" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = { "" };
        struct tokenizer *tokenizer = open_json(cases[i].json, NULL, &err);
        if (tokenizer)
            fail_msg("%s was taken", cases[i].json);
        assert_says(err, cases[i].says);
        assert_says(err, "tokenizer.json: ");
    }
    struct error err = { "" };
    assert_null(tokenizer_open(&(struct checkpoint){ .path = "there" }, &err));
    assert_says(err, "there has no tokenizer.json");
}

static void too_many_steps_are_refused(void **state)
{
    (void)state;
    struct strbuf json = { 0 };
    strbuf_add_text(&json, "{'model':{'vocab':{'a':0},'merges':[]},");
    strbuf_add_text(&json, "'pre_tokenizer':{'type':'Sequence','pretokenizers':[");
    for (int i = 0; i < 100; i++)
        strbuf_add_format(&json, "%s{'type':'Digits'}", i ? "," : "");
    strbuf_add_text(&json, "]}}");
    struct error err = { "" };
    assert_null(open_json(json.data, NULL, &err));
    assert_says(err, "more than 64 steps");
    strbuf_free(&json);
}

static void broken_ggufs_end_in_a_sentence(void **state)
{
    (void)state;
    static const char *const pieces[] = { "a", "b", "ab", NULL }, *const twice[] = { "a", "b", "a", NULL };
    static const char *const merges[] = { "a b", NULL }, *const unknown[] = { "a c", NULL };
    static const char *const single[] = { "ab", NULL };
    static const struct {
        struct gguf_vocabulary vocabulary;
        const char *says;
    } cases[] = {
        { { NULL, NULL, pieces, NULL, NULL, -1, -1 }, "carries no tokenizer" },
        { { "none", NULL, pieces, NULL, NULL, -1, -1 }, "carries no tokenizer" },
        { { "bert", NULL, pieces, NULL, NULL, -1, -1 }, "of the type \"bert\"" },
        { { "t5", NULL, pieces, NULL, NULL, -1, -1 }, "of the type \"t5\"" },
        { { "rwkv", NULL, pieces, NULL, NULL, -1, -1 }, "of the type \"rwkv\"" },
        { { "new", NULL, pieces, NULL, NULL, -1, -1 }, "of the type \"new\"" },
        { { "gpt2", "new", pieces, NULL, merges, -1, -1 }, "the pre-tokenizer \"new\" is unknown" },
        { { "gpt2", "gpt-2", pieces, NULL, NULL, -1, -1 }, "merges is absent" },
        { { "gpt2", "gpt-2", pieces, NULL, unknown, -1, -1 }, "merge 0 names \"c\", which is not" },
        { { "gpt2", "gpt-2", pieces, NULL, single, -1, -1 }, "entry 0 is not two pieces" },
        { { "gpt2", "gpt-2", twice, NULL, merges, -1, -1 }, "has two ids, 0 and 2" },
        { { "gpt2", "gpt-2", pieces, NULL, merges, -1, 3 }, "bos_token_id is 3, and the vocabulary has 3 tokens" },
        { { "gpt2", "gpt-2", pieces, NULL, merges, 1, -1 }, "adds a BOS token" },
        { { "llama", NULL, NULL, NULL, NULL, -1, -1 }, "has 0 tokens" },
        { { "llama", NULL, pieces, NULL, merges, -1, -1 }, "scores has 0 entries" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = { "" };
        struct tokenizer *tokenizer = open_gguf(&cases[i].vocabulary, &err);
        if (tokenizer)
            fail_msg("case %zu was taken", i);
        assert_says(err, cases[i].says);
    }
}

static void text_past_the_limit_is_refused(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_byte_level("", "", "");
    struct tokens tokens = { 0 };
    struct error err;
    assert_false(tokenizer_encode(tokenizer, (struct bytes){ "", (size_t)1 << 40 }, 0, &tokens, &err));
    assert_says(err, "cut it into parts");
    tokens_free(&tokens);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank_then_leftmost),
        cmocka_unit_test(merges_by_score),
        cmocka_unit_test(falls_back_to_bytes_then_unknown),
        cmocka_unit_test(takes_whole_pieces_first),
        cmocka_unit_test(finds_added_tokens),
        cmocka_unit_test(longest_added_token_wins_in_a_gguf),
        cmocka_unit_test(bos_is_added_as_the_files_say),
        cmocka_unit_test(bos_of_a_gguf_has_defaults),
        cmocka_unit_test(streams_whole_characters),
        cmocka_unit_test(keeps_bytes_that_are_no_text),
        cmocka_unit_test(byte_alphabet_has_256_letters),
        cmocka_unit_test(long_runs_take_bounded_time),
        cmocka_unit_test(marks_are_ordered_in_bounded_time),
        cmocka_unit_test(normalizes),
        cmocka_unit_test(normalizers_cannot_explode),
        cmocka_unit_test(splits_in_five_ways),
        cmocka_unit_test(reads_the_dialect_of_tokenizers),
        cmocka_unit_test(refuses_regexes_by_name),
        cmocka_unit_test(broken_files_end_in_a_sentence),
        cmocka_unit_test(too_many_steps_are_refused),
        cmocka_unit_test(broken_ggufs_end_in_a_sentence),
        cmocka_unit_test(text_past_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
