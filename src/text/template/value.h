// SPDX-License-Identifier: Apache-2.0
// text/template/value.h: dynamically typed values of a template (Python's), and the state of one rendering.
//   (1) Everything lives in the rendering's arena (or is borrowed from the template or the variables) and dies with it;
//       the arena has a byte limit, checked in render_new and render_room.
//   (2) Errors are sticky: the first message stays, later results are undefined and ignored. Every loop calls an
//       iterator or render_step, and both return false after an error.
//   (3) Every string is valid UTF-8. Strings, tuples and dicts never change once a template can see them (the sandbox
//       forbids the methods that would); lists (append, pop), namespaces, iterators and loops do.
#ifndef TEXT_TEMPLATE_VALUE_H
#define TEXT_TEMPLATE_VALUE_H

#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"

enum {
    RENDER_STEPS_MAX = 20 * 1000 * 1000, // about a second
    RENDER_DEPTH_MAX = 1000,             // of evaluation, and of lists within lists
    RENDER_MEMORY_BYTES_MAX = 256 * 1024 * 1024,
    RENDER_OUTPUT_BYTES_MAX = 64 * 1024 * 1024,
    RENDER_RANGE_MAX = 100000,      // numbers in a range(), as jinja2's sandbox has it
    RENDER_SMALL_BYTES = 4096,      // an allocation up to this size is always served
    RENDER_BYTES_PER_STEP = 64,     // of text copied or compared,
    RENDER_CHARACTERS_PER_STEP = 8, // and of text looked at character by character
    RENDER_STEPS_PER_NUMBER = 16,   // of floats and dates written out
};

enum value_type {
    VALUE_MISSING, // an argument not given, a variable not set yet; no template ever sees it
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_VIEW, // dict.keys(), .values(), .items()
    VALUE_RANGE,
    VALUE_ITERATOR, // read once
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_LOOP,
    VALUE_FUNCTION,
    VALUE_METHOD, // with the value it was taken from
    VALUE_TYPE_COUNT
};

