// SPDX-License-Identifier: Apache-2.0
#include "cli/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "format/json.h"
#include "text/messages.h"

static void remember(struct run_chat *chat, const char *path)
{
    char *copy = memory_new(strlen(path) + 1, 1);
    strcpy(copy, path);
    free(chat->file);
    chat->file = copy;
}

static bool write_all(int fd, const char *text, size_t len)
{
    for (ssize_t got; len; text += got, len -= (size_t)got)
        if ((got = write(fd, text, len)) < 0)
            return false;
    return true;
}

bool run_file_save(struct run_chat *chat, const char *path, struct error *err)
{
    bool own = chat->file && !strcmp(chat->file, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (own ? O_TRUNC : O_EXCL), 0600);
    if (fd < 0 && errno == EEXIST)
        return fail(err, "/save: %s is there already; give another name, or remove it", path);
    if (fd < 0)
        return fail(err, "/save: %s cannot be written (%s)", path, strerror(errno));
    json_t *file = json_pack("{s:s, s:O}", "model", chat->session->model, "messages", chat->messages);
    char *text = json_dumps(file, JSON_INDENT(2));
    bool ok = write_all(fd, text, strlen(text)) && write_all(fd, "\n", 1);
    int cause = errno;
    ok = close(fd) == 0 && ok;
    if (ok)
        remember(chat, path);
    else
        fail(err, "/save: %s cannot be written (%s)", path, strerror(cause));
    free(text);
    json_decref(file);
    return ok;
}

static bool check_message(const json_t *message, size_t index, bool first, struct error *err)
{
    bool known = message_has_role(message, "user") || message_has_role(message, "assistant")
        || (first && message_has_role(message, "system"));
    return (known && json_is_string(json_object_get(message, "content")))
        || fail(err, "message %zu is not the text of a user or an assistant%s", index + 1,
                first ? ", nor a system message" : "");
}

static bool check_messages(const json_t *messages, struct error *err)
{
    const json_t *message;
    size_t index;
    if (!json_is_array(messages))
        return fail(err, "a list of messages is expected, or an object with \"messages\"");
    json_array_foreach (messages, index, message)
        if (!check_message(message, index, index == 0, err))
            return false;
    return true;
}

bool run_file_load(struct run_chat *chat, const char *path, struct error *err)
{
    json_t *file = NULL;
    if (!json_read_file(path, &file, err))
        return fail_within(err, "/load");
    json_t *messages = json_is_object(file) ? json_object_get(file, "messages") : file;
    bool ok = check_messages(messages, err);
    if (ok) {
        json_decref(chat->messages);
        chat->messages = json_incref(messages);
        remember(chat, path);
        cli_print("%zu messages loaded; the last one of yours: %.60s\n", json_array_size(messages),
                  run_chat_last_message(chat).data ? run_chat_last_message(chat).data : "none");
    } else {
        fail_within(err, "/load: %s", path);
    }
    json_decref(file);
    return ok;
}
