// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"

const char *const log_level_words[LOG_LEVELS + 1] = { "debug", "info", "warning", "error", NULL };

// How a number is shown to people, and to how many digits programs get it.
static const struct {
    const char *people, *programs;
    double scale; // of people's
} number_forms[] = {
    [LOG_COUNT] = { "%.0f", "%.0f", 1 },
    [LOG_SECONDS] = { "%.3fs", "%.6f", 1 },
    [LOG_PERCENT] = { "%.0f%%", "%.4f", 100 },
    [LOG_RATE] = { "%.1f/s", "%.3f", 1 },
};

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7F;
}

static void add_quoted(struct strbuf *line, const char *text)
{
    struct strbuf clean = { 0 };
    strbuf_add_clean(&clean, bytes_of(text));
    strbuf_add_byte(line, '"');
    for (size_t i = 0; i < clean.len; i++) {
        char c = clean.data[i];
        if (c == '"' || c == '\\')
            strbuf_add_byte(line, '\\');
        strbuf_add_byte(line, is_control(c) ? '?' : c);
    }
    strbuf_add_byte(line, '"');
    strbuf_free(&clean);
}

// A word stands as it is; what could be taken for two fields is quoted.
static void add_value_for_people(struct strbuf *line, const char *text)
{
    bool plain = *text != '\0';
    for (const char *c = text; *c && plain; c++)
        plain = !is_control(*c) && !strchr(" \"=\\", *c);
    if (plain)
        strbuf_add_clean(line, bytes_of(text));
    else
        add_quoted(line, text);
}

static void add_number(struct strbuf *line, const struct log_field *field, bool json)
{
    char number[352]; // of %.0f, the longest is 309 digits and a sign
    bool finite = isfinite(field->number);
    double scale = json ? 1 : number_forms[field->kind].scale;
    const char *form = json ? number_forms[field->kind].programs : number_forms[field->kind].people;
    snprintf(number, sizeof number, form, finite ? field->number * scale : 0.0);
    strbuf_add_text(line, finite ? number : json ? "null" : "-");
}

static void add_field(struct strbuf *line, const struct log_field *field, bool json)
{
    if (field->kind == LOG_TEXT && !field->text)
        return;
    strbuf_add_format(line, json ? ", \"%s\": " : " %s=", field->name);
    if (field->kind != LOG_TEXT)
        add_number(line, field, json);
    else if (json)
        add_quoted(line, field->text);
    else
        add_value_for_people(line, field->text);
}

static void add_start(struct strbuf *line, enum log_level level, const char *event, bool json)
{
    struct timespec now;
    struct tm parts;
    char seconds[32];
    clock_gettime(CLOCK_REALTIME, &now);
    if (json)
        gmtime_r(&now.tv_sec, &parts);
    else
        localtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, json ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts);
    strbuf_add_format(line, json ? "{\"time\": \"%s.%03dZ\", \"level\": \"%s\", \"event\": \"%s\"" : "%s.%03d %-7s %s:",
                      seconds, (int)(now.tv_nsec / 1000000), log_level_words[level], event);
}

static void write_line(struct strbuf *line, bool json)
{
    strbuf_add_text(line, json ? "}\n" : "\n");
    size_t done = 0;
    while (done < line->len) {
        ssize_t wrote = write(STDERR_FILENO, line->data + done, line->len - done);
        if (wrote < 0 && errno != EINTR)
            break; // nobody reads: there is no one to tell
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    strbuf_free(line);
}

void log_event(const struct log *log, enum log_level level, const char *event, const struct log_field *fields)
{
    if (level < log->level)
        return;
    struct strbuf line = { 0 };
    add_start(&line, level, event, log->json);
    for (; fields->name; fields++)
        add_field(&line, fields, log->json);
    write_line(&line, log->json);
}

void log_say(const struct log *log, enum log_level level, const char *event, const char *format, ...)
{
    if (level < log->level)
        return;
    char sentence[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    struct strbuf line = { 0 };
    add_start(&line, level, event, log->json);
    if (log->json) {
        add_field(&line, &(struct log_field){ "message", LOG_TEXT, .text = sentence }, true);
    } else {
        for (char *c = sentence; *c; c++)
            *c = is_control(*c) ? '?' : *c;
        strbuf_add_byte(&line, ' ');
        strbuf_add_clean(&line, bytes_of(sentence));
    }
    write_line(&line, log->json);
}
