// SPDX-License-Identifier: Apache-2.0
// Grammars as text: what each construct of GBNF, EBNF and Lark takes and refuses, byte by byte, and the sentences about
// what is no grammar.
#include "tokenizer_open.h"
#include "text/grammar/matcher.h"

enum { END = 256, MASK_WORDS = 16 };

static struct grammar_vocabulary *vocabulary;

static int setup(void **state)
{
    (void)state;
    vocabulary = grammar_vocabulary_open(
        open_byte_level(",'<|im_end|>':256", "", "'added_tokens':[{'id':256,'content':'<|im_end|>','special':true}],"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_close((struct tokenizer *)vocabulary->tokenizer);
    grammar_vocabulary_close(vocabulary);
    return 0;
}

static bool is_allowed(struct matcher *matcher, int32_t id)
{
    uint32_t mask[MASK_WORDS];
    memset(mask, 0xFF, sizeof mask);
    matcher_restrict(matcher, mask);
    return mask[id / 32] >> id % 32 & 1;
}

static bool takes(const struct grammar *grammar, const char *text)
{
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    bool ok = true;
    for (; *text && ok; text++) {
        ok = is_allowed(matcher, (uint8_t)*text);
        if (ok)
            matcher_accept(matcher, (uint8_t)*text);
    }
    ok = ok && is_allowed(matcher, END);
    matcher_close(matcher);
    return ok;
}

struct example {
    const char *grammar;
    const char *good[8], *bad[8];
};

static void check(const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct error err = { "" };
        struct grammar *grammar = grammar_from_text(bytes_of(examples[i].grammar), &err);
        if (!grammar)
            fail_msg("%s: %s", examples[i].grammar, err.text);
        for (size_t k = 0; k < 8 && examples[i].good[k]; k++)
            if (!takes(grammar, examples[i].good[k]))
                fail_msg("%s does not take %s", examples[i].grammar, examples[i].good[k]);
        for (size_t k = 0; k < 8 && examples[i].bad[k]; k++)
            if (takes(grammar, examples[i].bad[k]))
                fail_msg("%s takes %s", examples[i].grammar, examples[i].bad[k]);
        grammar_free(grammar);
    }
}

#define CHECK(examples) check(examples, sizeof(examples) / sizeof *(examples))

static void follows_texts_and_classes(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "root ::= \"yes\" | \"no\"", { "yes", "no" }, { "", "y", "yess", "yesno" } },
        { "root ::= \"a\\n\\t\\\"\\\\\\x41\\u00e9\\U0001F600\\[\\]\"",
          { "a\n\t\"\\A\303\251\360\237\230\200[]" },
          { "a" } },
        { "root ::= \"\303\244\" [\303\241-\303\245]",
          { "\303\244\303\241", "\303\244\303\245" },
          { "\303\244\303\246", "\303\244a" } },
        { "root ::= [a-cx\\]-]+", { "a", "cx]-", "---" }, { "", "d", "a[", "\\" } },
        { "root ::= [^a-z\\n]",
          { "A", "0", "\t", "\303\251", "\360\237\230\200" },
          { "a", "z", "\n", "", "AB", "\355\240\200" } },
        { "root ::= [^] .", { "ab", "\n\303\251" }, { "a", "abc" } },
        { "root ::= [\\x30-\\x39] [\\u4e00-\\u9fff]", { "0\344\270\200", "9\351\277\277" }, { "a\344\270\200", "0a" } },
        { "root ::= \"a\" \"\" \"b\"", { "ab" }, { "a", "b" } },
    };
    CHECK(examples);
}

