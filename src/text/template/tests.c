// SPDX-License-Identifier: Apache-2.0
// text/template/tests.c: what may follow `is`.
#include "text/template/call.h"
#include "text/template/eval.h"

static bool remainder_is(struct call *call, struct value divisor, int64_t wanted)
{
    struct value rest = operator_apply(call->render, TOKEN_MODULO, call->self, divisor);
    return value_equal(call->render, rest, value_int(wanted));
}

static struct value test_odd(struct call *call) { return value_bool(remainder_is(call, value_int(2), 1)); }
static struct value test_even(struct call *call) { return value_bool(remainder_is(call, value_int(2), 0)); }
static struct value test_divisibleby(struct call *call) { return value_bool(remainder_is(call, call->arg[0], 0)); }
static struct value test_defined(struct call *call) { return value_bool(call->self.type != VALUE_UNDEFINED); }
static struct value test_undefined(struct call *call) { return value_bool(call->self.type == VALUE_UNDEFINED); }
static struct value test_none(struct call *call) { return value_bool(call->self.type == VALUE_NONE); }
static struct value test_boolean(struct call *call) { return value_bool(call->self.type == VALUE_BOOL); }
static struct value test_true(struct call *call) { return value_bool(value_same(call->self, value_bool(true))); }
static struct value test_false(struct call *call) { return value_bool(value_same(call->self, value_bool(false))); }
static struct value test_integer(struct call *call) { return value_bool(call->self.type == VALUE_INT); }
static struct value test_float(struct call *call) { return value_bool(call->self.type == VALUE_FLOAT); }
static struct value test_number(struct call *call) { return value_bool(value_is_number(call->self)); }
static struct value test_string(struct call *call) { return value_bool(call->self.type == VALUE_STRING); }
static struct value test_mapping(struct call *call) { return value_bool(call->self.type == VALUE_DICT); }
static struct value test_iterable(struct call *call) { return value_bool(value_is_iterable(call->self)); }
static struct value test_callable(struct call *call) { return value_bool(value_is_callable(call->self)); }
static struct value test_sameas(struct call *call) { return value_bool(value_same(call->self, call->arg[0])); }
static struct value test_escaped(struct call *call) { return value_bool(call->self.safe); }

static struct value test_in(struct call *call)
{
    return value_bool(operator_contains(call->render, call->arg[0], call->self));
}

static struct value test_sequence(struct call *call)
{
    size_t length;
    bool indexed = call->self.type != VALUE_VIEW && call->self.type != VALUE_LOOP;
    return value_bool(indexed && value_length(call->render, call->self, &length));
}

static struct value name_exists(struct call *call, const struct builtin *(*find)(struct bytes))
{
    return value_bool(call->self.type == VALUE_STRING && find(call->self.string));
}

static struct value test_filter(struct call *call) { return name_exists(call, filter_find); }
static struct value test_test(struct call *call) { return name_exists(call, test_find); }

// The case of a value's text, asked of the string method of that name.
static struct value ask_string(struct call *call, const char *method)
{
    struct value text = string_of(call->render, call->self);
    return builtin_call(call->render, method_find(VALUE_STRING, bytes_of(method)), text, &(struct arguments){ 0 });
}

static struct value test_lower(struct call *call) { return ask_string(call, "islower"); }
static struct value test_upper(struct call *call) { return ask_string(call, "isupper"); }

static struct value comparison(struct call *call, enum token_type op)
{
    return value_bool(operator_compare(call->render, op, call->self, call->arg[0]));
}

static struct value test_eq(struct call *call) { return comparison(call, TOKEN_EQUAL); }
static struct value test_ne(struct call *call) { return comparison(call, TOKEN_NOT_EQUAL); }
static struct value test_lt(struct call *call) { return comparison(call, TOKEN_LESS); }
static struct value test_le(struct call *call) { return comparison(call, TOKEN_LESS_EQUAL); }
static struct value test_gt(struct call *call) { return comparison(call, TOKEN_GREATER); }
static struct value test_ge(struct call *call) { return comparison(call, TOKEN_GREATER_EQUAL); }

const struct builtin *test_find(struct bytes name)
{
    static const struct builtin rows[] = {
        { "defined", test_defined, 0, "" },
        { "undefined", test_undefined, 0, "" },
        { "none", test_none, 0, "" },
        { "string", test_string, 0, "" },
        { "mapping", test_mapping, 0, "" },
        { "iterable", test_iterable, 0, "" },
        { "sequence", test_sequence, 0, "" },
        { "number", test_number, 0, "" },
        { "integer", test_integer, 0, "" },
        { "float", test_float, 0, "" },
        { "boolean", test_boolean, 0, "" },
        { "true", test_true, 0, "" },
        { "false", test_false, 0, "" },
        { "odd", test_odd, 0, "" },
        { "even", test_even, 0, "" },
        { "divisibleby", test_divisibleby, 1, "num" },
        { "lower", test_lower, 0, "" },
        { "upper", test_upper, 0, "" },
        { "callable", test_callable, 0, "" },
        { "sameas", test_sameas, 1, "other" },
        { "escaped", test_escaped, 0, "" },
        { "in", test_in, 1, "seq" },
        { "filter", test_filter, 0, "" },
        { "test", test_test, 0, "" },
        { "==", test_eq, 1, "/other" },
        { "eq", test_eq, 1, "/other" },
        { "equalto", test_eq, 1, "/other" },
        { "!=", test_ne, 1, "/other" },
        { "ne", test_ne, 1, "/other" },
        { "<", test_lt, 1, "/other" },
        { "lt", test_lt, 1, "/other" },
        { "lessthan", test_lt, 1, "/other" },
        { "<=", test_le, 1, "/other" },
        { "le", test_le, 1, "/other" },
        { ">", test_gt, 1, "/other" },
        { "gt", test_gt, 1, "/other" },
        { "greaterthan", test_gt, 1, "/other" },
        { ">=", test_ge, 1, "/other" },
        { "ge", test_ge, 1, "/other" },
    };
    return builtin_find(rows, sizeof rows / sizeof *rows, name);
}
