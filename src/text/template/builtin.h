// SPDX-License-Identifier: Apache-2.0
// text/template/builtin.h: the row type of those tables, and binding of a call's arguments to parameters, as in Python.
#ifndef TEXT_TEMPLATE_BUILTIN_H
#define TEXT_TEMPLATE_BUILTIN_H

#include <jansson.h>

#include "text/template/iterate.h"
#include "text/template/value.h"

enum { BUILTIN_PARAMETERS_MAX = 6 };

struct keyword {
    struct bytes name;
    struct value value;
};

struct arguments {
    struct value *values;
    size_t count;
    struct keyword *keywords;
    size_t keyword_count;
};

struct call {
    struct render *render;
    struct value self; // what the filter, test or method is applied to
    struct value arg[BUILTIN_PARAMETERS_MAX];
    const struct arguments *all; // as they were given
    int what;                    // the row's
};

struct builtin {
    const char *name;
    struct value (*run)(struct call *call);
    int what;               // it is to do, where it stands in several rows
    int required;           // parameters without a default, the first ones
    const char *parameters; // separated by spaces; "/" in front: not to be named; "*": any, in call->all
};

const struct builtin *filter_find(struct bytes name); // NULL: there is none
const struct builtin *test_find(struct bytes name);
const struct builtin *global_find(struct bytes name);
const struct builtin *method_find(enum value_type type, struct bytes name);
bool method_exists(struct bytes name); // of any type

struct value builtin_call(struct render *render, const struct builtin *builtin, struct value self,
                          const struct arguments *arguments);
struct value method_call(struct render *render, const struct builtin *method, struct value self,
                         const struct arguments *arguments); // a builtin_call that knows of safe strings

// Bound arguments of a type; an error when they have another. `otherwise` when not given.
int64_t call_int(struct call *call, int index, int64_t otherwise);
bool call_truth(struct call *call, int index, bool otherwise);
struct bytes call_string(struct call *call, int index, const char *otherwise);
static inline bool call_has(const struct call *call, int index) // given, and not none
{
    return value_given(call->arg[index]) && call->arg[index].type != VALUE_NONE;
}

// Shared by several tables.
struct value value_from_json(struct render *render, const json_t *json, bool copied); // copied: it may be freed
struct value string_of(struct render *render, struct value value); // as {{ }} prints it; a string stays as it is
struct value string_concat(struct render *render, struct value a, struct value b); // of two strings
struct value escape_html(struct render *render, struct value value);               // a safe string stays as it is
bool string_to_int(struct bytes text, int64_t *out, bool *too_big);                // as Python's int() reads a string
struct list *split_lines(struct render *render, struct bytes text, bool keep_ends);
const char *search_last(struct render *render, struct bytes text, struct bytes part); // NULL: nowhere
bool string_to_float(struct bytes text, double *out);                                 // as Python's float() does
// The item's attribute by a path such as "a.b.0", an index, or none for the item itself; `otherwise` may be missing.
struct value attribute_path(struct render *render, struct value item, struct value path, struct value otherwise);

#endif