static void follows_repetitions(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "root ::= \"a\"*", { "", "a", "aaaa" }, { "b", "ab" } },
        { "root ::= \"ab\"+ \"c\"?", { "ab", "ababc" }, { "", "c", "aba", "abcc" } },
        { "root ::= [0-9]{3}", { "123" }, { "12", "1234" } },
        { "root ::= [0-9]{2,}", { "12", "12345" }, { "1" } },
        { "root ::= [0-9]{ 1 , 3 }", { "1", "123" }, { "", "1234" } },
        { "root ::= \"a\"{0} \"b\"", { "b" }, { "ab" } },
        { "root ::= \"a\"{0,2} \"b\"", { "b", "aab" }, { "aaab" } },
        { "root ::= (\"a\" | \"b\" \"c\"){2}", { "aa", "bca", "bcbc" }, { "a", "ab", "aaa" } },
        { "root ::= (\"a\"*)*  \"b\"", { "b", "aab" }, { "a", "ba" } },
        { "root ::= ((\"a\"?)+ | \"c\"?){2}", { "", "aac", "cc", "ca" }, { "cac", "ccc" } },
        { "root ::= \"x\"+?", { "", "xx" }, { "y" } },
        { "root ::= [a-z]{0,4096} \".\"", { ".", "abc." }, { "A." } },
    };
    CHECK(examples);
}

// Recursive rules are no automaton, and parts of them may be empty.
static void follows_recursion(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "root ::= \"(\" root \")\" | \"x\"", { "x", "(x)", "(((x)))" }, { "", "()", "((x)", "x)" } },
        { "root ::= \"a\" root \"b\" |", { "", "ab", "aaabbb" }, { "a", "aab", "abb", "ba" } },
        { "root ::= opt opt \"x\" opt\nopt ::= \"(\" opt \")\" |",
          { "x", "()x", "()()x()", "(())x" },
          { "", "()()", "()()()x" } },
        { "root ::= opt opt opt\nopt ::= \"(\" opt \")\" |", { "", "()", "()()()", "(())()" }, { "(", "()()()()" } },
        { "root ::= opt*\nopt ::= \"(\" opt \")\" |", { "", "()()()()", "((()))()" }, { "(", ")(" } },
        { "root ::= (opt opt){2,3}\nopt ::= \"(\" opt \")\" | \"\"",
          { "", "()", "()()()()()()" },
          { "()()()()()()()" } },
        { "root ::= even\neven ::= \"a\" odd | \"\"\nodd ::= \"a\" even", { "", "aa", "aaaa" }, { "a", "aaa" } },
        { "root ::= root \"a\" | \"b\"", { "b", "baa" }, { "", "a", "bab" } },
        { "root ::= root \",\" root | \"(\" root? \")\" | \"x\"",
          { "x", "x,x,x", "(x,(x)),()", "()" },
          { "", ",", "x,", "(,x)" } },
        { "root  ::= expr\nexpr  ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\nnum  ::= [0-9]+",
          { "1", "1+2*(3-4)", "((1))" },
          { "1+", "()", "(1", "1(2)" } },
        { "root ::= list\nlist ::= item list | item\nitem ::= \"- \" [^\\n]+ \"\\n\"",
          { "- a\n", "- a\n- b\n" },
          { "- \n", "- a" } },
    };
    CHECK(examples);
}

static void reads_layout(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "# a comment\nroot ::= # another\n  a |\n  b # end\n\na ::= \"1\"\r\nb ::= (\n \"2\" # x\n | \"3\"\n)\n",
          { "1", "2", "3" },
          { "4" } },
        { "root ::= a\n  b\na ::= \"#\"\nb ::= \"::=\"", { "#::=" }, { "#" } },
        { "root ::= snake_case kebab-case dot.ted 2nd\nsnake_case ::= \"a\"\nkebab-case ::= \"b\"\ndot.ted ::= "
          "\"c\"\n2nd ::= \"d\"",
          { "abcd" },
          { "abc" } },
        { "root ::= a.\na ::= \"x\"", { "xy" }, { "x" } },
        { "root ::=| \"a\"", { "", "a" }, { "b" } },
        { "root ::= \"a\" | ( ) \"b\"", { "a", "b" }, { "" } },
        { "  root\t::= \"a\"", { "a" }, { "" } },
    };
    CHECK(examples);
}

