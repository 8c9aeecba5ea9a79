// SPDX-License-Identifier: Apache-2.0
// text/template/split.h: the methods that cut strings.
#ifndef TEXT_TEMPLATE_SPLIT_H
#define TEXT_TEMPLATE_SPLIT_H

#include "text/template/builtin.h"

struct value string_partition(struct call *call);
struct value string_rpartition(struct call *call);
struct value string_split(struct call *call);
struct value string_rsplit(struct call *call);
struct value string_splitlines(struct call *call);

struct list *split_lines(struct render *render, struct bytes text, bool keep_ends);
struct list *split_words(struct render *render, struct bytes text);                   // at white space
const char *search_last(struct render *render, struct bytes text, struct bytes part); // NULL: nowhere

#endif
