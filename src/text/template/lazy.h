// SPDX-License-Identifier: Apache-2.0
// text/template/lazy.h: filters that give an iterator and work when it is read, as jinja2's generators do: trouble with
// an item comes up only if somebody asks for it, and the iterator is always true and read once.
#ifndef TEXT_TEMPLATE_LAZY_H
#define TEXT_TEMPLATE_LAZY_H

#include "text/template/builtin.h"

struct value filter_batch(struct call *call);
struct value filter_items(struct call *call);
struct value filter_map(struct call *call);
struct value filter_reject(struct call *call);
struct value filter_rejectattr(struct call *call);
struct value filter_select(struct call *call);
struct value filter_selectattr(struct call *call);
struct value filter_slice(struct call *call);
struct value filter_unique(struct call *call);

#endif