// The JSON that GBNF files usually hold: strings with escapes, numbers, white space behind each token.
static void follows_json(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
          "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
          "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
          "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* "
          "\"\\\"\" ws\n"
          "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws\n"
          "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
          { "{}", "{\"a\": [1, -2.5e+3, true], \"b\": {\"c\": \"\\u00e9\\n\"}}", "{\n }" },
          { "", "[]", "{\"a\"}", "{\"a\": 01}", "{\"a\": tru}", "{,}", "{\"\n\": 1}", "{\"a\":  1}" } },
    };
    CHECK(examples);
}

static void follows_lark(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "start: \"yes\" | \"no\"", { "yes", "no" }, { "", "yesno" } },
        { "rule: 'abc'", { "abc" }, { "ab" } },
        { "?start: greeting -> hello\n     | NAME\n!greeting.2: \"hi\"i NAME?\nNAME.-1: /[a-z]+[0-9]{1,2}/i",
          { "hi", "HIab1", "Bob12" },
          { "", "bob", "1" } },
        { "start: (\"a\" | \"b\")+ [\"c\"]\n", { "a", "abbac" }, { "", "c", "acc" } },
        { "start: A~3 B ~ 1..2 C{2} D{,1}\nA: \"a\"\nB: \"b\"\nC: \"c\"\nD: \"d\"",
          { "aaabcc", "aaabbccd" },
          { "aabcc", "aaabc", "aaabccdd" } },
        { "start: \"a\"..\"f\" /./ /[^b]/s", { "a1\n", "fxx" }, { "g11", "a\n1", "axb" } },
        { "start: expr\nexpr: \"(\" expr \")\" | INT ((\"+\" | \"-\") expr)?\n%import common.INT\n%import "
          "common.WS\n%ignore WS\n",
          { "1", "1 + ( 2-3 ) ", "(1\n)" },
          { "", "+", "(1", " 1" } },
        { "start: pair (\",\" pair)*\npair: CNAME \"=\" (STRING | NUM)\n%import common (CNAME, WS_INLINE)\n"
          "%import common.ESCAPED_STRING -> STRING\n%import common.SIGNED_NUMBER -> NUM\n%ignore WS_INLINE\n%ignore "
          "/;[^\\n]*\\n/",
          { "a=1", "a = \"x\\\"y\" , b_2 = -1.5e3", "a=1 ;note\n,b=2" },
          { "a=", "a = \"x", "a=\"\n\"", "1=a", "a=1;note" } },
        { "// JSON\nstart: value\n?value: dict | list | STRING | NUMBER | \"true\" | \"false\" | \"null\"\n"
          "list: \"[\" [value (\",\" value)*] \"]\"\ndict: \"{\" [pair (\",\" pair)*] \"}\"\npair: STRING \":\" value\n"
          "STRING: /\"(?:[^\"\\\\\\n]|\\\\.)*\"/ # no line breaks\nNUMBER: /-?(0|[1-9]\\d*)(\\.\\d+)?/\n%ignore /[ "
          "\\t\\n]+/\n",
          { "{\"a\": [1, 2.5, {}], \"b\": null}", "[]", "\"x\"" },
          { "{\"a\"}", "[1,]", "01", "\"" } },
        { "start: \"a\"\nUNUSED: \"b\"", { "a" }, { "b" } },
        { "%llguidance {}\n\nstart: s[S] t\ns[capture]: S\nt.1[ capture=\"a\", capture]: \"t\"\nS: \"yes\"\n     | "
          "\"no\"\n\n",
          { "yest", "yesnot" },
          { "", "yes" } },
    };
    CHECK(examples);
}

