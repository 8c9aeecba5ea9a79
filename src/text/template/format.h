// SPDX-License-Identifier: Apache-2.0
// text/template/format.h: Python's two ways to format: "%s" % values and "{}".format(values).
#ifndef TEXT_TEMPLATE_FORMAT_H
#define TEXT_TEMPLATE_FORMAT_H

#include "text/template/builtin.h"

enum {
    FORMAT_WIDTH_MAX = 1000 * 1000,
    FORMAT_PRECISION_MAX = 500,
};

struct value format_percent(struct render *render, struct value format, struct value values);
struct value format_braces(struct render *render, struct value format, const struct arguments *arguments);

// One value after its alignment: what both ways come down to.
struct format_spec {
    struct bytes fill; // one character
    char align;        // < > ^ or = (between sign and digits); 0: by type
    char sign;         // + - or space; 0: only minus
    bool alternate, zero;
    char grouping; // , or _ ; 0: none
    char type;     // 0: by value
    int64_t width;
    int64_t precision; // -1: not given
};

void format_text(struct render *render, struct bytes text, const struct format_spec *spec);
void format_number(struct render *render, struct value value, const struct format_spec *spec);

#endif
