// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "server/log.h"

#include <cmocka.h>

// Standard error goes into a file while `act` runs; what came is returned, to be freed.
static char *captured(void (*act)(const struct log *log), const struct log *log)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    act(log);
    dup2(kept, STDERR_FILENO);
    close(kept);
    struct strbuf text = { 0 };
    char chunk[4096];
    rewind(file);
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;)
        strbuf_add(&text, chunk, got);
    strbuf_add_byte(&text, '\0');
    fclose(file);
    return text.data;
}

static void log_a_request(const struct log *log)
{
    log_event(log, LOG_INFO, "request",
              (const struct log_field[]){ { "id", LOG_TEXT, .text = "chatcmpl-1" },
                                          { "model", LOG_TEXT, .text = "a b=\"c\"\x1b[31m\n\xFF" },
                                          { "absent", LOG_TEXT },
                                          { "in", LOG_COUNT, .number = 12 },
                                          { "total", LOG_SECONDS, .number = 0.9125 },
                                          { "cache", LOG_PERCENT, .number = 0.4249 },
                                          { "speed", LOG_RATE, .number = 45.06 },
                                          { "odd", LOG_RATE, .number = NAN },
                                          { 0 } });
}

static void log_a_sentence(const struct log *log)
{
    log_message(log, LOG_WARNING, "start", "%s has %d \"words\"\n\x01", "it", 2);
}

static void log_every_level(const struct log *log)
{
    for (int level = 0; level < LOG_LEVELS; level++)
        log_message(log, (enum log_level)level, "event", "x");
}

static void test_text(void **state)
{
    (void)state;
    char *line = captured(log_a_request, &(struct log){ LOG_INFO, false });
    assert_true(strlen(line) > 24 && line[4] == '-' && line[10] == ' ' && line[19] == '.');
    assert_string_equal(line + 23,
                        " info    request: id=chatcmpl-1 model=\"a b=\\\"c\\\"?[31m?\xEF\xBF\xBD\" in=12 "
                        "total=0.912s cache=42% speed=45.1/s odd=-\n");
    free(line);
    line = captured(log_a_sentence, &(struct log){ LOG_INFO, false });
    assert_string_equal(line + 23, " warning start: it has 2 \"words\"??\n");
    free(line);
}

static void test_json(void **state)
{
    (void)state;
    char *line = captured(log_a_request, &(struct log){ LOG_INFO, true });
    json_t *event = json_loads(line, 0, NULL);
    assert_non_null(event);
    assert_int_equal(strlen(json_string_value(json_object_get(event, "time"))), strlen("2026-11-15T07:00:00.123Z"));
    json_object_del(event, "time");
    json_t *expected = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:n}", "level", "info", "event", "request",
                                 "id", "chatcmpl-1", "model", "a b=\"c\"?[31m?\xEF\xBF\xBD", "in", 12, "total", 0.9125,
                                 "cache", 0.4249, "speed", 45.06, "odd");
    assert_true(json_equal(event, expected));
    json_decref(event);
    json_decref(expected);
    free(line);
    line = captured(log_a_sentence, &(struct log){ LOG_INFO, true });
    event = json_loads(line, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "message")), "it has 2 \"words\"??");
    assert_string_equal(json_string_value(json_object_get(event, "level")), "warning");
    json_decref(event);
    free(line);
}

static void test_levels(void **state)
{
    (void)state;
    for (int level = 0; level < LOG_LEVELS; level++) {
        char *text = captured(log_every_level, &(struct log){ (enum log_level)level, false });
        int lines = 0;
        for (const char *c = text; *c; c++)
            lines += *c == '\n';
        assert_int_equal(lines, LOG_LEVELS - level);
        assert_non_null(strstr(text, log_level_words[level]));
        free(text);
    }
}

enum { THREADS = 4, LINES = 200 };

static void *log_many(void *log)
{
    for (int i = 0; i < LINES; i++)
        log_message(log, LOG_INFO, "thread", "a sentence that is one line and stays one");
    return NULL;
}

