// SPDX-License-Identifier: Apache-2.0
// base/error.h: errors as values. An error is a sentence a user can act on: what was found, what was expected, what to
// do. Functions that can fail return bool and fill a struct error; nibble's own bugs are assertions.
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

enum { ERROR_TEXT_MAX = 4096 };

struct error {
    char text[ERROR_TEXT_MAX];
    bool usage; // a usage error: the command line is wrong (exit status 2)
};

// Always returns false, for `return fail(err, ...)`. Control bytes in the text are replaced by '?', since names come
// from untrusted files. A text too long for the buffer ends in "...".
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool fail_usage(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Prefixes the error in `err` with "context: "; returns false.
bool fail_within(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
