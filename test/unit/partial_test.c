// SPDX-License-Identifier: Apache-2.0
// Partial outputs: what a killed process leaves behind, and what must not be touched.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/partial.h"

#include <cmocka.h> // last: it has a macro called fail

struct fixture {
    char folder[32], path[64], other[64];
    struct error err;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    strcpy(fixture->folder, "/tmp/nibble-part-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->path, sizeof fixture->path, "%s/out", fixture->folder);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", fixture->folder);
    assert_int_equal(system(command), 0);
    free(*state);
    return 0;
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

// A process that is killed while it writes; the path of what it leaves.
static void leave_behind(struct fixture *fixture, enum partial_kind kind, char *left, size_t size)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        struct partial partial;
        if (!partial_begin(&partial, kind, fixture->path, &fixture->err))
            _exit(1);
        if (kind == PARTIAL_FOLDER)
            close(openat(partial.fd, "weights", O_WRONLY | O_CREAT, 0666));
        dprintf(pipes[1], "%s", partial.path);
        raise(SIGKILL);
    }
    ssize_t len = read(pipes[0], left, size - 1);
    assert_true(len > 0);
    left[len] = '\0';
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(is_there(left));
}

static void test_what_a_killed_process_left_is_removed(void **state)
{
    struct fixture *fixture = *state;
    for (int kind = PARTIAL_FILE; kind <= PARTIAL_FOLDER; kind++) {
        char left[128];
        struct partial partial;
        leave_behind(fixture, kind, left, sizeof left);
        assert_true(partial_begin(&partial, kind, fixture->path, &fixture->err));
        assert_false(is_there(left));
        partial_give_up(&partial);
    }
}

static void test_what_is_being_written_stays(void **state)
{
    struct fixture *fixture = *state;
    struct partial first, second;
    assert_true(partial_begin(&first, PARTIAL_FOLDER, fixture->path, &fixture->err));
    assert_true(partial_begin(&second, PARTIAL_FOLDER, fixture->path, &fixture->err));
    assert_string_not_equal(first.path, second.path);
    assert_true(is_there(first.path));
    assert_true(partial_commit(&first, fixture->path, &fixture->err));
    assert_false(partial_commit(&second, fixture->path, &fixture->err)); // it is there now
    assert_non_null(strstr(fixture->err.text, "cannot be made (File exists)"));
}

static void test_other_names_and_links_stay(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = { "out.partial", "out.partial-1234567", "out.txt", "about.partial-123456" };
    char path[128], link[128];
    struct partial partial;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", fixture->folder, names[i]);
        assert_true(file_save(path, bytes_of("x"), &fixture->err));
    }
    snprintf(link, sizeof link, "%s.partial-abcdef", fixture->path);
    assert_int_equal(symlink(path, link), 0);
    assert_true(partial_begin(&partial, PARTIAL_FILE, fixture->path, &fixture->err));
    partial_give_up(&partial);
    assert_true(is_there(link));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", fixture->folder, names[i]);
        assert_true(is_there(path));
    }
}

// Somebody who knows the process's number puts a link where its temporary file was to be.
static void test_replacing_follows_no_planted_link(void **state)
{
    struct fixture *fixture = *state;
    char planted[128], victim[128];
    snprintf(planted, sizeof planted, "%s.%ld", fixture->path, (long)getpid());
    snprintf(victim, sizeof victim, "%s/victim", fixture->folder);
    assert_int_equal(symlink(victim, planted), 0);
    assert_true(file_replace(fixture->path, bytes_of("new"), &fixture->err));
    assert_false(is_there(victim));
    assert_true(file_replace(fixture->path, bytes_of("newer"), &fixture->err));
    struct file file;
    assert_true(file_open(&file, fixture->path, &fixture->err));
    assert_true(bytes_equal(file.content, bytes_of("newer")));
    file_close(&file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_killed_process_left_is_removed),
        TEST(test_what_is_being_written_stays),
        TEST(test_other_names_and_links_stay),
        TEST(test_replacing_follows_no_planted_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
