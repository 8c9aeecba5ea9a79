// SPDX-License-Identifier: Apache-2.0
// base/public.h: conversion between nibble.h's text buffer and ours.
#ifndef BASE_PUBLIC_H
#define BASE_PUBLIC_H

#include "base/strbuf.h"
#include "nibble.h"

// To append to a caller's text in place: borrow it as a strbuf, append, and return it.
static inline struct strbuf public_text_borrow(const struct nibble_text *text)
{
    return (struct strbuf){ text->data, text->len, text->capacity };
}

static inline void public_text_return(struct nibble_text *text, const struct strbuf *buf)
{
    *text = (struct nibble_text){ buf->data, buf->len, buf->cap };
}

#endif