static void reads_the_regexes_of_lark(void **state)
{
    (void)state;
    static const struct example examples[] = {
        { "start: /a|bc*?/", { "a", "b", "bcc" }, { "", "ac" } },
        { "start: /\\d\\w\\s\\D\\W\\S/", { "1_ a-b" }, { "x_ a-b", "1- a-b" } },
        { "start: /[\\d.]+\\/[^\\s]/", { "1.2/x" }, { "1/ ", "/x" } },
        { "start: /(?P<year>\\d{4})-(?:0[1-9]|1[0-2])/", { "2024-05", "1999-12" }, { "2024-13", "24-05" } },
        { "start: /(?<year>\\d{4})-[0-9]/", { "2024-5" }, { "2024", "24-5" } },
        { "start: /[]a]+x{2,}/", { "]xx", "a]xxx" }, { "ax" } },
        { "start: /[^a-c]/i", { "d", "1" }, { "a", "B", "c" } },
        { "start: /\\x41\\u00e9\\.\\n/", { "A\303\251.\n" }, { "A\303\251x\n" } },
        { "start: /\303\244+/", { "\303\244\303\244" }, { "a" } },
    };
    CHECK(examples);
}

static void refuses_with_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *words;
    } rows[] = {
        { "", "no rule" },
        { "a ::= \"x\"", "no rule named root" },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule \"root\" is defined a second time; it was in line 1" },
        { "root ::= a\n\na ::= b", "line 3: the rule \"b\" is used and not defined" },
        { "root ::= \"a\"\n  unknown", "line 2: the rule \"unknown\" is used and not defined" },
        { "root ::= \"a\" root", "line 1: the rule \"root\" cannot end" },
        { "root ::= a | \"x\"\na ::= b \"y\"\nb ::= a", "cannot end" },
        { "root ::= e\ne ::= t e2 | t\nt ::= e \"*\" | \"x\"\ne2 ::= \"y\"", "begins with itself by way of" },
        { "root ::= opt root | \"x\"\nopt ::= \"-\"?", "line 1: the rule \"root\" begins with itself" },
        { "root ::= root \"a\" | root | \"b\"", "line 1: the rule \"root\" begins with itself (left" },
        { "root ::= \"abc", "line 1: a text has no closing quote" },
        { "root ::= \"a\nb\"", "the line ends within a text" },
        { "root ::= [abc", "line 1: a character class has no closing bracket" },
        { "root ::= []", "no character is in" },
        { "root ::= [z-a]", "runs backwards" },
        { "root ::= \"\\q\"", "found 'q', expected an escape" },
        { "root ::= \"\\x4\"", "hexadecimal" },
        { "root ::= \"\\ud800\"", "is no character" },
        { "root ::= (\"a\"", "the grammar ends, and the ) of a group was expected" },
        { "root ::= \"a\")", "found ')'" },
        { "root ::= * \"a\"", "* has nothing to repeat" },
        { "root ::= \"a\"{2,1}", "runs backwards" },
        { "root ::= \"a\"{5000}", "above 4096" },
        { "root ::= \"a\"{", "a count" },
        { "root ::= \"a\" b ::= \"c\"", "begin it on a line of its own" },
        { "root ::= <think>", "tokens" },
        { "root ::= TagDispatch((\"a\", b))", "structural_tag" },
        { "root ::= \"\"", "has no text but the empty one" },
        { "root ::= \"a\" $", "found '$'" },
        { "root ::= \"\x80\"", "UTF-8" },
        { "just words", "found 'j', expected a rule" },
        { "start: a\na: b", "line 2: the rule \"b\" is used and not defined" },
        { "start: expr\nexpr: term\nterm: expr \"*\" | \"x\"", "begins with itself by way of" },
        { "start: /(?=a)b/", "cannot be masked" },
        { "start: /a$/", "^ or $ of a regex cannot be masked" },
        { "start: /a/x", "flag x" },
        { "start: /(a/", "the regex ends, and the ) of a group was expected" },
        { "start: /a\\", "not closed" },
        { "start: /a)/", "did not open" },
        { "start: \"a\n\"", "no closing quote" },
        { "%import python.NAME\nstart: NAME", "line 1: only terminals of \"common\"" },
        { "%import common.NOTHING\nstart: NOTHING", "common.NOTHING is not known" },
        { "%declare X\nstart: X", "%declare is not supported" },
        { "%llguidance {\"no_forcing\": true}\nstart: \"a\"", "%llguidance is not supported" },
        { "start: a\na[capture, max_tokens=8]: \"a\"", "line 2: the attribute max_tokens of a rule is not supported" },
        { "start[]: \"a\"", "the attribute  of" },
        { "start[capture: \"a\"", "a rule" },
        { "start: list{x}\n", "templates" },
        { "start: X\nX: y\ny: \"a\"", "line 2: a terminal cannot hold the rule \"y\"" },
        { "start: \"ab\"..\"c\"", "a range goes from one character" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { "" };
        struct grammar *grammar = grammar_from_text(bytes_of(rows[i].grammar), &err);
        if (grammar || !strstr(err.text, rows[i].words))
            fail_msg("%s: %s", rows[i].grammar, grammar ? "was taken" : err.text);
    }
}

