// SPDX-License-Identifier: Apache-2.0
// Number ranges and multiples as automata: a state says how far a number has been read and how it compares with the
// bounds, digit by digit.
#include "text/grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/grammar/pattern.h"

// A number without its sign, as it is written.
struct decimal {
    char whole[NUMBER_DIGITS_MAX + 2];
    char fraction[64];
};

// False: too long to be written out.
static bool decimal_of(double value, struct decimal *out)
{
    char text[40], digits[24];
    int precision = NUMBER_DIGITS_MAX;
    value = fabs(value); // -0.0 has a sign, too
    snprintf(text, sizeof text, "%.*e", precision - 1, value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.*e", (precision = 17) - 1, value);
    int point = atoi(strchr(text, 'e') + 1) + 1; // digits before the decimal point
    if (value == 0)
        point = 1;
    if (point > NUMBER_DIGITS_MAX || point < -NUMBER_PLACES_MAX)
        return false;
    snprintf(digits, sizeof digits, "%c%.*s", text[0], precision - 1, text + 2);
    for (size_t len = strlen(digits); len > 1 && digits[len - 1] == '0'; len--)
        digits[len - 1] = '\0';
    int have = (int)strlen(digits), before = have < point ? have : point;
    if (point <= 0) {
        snprintf(out->whole, sizeof out->whole, "0");
        snprintf(out->fraction, sizeof out->fraction, "%.*s%s", -point, "00000000000000000000", digits);
        return true;
    }
    snprintf(out->whole, sizeof out->whole, "%.*s%.*s", before, digits, point - before, "000000000000000");
    snprintf(out->fraction, sizeof out->fraction, "%s", digits + before);
    return true;
}

// ---- ranges ----

// The numbers without a sign that have at most so many digits and places, between two bounds.
struct range {
    int digits, places;
    bool has_low, has_high, low_exclusive, high_exclusive;
    struct decimal low, high;
};

// A number read so far. `low` and `high` compare its digits with those of the bound: -1 less, 0 equal, 1 greater.
struct reading {
    uint8_t digits, places;
    bool zero, point;
    int8_t low, high;
};

// The comparison with a bound once all whole digits are known.
static int8_t order_of_whole(const struct reading *at, const struct decimal *bound, int8_t order)
{
    int length = (int)strlen(bound->whole);
    return at->digits < length ? -1 : at->digits > length ? 1 : order;
}

static int8_t order_with_digit(const struct reading *at, const struct decimal *bound, int8_t order, uint8_t digit)
{
    const char *digits = at->point ? bound->fraction : bound->whole;
    size_t index = at->point ? at->places : at->digits;
    char due = index < strlen(digits) ? digits[index] : '0';
    return order ? order : (int8_t)((digit > due) - (digit < due));
}

// -1, 0 or 1: the number as it stands is less than the bound, equal to it, or greater.
static int8_t order_of_number(const struct reading *at, const struct decimal *bound, int8_t order)
{
    if (!at->point)
        order = order_of_whole(at, bound, order);
    return !order && at->places < strlen(bound->fraction) ? -1 : order;
}

static bool range_accepts(const void *context, const void *state)
{
    const struct range *range = context;
    const struct reading *at = state;
    int8_t low = range->has_low ? order_of_number(at, &range->low, at->low) : 1;
    int8_t high = range->has_high ? order_of_number(at, &range->high, at->high) : -1;
    return at->digits && (!at->point || at->places) && low >= range->low_exclusive && high <= -range->high_exclusive;
}

static bool range_step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct range *range = context;
    struct reading at = *(const struct reading *)state;
    bool point = byte == '.' && !at.point && at.digits && range->places;
    bool digit = byte >= '0' && byte <= '9' && (at.point ? at.places < range->places : at.digits < range->digits);
    if (point) {
        at.low = range->has_low ? order_of_whole(&at, &range->low, at.low) : 0;
        at.high = range->has_high ? order_of_whole(&at, &range->high, at.high) : 0;
        at.point = true;
    } else if (digit && (at.point || !at.zero)) {
        at.low = range->has_low ? order_with_digit(&at, &range->low, at.low, byte) : 0;
        at.high = range->has_high ? order_with_digit(&at, &range->high, at.high, byte) : 0;
        at.zero |= !at.digits && byte == '0';
        at.places += at.point;
        at.digits += !at.point;
    } else {
        return false;
    }
    memcpy(next, &at, sizeof at);
    return true;
}

// ---- multiples ----

