// SPDX-License-Identifier: Apache-2.0
// Chat templates by themselves: limits, sentences with their lines, white space, scopes, what is no template.
// test/e2e/test_template.py holds them to what jinja2 prints.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "text/template.h"
#include "text/template/lex.h"

#include <cmocka.h> // last: it has a macro called fail

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                                   "\"assistant\", \"content\": null}],"
                                   "\"bos_token\": \"<s>\", \"list\": [3, 1, 2], \"word\": \"h\\u00e9\\u0000!\"}";

// The text, or the sentence; the caller frees *out.
static bool render(struct bytes source, struct strbuf *out, struct error *err)
{
    json_t *variables = json_loads(conversation, JSON_ALLOW_NUL, NULL);
    char *exact = malloc(source.len ? source.len : 1); // so that a byte read past the end is noticed
    if (source.len)
        memcpy(exact, source.data, source.len);
    struct template *template = template_parse((struct bytes){ exact, source.len }, err);
    free(exact); // a parsed template stands on its own
    bool ok = template
        && template_render(template, variables, &(struct template_limits){ .now = 1700000000 }, out, err);
    template_free(template);
    json_decref(variables);
    return ok;
}

static void check_text(const char *source, const char *expected)
{
    struct strbuf out = { 0 };
    struct error err;
    if (!render(bytes_of(source), &out, &err))
        fail_msg("%s: %s", source, err.text);
    assert_string_equal(strbuf_text(&out), expected);
    strbuf_free(&out);
}

static void check_refused(const char *source, const char *sentence)
{
    struct strbuf out = { 0 };
    struct error err;
    strbuf_add_text(&out, "before");
    if (render(bytes_of(source), &out, &err))
        fail_msg("%s: it should not have printed %s", source, strbuf_text(&out));
    if (!strstr(err.text, sentence))
        fail_msg("%s: '%s' does not speak of '%s'", source, err.text, sentence);
    assert_string_equal(strbuf_text(&out), "before"); // nothing half done is left behind
    strbuf_free(&out);
}

