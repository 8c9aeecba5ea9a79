// SPDX-License-Identifier: Apache-2.0
// server/log.h: structured logging to stderr: one line per event, for people or as JSON. Never a prompt, never a key.
// Lines of several threads do not mix. Once it is open, a thread of its own writes them (log_queue.h), and logging
// never waits for the reader of stderr.
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_LEVELS };

extern const char *const log_level_words[LOG_LEVELS + 1]; // debug info warning error NULL

struct log {
    enum log_level level; // below it nothing is written
    bool json;
    struct log_queue *queue; // NULL: it is not open, and a line is written before the call returns
};

bool log_open(struct log *log, struct error *err);
void log_close(struct log *log);             // after a moment for what waits to be written
uint64_t log_dropped(const struct log *log); // lines that there was no room for

// A name and what it is; a row without a name ends the list.
struct log_field {
    const char *name;
    enum { LOG_TEXT, LOG_COUNT, LOG_SECONDS, LOG_PERCENT, LOG_RATE } kind;
    const char *text; // of LOG_TEXT; NULL: the field is left out; control bytes are shown as '?'
    double number;    // of the others: LOG_COUNT 12, LOG_SECONDS 0.123s, LOG_PERCENT (0 .. 1) 42%, LOG_RATE 45.1/s
};

// 2026-11-15 07:00:00.123 info    request: id=chatcmpl-1 in=12 out=40 total=0.912s
// {"time": "2026-11-15T07:00:00.123Z", "level": "info", "event": "request", "id": "chatcmpl-1", "in": 12, ...}
void log_event(const struct log *log, enum log_level level, const char *event, const struct log_field *fields);
// An event that is one sentence; as JSON its "message".
void log_message(const struct log *log, enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Whole lines that are there at every level: for people as they are, as JSON an event for each.
void log_print(const struct log *log, enum log_level level, const char *event, const char *lines);
// Why the program ends, as every command says it.
void log_failure(const struct log *log, const char *sentence);

#endif