static void notes_unused_rules(void **state)
{
    (void)state;
    struct error err;
    struct grammar *grammar = grammar_from_text(bytes_of("root ::= \"a\"\nb ::= \"c\""), &err);
    assert_string_equal(grammar_notice(grammar), "the rule \"b\" of line 2 is never used");
    grammar_free(grammar);
}

static char *repeated(const char *before, const char *each, int times, const char *behind)
{
    struct strbuf text = { 0 };
    strbuf_add_text(&text, before);
    for (int i = 0; i < times; i++)
        strbuf_add_text(&text, each);
    strbuf_add_text(&text, behind);
    return text.data;
}

static void has_limits(void **state)
{
    (void)state;
    static const struct {
        const char *before, *each;
        int times;
        const char *behind, *words;
    } rows[] = {
        { "root ::= ", "(", 100, "", "nested more than 64 deep" },
        { "root ::= \"a\"", "?", 100, "", "more than 8 repetitions" },
        { "root ::= ", "\"a\" ", 70000, "", "more than 65536 parts" },
        { "root ::= ", "\"aaaaaaaaaaaaaaaa\"", 40000, "", "bytes, and 524288 is the limit" },
        { "root ::= [", "ac", 600, "]", "more than 512 ranges" },
        { "root ::= \"x\" (", "(\"a\" root | \"b\")", 60, ")", NULL },
        { "start: /", "(", 100, "/", "nested more than 64 deep" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { "" };
        char *text = repeated(rows[i].before, rows[i].each, rows[i].times, rows[i].behind);
        struct grammar *grammar = grammar_from_text(bytes_of(text), &err);
        if (!grammar != !!rows[i].words || !strstr(err.text, rows[i].words ? rows[i].words : ""))
            fail_msg("%.40s: %s", text, grammar ? "was taken" : err.text);
        grammar_free(grammar);
        free(text);
    }
}

// Chains of thousands of rules: nothing recurses from rule to rule.
static void has_no_deep_recursion(void **state)
{
    (void)state;
    for (int forward = 0; forward < 2; forward++) {
        struct strbuf text = { 0 };
        struct error err = { "" };
        for (int i = 1; i < 4000; i++) {
            int at = forward ? i : 4000 - i;
            strbuf_add_format(&text, "r%d ::= \"a\" r%d | r%d \"b\"\n", at, at + 1, at + 1);
        }
        strbuf_add_text(&text, "r4000 ::= \"x\"\nroot ::= r3990\n");
        struct grammar *grammar = grammar_from_text(strbuf_bytes(&text), &err);
        if (!grammar)
            fail_msg("%s", err.text);
        assert_true(takes(grammar, "aaaaaaaaaax"));
        assert_true(takes(grammar, "axbbbbbbbbb"));
        assert_false(takes(grammar, "ax"));
        grammar_free(grammar);
        strbuf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_texts_and_classes),
        cmocka_unit_test(follows_repetitions),
        cmocka_unit_test(follows_recursion),
        cmocka_unit_test(reads_layout),
        cmocka_unit_test(follows_json),
        cmocka_unit_test(follows_lark),
        cmocka_unit_test(reads_the_regexes_of_lark),
        cmocka_unit_test(refuses_with_a_line),
        cmocka_unit_test(notes_unused_rules),
        cmocka_unit_test(has_limits),
        cmocka_unit_test(has_no_deep_recursion),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
