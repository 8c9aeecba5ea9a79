// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct error *err, const char *format, va_list args)
{
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    if (length >= (int)sizeof err->text)
        strcpy(err->text + sizeof err->text - 4, "...");
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ' && *c != '\n')
            *c = '?';
}

bool fail(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_text(err, format, args);
    va_end(args);
    err->usage = false;
    return false;
}

bool fail_usage(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_text(err, format, args);
    va_end(args);
    err->usage = true;
    return false;
}

bool fail_within(struct error *err, const char *format, ...)
{
    struct error context;
    va_list args;
    va_start(args, format);
    set_text(&context, format, args);
    va_end(args);
    struct error inner = *err;
    fail(err, "%s: %s", context.text, inner.text);
    err->usage = inner.usage;
    return false;
}