// Why something is undefined; it decides the sentence when it is used after all.
enum undefined_reason {
    UNDEFINED_VARIABLE,
    UNDEFINED_ATTRIBUTE,
    UNDEFINED_ELEMENT,
    UNDEFINED_FORBIDDEN,
    UNDEFINED_PARAMETER,
    UNDEFINED_NO_ELSE,
    UNDEFINED_EMPTY,
    UNDEFINED_NO_ITEM,
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct builtin;
struct dict;
struct iterator;
struct list;
struct loop;
struct macro;

struct value {
    uint8_t type;   // enum value_type
    bool safe;      // a string that is HTML already (jinja2's Markup): joining it with others escapes them
    uint8_t reason; // enum undefined_reason
    uint8_t owner;  // enum value_type: what an undefined attribute was looked for in
    uint8_t view;   // enum view_kind
    union {
        bool truth;
        int64_t integer;
        double number;
        struct bytes string; // of an undefined value: its name
        struct list *list;
        struct dict *dict; // of a namespace and a view, too
        struct range *range;
        struct iterator *iterator;
        struct macro *macro;
        struct loop *loop;
        struct {
            const struct builtin *builtin;
            const struct value *self; // NULL: a function
        } method;
    };
};

struct list {
    struct value *items;
    size_t count, capacity;
};

struct entry {
    struct value key, value;
};

struct dict {
    struct entry *entries; // in the order they were put
    size_t count, capacity;
    uint32_t *index; // open addressing, entry number + 1; made once a bigger dict is searched
    size_t index_size;
};

struct range {
    int64_t start, step;
    size_t count;
    int64_t stop; // as written, for printing
};

struct activation {            // the variables of one run of the template or of a macro
    struct activation *parent; // where it was defined
    struct value slots[];
};

struct render {
    const struct template *template;
    struct arena arena;
    size_t memory_used;
    uint64_t steps, steps_max;
    int depth;
    bool failed;
    int line; // of what is being evaluated
    struct error *err;
    struct strbuf *out; // the text so far; captured blocks and strings under construction are its tail
    size_t out_start;
    time_t now;
    struct activation *frame;
    struct value *outside; // values of the names that come from outside, see struct template
    struct value captured; // the text of a block whose filters are about to be applied
    char *grow_end;        // the longest string made by + ends here,
    size_t grow_room;      // has so many spare bytes behind it,
    size_t grow_length;    // and is so long: adding to it again copies only what is added
};

// The sentence, with the line; returns an undefined value.
struct value render_fail(struct render *render, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct value render_fail_undefined(struct render *render, struct value value); // a use that an undefined value forbids
struct value render_fail_kind(struct render *render, const char *takes,
                              struct value value);                // "... a string, not a list"
bool render_step(struct render *render, size_t cost);             // false: stop
bool render_step_bytes(struct render *render, size_t bytes);      // the same for copying so much text,
bool render_step_characters(struct render *render, size_t bytes); // and for looking at each of its characters
bool render_enter(struct render *render);                         // one level deeper; false: too deep
void render_leave(struct render *render);
void *render_new(struct render *render, size_t size);                // small and zeroed; never NULL
void *render_room(struct render *render, size_t count, size_t size); // NULL when the limit is reached

// Strings under construction: text put after a mark becomes a string.
static inline size_t text_mark(const struct render *render) { return render->out->len; }
void text_put(struct render *render, struct bytes text);
void text_put_byte(struct render *render, char byte);
void text_put_format(struct render *render, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_put_fill(struct render *render, struct bytes fill, size_t times);
struct value text_take(struct render *render, size_t mark);
void text_drop(struct render *render, size_t mark);

static inline struct value value_none(void) { return (struct value){ .type = VALUE_NONE }; }
static inline struct value value_bool(bool x) { return (struct value){ .type = VALUE_BOOL, .truth = x }; }
static inline struct value value_int(int64_t x) { return (struct value){ .type = VALUE_INT, .integer = x }; }
static inline struct value value_float(double x) { return (struct value){ .type = VALUE_FLOAT, .number = x }; }
static inline struct value value_string(struct bytes x) { return (struct value){ .type = VALUE_STRING, .string = x }; }
static inline struct value value_text(const char *x) { return value_string(bytes_of(x)); }
static inline struct value value_list(struct list *x) { return (struct value){ .type = VALUE_LIST, .list = x }; }
static inline struct value value_tuple(struct list *x) { return (struct value){ .type = VALUE_TUPLE, .list = x }; }
static inline struct value value_dict(struct dict *x) { return (struct value){ .type = VALUE_DICT, .dict = x }; }
static inline struct value value_view(struct dict *x, enum view_kind kind)
{
    return (struct value){ .type = VALUE_VIEW, .view = kind, .dict = x };
}
static inline struct value value_iterator(struct iterator *x)
{
    return (struct value){ .type = VALUE_ITERATOR, .iterator = x };
}
static inline struct value value_missing(void) { return (struct value){ .type = VALUE_MISSING }; }

static inline struct value value_undefined(enum undefined_reason reason, struct bytes name)
{
    return (struct value){ .type = VALUE_UNDEFINED, .reason = reason, .string = name };
}

static inline bool value_given(struct value value) { return value.type != VALUE_MISSING; }
static inline bool value_is_integral(struct value x) { return x.type == VALUE_INT || x.type == VALUE_BOOL; }
static inline bool value_is_number(struct value x) { return value_is_integral(x) || x.type == VALUE_FLOAT; }
static inline bool value_is_list(struct value x) { return x.type == VALUE_LIST || x.type == VALUE_TUPLE; }
static inline int64_t value_integer(struct value value) // of an integral one
{
    return value.type == VALUE_BOOL ? value.truth : value.integer;
}
static inline double value_number(struct value value) // of any number
{
    return value.type == VALUE_FLOAT ? value.number : (double)value_integer(value);
}

const char *value_kind(struct value value); // "a list", for sentences
bool value_truth(struct render *render, struct value value);
bool value_length(struct render *render, struct value value, size_t *length); // false: it has none
bool value_is_hashable(struct render *render, struct value value);
bool value_equal(struct render *render, struct value a, struct value b);
bool value_same(struct value a, struct value b); // the very same object, as far as that can be told

enum order { ORDER_LESS = -1, ORDER_EQUAL, ORDER_GREATER, ORDER_NONE };
enum order value_order(struct render *render, struct value a, struct value b); // an error when they have none

struct list *list_new(struct render *render, size_t capacity);
void list_add(struct render *render, struct list *list, struct value item);
struct list *list_from(struct render *render, struct value iterable);
// Stable; keys[i] decides the place of items[i]. Keys are compared as value_order does.
void list_sort(struct render *render, struct list *items, const struct list *keys, bool reverse);
struct value value_pair(struct render *render, struct value first, struct value second); // a tuple

struct dict *dict_new(struct render *render, size_t capacity);
struct value *dict_find(struct render *render, struct dict *dict, struct value key); // NULL: absent; key is hashable
struct value *dict_find_name(struct render *render, struct dict *dict, struct bytes name);
void dict_put(struct render *render, struct dict *dict, struct value key, struct value value); // an error if unhashable
void dict_append(struct render *render, struct dict *dict, struct value key, struct value value); // a key that is new
struct value range_at(const struct range *range, size_t index);

#endif
