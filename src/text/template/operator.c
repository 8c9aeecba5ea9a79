// SPDX-License-Identifier: Apache-2.0
// text/template/operator.c: binary and unary operators with Python's rules for numbers: / gives a float, // and % round
// towards minus infinity, and integers that outgrow 64 bits are an error (Python's have no limit).
#include <math.h>

#include "text/template/eval.h"
#include "text/template/unicode.h"

static struct value too_big(struct render *render) { return render_fail(render, "an integer outgrows 64 bits"); }

static struct value by_zero(struct render *render) { return render_fail(render, "division by zero"); }

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static double float_modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0)
        return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static double float_floor_divide(double a, double b)
{
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct value operate_ints(struct render *render, enum token_type op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case TOKEN_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case TOKEN_SUBTRACT: overflow = __builtin_sub_overflow(a, b, &result); break;
    case TOKEN_MULTIPLY: overflow = __builtin_mul_overflow(a, b, &result); break;
    default:
        if (b == 0)
            return by_zero(render);
        if (op == TOKEN_DIVIDE)
            return value_float((double)((long double)a / (long double)b));
        if (b == -1) // the one quotient that may overflow
            overflow = op == TOKEN_FLOOR_DIVIDE && __builtin_sub_overflow(0, a, &result);
        else
            result = op == TOKEN_FLOOR_DIVIDE ? floor_divide(a, b) : a - floor_divide(a, b) * b;
        break;
    }
    return overflow ? too_big(render) : value_int(result);
}

static struct value operate_floats(struct render *render, enum token_type op, double a, double b)
{
    switch (op) {
    case TOKEN_ADD: return value_float(a + b);
    case TOKEN_SUBTRACT: return value_float(a - b);
    case TOKEN_MULTIPLY: return value_float(a * b);
    default: break;
    }
    if (b == 0)
        return by_zero(render);
    if (op == TOKEN_DIVIDE)
        return value_float(a / b);
    return value_float(op == TOKEN_MODULO ? float_modulo(a, b) : float_floor_divide(a, b));
}

static struct value repeat_string(struct render *render, struct value value, int64_t times)
{
    size_t mark = text_mark(render);
    text_put_fill(render, value.string, times > 0 && value.string.len ? (size_t)times : 0);
    struct value result = text_take(render, mark);
    result.safe = value.safe;
    return result;
}

static struct value repeat_list(struct render *render, struct value value, int64_t times)
{
    struct list *list = list_new(render, 0);
    for (int64_t i = 0; i < times && value.list->count && render_step(render, 1); i++)
        for (size_t k = 0; k < value.list->count && !render->failed; k++)
            list_add(render, list, value.list->items[k]);
    return value.type == VALUE_LIST ? value_list(list) : value_tuple(list);
}

static struct value join_lists(struct render *render, struct value a, struct value b)
{
    struct list *list = list_new(render, a.list->count + b.list->count);
    for (size_t i = 0; i < a.list->count; i++)
        list_add(render, list, a.list->items[i]);
    for (size_t i = 0; i < b.list->count; i++)
        list_add(render, list, b.list->items[i]);
    return a.type == VALUE_LIST ? value_list(list) : value_tuple(list);
}

struct value operator_apply(struct render *render, enum token_type op, struct value left, struct value right)
{
    if (render->failed)
        return value_none();
    if (left.type == VALUE_STRING && op == TOKEN_MODULO)
        return render_fail(render, "'%%' does not format strings here; use ~ or format()");
    if (left.type == VALUE_UNDEFINED || right.type == VALUE_UNDEFINED)
        return render_fail_undefined(render, left.type == VALUE_UNDEFINED ? left : right);
    if (value_is_integral(left) && value_is_integral(right))
        return operate_ints(render, op, value_integer(left), value_integer(right));
    if (value_is_number(left) && value_is_number(right))
        return operate_floats(render, op, value_number(left), value_number(right));
    if (op == TOKEN_ADD && left.type == VALUE_STRING && right.type == VALUE_STRING)
        return string_concat(render, left, right);
    if (op == TOKEN_ADD && left.type == right.type && value_is_list(left))
        return join_lists(render, left, right);
    if (op == TOKEN_MULTIPLY && value_is_integral(left)) {
        struct value swap = left;
        left = right;
        right = swap;
    }
    if (op == TOKEN_MULTIPLY && value_is_integral(right) && left.type == VALUE_STRING)
        return repeat_string(render, left, value_integer(right));
    if (op == TOKEN_MULTIPLY && value_is_integral(right) && value_is_list(left))
        return repeat_list(render, left, value_integer(right));
    return render_fail(render, "'%s' does not work between %s and %s", token_name(op), value_kind(left),
                       value_kind(right));
}

struct value operator_sign(struct render *render, struct value value, bool negative)
{
    int64_t result;
    if (value_is_integral(value)) {
        if (!negative)
            return value_int(value_integer(value));
        return __builtin_sub_overflow(0, value_integer(value), &result) ? too_big(render) : value_int(result);
    }
    if (value.type == VALUE_FLOAT)
        return value_float(negative ? -value.number : value.number);
    if (value.type == VALUE_UNDEFINED)
        return render_fail_undefined(render, value);
    return render_fail(render, "a sign does not go with %s", value_kind(value));
}

bool operator_compare(struct render *render, enum token_type op, struct value left, struct value right)
{
    if (op == TOKEN_EQUAL || op == TOKEN_NOT_EQUAL)
        return value_equal(render, left, right) == (op == TOKEN_EQUAL);
    enum order order = value_order(render, left, right);
    switch (op) {
    case TOKEN_LESS: return order == ORDER_LESS;
    case TOKEN_GREATER: return order == ORDER_GREATER;
    case TOKEN_LESS_EQUAL: return order == ORDER_LESS || order == ORDER_EQUAL;
    default: return order == ORDER_GREATER || order == ORDER_EQUAL;
    }
}

static bool string_contains(struct render *render, struct bytes text, struct value part)
{
    if (part.type != VALUE_STRING)
        return render_fail(render, "only a string can be 'in' a string, not %s", value_kind(part)), false;
    render_step_bytes(render, text.len);
    return !part.string.len || memmem(text.data, text.len, part.string.data, part.string.len);
}

static bool dict_contains(struct render *render, struct dict *dict, struct value key)
{
    if (!value_is_hashable(render, key))
        return render_fail(render, "%s cannot be the key of a dict", value_kind(key)), false;
    return dict_find(render, dict, key);
}

bool operator_contains(struct render *render, struct value container, struct value item)
{
    if (container.type == VALUE_STRING)
        return string_contains(render, container.string, item);
    if (container.type == VALUE_DICT || (container.type == VALUE_VIEW && container.view == VIEW_KEYS))
        return dict_contains(render, container.dict, item);
    struct iterator *iterator = iterator_of(render, container);
    struct value other;
    while (iterator_next(render, iterator, &other))
        if (value_equal(render, other, item))
            return true;
    return false;
}