static void test_renders(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } cases[] = {
        { "", "" },
        { "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content or '-' }}{% endfor %}",
          "<s><user>Hi<assistant>-" },
        { "{{ list | sort | join(',') }} {{ messages | length }} {{ messages[0] | tojson }}",
          "1,2,3 2 {\"role\": \"user\", \"content\": \"Hi\"}" },
        { "{{ word | length }} {{ word[1] }} {{ word[2:] | tojson }}", "4 \xC3\xA9 \"\\u0000!\"" },
        { "{{ missing }}[{{ messages[0].missing }}]{{ missing is defined }}", "[]False" },
        { "{{ {'a': [1, 2.0, none, true, 'x']} }}", "{'a': [1, 2.0, None, True, 'x']}" },
        { "{% generation %}x{% endgeneration %}", "x" },
        { "{% set _ = list.append(4) %}{{ list }}{{ list.pop() }}{{ list.pop(0) }}{{ list.pop(-1) }}{{ list }}{{ _ }}",
          "[3, 1, 2, 4]432[1]None" },
        { "{% for x in list %}{{ x }}{% if x == 3 %}{% set _ = list.append(7) %}{% endif %}{% endfor %}", "3127" },
        { "{{ '{\"a\": [1, 2.5, null, \"\\u00e9\"]}' | from_json }}", "{'a': [1, 2.5, None, '\xC3\xA9']}" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_text(cases[i].source, cases[i].text);
}

static void test_white_space(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } cases[] = {
        { "a\n", "a" },
        { "a\n\n", "a\n" },
        { "a\r\nb\rc", "a\nb\nc" },
        { "{% if true %}\nx\n{% endif %}\ny", "x\ny" },
        { "  {% if true %}\n  x\n  {% endif %}\n", "  x\n" },
        { "a {%- if true -%} b {%- endif -%} c", "abc" },
        { "a {%+ if true +%}\nb{% endif %}", "a \nb" },
        { "  {{ 1 }}  {{- 2 -}}  3", "  123" },
        { "x {#- gone -#} y\n  {# gone #}\nz", "xy\nz" },
        { "{% raw %}{{ x }}{% endraw %}", "{{ x }}" },
        { "a {%- raw -%} {{ x }} {%- endraw -%} b", "a{{ x }}b" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_text(cases[i].source, cases[i].text);
}

static void test_scopes(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } cases[] = {
        { "{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "1" },
        { "{% set n = namespace(x=0) %}{% for i in list %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}", "6" },
        { "{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1" },
        { "{% macro m(a, b=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set c = 9 %}{{ m(1) }}{{ m(1, b=2) }}",
          "119129" },
        { "{% for i in list %}{% for j in list %}{{ loop.index }}{% endfor %}{{ loop.last }} {% endfor %}",
          "123False 123False 123True " },
        { "{% set x %}a{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}", "a1False" },
        // Set for certain, but later: until then it is not the variable from outside.
        { "{% for i in [1] %}{{ bos_token }}{% endfor %}{% set bos_token = 2 %}{{ bos_token }}", "2" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_text(cases[i].source, cases[i].text);
}

static void test_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
    } cases[] = {
        { "\n\n{{ missing.x }}", "chat template, line 3: 'missing' is undefined" },
        { "{{ messages[0].missing.x }}", "line 1: a dict has no attribute 'missing'" },
        { "{{ list[9].x }}", "a list has no such element" },
        { "a\n{% for m in messages %}\n{{ m.content + 'x' }}\n{% endfor %}",
          "line 3: '+' does not work between none and a string" },
        { "{{ 1 / 0 }}", "division by zero" },
        { "{{ 9223372036854775807 + 1 }}", "outgrows 64 bits" },
        { "{{ list.extend([4]) }}", "'extend' of a list is not allowed in a template" },
        { "{{ [].pop() }}", "pop: the list is empty" },
        { "{{ list.pop(3) }}", "pop: the list has no item 3" },
        { "{{ '{x' | from_json }}", "from_json: " },
        { "{{ 5 | from_json }}", "from_json takes a string, not an integer" },
        { "{% for x in none %}{% endfor %}", "none cannot be iterated over" },
        { "{{ list | nope }}", "there is no filter called 'nope'" },
        { "{{ list is nope }}", "there is no test called 'nope'" },
        { "{{ nope(1) }}", "there is no function called 'nope'" },
        { "{{ word.nope() }}", "there is no method called 'nope'" },
        { "{% if true %}{{ word | nope }}{% endif %}", "there is no filter called 'nope'" },
        { "{% if true %}{{ word.nope() }}{% endif %}", "a string has no attribute 'nope'" },
        { "{{ '{:d}'.format(1) }}", "it takes {}, {0} and {name} alone" },
        { "{{ 'x' | replace('a') }}", "replace needs 2 arguments" },
        { "{{ 'x'.upper(1) }}", "upper takes at most 0 arguments, not 1" },
        { "{{ range(100001) }}", "more than 100000 numbers" },
        { "{{ [1, 'a'] | sort }}", "a string and an integer have no order" },
        { "{{ list | tojson(separators=1) }}", "two strings as separators" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_refused(cases[i].source, cases[i].sentence);
}

static void test_raise_exception(void **state)
{
    (void)state;
    struct strbuf out = { 0 };
    struct error err;
    assert_false(render(bytes_of("text\n{{ raise_exception('Roles must\nalternate: 100% ' ~ 1) }}"), &out, &err));
    assert_string_equal(err.text, "Roles must\nalternate: 100% 1"); // as it is, without a line
    assert_int_equal(out.len, 0);
    strbuf_free(&out);
}

static void test_strftime_now(void **state)
{
    (void)state;
    time_t now = 1700000000;
    struct tm local;
    char expected[64];
    localtime_r(&now, &local);
    strftime(expected, sizeof expected, "%d %b %Y", &local);
    check_text("{{ strftime_now('%d %b %Y') }}", expected);
}

static void test_no_templates(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
    } cases[] = {
        { "{{", "line 1: unexpected 'the end of the template'" },
        { "{{ 1", "expected '}}', found 'the end of the template'" },
        { "a\n{% if true %}b", "line 2: the template ends without the endif that belongs here" },
        { "{% endfor %}", "unknown tag 'endfor'" },
        { "{% if true %}{% endfor %}{% endif %}", "unknown tag 'endfor'" },
        { "{% frobnicate %}", "unknown tag 'frobnicate'" },
        { "{% do list.append(1) %}", "unknown tag 'do'" },
        { "{% include 'x' %}", "unknown tag 'include'" },
        { "{% break %}", "{% break %} is not in a loop" },
        { "{% for loop in list %}{% endfor %}", "'loop' cannot be assigned to" },
        { "{% set 1 = 2 %}", "can be assigned to" },
        { "{% macro m(a=1, b) %}{% endmacro %}", "without a default follows" },
        { "{{ (1] }}", "found ']' where ')' was due" },
        { "{{ 1) }}", "')' closes nothing" },
        { "{{ 'open }}", "a string is not closed" },
        { "{{ '\\ud800' }}", "names no character" },
        { "{{ 99999999999999999999 }}", "does not fit 64 bits" },
        { "{{ f(a=1, a=2) }}", "'a' is given twice" },
        { "{{ f(a=1, 2) }}", "wrong order" },
        { "x {# y", "a comment is not closed" },
        { "x {% raw %} y", "{% raw %} is not closed" },
        { "{{ a ? b }}", "unexpected character '?'" },
        { "\xFF", "not valid UTF-8" },
        { "{{ 1 is defined is defined }}", "cannot be chained" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_refused(cases[i].source, cases[i].sentence);
}

// `before`, then `middle` many times, then `after`.
static void check_repeated(const char *before, const char *middle, size_t times, const char *after,
                           const char *sentence)
{
    struct strbuf source = { 0 };
    strbuf_add_text(&source, before);
    for (size_t i = 0; i < times; i++)
        strbuf_add_text(&source, middle);
    strbuf_add_text(&source, after);
    check_refused(strbuf_text(&source), sentence);
    strbuf_free(&source);
}

static void test_limits_of_the_source(void **state)
{
    (void)state;
    check_repeated("", "x", TEMPLATE_SOURCE_BYTES_MAX + 1, "", "the limit is 262144");
    check_repeated("{{ ", "(", 10000, "", "brackets are open");
    check_repeated("{{ ", "- ", 10000, "1 }}", "nests deeper");
    check_repeated("{{ ", "not ", 10000, "1 }}", "nests deeper");
    check_repeated("{{ 1", " if 1 else 1", 10000, " }}", "nests deeper");
    check_repeated("", "{% if 1 %}", 10000, "", "nests deeper");
    check_repeated("{{ 1", " + 1", 10000, " }}", "chains or nests more than");
    check_repeated("{{ x", ".y", 10000, " }}", "chains or nests more than");
    check_repeated("{{ x", "|upper", 10000, " }}", "chains or nests more than");
    check_repeated("{{ f(a=1", ",b", 10000, ") }}", "wrong order");
    check_repeated("{% macro m(a0", ",a", 1, ",a) %}{% endmacro %}", "'a' is there twice");
}

static void test_limits_of_a_run(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
    } cases[] = {
        { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps" },
        { "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
          "MB of memory" },
        { "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
          "MB of memory" },
        { "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}", "the limit" },
        { "{{ 'x' * 1000000000000 }}", "the text grows past" },
        { "{{ [0] * 1000000000000 }}", "MB of memory" },
        { "{{ 'x' | indent(1000000000000, true) }}", "the text grows past" },
        { "{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "the text grows past" },
        { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels" },
        { "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
          "levels" },
        { "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson }}",
          "levels" },
        { "{% set n = namespace(l=()) %}{% for i in range(9999) %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1} }}",
          "levels" },
        { "{% set n = namespace(l=()) %}{% for i in range(99) %}{% set n.l = (n.l, n.l) %}"
          "{% endfor %}{{ n.l == n.l[0] }}{{ {n.l: 1} }}",
          "steps" },
        { "{% set n = namespace(g=list) %}{% for i in range(9999) %}{% set n.g = n.g | map('string') %}"
          "{% endfor %}{{ n.g | list }}",
          "levels" },
        { "{% set n = namespace() %}{% set n.n = n %}{{ n }}", "levels" },
        { "{% set _ = list.append(list) %}{{ list }}", "levels" },
        { "{% set _ = list.append(list) %}{{ list | tojson }}", "levels" },
        { "{% set l = [] %}{% set m = [] %}{% set _ = l.append(m) %}{% set _ = m.append(l) %}{{ l == m }}", "levels" },
        { "{% set _ = list.append(list) %}{{ list < list }}", "levels" },
        { "{% for x in list %}{% set _ = list.append(x) %}{% endfor %}", "MB of memory" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clock_t start = clock();
        check_refused(cases[i].source, cases[i].sentence);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (seconds > 10) // about a second, and sanitizers are slow
            fail_msg("%s took %.1f seconds", cases[i].source, seconds);
    }
}

// A text that grows piece by piece costs its length, not its square, and older pieces stay what they were.
static void test_growing_text(void **state)
{
    (void)state;
    check_text("{% set n = namespace(s='') %}{% for i in range(90000) %}{% set n.s = n.s + 'twenty bytes of text' %}"
               "{% endfor %}{{ n.s | length }}",
               "1800000");
    check_text("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{% set d = b + '3' %}"
               "{{ a }} {{ b }} {{ c }} {{ d }}",
               "xy xy1 xy2 xy13");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_renders),         cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_scopes),          cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_raise_exception), cmocka_unit_test(test_strftime_now),
        cmocka_unit_test(test_no_templates),    cmocka_unit_test(test_limits_of_the_source),
        cmocka_unit_test(test_limits_of_a_run), cmocka_unit_test(test_growing_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
