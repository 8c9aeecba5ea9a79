// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/config.h"

#include <cmocka.h>

static const struct option_row options[] = {
    { "group", OPTION_HEADING },
    { "--port", OPTION_INT },
    { "--host", OPTION_TEXT },
    { "--api-key", OPTION_TEXTS },
    { "--kv-cache-dtype-skip-layers", OPTION_LIST },
    { "--enable-prefix-caching", OPTION_SWITCH },
    { "--log-json", OPTION_FLAG },
    { "--config", OPTION_TEXT },
    { 0 },
};

// Arguments with '|' behind each, or the error; to be freed.
static char *outcome(struct bytes in)
{
    struct config config;
    struct error err;
    struct strbuf text = { 0 };
    strbuf_add_text(&text, "");
    if (config_parse(in, options, &config, &err))
        for (int i = 0; i < config.count; i++)
            strbuf_add_format(&text, "%s|", config.arguments[i]);
    else
        strbuf_add_format(&text, "%s: %s", err.usage ? "usage" : "file", err.text);
    config_free(&config);
    return text.data;
}

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *outcome;
    } cases[] = {
        { "", "" },
        { "# nothing\n", "" },
        { "port: 80\nhost: \"a b\"\n", "--port=80|--host=a b|" },
        { "{port: 80, api_key: [a, 'b,c']}", "--port=80|--api-key=a|--api-key=b,c|" },
        { "api-key:\n  - a\n  - b\nport: [7]\n", "--api-key=a|--api-key=b|--port=7|" },
        { "api-key: one\n", "--api-key=one|" },
        { "kv_cache_dtype-skip_layers: [0, 4-6]\n",
          "--kv-cache-dtype-skip-layers=0|--kv-cache-dtype-skip-layers=4-6|" },
        { "log-json: true\nenable-prefix-caching: Yes\n", "--log-json|--enable-prefix-caching|" },
        { "log-json: off\nenable_prefix_caching: false\n", "--no-enable-prefix-caching|" },
        { "no-enable-prefix-caching: true\n", "--no-enable-prefix-caching|" },
        { "no-enable-prefix-caching: false\n", "--enable-prefix-caching|" },
        { "host:\nport: ~\nlog-json: null\napi-key: []\n", "" },
        { "host: \"\"\n", "--host=|" },
        { "---\nport: 1\n...\n", "--port=1|" },
        { "port: 1\nprot: 2\n", "usage: line 2: there is no option \"prot\", did you mean port?" },
        { "no-log-json: true\n", "usage: line 1: there is no option \"no-log-json\", did you mean log-json?" },
        { "group: 1\n", "usage: line 1: there is no option \"group\"" },
        { "\"port\\0\": 1\n", "usage: line 1: there is no option \"port\"" },
        { "host: \"a\\0b\"\n", "usage: line 1: host has a zero byte in its value" },
        { "config: x\n", "usage: line 1: a configuration cannot name another" },
        { "port: 1\nhost: x\nport: 2\n", "usage: line 3: port is there a second time" },
        { "port: [1, 2]\n", "usage: line 1: port takes one value, not a list" },
        { "log-json: maybe\n", "usage: line 1: log-json takes true or false, not \"maybe\"" },
        { "host:\n  name: x\n", "usage: line 2: host holds something nested" },
        { "api-key: [[a]]\n", "usage: line 1: api-key holds something nested" },
        { "host: &x a\napi-key: *x\n", "usage: line 2: api-key is an alias" },
        { "[port]: 1\n", "usage: line 1: an option's name was expected" },
        { "- port\n", "usage: line 1: lines of the form `option: value` were expected" },
        { "port\n", "usage: line 1: lines of the form `option: value` were expected" },
        { "port: 1\n---\nport: 2\n", "usage: line 2: a second document begins" },
        { "port: [1\n", "file: line 2: not valid YAML" },
        { "port: 1\n\thost: 2\n", "file: line 2: not valid YAML" },
        { "host: \xFF\n", "file: line 1: not valid YAML" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = outcome(bytes_of(cases[i].yaml));
        bool error = strstr(cases[i].outcome, ": line ") != NULL;
        if (error ? strncmp(got, cases[i].outcome, strlen(cases[i].outcome)) : strcmp(got, cases[i].outcome))
            fail_msg("%s gives %s, expected %s", cases[i].yaml, got, cases[i].outcome);
        free(got);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct strbuf yaml = { 0 };
    strbuf_add_text(&yaml, "api-key: [");
    for (int i = 0; i < CONFIG_ARGUMENTS_MAX + 1; i++)
        strbuf_add_text(&yaml, "a,");
    strbuf_add_text(&yaml, "]\n");
    char *got = outcome(strbuf_bytes(&yaml));
    assert_string_equal(got, "usage: line 1: more than 512 values");
    free(got);
    while (yaml.len <= CONFIG_BYTES_MAX)
        strbuf_add_text(&yaml, "# and so on\n");
    got = outcome(strbuf_bytes(&yaml));
    assert_non_null(strstr(got, "and a configuration may have 65536"));
    free(got);
    strbuf_free(&yaml);
}

// The command line merged with a config file.
static char *applied(const char *yaml, char **argv)
{
    char path[] = "/tmp/nibble-config-XXXXXX";
    int fd = mkstemp(path), argc = 0;
    assert_true(fd >= 0 && write(fd, yaml, strlen(yaml)) == (ssize_t)strlen(yaml));
    close(fd);
    for (; argv[argc]; argc++)
        if (!strcmp(argv[argc], "FILE"))
            argv[argc] = path;
    struct config config;
    struct error err;
    struct strbuf text = { 0 };
    char **merged = config_apply(&config, options, &argc, argv, &err);
    unlink(path);
    for (int i = 0; merged && i < argc; i++)
        strbuf_add_format(&text, "%s|", merged[i] == path ? "FILE" : merged[i]);
    assert_true(!merged || !merged[argc]);
    if (!merged)
        strbuf_add_text(&text, err.text);
    config_free(&config);
    return text.data;
}

#define assert_applied(yaml, expected, ...)            \
    do {                                               \
        char *argv[] = { "serve", __VA_ARGS__, NULL }; \
        char *got = applied(yaml, argv);               \
        assert_string_equal(got, expected);            \
        free(got);                                     \
    } while (0)

static void test_command_line_wins(void **state)
{
    (void)state;
    assert_applied("port: 1\n", "serve|m|--port|2|", "m", "--port", "2");
    assert_applied("port: 1\nhost: h\n", "serve|--port=1|--host=h|m|--config|FILE|", "m", "--config", "FILE");
    assert_applied("port: 1\nhost: h\n", "serve|--host=h|--port=2|--config|FILE|", "--port=2", "--config", "FILE");
    assert_applied("api-key: [a, b]\n", "serve|--api-key|c|--config|FILE|", "--api-key", "c", "--config", "FILE");
    assert_applied("enable-prefix-caching: false\n",
                   "serve|--no-enable-prefix-caching|--config|FILE|--enable-prefix-caching|", "--config", "FILE",
                   "--enable-prefix-caching");
    assert_applied("port: 1\n", "serve|--|--config|FILE|", "--", "--config", "FILE");
    assert_applied("port: 1\n", "serve|--config|", "--config");
    char *argv[] = { "serve", "--config", "/no/such/file", NULL };
    char *got = applied("", argv);
    assert_non_null(strstr(got, "/no/such/file: cannot be opened"));
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_command_line_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
