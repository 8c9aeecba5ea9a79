// SPDX-License-Identifier: Apache-2.0
// text/template/print.h: Python's str(), repr() and json.dumps, appended to the rendering's output.
#ifndef TEXT_TEMPLATE_PRINT_H
#define TEXT_TEMPLATE_PRINT_H

#include "text/template/value.h"

void print_value(struct render *render, struct value value); // as {{ }} does, Python's str()
void print_repr(struct render *render, struct value value);  // as inside a list, Python's repr()
void print_float(struct render *render, double number);      // the shortest digits that read back as the same number

struct json_style {
    bool ascii, sorted;
    bool indented;
    struct bytes indent;            // one level's worth
    struct bytes item_end, key_end; // ", " and ": " unless asked otherwise
};

void print_json(struct render *render, struct value value, const struct json_style *style);

#endif
