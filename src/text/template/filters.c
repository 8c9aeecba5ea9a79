// SPDX-License-Identifier: Apache-2.0
// text/template/filters.c: Jinja filters of single values (numbers, default, tojson), and its tests (`x is defined`).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/template/environment.h"
#include "text/template/eval.h"
#include "text/template/print.h"

struct value filter_abs(struct call *call)
{
    struct value value = call->self;
    if (value.type == VALUE_FLOAT)
        return value_float(fabs(value.number));
    if (!value_is_integral(value))
        return render_fail_kind(call->render, "abs takes a number", value);
    return operator_sign(call->render, value, value_integer(value) < 0);
}

struct value filter_default(struct call *call)
{
    bool empty_too = call_truth(call, 1, false);
    if (call->self.type != VALUE_UNDEFINED && (!empty_too || value_truth(call->render, call->self)))
        return call->self;
    return value_given(call->arg[0]) ? call->arg[0] : value_text("");
}

struct value filter_length(struct call *call)
{
    size_t length;
    if (!value_length(call->render, call->self, &length))
        return render_fail(call->render, "%s has no length", value_kind(call->self));
    return value_int((int64_t)length);
}

static struct value int_of_float(struct call *call, double number, struct value otherwise, bool from_text)
{
    if (isnan(number) || (isinf(number) && from_text))
        return otherwise;
    if (!(number > -0x1p63 && number < 0x1p63))
        return render_fail(call->render, "an integer outgrows 64 bits");
    return value_int((int64_t)number);
}

struct value filter_int(struct call *call)
{
    struct value self = call->self, otherwise = value_given(call->arg[0]) ? call->arg[0] : value_int(0);
    int64_t integer;
    bool too_big;
    double number;
    if (value_is_integral(self))
        return value_int(value_integer(self));
    if (self.type == VALUE_FLOAT)
        return int_of_float(call, self.number, otherwise, false);
    if (self.type == VALUE_UNDEFINED)
        return render_fail_undefined(call->render, self);
    if (self.type != VALUE_STRING)
        return otherwise;
    render_step_characters(call->render, self.string.len);
    if (string_to_int(self.string, &integer, &too_big))
        return too_big ? render_fail(call->render, "an integer outgrows 64 bits") : value_int(integer);
    return string_to_float(self.string, &number) ? int_of_float(call, number, otherwise, true) : otherwise;
}

struct value filter_float(struct call *call)
{
    struct value self = call->self, otherwise = value_given(call->arg[0]) ? call->arg[0] : value_float(0);
    double number;
    if (value_is_number(self))
        return value_float(value_number(self));
    if (self.type == VALUE_UNDEFINED)
        return render_fail_undefined(call->render, self);
    if (self.type != VALUE_STRING)
        return otherwise;
    render_step_characters(call->render, self.string.len);
    return string_to_float(self.string, &number) ? value_float(number) : otherwise;
}

// To a multiple of 10^-digits, halves to the even one.
static struct value round_int(struct render *render, int64_t number, int64_t digits)
{
    int64_t unit = 1;
    for (int64_t i = 0; i > digits; i--)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return value_int(0);
    int64_t rest = number % unit, down = number - rest, half = unit / 2;
    int64_t distance = rest < 0 ? -rest : rest;
    bool up = distance > half || (distance == half && unit > 1 && (down / unit) % 2 != 0);
    if (up && __builtin_add_overflow(down, rest < 0 ? -unit : unit, &down))
        return render_fail(render, "an integer outgrows 64 bits");
    return value_int(down);
}

static double round_float(double number, int64_t digits)
{
    enum { DIGITS_MAX = 323, WHOLE_DIGITS_MAX = 308 };
    char text[2 * DIGITS_MAX];
    if (!isfinite(number) || digits > DIGITS_MAX)
        return number;
    if (digits < -WHOLE_DIGITS_MAX)
        return copysign(0, number);
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return nearbyint(number / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, number); // exact, halves to even, as Python rounds
    return strtod(text, NULL);
}

struct value filter_round(struct call *call)
{
    struct render *render = call->render;
    struct value self = call->self;
    int64_t digits = call_int(call, 0, 0);
    render_step(render, RENDER_STEPS_PER_NUMBER);
    struct bytes method = call_string(call, 1, "common");
    bool ceil_it = bytes_equal(method, bytes_of("ceil")), floor_it = bytes_equal(method, bytes_of("floor"));
    if (!ceil_it && !floor_it && !bytes_equal(method, bytes_of("common")))
        return render_fail(render, "round takes the method common, ceil or floor");
    if (!value_is_number(self))
        return render_fail_kind(render, "round takes a number", self);
    if (!ceil_it && !floor_it) {
        if (self.type == VALUE_FLOAT)
            return value_float(round_float(self.number, digits));
        return round_int(render, value_integer(self), digits);
    }
    double unit = pow(10, (double)digits), scaled = value_number(self) * unit;
    if (!isfinite(scaled) || unit == 0)
        return render_fail(render, "a float grows too large");
    return value_float((ceil_it ? ceil(scaled) : floor(scaled)) / unit);
}

// The two strings of `separators`.
static void json_separators(struct call *call, struct json_style *style)
{
    struct value pair = call->arg[2];
    bool two = value_is_list(pair) && pair.list->count == 2;
    if (!two || pair.list->items[0].type != VALUE_STRING || pair.list->items[1].type != VALUE_STRING) {
        render_fail(call->render, "tojson takes two strings as separators");
        return;
    }
    style->item_end = pair.list->items[0].string;
    style->key_end = pair.list->items[1].string;
}

struct value filter_tojson(struct call *call)
{
    struct render *render = call->render;
    struct json_style style = {
        .ascii = call_truth(call, 0, false),
        .sorted = call_truth(call, 3, false),
        .indented = call_has(call, 1),
        .item_end = bytes_of(call_has(call, 1) ? "," : ", "),
        .key_end = bytes_of(": "),
    };
    size_t mark = text_mark(render);
    if (style.indented && call->arg[1].type == VALUE_STRING) {
        style.indent = call->arg[1].string;
    } else if (style.indented) {
        int64_t width = call_int(call, 1, 0);
        text_put_fill(render, bytes_of(" "), width > 0 ? (size_t)width : 0);
        style.indent = text_take(render, mark).string;
    }
    if (call_has(call, 2))
        json_separators(call, &style);
    print_json(render, call->self, &style);
    return text_take(render, mark);
}

// ---- tests ----

static bool remainder_is(struct call *call, struct value divisor, int64_t wanted)
{
    struct value rest = operator_apply(call->render, TOKEN_MODULO, call->self, divisor);
    return value_equal(call->render, rest, value_int(wanted));
}

struct value test_parity(struct call *call) { return value_bool(remainder_is(call, value_int(2), call->what)); }
struct value test_divisibleby(struct call *call) { return value_bool(remainder_is(call, call->arg[0], 0)); }
struct value test_type(struct call *call) { return value_bool(call->self.type == call->what); }
struct value test_defined(struct call *call) { return value_bool(call->self.type != VALUE_UNDEFINED); }
struct value test_truth(struct call *call) { return value_bool(value_same(call->self, value_bool(call->what))); }
struct value test_number(struct call *call) { return value_bool(value_is_number(call->self)); }
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

struct value test_compare(struct call *call)
{
    return value_bool(operator_compare(call->render, (enum token_type)call->what, call->self, call->arg[0]));
}