static void log_from_threads(const struct log *log)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, (void *)log), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads_do_not_mix(void **state)
{
    (void)state;
    char *text = captured(log_from_threads, &(struct log){ LOG_INFO, true }), *rest = text;
    int lines = 0;
    for (char *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        json_t *event = json_loads(line, 0, NULL);
        assert_non_null(event);
        json_decref(event);
    }
    assert_int_equal(lines, THREADS * LINES);
    free(text);
}

static void print_lines(const struct log *log)
{
    log_print(log, LOG_INFO, "plan", "one \"line\"\nand another\n");
    log_failure(log, "it ends");
}

static void test_print(void **state)
{
    (void)state;
    char *text = captured(print_lines, &(struct log){ LOG_ERROR, false });
    assert_string_equal(text, "one \"line\"\nand another\nnibble: it ends\n");
    free(text);
    text = captured(print_lines, &(struct log){ LOG_ERROR, true });
    static const char *const want[] = { "one \"line\"", "and another", "nibble: it ends" };
    char *rest = text;
    for (int i = 0; i < 3; i++) {
        json_t *event = json_loads(strsep(&rest, "\n"), 0, NULL);
        assert_string_equal(json_string_value(json_object_get(event, "message")), want[i]);
        assert_string_equal(json_string_value(json_object_get(event, "event")), i < 2 ? "plan" : "failure");
        json_decref(event);
    }
    assert_string_equal(rest, "");
    free(text);
}

// ---- the queue ----

// Standard error is a pipe: its other end.
static int stderr_to_pipe(int *kept)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    *kept = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

static void restore_stderr(int kept)
{
    dup2(kept, STDERR_FILENO);
    close(kept);
}

enum { MANY_LINES = 50000 };

static void log_without_a_reader(const struct log *log)
{
    for (int i = 0; i < MANY_LINES; i++)
        log_message(log, LOG_INFO, "many", "line %d", i);
}

// Nobody reads: logging goes on, lines are dropped and counted; when somebody reads again, the log says how many.
static void test_a_stalled_reader(void **state)
{
    (void)state;
    struct log log = { LOG_INFO, true };
    struct error err;
    int kept, reader = stderr_to_pipe(&kept);
    assert_true(log_open(&log, &err));
    log_without_a_reader(&log);
    uint64_t dropped = log_dropped(&log);
    assert_true(dropped > 0 && dropped < MANY_LINES);
    struct strbuf text = { 0 };
    char chunk[4096], want[64];
    snprintf(want, sizeof want, "\"event\": \"log\", \"message\": \"%llu lines", (unsigned long long)dropped);
    while (!strstr(strbuf_text(&text), want)) {
        ssize_t got = read(reader, chunk, sizeof chunk);
        assert_true(got > 0);
        strbuf_add(&text, chunk, (size_t)got);
    }
    log_message(&log, LOG_INFO, "after", "there is room again");
    log_close(&log);
    restore_stderr(kept);
    for (ssize_t got; (got = read(reader, chunk, sizeof chunk)) > 0;)
        strbuf_add(&text, chunk, (size_t)got);
    assert_non_null(strstr(text.data, "there is room again"));
    int lines = 0;
    for (const char *c = text.data; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, MANY_LINES - (int)dropped + 2);
    close(reader);
    strbuf_free(&text);
}

static void test_closing_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct log log = { LOG_INFO, false };
        struct error err;
        int kept;
        (void)stderr_to_pipe(&kept);
        bool opened = log_open(&log, &err);
        log_without_a_reader(&log);
        log_close(&log);
        uint64_t dropped = log_dropped(&log);
        log_message(&log, LOG_INFO, "late", "too late for the log");
        _exit(opened && log_dropped(&log) == dropped + 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_threads_do_not_mix),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_a_stalled_reader),
        cmocka_unit_test(test_closing_does_not_wait_for_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
