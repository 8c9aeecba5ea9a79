// SPDX-License-Identifier: Apache-2.0
// cli/shared.c: helpers of all commands: errors, output, input, opening an engine.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"

static bool reader_left; // of stdout, a pipe

int cli_fail(const struct error *err, bool json)
{
    if (reader_left)
        return EXIT_READER_LEFT;
    cli_print("nibble: %s\n", err->text);
    if (json) {
        json_t *root = json_pack("{s:s?}", "error", err->text);
        char *text = root ? json_dumps(root, 0) : NULL;
        printf("%s\n", text ? text : "{\"error\": \"the error's text is not UTF-8\"}");
        free(text);
        json_decref(root);
    }
    return err->usage ? EXIT_USAGE : EXIT_FAILED;
}

bool cli_write(const char *data, size_t len, struct error *err)
{
    cli_progress_clear();
    if ((!len || fwrite(data, 1, len, stdout) == len) && fflush(stdout) == 0)
        return true;
    reader_left = reader_left || errno == EPIPE;
    return fail(err, "the output cannot be written (%s)", strerror(errno));
}

bool cli_reader_left(void) { return reader_left; }

int cli_output(const char *data, size_t len)
{
    struct error err;
    return cli_write(data, len, &err) ? EXIT_DONE : cli_fail(&err, false);
}

bool cli_read(const char *path, struct nibble_text *out, struct error *err)
{
    bool standard = !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct strbuf content = { 0 };
    char chunk[65536];
    ssize_t got = -1;
    while (fd >= 0 && ((got = read(fd, chunk, sizeof chunk)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0)
            strbuf_add(&content, chunk, (size_t)got);
    if (got < 0)
        fail(err, "%s: cannot be read (%s)", standard ? "standard input" : path, strerror(errno));
    if (fd >= 0 && !standard)
        close(fd);
    *out = (struct nibble_text){ content.data, content.len, content.cap };
    return got == 0;
}

struct nibble_engine *cli_engine_open(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                                      struct error *err)
{
    struct cli_progress progress = { .label = "loading weights", .shown = -1 };
    struct nibble_options shown = *options;
    shown.progress = cli_progress_show;
    shown.calibrating = cli_calibrating_show;
    shown.progress_context = &progress;
    return nibble_engine_open(checkpoint, &shown, err);
}

void cli_print_plan(const struct nibble_engine *engine)
{
    struct nibble_text plan = { 0 };
    nibble_plan_print(nibble_engine_plan(engine), NIBBLE_PLAN_SHORT, 0, &plan);
    cli_print("%s", plan.data);
    free(plan.data);
}

void cli_add_json(struct strbuf *out, json_t *root, size_t flags)
{
    char *text = json_dumps(root, flags);
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}

int cli_compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
