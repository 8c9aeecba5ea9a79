// SPDX-License-Identifier: Apache-2.0
// Mapped files that somebody changes while they are open.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mapping.h"

#include <cmocka.h> // last: it has a macro called fail

enum { PAGE = 4096, PAGES = 8 };

struct fixture {
    char folder[32], path[64], other[64];
    struct file file;
    struct error err;
};

static void write_file(const char *path, char byte)
{
    static char content[PAGES * PAGE];
    struct error err;
    memset(content, byte, sizeof content);
    unlink(path);
    assert_true(file_save(path, (struct bytes){ content, sizeof content }, &err));
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    strcpy(fixture->folder, "/tmp/nibble-file-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->path, sizeof fixture->path, "%s/weights", fixture->folder);
    snprintf(fixture->other, sizeof fixture->other, "%s/other", fixture->folder);
    const struct timespec past[] = { { 1000, 0 }, { 1000, 0 } }; // no change from now on has that time
    write_file(fixture->path, 'w');
    utimensat(AT_FDCWD, fixture->path, past, 0);
    assert_true(file_open(&fixture->file, fixture->path, &fixture->err));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    file_close(&fixture->file);
    unlink(fixture->path);
    unlink(fixture->other);
    rmdir(fixture->folder);
    free(fixture);
    return 0;
}

static void expect_changed(struct fixture *fixture, const char *words)
{
    assert_false(file_check(&fixture->file, &fixture->err));
    assert_non_null(strstr(fixture->err.text, words));
    assert_non_null(strstr(fixture->err.text, fixture->path));
}

static void test_a_file_that_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    assert_true(file_check(&fixture->file, &fixture->err));
}

static void test_a_cut_file_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(truncate(fixture->path, PAGE), 0);
    expect_changed(fixture, "had 32768 bytes when it was opened and has 4096 now");
}

static void test_an_overwritten_file_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    int fd = open(fixture->path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, PAGE), 1);
    close(fd);
    expect_changed(fixture, "was written to while it was in use");
}

static void test_a_file_renamed_into_its_place_does_no_harm(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture->other, 'o');
    assert_int_equal(rename(fixture->other, fixture->path), 0);
    assert_true(file_check(&fixture->file, &fixture->err));
    assert_int_equal(fixture->file.content.data[PAGE], 'w');
}

static void test_kept_bytes_stay_when_the_file_is_cut(void **state)
{
    struct fixture *fixture = *state;
    assert_true(file_keep(&fixture->file, PAGE + 1, &fixture->err));
    assert_int_equal(truncate(fixture->path, 0), 0);
    assert_int_equal(fixture->file.content.data[0], 'w');
    assert_int_equal(fixture->file.content.data[2 * PAGE - 1], 'w');
}

// Reads behind the cut in a process of its own: its status and what it said.
static int read_lost(const struct fixture *fixture, bool goes_on, char *said, size_t size)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        struct error err;
        dup2(pipes[1], STDERR_FILENO);
        mapping_guard();
        if (goes_on)
            mapping_go_on();
        bool zero = ((const volatile char *)fixture->file.content.data)[3 * PAGE + 5] == 0;
        _exit(zero && !file_check(&fixture->file, &err) && mapping_is_lost(fixture->file.mapping) ? 7 : 8);
    }
    close(pipes[1]);
    ssize_t len = read(pipes[0], said, size - 1);
    said[len > 0 ? len : 0] = '\0';
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_reading_behind_the_cut_ends_with_a_sentence(void **state)
{
    struct fixture *fixture = *state;
    char said[512];
    assert_int_equal(truncate(fixture->path, 2 * PAGE), 0);
    assert_int_equal(read_lost(fixture, false, said, sizeof said), 1);
    assert_non_null(strstr(said, fixture->path));
}

static void test_whoever_goes_on_reads_zeros_and_can_ask(void **state)
{
    struct fixture *fixture = *state;
    char said[512];
    assert_int_equal(truncate(fixture->path, 2 * PAGE), 0);
    assert_int_equal(read_lost(fixture, true, said, sizeof said), 7);
    assert_string_equal(said, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_that_is_left_alone),
        TEST(test_a_cut_file_is_noticed),
        TEST(test_an_overwritten_file_is_noticed),
        TEST(test_a_file_renamed_into_its_place_does_no_harm),
        TEST(test_kept_bytes_stay_when_the_file_is_cut),
        TEST(test_reading_behind_the_cut_ends_with_a_sentence),
        TEST(test_whoever_goes_on_reads_zeros_and_can_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
