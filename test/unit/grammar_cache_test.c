// SPDX-License-Identifier: Apache-2.0
// The cache of compiled grammars: equal requests compile once, different ones apart, and the bytes are bounded.
#include "tokenizer_open.h"
#include "server/grammar_cache.h"

static struct api api;

static int setup(void **state)
{
    (void)state;
    api.tokenizer = open_byte_level(",'<|im_end|>':256", "",
                                    "'added_tokens':[{'id':256,'content':'<|im_end|>','special':true}],");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_close((struct tokenizer *)api.tokenizer);
    return 0;
}

static struct grammar *of_schema(const char *text, bool compact)
{
    struct error err = { "" };
    json_t *schema = read_quoted(text);
    struct grammar *grammar = grammar_cache_get(
        &api, &(struct grammar_source){ .kind = compact ? GRAMMAR_COMPACT_SCHEMA : GRAMMAR_SCHEMA, .json = schema },
        &err);
    json_decref(schema);
    return grammar;
}

static struct grammar *of_tools(const char *text, struct tools_choice choice)
{
    struct error err = { "" };
    json_t *tools = read_quoted(text);
    struct grammar *grammar = grammar_cache_get(
        &api,
        &(struct grammar_source){
            .kind = GRAMMAR_TOOLS, .json = tools, .form = tools_form_default(), .choice = &choice },
        &err);
    json_decref(tools);
    assert_non_null(grammar);
    return grammar;
}

static void check_compiled(uint64_t expected) { assert_int_equal(grammar_cache_compiled(api.grammars), expected); }

static void compiles_equal_ones_once(void **state)
{
    (void)state;
    struct error err;
    api.grammars = grammar_cache_open(GRAMMAR_CACHE_BYTES);
    struct grammar *one = of_schema("{'properties':{'a':{'type':'integer'},'b':true}}", false);
    struct grammar *same = of_schema("{ 'properties' : { 'a': {'type':'integer'}, 'b': true } }", false);
    assert_ptr_equal(one, same);
    check_compiled(1);
    grammar_free(one);
    grammar_free(same);
    grammar_free(of_schema("{'properties':{'a':{'type':'integer'},'b':true}}", false)); // the cache has kept it
    check_compiled(1);
    grammar_free(of_schema("{'properties':{'b':true,'a':{'type':'integer'}}}", false)); // answers have another order
    check_compiled(2);
    grammar_free(of_schema("{'properties':{'a':{'type':'integer'},'b':true}}", true));
    check_compiled(3);
    for (int i = 0; i < 2; i++) {
        grammar_free(grammar_cache_get(
            &api, &(struct grammar_source){ .kind = GRAMMAR_PATTERN, .text = bytes_of("\"a\"") }, &err));
        grammar_free(grammar_cache_get(
            &api, &(struct grammar_source){ .kind = GRAMMAR_TEXT, .text = bytes_of("root ::= \"a\"") }, &err));
        check_compiled(5);
    }
    grammar_cache_close(api.grammars);
}

static void tells_tools_apart(void **state)
{
    (void)state;
    static const char tools[] = "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}},"
                                "{'type':'function','function':{'name':'g'}}]";
    json_t *object = read_quoted("{'type':'object'}");
    const struct tools_choice choices[] = {
        { 0 }, { .name = "f" }, { .name = "g" }, { .parallel = true }, { .otherwise = object }
    };
    api.grammars = grammar_cache_open(GRAMMAR_CACHE_BYTES);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
            grammar_free(of_tools(tools, choices[i]));
    check_compiled(sizeof choices / sizeof *choices);
    json_decref(object);
    grammar_cache_close(api.grammars);
}

static void keeps_no_failures(void **state)
{
    (void)state;
    api.grammars = grammar_cache_open(GRAMMAR_CACHE_BYTES);
    assert_null(of_schema("{'type':'nothing'}", false));
    assert_null(of_schema("{'type':'nothing'}", false));
    check_compiled(2);
    grammar_cache_close(api.grammars);
}

static struct grammar *numbered(int i)
{
    char schema[64];
    snprintf(schema, sizeof schema, "{'const':%d}", i);
    return of_schema(schema, false);
}

// The least recently used ones go; those in use stay whole.
static void is_bounded(void **state)
{
    (void)state;
    api.grammars = grammar_cache_open(GRAMMAR_CACHE_BYTES);
    struct grammar *first = numbered(0);
    size_t bytes = grammar_bytes(first, tokenizer_size(api.tokenizer));
    grammar_cache_close(api.grammars);
    assert_int_equal(tokenizer_size(api.tokenizer), 257);
    assert_string_equal(grammar_unenforced(first) ? "some" : "none", "none"); // it outlives the cache
    grammar_free(first);

    api.grammars = grammar_cache_open(3 * bytes + bytes / 2);
    for (int i = 1; i <= 3; i++)
        grammar_free(numbered(i));
    grammar_free(numbered(1)); // 2 is now the oldest
    check_compiled(3);
    grammar_free(numbered(4));
    grammar_free(numbered(1));
    grammar_free(numbered(3));
    check_compiled(4);
    grammar_free(numbered(2));
    check_compiled(5);
    grammar_cache_close(api.grammars);

    api.grammars = grammar_cache_open(bytes / 2); // room for none
    grammar_free(numbered(1));
    grammar_free(numbered(1));
    check_compiled(2);
    grammar_cache_close(api.grammars);
    api.grammars = NULL;
    grammar_free(numbered(1));
}

static void has_so_many_entries(void **state)
{
    (void)state;
    api.grammars = grammar_cache_open(SIZE_MAX / 2);
    for (int i = 0; i <= GRAMMAR_CACHE_ENTRIES; i++)
        grammar_free(numbered(i));
    grammar_free(numbered(1));
    check_compiled(GRAMMAR_CACHE_ENTRIES + 1);
    grammar_free(numbered(0));
    check_compiled(GRAMMAR_CACHE_ENTRIES + 2);
    grammar_cache_close(api.grammars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiles_equal_ones_once), cmocka_unit_test(tells_tools_apart),
        cmocka_unit_test(keeps_no_failures),        cmocka_unit_test(is_bounded),
        cmocka_unit_test(has_so_many_entries),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
