// SPDX-License-Identifier: Apache-2.0
// text/template/tests.c: Jinja's tests (`x is defined`).
#include "text/template/environment.h"
#include "text/template/eval.h"

static bool remainder_is(struct call *call, struct value divisor, int64_t wanted)
{
    struct value rest = operator_apply(call->render, TOKEN_MODULO, call->self, divisor);
    return value_equal(call->render, rest, value_int(wanted));
}

struct value test_odd(struct call *call) { return value_bool(remainder_is(call, value_int(2), 1)); }
struct value test_even(struct call *call) { return value_bool(remainder_is(call, value_int(2), 0)); }
struct value test_divisibleby(struct call *call) { return value_bool(remainder_is(call, call->arg[0], 0)); }
struct value test_defined(struct call *call) { return value_bool(call->self.type != VALUE_UNDEFINED); }
struct value test_undefined(struct call *call) { return value_bool(call->self.type == VALUE_UNDEFINED); }
struct value test_none(struct call *call) { return value_bool(call->self.type == VALUE_NONE); }
struct value test_boolean(struct call *call) { return value_bool(call->self.type == VALUE_BOOL); }
struct value test_true(struct call *call) { return value_bool(value_same(call->self, value_bool(true))); }
struct value test_false(struct call *call) { return value_bool(value_same(call->self, value_bool(false))); }
struct value test_integer(struct call *call) { return value_bool(call->self.type == VALUE_INT); }
struct value test_float(struct call *call) { return value_bool(call->self.type == VALUE_FLOAT); }
struct value test_number(struct call *call) { return value_bool(value_is_number(call->self)); }
struct value test_string(struct call *call) { return value_bool(call->self.type == VALUE_STRING); }
struct value test_mapping(struct call *call) { return value_bool(call->self.type == VALUE_DICT); }
struct value test_iterable(struct call *call) { return value_bool(value_is_iterable(call->self)); }
struct value test_sameas(struct call *call) { return value_bool(value_same(call->self, call->arg[0])); }

struct value test_in(struct call *call)
{
    return value_bool(operator_contains(call->render, call->arg[0], call->self));
}

struct value test_sequence(struct call *call)
{
    size_t length;
    return value_bool(call->self.type != VALUE_VIEW && value_length(call->render, call->self, &length));
}

static struct value comparison(struct call *call, enum token_type op)
{
    return value_bool(operator_compare(call->render, op, call->self, call->arg[0]));
}

struct value test_eq(struct call *call) { return comparison(call, TOKEN_EQUAL); }
struct value test_ne(struct call *call) { return comparison(call, TOKEN_NOT_EQUAL); }
struct value test_lt(struct call *call) { return comparison(call, TOKEN_LESS); }
struct value test_le(struct call *call) { return comparison(call, TOKEN_LESS_EQUAL); }
struct value test_gt(struct call *call) { return comparison(call, TOKEN_GREATER); }
struct value test_ge(struct call *call) { return comparison(call, TOKEN_GREATER_EQUAL); }
