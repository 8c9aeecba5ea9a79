// SPDX-License-Identifier: Apache-2.0
// text/template/call.h: calls of macros, functions and methods.
#ifndef TEXT_TEMPLATE_CALL_H
#define TEXT_TEMPLATE_CALL_H

#include "text/template/builtin.h"

struct node_function;

struct macro {
    const struct node_function *function;
    struct activation *frame; // where it was defined
};

struct value macro_new(struct render *render, const struct node_function *function);
struct value call_value(struct render *render, struct value callee, const struct arguments *arguments);

#endif