// mantissa * 10^exponent, the mantissa without zeros at its end.
struct scaled {
    int64_t mantissa;
    int exponent;
};

static struct scaled scaled_of(const json_t *number)
{
    struct scaled scaled = { json_integer_value(number), 0 };
    if (json_is_real(number)) {
        char text[40], digits[24];
        for (int precision = NUMBER_DIGITS_MAX; precision <= 17; precision++) {
            snprintf(text, sizeof text, "%.*e", precision - 1, json_real_value(number));
            if (strtod(text, NULL) == json_real_value(number))
                break;
        }
        const char *point = strchr(text, '.'), *e = strchr(text, 'e');
        snprintf(digits, sizeof digits, "%.*s%.*s", (int)(point - text), text, (int)(e - point - 1), point + 1);
        scaled = (struct scaled){ strtoll(digits, NULL, 10), atoi(e + 1) - (int)(e - point - 1) };
    }
    for (; scaled.mantissa && scaled.mantissa % 10 == 0; scaled.exponent++)
        scaled.mantissa /= 10;
    return scaled;
}

bool number_is_multiple(const json_t *number, const json_t *of)
{
    struct scaled a = scaled_of(number), b = scaled_of(of);
    unsigned __int128 rest = (uint64_t)(a.mantissa < 0 ? -a.mantissa : a.mantissa) % (uint64_t)b.mantissa;
    if (!a.mantissa)
        return true;
    if (a.exponent < b.exponent) // both without zeros at the end: only a power of ten in b could make up for it
        return false;
    for (int i = b.exponent; i < a.exponent && rest; i++)
        rest = rest * 10 % (uint64_t)b.mantissa;
    return rest == 0;
}

bool number_read_multiple(const json_t *of, struct number_multiple *out)
{
    struct scaled scaled = scaled_of(of);
    for (; scaled.exponent > 0 && scaled.mantissa <= NUMBER_MULTIPLE_MAX; scaled.exponent--)
        scaled.mantissa *= 10;
    if (scaled.exponent > 0 || -scaled.exponent > NUMBER_PLACES_MAX
        || scaled.mantissa * (2 - scaled.exponent) > NUMBER_MULTIPLE_MAX)
        return false;
    *out = (struct number_multiple){ (uint32_t)scaled.mantissa, (uint32_t)-scaled.exponent };
    return true;
}

// Digits, with a point among them or not, modulo multiple->of.
struct remainder {
    uint16_t left;
    uint16_t layer; // 0 before the point, 1 + n behind n decimals
};

static bool multiple_accepts(const void *context, const void *state)
{
    const struct number_multiple *multiple = context;
    const struct remainder *at = state;
    uint32_t left = at->left;
    for (uint32_t decimals = at->layer ? at->layer - 1u : 0; decimals < multiple->places; decimals++)
        left = left * 10 % multiple->of; // places that are not written are zeros
    return !left;
}

static bool multiple_step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct number_multiple *multiple = context;
    struct remainder at = *(const struct remainder *)state;
    bool point = byte == '.' && !at.layer && multiple->places;
    if (!point && (byte < '0' || byte > '9'))
        return false;
    at.layer += point || at.layer;
    at.left = point ? at.left : (uint16_t)((at.left * 10 + (byte - '0')) % multiple->of);
    memcpy(next, &at, sizeof at);
    return at.layer <= multiple->places + 1;
}

// Keeps the numbers that are multiples.
static bool keep_multiples(struct dfa *dfa, const struct number_multiple *multiple, size_t *work, struct error *err)
{
    struct dfa multiples = { 0 }, both = { 0 };
    struct dfa_source source = { multiple, sizeof(struct remainder), multiple_accepts, multiple_step };
    bool ok = dfa_build(&source, &(struct remainder){ 0 }, work, &multiples);
    if (ok)
        dfa_minimise(&multiples, work);
    ok = ok && dfa_intersect(dfa, &multiples, work, &both);
    dfa_free(&multiples);
    dfa_free(dfa);
    *dfa = both;
    return ok || fail(err, "'multipleOf' is too intricate beside the bounds");
}

// ---- rules ----

