// SPDX-License-Identifier: Apache-2.0
// base/error.h: errors as values. An error is a sentence a user can act on: what was found, what was expected, what to
// do. Functions that can fail return bool and fill a struct error; nibble's own bugs are assertions.
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

// struct error is the public struct nibble_error under its name in this tree (-Dnibble_error=error, meson.build), so
// that a sentence reaches the API's edge without a copy.
#include "nibble.h"

enum { ERROR_TEXT_MAX = sizeof((struct error *)0)->text };

// Always returns false, for `return fail(err, ...)`. Control bytes in the text are replaced by '?', since names come
// from untrusted files. A text too long for the buffer ends in "...".
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool fail_usage(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Prefixes the error in `err` with "context: "; returns false.
bool fail_within(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
