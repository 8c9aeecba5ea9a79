// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/strbuf.h"
#include "server/log_queue.h"

const char *const log_level_words[LOG_LEVELS + 1] = { "debug", "info", "warning", "error", NULL };

// Formats of numbers: for people, and for programs.
static const struct {
    const char *people, *programs;
    double scale; // of people's
} number_forms[] = {
    [LOG_COUNT] = { "%.0f", "%.0f", 1 },
    [LOG_SECONDS] = { "%.3fs", "%.6f", 1 },
    [LOG_PERCENT] = { "%.0f%%", "%.4f", 100 },
    [LOG_RATE] = { "%.1f/s", "%.3f", 1 },
};

static bool is_control(char c) { return (unsigned char)c < ' ' || c == 0x7F; }

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

// Quotes text that could be taken for two fields.
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

static void add_message(struct strbuf *line, const char *message, bool json)
{
    if (json) {
        add_field(line, &(struct log_field){ "message", LOG_TEXT, .text = message }, true);
        return;
    }
    struct strbuf clean = { 0 };
    strbuf_add_clean(&clean, bytes_of(message));
    strbuf_add_byte(line, ' ');
    for (size_t i = 0; i < clean.len; i++)
        strbuf_add_byte(line, is_control(clean.data[i]) ? '?' : clean.data[i]);
    strbuf_free(&clean);
}

static void write_lines(const struct log *log, struct strbuf *lines)
{
    if (log->queue)
        log_queue_add(log->queue, strbuf_bytes(lines));
    else
        log_queue_write(strbuf_bytes(lines));
    strbuf_free(lines);
}

static void write_line(const struct log *log, struct strbuf *line)
{
    strbuf_add_text(line, log->json ? "}\n" : "\n");
    write_lines(log, line);
}

void log_event(const struct log *log, enum log_level level, const char *event, const struct log_field *fields)
{
    if (level < log->level)
        return;
    struct strbuf line = { 0 };
    add_start(&line, level, event, log->json);
    for (; fields->name; fields++)
        add_field(&line, fields, log->json);
    write_line(log, &line);
}

void log_message(const struct log *log, enum log_level level, const char *event, const char *format, ...)
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
    add_message(&line, sentence, log->json);
    write_line(log, &line);
}

void log_print(const struct log *log, enum log_level level, const char *event, const char *lines)
{
    struct strbuf out = { 0 };
    if (!log->json)
        strbuf_add_text(&out, lines);
    for (const char *end; log->json && *lines; lines = *end ? end + 1 : end) {
        end = strchrnul(lines, '\n');
        struct strbuf text = { 0 };
        strbuf_add(&text, lines, (size_t)(end - lines));
        add_start(&out, level, event, true);
        add_message(&out, text.data, true);
        strbuf_add_text(&out, "}\n");
        strbuf_free(&text);
    }
    write_lines(log, &out);
}

void log_failure(const struct log *log, const char *sentence)
{
    struct strbuf line = { 0 };
    strbuf_add_format(&line, "nibble: %s\n", sentence);
    log_print(log, LOG_ERROR, "failure", line.data);
    strbuf_free(&line);
}

// ---- its thread ---------------------------------------------------------------------------------------------------

static void add_dropped(void *context, uint64_t count, struct strbuf *line)
{
    const struct log *log = context;
    char message[96];
    snprintf(message, sizeof message, "%llu lines were dropped: nobody read what was written before",
             (unsigned long long)count);
    add_start(line, LOG_WARNING, "log", log->json);
    add_message(line, message, log->json);
    strbuf_add_text(line, log->json ? "}\n" : "\n");
}

bool log_open(struct log *log, struct error *err)
{
    log->queue = log_queue_open(add_dropped, log, err);
    return log->queue != NULL;
}

void log_close(struct log *log)
{
    if (log->queue && log_queue_close(log->queue))
        log->queue = NULL;
}

uint64_t log_dropped(const struct log *log) { return log->queue ? log_queue_dropped(log->queue) : 0; }
