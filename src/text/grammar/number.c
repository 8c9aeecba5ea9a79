// SPDX-License-Identifier: Apache-2.0
// A bound becomes a pattern over digits, and a range the machine that accepts what both patterns and the shape of a
// number do.
#include "text/grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/grammar/pattern.h"

#define FRACTION "(?:\\.\\d+)?"

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

static int length(const char *text) { return (int)strlen(text); }

// How a number that differs from the bound first at digit i goes on: "12[4-9]\d{2}".
static void add_branch(struct strbuf *out, const char *digits, int i, char low, char high)
{
    if (low <= high)
        strbuf_add_format(out, "%.*s[%c-%c]", i, digits, low, high);
}

static void add_whole_branches(struct strbuf *out, const char *whole, bool larger)
{
    int count = length(whole);
    for (int i = 0; i < count; i++) {
        char low = larger ? (char)(whole[i] + 1) : !i && count > 1 ? '1' : '0';
        char high = larger ? '9' : (char)(whole[i] - 1);
        if (low > high)
            continue;
        strbuf_add_byte(out, '|');
        add_branch(out, whole, i, low, high);
        strbuf_add_format(out, "\\d{%d}" FRACTION, count - 1 - i);
    }
}

static void add_fraction_branches(struct strbuf *out, const struct decimal *bound, bool larger)
{
    for (int i = 0; i < length(bound->fraction); i++) {
        char low = larger ? (char)(bound->fraction[i] + 1) : '0';
        char high = larger ? '9' : (char)(bound->fraction[i] - 1);
        if (low > high)
            continue;
        strbuf_add_format(out, "|%s\\.", bound->whole);
        add_branch(out, bound->fraction, i, low, high);
        strbuf_add_text(out, "\\d*");
    }
}

static void at_least(struct strbuf *out, const struct decimal *bound, bool exclusive)
{
    const char *whole = bound->whole, *fraction = bound->fraction;
    strbuf_add_format(out, "^(?:[1-9]\\d{%d}\\d*" FRACTION, length(whole));
    add_whole_branches(out, whole, true);
    add_fraction_branches(out, bound, true);
    if (exclusive)
        strbuf_add_format(out, "|%s\\.%s\\d*[1-9]\\d*", whole, fraction);
    else if (*fraction)
        strbuf_add_format(out, "|%s\\.%s\\d*", whole, fraction);
    else
        strbuf_add_format(out, "|%s" FRACTION, whole);
    strbuf_add_text(out, ")$");
}

