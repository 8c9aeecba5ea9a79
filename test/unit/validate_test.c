// SPDX-License-Identifier: Apache-2.0
// The JSON Schema validator, keyword by keyword. test/e2e/test_grammar.py holds it to the `jsonschema` package.
#include "tokenizer_open.h"
#include "text/grammar/validate.h"

enum { VALUES_MAX = 12 };

static enum validity check(const char *schema, const char *value, struct error *err)
{
    json_t *rules = read_quoted(schema), *instance = read_quoted(value);
    enum validity verdict = validate(rules, rules, instance, err);
    json_decref(rules);
    json_decref(instance);
    return verdict;
}

static void check_verdict(const char *schema, const char *value, enum validity expected)
{
    struct error err = { "" };
    enum validity verdict = check(schema, value, &err);
    if (verdict != expected)
        fail_msg("%s of %s: verdict %d, expected %d (%s)", schema, value, verdict, expected, err.text);
}

static const struct {
    const char *schema;
    const char *good[VALUES_MAX], *bad[VALUES_MAX];
} keywords[] = {
    { "true", { "1" }, { 0 } },
    { "false", { 0 }, { "1" } },
    { "{'type':'integer'}", { "1", "1.0", "-3e2", "1e300" }, { "1.5", "'1'", "true" } },
    { "{'type':['string','null']}", { "'a'", "null" }, { "1" } },
    { "{'type':'string','nullable':true}", { "null" }, { "1" } },
    { "{'enum':[1,'a',{'b':[1.0]}]}", { "1.0", "'a'", "{'b':[1]}" }, { "true", "'b'", "{'b':[]}" } },
    { "{'const':false}", { "false" }, { "0", "null" } },
    { "{'minimum':3,'exclusiveMaximum':5}", { "3", "4.99", "'a'" }, { "2", "5" } },
    { "{'minimum':3,'exclusiveMinimum':true}", { "4" }, { "3" } },
    { "{'multipleOf':0.01}", { "0.07", "19.99", "4", "0", "-0.3" }, { "0.005", "1.001" } },
    { "{'multipleOf':3}", { "9", "9.0", "3e20", "-6" }, { "10", "1.5", "1e20" } },
    { "{'multipleOf':2.5}", { "5", "7.5", "1e5" }, { "4", "0.5" } },
    { "{'minLength':2,'maxLength':3}", { "'ab'", "'\\u00e9\\ud83e\\udd8a'", "1" }, { "'a'", "'abcd'" } },
    { "{'pattern':'b$'}", { "'ab'", "1" }, { "'ba'", "'b\\n'" } },
    { "{'pattern':'^(a|b)\\\\1$'}", { "'aa'" }, { "'ab'" } },
    { "{'pattern':'^\\\\p{Lu}$'}", { "'\\u00c9'" }, { "'a'" } },
    { "{'items':{'type':'integer'}}", { "[]", "[1,2]", "'a'" }, { "[1,'a']" } },
    { "{'prefixItems':[{'type':'null'}],'items':{'type':'integer'}}", { "[]", "[null,1]" }, { "[1]", "[null,null]" } },
    { "{'items':[{'type':'null'}],'additionalItems':false}", { "[null]" }, { "[null,1]" } },
    { "{'minItems':1,'maxItems':2}", { "[1]", "[1,2]" }, { "[]", "[1,2,3]" } },
    { "{'uniqueItems':true}",
      { "[1,2]", "[1,true,'1']", "[[1],[2]]" },
      { "[1,1.0]", "[{'a':1,'b':2},{'b':2,'a':1}]" } },
    { "{'contains':{'const':1},'minContains':2,'maxContains':3}", { "[1,1]", "{}" }, { "[1]", "[1,1,1,1]" } },
    { "{'contains':{'const':1},'minContains':0}", { "[]" }, { 0 } },
    { "{'properties':{'a':{'type':'integer'}},'required':['a']}", { "{'a':1}", "[]" }, { "{}", "{'a':'b'}" } },
    { "{'properties':{'a':{}},'patternProperties':{'^b':{'type':'null'}},'additionalProperties':false}",
      { "{'a':1,'bc':null}" },
      { "{'c':1}", "{'b':1}" } },
    { "{'propertyNames':{'maxLength':2}}", { "{'ab':1}", "{}" }, { "{'abc':1}" } },
    { "{'minProperties':1,'maxProperties':2}", { "{'a':1}" }, { "{}", "{'a':1,'b':1,'c':1}" } },
    { "{'dependentRequired':{'a':['b']}}", { "{'b':1}", "{'a':1,'b':1}" }, { "{'a':1}" } },
    { "{'dependencies':{'a':['b'],'c':{'required':['d']}}}", { "{'b':1}" }, { "{'a':1}", "{'c':1}" } },
    { "{'allOf':[{'minimum':1},{'maximum':3}]}", { "2" }, { "0", "4" } },
    { "{'anyOf':[{'type':'null'},{'minimum':3}]}", { "null", "3" }, { "2" } },
    { "{'oneOf':[{'minimum':1},{'maximum':3}]}", { "0", "4" }, { "2" } },
    { "{'not':{'type':'null'}}", { "1" }, { "null" } },
    { "{'if':{'type':'integer'},'then':{'minimum':3},'else':{'type':'string'}}", { "3", "'a'" }, { "2", "null" } },
    { "{'then':false,'else':false}", { "1" }, { 0 } },
    { "{'$defs':{'a':{'type':'null'}},'items':{'$ref':'#/$defs/a'}}", { "[null]" }, { "[1]" } },
    { "{'items':{'$ref':'#'},'maxItems':1}", { "[[[]]]" }, { "[[[],[]]]" } },
    { "{'title':1,'format':'colour','x':{}}", { "'red'" }, { 0 } },
};

