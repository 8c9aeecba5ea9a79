// SPDX-License-Identifier: Apache-2.0
// text/template/number.c: numbers and texts in fields of a given width.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "text/template/format.h"
#include "text/template/print.h"
#include "text/template/unicode.h"

enum { NUMBER_BYTES_MAX = 1024 }; // 309 digits before the point, FORMAT_PRECISION_MAX behind it, and room

// `head` (sign and prefix) and `body` filled up to the width.
static void put_field(struct render *render, struct bytes head, struct bytes body, const struct format_spec *spec,
                      char align)
{
    size_t length = unicode_count(head) + unicode_count(body), width = (size_t)spec->width;
    size_t gap = width > length ? width - length : 0;
    size_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    text_put_fill(render, spec->fill, left);
    text_put(render, head);
    text_put_fill(render, spec->fill, align == '=' ? gap : 0);
    text_put(render, body);
    text_put_fill(render, spec->fill, align == '=' ? 0 : gap - left);
}

void format_text(struct render *render, struct bytes text, const struct format_spec *spec)
{
    if (spec->precision >= 0)
        text.len = unicode_offset(text, (size_t)spec->precision);
    put_field(render, bytes_of(""), text, spec, spec->align ? spec->align : '<');
}

static size_t int_digits(uint64_t magnitude, unsigned base, bool upper, char out[NUMBER_BYTES_MAX])
{
    char reversed[64];
    size_t count = 0;
    do
        reversed[count++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[magnitude % base];
    while (magnitude /= base);
    for (size_t i = 0; i < count; i++)
        out[i] = reversed[count - 1 - i];
    return count;
}

static size_t float_digits(struct render *render, double magnitude, const struct format_spec *spec,
                           char out[NUMBER_BYTES_MAX])
{
    char type = spec->type == 'n' ? 'g' : spec->type;
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    if (!type && spec->precision < 0) {
        size_t mark = text_mark(render);
        print_float(render, magnitude);
        struct bytes text = text_take(render, mark).string;
        memcpy(out, text.data, text.len);
        return text.len;
    }
    char format[] = "%#.*g";
    format[4] = type == '%' ? 'f' : type ? type : 'g';
    if (!spec->alternate)
        memmove(format + 1, format + 2, sizeof format - 2);
    if (type == '%')
        magnitude *= 100;
    int length = snprintf(out, NUMBER_BYTES_MAX, format, precision ? precision : !type, magnitude);
    if (!type && isfinite(magnitude) && !memchr(out, '.', (size_t)length) && !memchr(out, 'e', (size_t)length))
        length += snprintf(out + length, 3, ".0");
    if (type == '%')
        out[length++] = '%';
    return (size_t)length;
}

// Puts separators between groups of `size` digits of the whole part.
static size_t group_digits(char *digits, size_t length, char separator, size_t size)
{
    char grouped[NUMBER_BYTES_MAX];
    size_t whole = 0, used = 0;
    while (whole < length && strchr(size == 3 ? "0123456789" : "0123456789abcdefABCDEF", digits[whole]))
        whole++;
    for (size_t i = 0; i < length && used + 2 < sizeof grouped; i++) {
        if (i && i < whole && (whole - i) % size == 0)
            grouped[used++] = separator;
        grouped[used++] = digits[i];
    }
    memcpy(digits, grouped, used);
    return used;
}

static unsigned base_of(char type) { return type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10; }

void format_number(struct render *render, struct value value, const struct format_spec *spec)
{
    char digits[NUMBER_BYTES_MAX], head[4];
    size_t length, head_length = 0;
    bool negative, as_float = value.type == VALUE_FLOAT || (spec->type && strchr("eEfFgG%", spec->type));
    unsigned base = base_of(spec->type);
    render_step(render, RENDER_STEPS_PER_NUMBER);
    if (as_float) {
        double number = value_number(value);
        negative = signbit(number);
        length = float_digits(render, fabs(number), spec, digits);
    } else {
        int64_t number = value_integer(value);
        negative = number < 0;
        length = int_digits(negative ? 0 - (uint64_t)number : (uint64_t)number, base, spec->type == 'X', digits);
    }
    if (negative || spec->sign == '+' || spec->sign == ' ')
        head[head_length++] = negative ? '-' : spec->sign;
    if (!as_float && base != 10 && spec->alternate) {
        head[head_length++] = '0';
        head[head_length++] = spec->type;
    }
    if (spec->grouping && length < NUMBER_BYTES_MAX / 2)
        length = group_digits(digits, length, spec->grouping, base == 10 ? 3 : 4);
    put_field(render, (struct bytes){ head, head_length }, (struct bytes){ digits, length }, spec,
              spec->align      ? spec->align
                  : spec->zero ? '='
                               : '>');
}
