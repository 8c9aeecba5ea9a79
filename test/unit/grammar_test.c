// SPDX-License-Identifier: Apache-2.0
// Grammars over a vocabulary of bytes and a few longer tokens. test/e2e/test_grammar.py walks through real vocabularies
// and holds the answers to what the `jsonschema` package says.
#include <limits.h>
#include <pthread.h>
#include <time.h>

#include "tokenizer_open.h"
#include "sanitized.h"
#include "base/random.h"
#include "text/grammar/matcher.h"

enum { END = 256 };

struct fixture {
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
};

static int setup(void **state)
{
    static struct fixture fixture;
    fixture.tokenizer = open_byte_level(",'<|im_end|>':256,'true':257,'aab':258,'{\\\"':259,'\\\":':260,'\\\",':261,"
                                        "'ab':262,'\\\"}':263,'12':264,'}}':265,'abc\\\"':266,"
                                        "'\\\\\\\"':267,'null,':268",
                                        "", "'added_tokens':[{'id':256,'content':'<|im_end|>','special':true}],");
    fixture.vocabulary = grammar_vocabulary_open(fixture.tokenizer);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    grammar_vocabulary_close(fixture->vocabulary);
    tokenizer_close(fixture->tokenizer);
    return 0;
}

static struct grammar *compile(const char *schema, struct error *err)
{
    json_t *json = read_quoted(schema);
    struct grammar *grammar = grammar_from_schema(json, err);
    json_decref(json); // a grammar stands on its own
    return grammar;
}

static struct grammar *must_compile(const char *schema)
{
    struct error err = { "" };
    struct grammar *grammar = compile(schema, &err);
    if (!grammar)
        fail_msg("%s: %s", schema, err.text);
    return grammar;
}

static void check_refused(const char *schema, const char *words)
{
    struct error err = { "" };
    struct grammar *grammar = compile(schema, &err);
    if (grammar || !strstr(err.text, words))
        fail_msg("%s: %s", schema, grammar ? "was taken" : err.text);
}

static bool is_set(const uint32_t *mask, int32_t id) { return mask[id / 32] >> id % 32 & 1; }

enum { MASK_WORDS = 16 };

static bool is_allowed(struct matcher *matcher, int32_t id)
{
    uint32_t mask[MASK_WORDS];
    memset(mask, 0xFF, sizeof mask);
    matcher_restrict(matcher, mask);
    return is_set(mask, id);
}

// How many bytes of the text a grammar takes, one by one; one more when the text may end there.
static size_t taken(const struct fixture *fixture, const struct grammar *grammar, const char *text)
{
    struct matcher *matcher = matcher_open(grammar, fixture->vocabulary);
    size_t at = 0;
    for (; text[at] && is_allowed(matcher, (uint8_t)text[at]); at++)
        matcher_accept(matcher, (uint8_t)text[at]);
    at += !text[at] && is_allowed(matcher, END);
    matcher_close(matcher);
    return at;
}

// In the texts of these tests, ' stands for ".
static char *unquoted(const char *text)
{
    char *copy = strdup(text);
    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return copy;
}

static void check_takes(void **state, const char *schema, const char *text, bool expected)
{
    struct grammar *grammar = must_compile(schema);
    char *plain = unquoted(text);
    size_t count = taken(*state, grammar, plain);
    if ((count == strlen(plain) + 1) != expected)
        fail_msg("%s and %s: %zu bytes taken", schema, text, count);
    free(plain);
    grammar_free(grammar);
}

// ---- what a schema means ----

struct example {
    const char *schema;
    const char *good[6], *bad[6];
};

static void check_examples(void **state, const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < 6 && examples[i].good[k]; k++)
            check_takes(state, examples[i].schema, examples[i].good[k], true);
        for (size_t k = 0; k < 6 && examples[i].bad[k]; k++)
            check_takes(state, examples[i].schema, examples[i].bad[k], false);
    }
}