static void keywords_hold_or_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        for (int k = 0; k < VALUES_MAX && keywords[i].good[k]; k++)
            check_verdict(keywords[i].schema, keywords[i].good[k], VALID);
        for (int k = 0; k < VALUES_MAX && keywords[i].bad[k]; k++)
            check_verdict(keywords[i].schema, keywords[i].bad[k], INVALID);
    }
}

static const struct {
    const char *name;
    const char *good[VALUES_MAX], *bad[VALUES_MAX];
} formats[] = {
    { "date", { "2024-02-29", "1900-12-31", "0004-02-29" }, { "2023-02-29", "1900-02-29", "2024-13-01", "2024-1-1" } },
    { "time", { "23:59:60Z", "12:00:00.123+01:30" }, { "24:00:00Z", "12:00:00", "12:00Z" } },
    { "date-time", { "2024-02-29T12:00:00Z" }, { "2024-02-29", "2024-02-30T12:00:00Z" } },
    { "duration", { "P1D", "PT1H30M", "P1Y2M3DT4H", "P2W" }, { "P", "PT", "1D", "P1H" } },
    { "email", { "a.b+c@example.org", "x@y" }, { "a@", "@b", "a b@c.d", "a..b@c" } },
    { "hostname", { "example.org", "a", "xn--bcher-kva.example" }, { "-a", "a..b", "a_b", "" } },
    { "ipv4", { "127.0.0.1", "255.255.255.255" }, { "256.0.0.1", "1.2.3", "01.2.3.4" } },
    { "ipv6",
      { "::1", "::", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4" },
      { "1:2", ":::", "12345::", "1::2::3" } },
    { "uri", { "https://a.b/c?d=e#f", "urn:x:y", "mailto:a@b" }, { "a/b", "//a", "http://a b" } },
    { "uri-reference", { "a/b", "../c?d", "#x", "" }, { "a b", "%zz" } },
    { "iri", { "https://b\\u00fccher.example/" }, { "b\\u00fccher" } },
    { "uri-template", { "/a/{b}", "/{?x,y*}" }, { "/{", "/{a b}" } },
    { "uuid", { "123e4567-e89b-12d3-a456-426614174000" }, { "123e4567e89b12d3a456426614174000", "g23e4567-e89b" } },
    { "json-pointer", { "", "/a/~0b/~1c" }, { "a", "/~", "/~2" } },
    { "relative-json-pointer", { "0", "1/a", "2#" }, { "/a", "01", "-1" } },
    { "regex", { "^a+$", "[]", "(?<x>a)\\\\k<x>" }, { "(", "a**", "[z-a]" } },
};

static void formats_hold_or_not(void **state)
{
    (void)state;
    char schema[64], value[96];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        snprintf(schema, sizeof schema, "{'format':'%s'}", formats[i].name);
        for (int k = 0; k < VALUES_MAX && formats[i].good[k]; k++) {
            snprintf(value, sizeof value, "'%s'", formats[i].good[k]);
            check_verdict(schema, value, VALID);
        }
        for (int k = 0; k < VALUES_MAX && formats[i].bad[k]; k++) {
            snprintf(value, sizeof value, "'%s'", formats[i].bad[k]);
            check_verdict(schema, value, INVALID);
        }
    }
}

// A violation names its keyword, where that stands, and what it does not hold for.
static void sentences_say_where(void **state)
{
    (void)state;
    struct error err = { "" };
    const char *schema = "{'properties':{'tags':{'items':{'$ref':'#/$defs/t'}}},'$defs':{'t':{'maxLength':2}}}";
    assert_int_equal(check(schema, "{'tags':['a','abc']}", &err), INVALID);
    assert_string_equal(err.text, "'maxLength' at #/properties/tags/items/$ref does not hold for /tags/1: there are 3");
    assert_int_equal(check("{'uniqueItems':true}", "[1,2,1]", &err), INVALID);
    assert_string_equal(err.text, "'uniqueItems' at # does not hold: items 0 and 2 are equal");
}

// No verdict where none can be had: a schema that is none, one that goes round in circles, a regex without end.
static void gives_up_within_bounds(void **state)
{
    (void)state;
    check_verdict("{'type':7}", "1", UNDECIDED);
    check_verdict("{'$ref':'#'}", "1", UNDECIDED);
    check_verdict("{'$ref':'#/nowhere'}", "1", UNDECIDED);
    check_verdict("{'not':{'anyOf':3,'$ref':'#'}}", "1", UNDECIDED);
    check_verdict("{'pattern':'^(a+)+$'}", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'", UNDECIDED);
    check_verdict("{'pattern':'('}", "'a'", UNDECIDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_hold_or_not),
        cmocka_unit_test(formats_hold_or_not),
        cmocka_unit_test(sentences_say_where),
        cmocka_unit_test(gives_up_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
