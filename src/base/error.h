// SPDX-License-Identifier: Apache-2.0
// base/error.h: how trouble from outside travels. An error is a sentence a user can act on: what was
// found, what was expected, what to do. Functions that can fail return bool and fill it; our own bugs assert.
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

// struct error is the public struct nibble_error under its name in this tree (-Dnibble_error=error, meson.build), so
// that a sentence reaches the API's edge without a copy.
#include "nibble.h"

enum { ERROR_TEXT_MAX = sizeof((struct error *)0)->text };

// Always returns false, so that `return fail(err, ...)` reads as what it is. Control bytes in the text
// (names come out of hostile files) are shown as '?'; a sentence too long for the buffer ends in "...".
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool fail_usage(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts "context: " in front of the sentence that is already there; returns false.
bool fail_within(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
