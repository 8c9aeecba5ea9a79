// SPDX-License-Identifier: Apache-2.0
// text/template/iterate.h: Python's iterators, and Jinja's loop object.
// Iterators are lazy and read once: a filter such as map does its work only when somebody asks for the next item.
#ifndef TEXT_TEMPLATE_ITERATE_H
#define TEXT_TEMPLATE_ITERATE_H

#include "text/template/value.h"

struct iterator {
    bool (*next)(struct render *render, struct iterator *iterator, struct value *item); // false: no more
    struct value source;
    size_t at;             // items or bytes already passed
    struct iterator *from; // what a lazy filter draws from, once it has begun
    void *state;           // what else it needs
};

struct iterator *iterator_of(struct render *render, struct value value); // NULL with an error: it is not iterable
bool iterator_next(struct render *render, struct iterator *iterator, struct value *item); // NULL is at its end
bool value_is_iterable(struct value value);

struct loop {
    struct value iterable;
    struct iterator *iterator;
    size_t index; // from 1; 0 before the first item
    size_t length;
    bool length_known, ahead; // ahead: `after` has been read already
    struct value after, current, before;
};

bool loop_next(struct render *render, struct loop *loop, struct value *item);
bool loop_peek(struct render *render, struct loop *loop); // true: there is a next item, in loop->after
size_t loop_length(struct render *render, struct loop *loop);

#endif
