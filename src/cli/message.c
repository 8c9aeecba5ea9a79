// SPDX-License-Identifier: Apache-2.0
#include "cli/message.h"

static const char mark[] = "\"\"\"";
enum { MARK = sizeof mark - 1 };

static struct bytes without_start(struct bytes line, size_t count)
{
    return (struct bytes){ line.data + count, line.len - count };
}

static bool ends_in_mark(struct bytes line)
{
    return line.len >= MARK && !memcmp(line.data + line.len - MARK, mark, MARK);
}

static bool continues(struct bytes line)
{
    size_t backslashes = 0;
    while (backslashes < line.len && line.data[line.len - 1 - backslashes] == '\\')
        backslashes++;
    return backslashes % 2;
}

// Text beside a mark belongs to the message; a mark alone on its line adds no line.
static void add_text(struct message *message, struct bytes line)
{
    if (message->continued)
        strbuf_add_byte(&message->text, '\n');
    strbuf_add(&message->text, line.data, line.len);
    message->continued = true;
}

static bool add_quoted(struct message *message, struct bytes line)
{
    message->quoted = !ends_in_mark(line);
    if (message->quoted) {
        add_text(message, line);
        return false;
    }
    line.len -= MARK;
    if (line.len)
        add_text(message, line);
    message->continued = false;
    return true;
}

bool message_add_line(struct message *message, struct bytes line)
{
    if (message->quoted)
        return add_quoted(message, line);
    bool pasted = line.len && memchr(line.data, '\n', line.len), first = !message->continued;
    if (first && bytes_start_with(line, bytes_of(mark))) {
        struct bytes rest = without_start(line, MARK);
        if (!pasted || ends_in_mark(rest)) {
            message->quoted = true;
            return rest.len ? add_quoted(message, rest) : false;
        }
    }
    bool more = !pasted && continues(line);
    line.len -= more;
    add_text(message, line);
    message->continued = more;
    return !more;
}

bool message_is_open(const struct message *message) { return message->quoted || message->continued; }
