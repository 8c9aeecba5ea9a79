// SPDX-License-Identifier: Apache-2.0
#include "container.h"
#include "format/json.h"

static bool read_exact(struct bytes text, json_t **out, struct error *err)
{
    struct bytes copy = exact_copy(text);
    bool ok = json_read(copy, out, err);
    free((char *)copy.data);
    return ok;
}

static json_t *read_text(const char *text)
{
    json_t *value;
    struct error err;
    if (!read_exact(bytes_of(text), &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static void test_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
    } cases[] = {
        { "{\"b\": 1, \"a\": [true, null, \"x\"]}", "{\"b\":1,\"a\":[true,null,\"x\"]}" },
        { "\xEF\xBB\xBF[1]", "[1]" },
        { "7", "7" },
        { "\"x\"", "\"x\"" },
        { "[NaN, Infinity, -Infinity]", "[null,1e308,-1e308]" },
        { "{\"time_step_limit\":[0.0,Infinity]}", "{\"time_step_limit\":[0.0,1e308]}" },
        { "[\"NaN\", \"\\\"Infinity\", \"a\\\\\", NaN]", "[\"NaN\",\"\\\"Infinity\",\"a\\\\\",null]" },
        { "[1e400, -1e400, 1e-400, 12.5e3]", "[1e308,-1e308,0.0,12500.0]" },
        { "[999999999999999999, -999999999999999999]", "[999999999999999999,-999999999999999999]" },
        { "[9223372036854775807, -9223372036854775808]", "[9223372036854775807,-9223372036854775808]" },
        { "[9223372036854775808, -9223372036854775809]", "[9.223372036854776e18,-9.223372036854776e18]" },
        { "{\"model_max_length\": 1000000000000000019884624838656}", "{\"model_max_length\":1e30}" },
        { "[\"1000000000000000019884624838656\"]", "[\"1000000000000000019884624838656\"]" },
        { "[0.1000000000000000019884624838656]", "[0.1]" },
        { "[\"\\ud83d\\ude00\", \"\\u0000\"]", "[\"\xF0\x9F\x98\x80\",\"\\u0000\"]" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *value = read_text(cases[i].text);
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(16));
        assert_string_equal(text, cases[i].value);
        free(text);
        json_decref(value);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        { "", "empty where JSON was expected" },
        { "\xEF\xBB\xBF", "empty where JSON was expected" },
        { "{\n  \"a\": 1,\n  oops }", "line 3, column 6: not valid JSON" },
        { "[1, 2", "line 1, column 5: not valid JSON" },
        { "[1] [2]", "not valid JSON" },
        { "[\"\\ud800\"]", "half of a surrogate pair" },
        { "[\"\\ud800\\ud800\"]", "half of a surrogate pair" },
        { "[\"\\udc00\"]", "half of a surrogate pair" },
        { "[\"\xFF\"]", "unable to decode byte 0xff" },
        { "[\"\xED\xA0\x80\"]", "unable to decode byte 0xed" },
        { "{\"a\\u0000\": 1}", "NUL" },
        { "{\"a\": 1,\n \"b\": {\"b\": 2}, \"a\": 1}", "line 2, column 19: the key \"a\" stands twice in one object" },
        { "[{\"max_position_embeddings\": 1, \"max_position_embeddings\": 2}]", "the key \"max_position_embeddings\"" },
        { "{\"a\\\"b\": 1, \"a\\\"b\": 1}", "the key \"a\\\"b\" stands" },
        { "{\"\": 1, \"\": 1}", "the key \"\" stands" },
        { "[nan]", "not valid JSON" },
        { "[NaN1]", "not valid JSON" },
        { "[-NaN]", "not valid JSON" },
        { "[Inf]", "not valid JSON" },
        { "[1e400e400]", "not valid JSON" },
        { "[--99999999999999999999]", "not valid JSON" },
        { "\"", "not valid JSON" },
        { "\"\\", "not valid JSON" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *value;
        struct error err;
        if (read_exact(bytes_of(cases[i].text), &value, &err))
            fail_msg("%s was accepted", cases[i].text);
        assert_null(value);
        assert_says(err, cases[i].error);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct strbuf text = { 0 };
    json_t *value;
    struct error err;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        strbuf_add_byte(&text, '[');
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        strbuf_add_byte(&text, ']');
    assert_true(json_read(strbuf_bytes(&text), &value, &err));
    json_decref(value);
    text.len = 0;
    for (int i = 0; i <= JSON_DEPTH_MAX; i++)
        strbuf_add_byte(&text, '[');
    assert_false(json_read(strbuf_bytes(&text), &value, &err));
    assert_says(err, "nested more than 128 levels");
    text.len = 0;
    for (int i = 0; i <= JSON_CONTAINERS_MAX; i++)
        strbuf_add_text(&text, "[]");
    assert_false(json_read(strbuf_bytes(&text), &value, &err));
    assert_says(err, "more than 4194304 arrays and objects");
    text.len = 0;
    for (int i = 0; i < 100000; i++) // a number of a hundred thousand digits
        strbuf_add_byte(&text, '7');
    assert_true(json_read(strbuf_bytes(&text), &value, &err));
    assert_true(json_real_value(value) == 1e308);
    json_decref(value);
    strbuf_free(&text);
}

static void test_look_ups(void **state)
{
    (void)state;
    json_t *object = read_text("{\"i\": 5, \"w\": 4096.0, \"r\": 0.5, \"b\": true, \"t\": \"text\", \"n\": null, "
                               "\"o\": {}, \"nul\": \"a\\u0000b\", \"huge\": 1000000000000000019884624838656}");
    struct error err;
    int64_t integer = 7;
    double real = 7;
    bool boolean = false;
    const char *text = "default";

    assert_true(json_get_int(object, "absent", 0, 9, &integer, &err));
    assert_true(json_get_int(object, "n", 0, 9, &integer, &err));
    assert_int_equal(integer, 7);
    assert_true(json_get_int(object, "i", 5, 5, &integer, &err));
    assert_int_equal(integer, 5);
    assert_true(json_get_int(object, "w", 0, 9999, &integer, &err));
    assert_int_equal(integer, 4096);
    assert_false(json_get_int(object, "i", 6, 9, &integer, &err));
    assert_says(err, "\"i\" is 5, expected an integer from 6 to 9");
    assert_false(json_get_int(object, "r", 0, 9, &integer, &err));
    assert_false(json_get_int(object, "huge", 0, INT64_MAX, &integer, &err));
    assert_says(err, "\"huge\" is 1e+30, expected an integer");
    assert_false(json_get_int(object, "b", 0, 9, &integer, &err));
    assert_says(err, "\"b\" is a boolean, expected an integer");

    assert_true(json_get_real(object, "absent", &real, &err));
    assert_true(real == 7);
    assert_true(json_get_real(object, "r", &real, &err));
    assert_true(real == 0.5);
    assert_true(json_get_real(object, "i", &real, &err));
    assert_true(real == 5);
    assert_false(json_get_real(object, "t", &real, &err));
    assert_says(err, "\"t\" is a string, expected a number");

    assert_true(json_get_bool(object, "b", &boolean, &err));
    assert_true(boolean);
    assert_false(json_get_bool(object, "i", &boolean, &err));
    assert_says(err, "\"i\" is an integer, expected true or false");

    assert_true(json_get_text(object, "n", &text, &err));
    assert_string_equal(text, "default");
    assert_true(json_get_text(object, "t", &text, &err));
    assert_string_equal(text, "text");
    assert_false(json_get_text(object, "o", &text, &err));
    assert_says(err, "\"o\" is an object, expected a string");
    assert_false(json_get_text(object, "nul", &text, &err));
    assert_says(err, "holds a NUL");
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_look_ups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