static void at_most(struct strbuf *out, const struct decimal *bound, bool exclusive)
{
    const char *whole = bound->whole, *fraction = bound->fraction;
    strbuf_add_text(out, "^(?:");
    if (length(whole) > 1)
        strbuf_add_format(out, "0" FRACTION "|[1-9]\\d{0,%d}" FRACTION, length(whole) - 2);
    add_whole_branches(out, whole, false);
    add_fraction_branches(out, bound, false);
    if (*fraction)
        strbuf_add_format(out, "|%s", whole);
    for (int i = 1; i < length(fraction); i++)
        strbuf_add_format(out, "|%s\\.%.*s", whole, i, fraction);
    if (!exclusive)
        strbuf_add_format(out, *fraction ? "|%s\\.%s0*" : "|%s%s(?:\\.0+)?", whole, fraction);
    strbuf_add_text(out, ")$");
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

// Digits, with a point among them or not, as a number modulo multiple->of: a state is the remainder of the digits so
// far, and its layer: 0 before the point, 1 + n behind n decimals. Class 0 is that of no way on.
enum { SYMBOLS = 11 }; // ten digits and the point

struct remainders {
    const struct number_multiple *multiple;
    uint32_t count;    // of states
    uint32_t *classes; // of the states: those of one class accept the same
};

// The state that a symbol leads to; UINT32_MAX: none.
static uint32_t next_state(const struct number_multiple *multiple, uint32_t state, uint32_t symbol)
{
    uint32_t layer = state / multiple->of, left = state % multiple->of;
    if (symbol == SYMBOLS - 1)
        return !layer && multiple->places ? multiple->of + left : UINT32_MAX;
    uint32_t behind = layer ? layer + 1 : 0;
    return behind <= multiple->places + 1 ? behind * multiple->of + (left * 10 + symbol) % multiple->of : UINT32_MAX;
}

static bool is_whole(const struct number_multiple *multiple, uint32_t state)
{
    uint32_t layer = state / multiple->of, left = state % multiple->of;
    for (uint32_t decimals = layer ? layer - 1 : 0; decimals < multiple->places; decimals++)
        left = left * 10 % multiple->of; // places that are not written are zeros
    return !left;
}

// Splits classes by where their states lead to (Moore's minimisation). How many there are then, class 0 included.
static uint32_t split_classes(struct remainders *remainders)
{
    uint32_t *finer = memory_new(remainders->count, sizeof *finer), found = 1;
    uint32_t (*keys)[SYMBOLS + 1] = memory_new(remainders->count, sizeof *keys);
    struct map known = { 0 };
    for (uint32_t i = 0; i < remainders->count; i++) {
        int64_t class = 0;
        keys[i][SYMBOLS] = remainders->classes[i];
        for (uint32_t symbol = 0; symbol < SYMBOLS; symbol++) {
            uint32_t next = next_state(remainders->multiple, i, symbol);
            keys[i][symbol] = next == UINT32_MAX ? 0 : remainders->classes[next];
        }
        struct bytes key = { (const char *)keys[i], sizeof keys[i] };
        if (!map_get(&known, key, &class))
            map_put(&known, key, class = found++);
        finer[i] = (uint32_t)class;
    }
    map_free(&known);
    free(keys);
    free(remainders->classes);
    remainders->classes = finer;
    return found;
}

// The classes as states of an automaton: what follows is that of any state of the class.
static void lay_out(struct nfa *nfa, const struct remainders *remainders, uint32_t class_count)
{
    uint32_t *states = memory_new(class_count, sizeof *states);
    bool *done = memory_new(class_count, sizeof *done);
    for (uint32_t class = 1; class < class_count; class++)
        states[class] = nfa_state(nfa);
    nfa_skip(nfa, NFA_START, states[remainders->classes[0]]);
    for (uint32_t i = 0; i < remainders->count; i++) {
        uint32_t class = remainders->classes[i];
        for (uint32_t symbol = 0; symbol < SYMBOLS && !done[class]; symbol++) {
            uint32_t next = next_state(remainders->multiple, i, symbol);
            uint8_t byte = symbol == SYMBOLS - 1 ? '.' : (uint8_t)('0' + symbol);
            if (next != UINT32_MAX)
                nfa_bytes(nfa, states[class], states[remainders->classes[next]], byte, byte);
        }
        if (!done[class] && is_whole(remainders->multiple, i))
            nfa_skip(nfa, states[class], NFA_END);
        done[class] = true;
    }
    free(done);
    free(states);
}

static bool multiple_machine(const struct number_multiple *multiple, size_t *work, struct machine *out)
{
    struct nfa nfa = { 0 };
    struct remainders remainders = { multiple, multiple->of * (multiple->places ? multiple->places + 2 : 1), NULL };
    uint32_t before = 0, count = 1;
    remainders.classes = memory_new(remainders.count, sizeof *remainders.classes);
    for (uint32_t i = 0; i < remainders.count; i++)
        remainders.classes[i] = is_whole(multiple, i) ? 2 : 1;
    for (; before != count; *work += remainders.count * SYMBOLS) {
        before = count;
        count = split_classes(&remainders);
    }
    lay_out(&nfa, &remainders, count);
    bool ok = machine_from_nfa(&nfa, work, out);
    nfa_free(&nfa);
    free(remainders.classes);
    return ok;
}

static bool keep_multiples(struct machine *machine, const struct number_multiple *multiple, size_t *work,
                           struct error *err)
{
    struct machine multiples = { 0 }, both = { 0 };
    bool ok = multiple_machine(multiple, work, &multiples) && machine_intersect(machine, &multiples, work, &both);
    machine_free(&multiples);
    machine_free(machine);
    *machine = both;
    return ok || fail(err, "'multipleOf' is too intricate beside the bounds");
}

// ---- ranges ----

// What all of the patterns accept, where it is a multiple (of 0: all of it).
static uint32_t machine_rule(struct grammar *grammar, const struct strbuf *patterns, size_t count,
                             const struct number_multiple *multiple, struct error *err)
{
    struct machine machine = { 0 };
    struct strbuf name = { 0 };
    uint32_t node = RULES_NONE;
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        strbuf_add_format(&name, "%s ", strbuf_text(&patterns[i]));
    if (multiple->of)
        strbuf_add_format(&name, "multiple of %ue-%u", multiple->of, multiple->places);
    if (!rules_known(grammar, name.data, &node)) {
        for (size_t i = 0; ok && i < count; i++)
            ok = pattern_compile(strbuf_bytes(&patterns[i]), PATTERN_BARE, i, &grammar->work, &machine, NULL, err);
        if (ok && multiple->of)
            ok = keep_multiples(&machine, multiple, &grammar->work, err);
        node = ok ? rules_machine(grammar, &machine, err) : RULES_NONE;
        if (node != RULES_NONE)
            rules_remember(grammar, name.data, node);
    }
    strbuf_free(&name);
    return node;
}

// The pattern of a bound, and at least as many digits as it has.
static bool write_bound(struct strbuf *out, const struct number_bound *bound, bool least, int *digits,
                        struct error *err)
{
    struct decimal decimal;
    if (!decimal_of(bound->value, &decimal))
        return fail(err, "a bound of %g cannot be enforced", bound->value);
    *digits = length(decimal.whole) > *digits ? length(decimal.whole) : *digits;
    if (least)
        at_least(out, &decimal, bound->exclusive);
    else
        at_most(out, &decimal, bound->exclusive);
    return true;
}

// The numbers without a sign between two bounds that are not negative.
static uint32_t unsigned_rule(struct grammar *grammar, const struct number_range *range, struct number_bound low,
                              struct number_bound high, struct error *err)
{
    enum { WHOLE_DIGITS = 9, MULTIPLE_DIGITS = 9 }; // where nothing bounds them
    static const double beyond = 1e15;              // all that is written
    struct strbuf patterns[3] = { 0 };              // the shape first
    size_t count = 1;
    bool integer = range->integer, bounded = high.present && high.value < beyond;
    int digits = bounded          ? 1
        : range->multiple.of      ? MULTIPLE_DIGITS
        : high.present || integer ? NUMBER_DIGITS_MAX
                                  : WHOLE_DIGITS;
    if (low.present && low.value >= beyond)
        return rules_choice(grammar, NULL, 0, err);
    bool ok = (!low.present || write_bound(&patterns[count++], &low, true, &digits, err))
        && (!bounded || write_bound(&patterns[count++], &high, false, &digits, err));
    strbuf_add_format(&patterns[0], "^(?:0|[1-9]\\d{0,%d})", digits - 1);
    if (!integer && digits < NUMBER_DIGITS_MAX)
        strbuf_add_format(&patterns[0], "(?:\\.\\d{1,%d})?", NUMBER_DIGITS_MAX - digits);
    strbuf_add_text(&patterns[0], "$");
    uint32_t node = ok ? machine_rule(grammar, patterns, count, &range->multiple, err) : RULES_NONE;
    for (size_t i = 0; i < count; i++)
        strbuf_free(&patterns[i]);
    return node;
}

static uint32_t any_number(struct grammar *grammar, bool integer, struct error *err)
{
    struct strbuf pattern = { 0 };
    strbuf_add_text(
        &pattern,
        integer ? "^(?:0|-?[1-9]\\d{0,14})$" : "^-?(?:0|[1-9]\\d{0,14})(?:\\.\\d{1,17})?(?:[eE][+-]?\\d{1,2})?$");
    uint32_t node = machine_rule(grammar, &pattern, 1, &(struct number_multiple){ 0 }, err);
    strbuf_free(&pattern);
    return node;
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