static uint32_t range_rule(struct grammar *grammar, const struct range *range, const struct number_multiple *multiple,
                           struct error *err)
{
    struct dfa_source source = { range, sizeof(struct reading), range_accepts, range_step };
    struct strbuf name = { 0 };
    struct dfa dfa = { 0 };
    uint32_t node;
    strbuf_add_format(&name, "number %d.%d", range->digits, range->places);
    if (range->has_low)
        strbuf_add_format(&name, " >%d %s.%s", !range->low_exclusive, range->low.whole, range->low.fraction);
    if (range->has_high)
        strbuf_add_format(&name, " <%d %s.%s", !range->high_exclusive, range->high.whole, range->high.fraction);
    if (multiple->of)
        strbuf_add_format(&name, " multiple of %ue-%u", multiple->of, multiple->places);
    if (!rules_find(grammar, name.data, &node)) {
        bool ok = dfa_build(&source, &(struct reading){ 0 }, &grammar->work, &dfa)
            || fail(err, "the bounds of a number are too intricate");
        if (ok)
            dfa_minimise(&dfa, &grammar->work);
        if (ok && multiple->of)
            ok = keep_multiples(&dfa, multiple, &grammar->work, err);
        node = rules_name(grammar, name.data, ok ? rules_dfa(grammar, &dfa, err) : RULES_NONE);
    }
    strbuf_free(&name);
    return node;
}

static bool read_bound(const struct number_bound *bound, struct decimal *out, int *digits, struct error *err)
{
    if (!decimal_of(bound->value, out))
        return fail(err, "a bound of %g cannot be enforced", bound->value);
    int length = (int)strlen(out->whole);
    *digits = length > *digits ? length : *digits;
    return true;
}

// The numbers without a sign between two bounds that are not negative.
static uint32_t unsigned_rule(struct grammar *grammar, const struct number_range *range, struct number_bound low,
                              struct number_bound high, struct error *err)
{
    enum { WHOLE_DIGITS = 9, MULTIPLE_DIGITS = 9 }; // of numbers without a bound
    static const double beyond = 1e15;              // more than is ever written
    bool bounded = high.present && high.value < beyond;
    struct range unsigned_range = {
        .has_low = low.present, .has_high = bounded, .low_exclusive = low.exclusive, .high_exclusive = high.exclusive
    };
    int digits = bounded                 ? 1
        : range->multiple.of             ? MULTIPLE_DIGITS
        : high.present || range->integer ? NUMBER_DIGITS_MAX
                                         : WHOLE_DIGITS;
    if (low.present && low.value >= beyond)
        return rules_choice(grammar, NULL, 0, err);
    if ((low.present && !read_bound(&low, &unsigned_range.low, &digits, err))
        || (bounded && !read_bound(&high, &unsigned_range.high, &digits, err)))
        return RULES_NONE;
    unsigned_range.digits = digits;
    unsigned_range.places = range->integer ? 0 : NUMBER_DIGITS_MAX - digits;
    return range_rule(grammar, &unsigned_range, &range->multiple, err);
}

static uint32_t any_number(struct grammar *grammar, bool integer, struct error *err)
{
    const char *pattern = integer ? "0|-?[1-9]\\d{0,14}"
                                  : "-?(?:0|[1-9]\\d{0,14})(?:\\.\\d{1,17})?(?:[eE][+-]?\\d{1,2})?";
    struct dfa dfa = { 0 };
    uint32_t node;
    if (rules_find(grammar, pattern, &node))
        return node;
    bool ok = pattern_compile(bytes_of(pattern), PATTERN_WHOLE, false, &grammar->work, &dfa, NULL, err);
    return rules_name(grammar, pattern, ok ? rules_dfa(grammar, &dfa, err) : RULES_NONE);
}

uint32_t number_rule(struct grammar *grammar, const struct number_range *range, struct error *err)
{
    struct number_bound low = range->low, high = range->high, none = { 0 };
    uint32_t signs[2];
    size_t count = 0;
    if (!low.present && !high.present && !range->multiple.of)
        return any_number(grammar, range->integer, err);
    if (!high.present || high.value >= 0) {
        bool above_zero = low.present && (low.value > 0 || (low.value == 0 && low.exclusive));
        signs[count++] = unsigned_rule(grammar, range, above_zero ? low : none, high, err);
    }
    if (!low.present || low.value < 0) {
        struct number_bound nearest = { true, high.exclusive, -high.value }, zero = { true, true, 0 };
        struct number_bound farthest = { low.present, low.exclusive, -low.value };
        nearest = high.present && high.value < 0 ? nearest : zero;
        signs[count++] = rules_sequence(grammar, rules_literal(grammar, bytes_of("-"), err),
                                        unsigned_rule(grammar, range, nearest, farthest, err), err);
    }
    return rules_choice(grammar, signs, count, err);
}