// A regex of a whole answer is about the text itself: nothing is escaped as in a JSON string.
static void follows_a_regex(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool taken;
    } rows[] = {
        { "(red|blue)[0-9]{2}", "red07", true },
        { "(red|blue)[0-9]{2}", "red7", false },
        { "^a+$", "aaa", true },
        { "\"[a-z]+\"", "\"ab\"", true },
        { "\"[a-z]+\"", "\\\"ab\\\"", false },
        { "a\\\\b", "a\\b", true },
        { "a\\\\b", "a\\\\b", false },
        { "a\\nb", "a\nb", true },
        { "[^b]*", "\"\\a", true },
        { "\303\244+", "\303\244\303\244", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { "" };
        struct grammar *grammar = grammar_from_pattern(bytes_of(rows[i].pattern), &err);
        if (!grammar)
            fail_msg("%s: %s", rows[i].pattern, err.text);
        size_t count = taken(*state, grammar, rows[i].text);
        if ((count == strlen(rows[i].text) + 1) != rows[i].taken)
            fail_msg("%s and %s: %zu bytes taken", rows[i].pattern, rows[i].text, count);
        grammar_free(grammar);
    }
}

static void follows_types(void **state)
{
    static const struct example examples[] = {
        { "true", { "{'a':[1, 'x'], 'b':{}}", "null", "-0.5e+10" }, { "[1,]", "nul", "{'a':1}}", "  1", "1 " } },
        { "{'type':'integer'}", { "0", "-12", "123456789012345" }, { "01", "-0", "1.0", "1234567890123456", "+1" } },
        { "{'type':'number'}", { "0", "1.25", "1e5", "-3E-10" }, { ".5", "1.", "1e", "1e100", "--1" } },
        { "{'type':['boolean','null']}", { "true", "false", "null" }, { "1", "True" } },
        { "{'type':'string','minLength':2,'maxLength':3}",
          { "'ab'", "'\xE6\xBC\xA2\xE5\xAD\x97z'", "'\\n\\u00e9'" },
          { "'a'", "'abcd'", "''", "'a\x80'", "'\\ud800a'" } },
        { "{'type':'string'}",
          { "''", "'\xF0\x9F\x98\x80\\/'", "'\\ud7ff'" },
          { "'\n'", "'\xED\xA0\x80'", "'\\x'", "'\\u0000'", "'\xC0\x80'", "'\xF4\x90\x80\x80'" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

#define SPACES_8 "        "
#define SPACES_64 SPACES_8 SPACES_8 SPACES_8 SPACES_8 SPACES_8 SPACES_8 SPACES_8 SPACES_8

static void follows_white_space(void **state)
{
    static const struct example examples[] = {
        { "true",
          { "{\n  'a': [\n    1,\n    2\n  ],\n  'b': {}\n}", "{ 'a' : 1 , 'b' : [ ] }", "{\r\n\t'a':\t1\r\n}",
            "{\n\n'a':1\n\n}", "[\n" SPACES_64 "1\n" SPACES_64 "]" },
          { "{\n\n\n'a':1}", "[     1]", "[\n" SPACES_64 " 1]", "\n{}", "{}\n", "[1\n2]" } },
        { "{'properties':{'a':{'type':'integer'},'b':{'prefixItems':[{'const':1}]}},'required':['a']}",
          { "{\n  'a': 1,\n  'b': [\n    1\n  ]\n}", "{ 'a' :12 }", "{'a':1 ,'b':[ ]}" },
          { "{ }", "{'a':1 2}", "{' a':1}", "{'a':1,\n}" } },
        { "{'type':'object','additionalProperties':false}", { "{}", "{ }", "{\n}" }, { "{'a':1}", "{\n\n\n}" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

static void follows_objects_and_arrays(void **state)
{
    static const struct example examples[] = {
        { "{'properties':{'a':{'type':'null'},'b':{'type':'null'},'ab':{'const':1}},'required':['b']}",
          { "{'b':null}", "{'a':null,'b':null}", "{'a': null, 'b': null, 'ab': 1}" },
          { "{}", "{'a':null}", "{'b':null,'a':null}", "{'b':null,'b':null}", "{'b':null,}", "{'c':1,'b':null}" } },
        { "{'type':'object','additionalProperties':{'type':'integer'}}", { "{}", "{'x':1, 'y':2}" }, { "{'x':null}" } },
        { "{'type':'object','additionalProperties':false}", { "{}" }, { "{'x':1}" } },
        { "{'properties':{'a':false,'b':{'const':1}}}", { "{}", "{'b':1}" }, { "{'a':1}" } },
        { "{'items':{'type':'integer'},'minItems':1,'maxItems':2}", { "[1]", "[1, 2]" }, { "[]", "[1,2,3]" } },
        { "{'prefixItems':[{'const':1},{'const':2}],'items':{'const':3},'minItems':1}",
          { "[1]", "[1,2]", "[1,2,3, 3]" },
          { "[]", "[2]", "[1,3]" } },
        { "{'prefixItems':[{'const':1},{'const':2}],'items':false}", { "[]", "[1]", "[1,2]" }, { "[1,2,3]" } },
        { "{'prefixItems':[{'const':1},{'const':2}],'maxItems':1}", { "[]", "[1]" }, { "[1,2]" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

static void follows_choices_and_references(void **state)
{
    static const struct example examples[] = {
        { "{'enum':['a','ab',1,12,{'k':[1,2]}]}",
          { "'a'", "'ab'", "1", "12", "{'k': [1, 2]}" },
          { "'b'", "123", "{}" } },
        { "{'anyOf':[{'const':'x'},{'type':'integer'}]}", { "'x'", "5" }, { "'y'", "5.5" } },
        { "{'$defs':{'t':{'properties':{'l':{'$ref':'#/$defs/t'}}}},'$ref':'#/$defs/t'}",
          { "{}", "{'l':{'l':{}}}" },
          { "{'l':1}", "{'l':{'l':{}}" } },
        { "{'allOf':[{'properties':{'a':{'minimum':3}}},{'properties':{'a':{'type':'integer','maximum':5}},"
          "'required':['a']}]}",
          { "{'a':3}", "{'a':5}" },
          { "{}", "{'a':2}", "{'a':6}" } },
        { "{'type':'object','properties':{'a':{'const':1},'b':{'const':2}},"
          "'anyOf':[{'required':['a']},{'required':['b']}]}",
          { "{'a':1}", "{'b':2}", "{'a':1,'b':2}" },
          { "{}" } },
        { "{'oneOf':[{'properties':{'t':{'const':1}},'required':['t']},"
          "{'properties':{'t':{'const':2}},'required':['t']}]}",
          { "{'t':1}", "{'t':2}" },
          { "{'t':3}" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

static void follows_number_ranges(void **state)
{
    static const struct example examples[] = {
        { "{'type':'integer','minimum':-7,'maximum':120}",
          { "-7", "0", "99", "100", "120" },
          { "-8", "121", "-0", "200" } },
        { "{'type':'integer','exclusiveMinimum':9,'maximum':11}", { "10", "11" }, { "9", "12", "1" } },
        { "{'type':'number','minimum':0.25,'exclusiveMaximum':1.5}",
          { "0.25", "0.3", "1", "1.49", "0.2500" },
          { "0.249", "0", "1.5", "1.50", "2" } },
        { "{'type':'number','maximum':-2}", { "-2", "-2.0", "-2.5", "-10" }, { "-1.99", "0", "2" } },
        { "{'type':'number','minimum':0}", { "0", "0.0", "123.5" }, { "-0.1", "-1" } },
        { "{'type':'number','exclusiveMinimum':-0.0}", { "0.1", "7" }, { "0", "0.0", "-1" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

static void follows_patterns(void **state)
{
    static const struct example examples[] = {
        { "{'pattern':'^a[^b-d]{2}(x|yz)?$'}",
          { "'aef'", "'a\xC3\xA9zx'", "'aeeyz'", "'a\\'\\\\'" },
          { "'abe'", "'aeey'" } },
        { "{'pattern':'b+'}", { "'b'", "'abba'", "' b\xC3\xA9'" }, { "'a'", "''" } },
        { "{'pattern':'^(?:a|b){0,2}$'}", { "''", "'ab'" }, { "'aba'", "'c'" } },
        { "{'pattern':'^\\\\d\\\\w\\\\s\\\\.\\\\u0041$'}", { "'1a\\t.A'" }, { "'1a\\t.B'", "'aa .A'" } },
        { "{'pattern':'^[a-z]*$','minLength':2,'maxLength':4}", { "'ab'", "'abcd'" }, { "'a'", "'abcde'" } },
        { "{'pattern':'^.{2}$'}", { "'\xF0\x9F\x98\x80\xC3\xA9'", "'\\'\\\\'" }, { "'\\n\\n'", "'a'", "'abc'" } },
        { "{'format':'date'}", { "'2024-02-28'" }, { "'2024-02-30'", "'2024-13-01'", "'24-01-01'" } },
        { "{'format':'ipv4'}", { "'255.0.19.1'" }, { "'256.0.0.1'", "'1.2.3'", "'01.2.3.4'" } },
    };
    check_examples(state, examples, sizeof examples / sizeof *examples);
}

static void refuses_what_it_cannot_hold(void **state)
{
    (void)state;
    check_refused("[]", "object, true or false");
    check_refused("false", "no answer");
    check_refused("{'not':{}}", "no answer");
    check_refused("{'properties':{'a':{'items':{'contains':1}}}}", "#/properties/a/items: 'contains'");
    check_refused("{'$ref':'#'}", "refers to itself");
    check_refused("{'properties':{'a':{'$ref':'#'}},'required':['a']}", "no answer");
    check_refused("{'type':'string','pattern':'(((a{99}){99}){99}){99}'}", "'pattern': it is not a regex");
    check_refused("{'type':'string','pattern':'[z-a]'}", "'pattern': it is not a regex");
    check_refused("{'minItems':3,'maxItems':2}", "minItems is greater");
    check_refused("{'type':'string','minLength':20000}", "shortest answer");
    check_refused("{'allOf':[{'$ref':'#'},{'$ref':'#'}]}", "schema at #");
}

// ---- parts ----

static void follows_parts(void **state)
{
    struct fixture *fixture = *state;
    json_t *number = read_quoted("{'type':'integer'}"), *any = read_quoted("true");
    struct grammar_part first[] = { { .literal = "<a>" }, { .schema = number }, { .literal = "</a>" } };
    struct grammar_part second[] = { { .literal = "<ab>" }, { .schema = any } };
    struct grammar_part third[] = { { .literal = "<a>" }, { .literal = "x" } };
    struct grammar_part fourth[] = { { .literal = "<a>" }, { .mark = '[' }, { .schema = number }, { .mark = ']' } };
    struct grammar_part fifth[] = { { .literal = "<a>" }, { .mark = '[' }, { .literal = "x" }, { .mark = ']' } };
    struct grammar_alternative alternatives[] = {
        { first, 3 }, { second, 2 }, { third, 2 }, { fourth, 4 }, { fifth, 4 }
    };
    struct grammar_parts parts = { alternatives, 5, "\n", NULL };
    struct error err;
    struct grammar *grammar = grammar_from_parts(&parts, &err);
    assert_non_null(grammar);
    static const char *const good[] = { "<a>12</a>",   "<ab>[1]",       "<a>x", "<a>1</a>\n<ab>null\n<a>x",
                                        "<a>\n[ 7\n]", "<a>[x]\n<a>[1]" };
    static const char *const bad[] = { "<a>12", "<ab>", "<a>x\n", "<a>1</a><a>x", "x", "", "<a>[1] ", "[1]" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(taken(fixture, grammar, good[i]), strlen(good[i]) + 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(taken(fixture, grammar, bad[i]), strlen(bad[i]) + 1);
    assert_int_equal(grammar_shortest(grammar, fixture->vocabulary), 4);
    grammar_free(grammar);

    parts = (struct grammar_parts){ alternatives, 5, NULL, any }; // one of them, or a value
    grammar = grammar_from_parts(&parts, &err);
    assert_non_null(grammar);
    assert_int_equal(taken(fixture, grammar, "<a>x"), 5);
    assert_int_equal(taken(fixture, grammar, "[1]"), 4);
    assert_int_equal(taken(fixture, grammar, "<a>x\n"), 4);
    assert_int_equal(taken(fixture, grammar, "[1]\n"), 3);
    grammar_free(grammar);

    struct grammar_alternative without = { NULL, 0 }, alike[] = { { third, 2 }, { third, 1 } };
    assert_null(grammar_from_parts(&(struct grammar_parts){ .alternatives = &without, .count = 1 }, &err));
    assert_null(grammar_from_parts(&(struct grammar_parts){ .alternatives = alike, .count = 2 }, &err));
    json_decref(number);
    json_decref(any);
}

// ---- masks, budgets ----

static const char *const walked[] = {
    "true",
    "{'type':'object'}",
    "{'type':'string','maxLength':3}",
    "{'type':'string','minLength':3}",
    "{'pattern':'^[a-c\\\"]+$'}",
    "{'enum':['abc','ab','a',12,1]}",
    "{'type':'number'}",
    "{'type':'integer','minimum':7}",
    "{'properties':{'a':{'type':'string'},'ab':{'type':['integer','null']},'b':{'$ref':'#'}},'required':['ab']}",
    "{'type':'array','items':{'anyOf':[{'$ref':'#'},{'type':'string'},{'pattern':'^a'}]},'maxItems':3}",
    "{'properties':{'next':{'$ref':'#'}}}",
    "{'anyOf':[{'type':'array','items':{'$ref':'#'}},{'type':'array'}]}",
};

// By hand: a token is allowed where its bytes lead somewhere.
static bool leads_somewhere(struct matcher *matcher, const struct fixture *fixture, int32_t id)
{
    struct thread_set set = matcher->now;
    uint32_t threads = matcher->match.thread_count, stacks = matcher->match.stack_count;
    struct strbuf text = { 0 };
    if (tokenizer_is_end(fixture->tokenizer, id))
        return set.final;
    vocabulary_write(fixture->tokenizer, id, false, &text);
    for (size_t i = 0; i < text.len; i++)
        set = match_byte(&matcher->match, set, (uint8_t)text.data[i]);
    strbuf_free(&text);
    matcher->match.thread_count = threads;
    matcher->match.stack_count = stacks;
    return !match_is_dead(&set);
}

// One answer at random. Whatever the budget, it is whole when the budget is spent.
static void walk(const struct fixture *fixture, const struct grammar *grammar, int budget, uint64_t seed)
{
    struct matcher *matcher = matcher_open(grammar, fixture->vocabulary);
    struct strbuf text = { 0 };
    int size = tokenizer_size(fixture->tokenizer);
    strbuf_add_text(&text, "");
    for (int left = budget; left > 0 && !matcher_done(matcher); left--) {
        uint32_t mask[MASK_WORDS];
        int32_t allowed[MASK_WORDS * 32], count = 0;
        memset(mask, 0xFF, sizeof mask);
        matcher_restrict(matcher, mask);
        for (int32_t id = 0; id < size; id++) {
            if (is_set(mask, id))
                allowed[count++] = id;
            if (!matcher->forced)
                assert_int_equal(is_set(mask, id), leads_somewhere(matcher, fixture, id));
        }
        assert_true(count > 0);
        int32_t id = matcher_choose(matcher, left, allowed[random_between(&seed, 0, count - 1)]);
        matcher_accept(matcher, id);
        if (tokenizer_is_end(fixture->tokenizer, id))
            break;
        vocabulary_write(fixture->tokenizer, id, false, &text);
    }
    json_t *value = json_loads(text.data, JSON_DECODE_ANY, NULL);
    if (!value)
        fail_msg("budget %d: %s", budget, text.data);
    json_decref(value);
    strbuf_free(&text);
    matcher_close(matcher);
}

static void finishes_within_every_budget(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++) {
        struct grammar *grammar = must_compile(walked[i]);
        int shortest = grammar_shortest(grammar, fixture->vocabulary);
        assert_in_range(shortest, 1, 20);
        for (int k = 0; k < 60; k++)
            walk(fixture, grammar, shortest + (k < 20 ? k % 5 : k), (uint64_t)k * 97 + i);
        grammar_free(grammar);
    }
}

// ---- masks that are shared ----

enum { SHARED_MATCHERS = 16, SHARED_THREADS = 4 };
static const char shared_text[] = "{ \"kind\": \"k7\", \"v\": 12}";

static struct matcher *shared_matchers[SHARED_MATCHERS];
static uint32_t shared_masks[SHARED_MATCHERS][MASK_WORDS];

// Those of one thread, from *context on.
static void *restrict_some(void *context)
{
    for (int i = *(int *)context; i < SHARED_MATCHERS; i += SHARED_THREADS) {
        memset(shared_masks[i], 0xFF, sizeof shared_masks[i]);
        matcher_restrict(shared_matchers[i], shared_masks[i]);
    }
    return NULL;
}

// Many answers of one grammar that are in the same state, on several threads: each mask is computed once.
static void computes_a_mask_once(void **state)
{
    struct fixture *fixture = *state;
    struct strbuf schema = { 0 };
    for (int i = 0; i < 200; i++)
        strbuf_add_format(&schema,
                          "%s{'properties':{'kind':{'const':'k%d'},'v':{'type':'integer'}},"
                          "'required':['kind','v']}",
                          i ? "," : "{'anyOf':[", i);
    strbuf_add_text(&schema, "]}");
    struct grammar *grammar = must_compile(schema.data);
    for (int i = 0; i < SHARED_MATCHERS; i++)
        shared_matchers[i] = matcher_open(grammar, fixture->vocabulary);
    for (size_t at = 0; shared_text[at]; at++) {
        pthread_t threads[SHARED_THREADS];
        int firsts[SHARED_THREADS];
        for (int i = 0; i < SHARED_THREADS; i++) {
            firsts[i] = i;
            assert_int_equal(pthread_create(&threads[i], NULL, restrict_some, &firsts[i]), 0);
        }
        for (int i = 0; i < SHARED_THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(mask_cache_computed(grammar->masks), at + 1);
        for (int i = 0; i < SHARED_MATCHERS; i++) {
            assert_memory_equal(shared_masks[i], shared_masks[0], sizeof shared_masks[0]);
            assert_true(is_set(shared_masks[i], (uint8_t)shared_text[at]));
            matcher_accept(shared_matchers[i], (uint8_t)shared_text[at]);
        }
    }
    for (int i = 0; i < SHARED_MATCHERS; i++) {
        assert_true(matcher_done(shared_matchers[i]));
        matcher_close(shared_matchers[i]);
    }
    grammar_free(grammar);
    strbuf_free(&schema);
}

// Inside a string most steps are in a state that was there before; and what is forgotten is computed again, the same.
static void keeps_the_masks_used_last(void **state)
{
    struct fixture *fixture = *state;
    struct grammar *grammar = must_compile("{'type':'string','maxLength':300}");
    struct matcher *matcher = matcher_open(grammar, fixture->vocabulary), *other;
    matcher_accept(matcher, '"');
    for (int i = 0; i < 2 * MASK_CACHE_MAX; i++) { // the room that is left is a part of the state
        assert_true(is_allowed(matcher, 'a') && is_allowed(matcher, '"'));
        assert_int_equal(mask_cache_computed(grammar->masks), i + 1);
        matcher_accept(matcher, 'a');
    }
    other = matcher_open(grammar, fixture->vocabulary);
    matcher_accept(other, '"');
    assert_true(is_allowed(other, 'a') && is_allowed(other, '"'));
    assert_int_equal(mask_cache_computed(grammar->masks), 2 * MASK_CACHE_MAX + 1);
    matcher_close(matcher);
    matcher_close(other);
    grammar_free(grammar);

    grammar = must_compile("{'type':'string'}");
    matcher = matcher_open(grammar, fixture->vocabulary);
    matcher_accept(matcher, '"');
    for (int i = 0; i < 100; i++) {
        assert_true(is_allowed(matcher, 'a'));
        matcher_accept(matcher, 'a');
    }
    assert_int_equal(mask_cache_computed(grammar->masks), 1);
    matcher_close(matcher);
    grammar_free(grammar);
}

static void nests_only_so_deep(void **state)
{
    struct fixture *fixture = *state;
    struct grammar *grammar = must_compile("{'properties':{'a':{'$ref':'#'},'b':{'items':{'$ref':'#'}}}}");
    struct matcher *matcher = matcher_open(grammar, fixture->vocabulary);
    int depth = 0;
    for (const char *text = "{\"a\":"; is_allowed(matcher, '{') && depth < 1000; depth++)
        for (size_t i = 0; text[i] && is_allowed(matcher, (uint8_t)text[i]); i++)
            matcher_accept(matcher, (uint8_t)text[i]);
    assert_in_range(depth, RULES_HEIGHT_MAX / 2, RULES_HEIGHT_MAX);
    for (int left = 2 * RULES_HEIGHT_MAX; left > 0 && !matcher_done(matcher); left--)
        matcher_accept(matcher, matcher_choose(matcher, left, '}'));
    assert_true(matcher_done(matcher));
    matcher_close(matcher);
    grammar_free(grammar);
}

static void needs_a_vocabulary_that_can_write(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = must_open("{'model':{'vocab':{'a':0,'b':1},'merges':[]}}", NULL);
    struct grammar_vocabulary *vocabulary = grammar_vocabulary_open(tokenizer);
    struct error err;
    struct grammar *grammar = compile("{'type':'object'}", &err);
    assert_int_equal(grammar_shortest(grammar, vocabulary), INT_MAX);
    grammar_free(grammar);
    grammar_vocabulary_close(vocabulary);
    tokenizer_close(tokenizer);
}

static void writes_the_first_token_as_the_detokenizer_does(void **state)
{
    (void)state;
    static const char *const pieces[] = { "<unk>", "<s>", "</s>", "\xE2\x96\x81", "\xE2\x96\x81{", "{", "}", NULL };
    static const int32_t types[] = { 2, 3, 3, 1, 1, 1, 1 };
    struct gguf_vocabulary spelled = { "llama", NULL, pieces, types, NULL, -1, -1 };
    struct tokenizer *tokenizer = must_open_gguf(&spelled);
    struct grammar_vocabulary *vocabulary = grammar_vocabulary_open(tokenizer);
    struct grammar *grammar = must_compile("{'type':'object','additionalProperties':false}");
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    assert_true(is_allowed(matcher, 3) && is_allowed(matcher, 4) && is_allowed(matcher, 5));
    matcher_accept(matcher, 3); // a space that is not written
    assert_false(is_allowed(matcher, 3) || is_allowed(matcher, 4));
    matcher_accept(matcher, 5);
    assert_true(is_allowed(matcher, 6) && !is_allowed(matcher, 2));
    matcher_accept(matcher, 6);
    assert_true(matcher_done(matcher) && is_allowed(matcher, 2));
    matcher_close(matcher);
    grammar_free(grammar);
    grammar_vocabulary_close(vocabulary);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_a_regex),
        cmocka_unit_test(follows_types),
        cmocka_unit_test(follows_white_space),
        cmocka_unit_test(follows_objects_and_arrays),
        cmocka_unit_test(follows_choices_and_references),
        cmocka_unit_test(follows_number_ranges),
        cmocka_unit_test(follows_patterns),
        cmocka_unit_test(refuses_what_it_cannot_hold),
        cmocka_unit_test(follows_parts),
        cmocka_unit_test(finishes_within_every_budget),
        cmocka_unit_test(computes_a_mask_once),
        cmocka_unit_test(keeps_the_masks_used_last),
        cmocka_unit_test(nests_only_so_deep),
        cmocka_unit_test(needs_a_vocabulary_that_can_write),
        cmocka_unit_test(writes_the_first_token_as_the_detokenizer_does),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
