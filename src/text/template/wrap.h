// SPDX-License-Identifier: Apache-2.0
// text/template/wrap.h: two filters with rules of their own: lines wrapped at a width, and tags taken out of HTML.
#ifndef TEXT_TEMPLATE_WRAP_H
#define TEXT_TEMPLATE_WRAP_H

#include "text/template/builtin.h"

struct wrapping {
    int64_t width;
    bool break_long_words, break_on_hyphens;
    struct bytes line_end;
};

struct value wrap_text(struct render *render, struct bytes text, const struct wrapping *wrapping);
struct value filter_striptags(struct call *call);

#endif
